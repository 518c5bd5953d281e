"""The root file system of the tests' image: busybox, and little else."""

import functools
import io
import subprocess
import tarfile

BUSYBOX = "/bin/busybox"
FOLDERS = ("bin", "dev", "proc", "sys", "tmp", "etc", "root")
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}


@functools.cache
def root_file_system() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in FOLDERS:
            tar.addfile(
                _entry(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755)
            )
        for name, text in FILES.items():
            entry = _entry(name, tarfile.REGTYPE, 0o644)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        tar.add(BUSYBOX, "bin/busybox", filter=_owned_by_root)
        for applet in _applets():
            link = _entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777)
            link.linkname = "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.mode = mode
    return entry


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    return entry


def _applets() -> list[str]:
    names = subprocess.check_output([BUSYBOX, "--list"], text=True).split()
    return [name for name in names if name != "busybox"]
