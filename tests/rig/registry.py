"""A registry on loopback that serves one image, refuses, or stalls when it is told to.

Docker speaks plain HTTP with a registry in 127.0.0.0/8. This one knows the part of
the protocol (version 2) that a pull needs: manifests by tag and digest, and blobs.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.rig.image import root_file_system

REPOSITORY = "lab/train"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PATIENCE_S = 60.0
# Docker tells how far a pull is at most every 100 ms: a blob that stops at once after
# its first bytes is told of as having none.
PAUSE_S = 0.3


def layer_of(name: str, content: bytes) -> bytes:
    """A layer with one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def digest_of(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


class Registry:
    """Every change is seen by the next request."""

    def __init__(self, port: int, layers: Sequence[bytes]) -> None:
        self.port = port
        self.blobs: dict[str, bytes] = {}
        self.manifest = self._make(layers)
        # What is answered instead of a manifest: status, code and message.
        self.refusal: tuple[int, str, str] | None = None
        # While it is closed a blob stops halfway.
        self.gate = threading.Event()
        self.gate.set()

    def image(self, tag: str = "1") -> str:
        return f"127.0.0.1:{self.port}/{REPOSITORY}:{tag}"

    @property
    def by_digest(self) -> str:
        return f"127.0.0.1:{self.port}/{REPOSITORY}@{digest_of(self.manifest)}"

    @property
    def layer_bytes(self) -> int:
        return sum(layer["size"] for layer in json.loads(self.manifest)["layers"])

    def refuse(self, status: int, code: str, message: str) -> None:
        self.refusal = (status, code, message)

    def _make(self, layers: Sequence[bytes]) -> bytes:
        config = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {},
            "rootfs": {
                "type": "layers",
                "diff_ids": [digest_of(one) for one in layers],
            },
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._keep(CONFIG, json.dumps(config).encode()),
            "layers": [self._keep(LAYER, gzip.compress(one, 1)) for one in layers],
        }
        return json.dumps(manifest).encode()

    def _keep(self, media_type: str, blob: bytes) -> dict[str, Any]:
        self.blobs[digest_of(blob)] = blob
        return {"mediaType": media_type, "size": len(blob), "digest": digest_of(blob)}


@contextmanager
def running_registry(*extra: bytes) -> Iterator[Registry]:
    """It serves busybox under the tag 1, with layers of `extra` content above it."""
    # At the bottom, so that a daemon has no layer of an earlier image.
    files = [layer_of("id", os.urandom(16)), root_file_system()]
    files += [layer_of(f"file{n}", content) for n, content in enumerate(extra)]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    registry = Registry(server.server_address[1], files)
    server.registry = registry  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield registry
    finally:
        registry.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def registry(self) -> Registry:
        found: Registry = self.server.registry  # type: ignore[attr-defined]
        return found

    def do_GET(self) -> None:
        # Docker hangs up when it has heard enough, or has no room for more.
        with suppress(ConnectionError):
            self._serve()

    do_HEAD = do_GET

    def _serve(self) -> None:
        _, _, name = self.path.rpartition("/")
        if self.path == "/v2/":
            self._answer(200, "application/json", b"{}")
        elif self.path.startswith(f"/v2/{REPOSITORY}/manifests/"):
            self._manifest(name)
        elif name in self.registry.blobs:
            self._blob(self.registry.blobs[name])
        else:
            self._error(404, "NAME_UNKNOWN", "repository name not known to registry")

    def _manifest(self, reference: str) -> None:
        registry = self.registry
        if registry.refusal:
            self._error(*registry.refusal)
        elif reference in ("1", digest_of(registry.manifest)):
            self._answer(200, MANIFEST, registry.manifest)
        else:
            self._error(404, "MANIFEST_UNKNOWN", "manifest unknown")

    def _blob(self, blob: bytes) -> None:
        half = len(blob) // 2
        self._head(200, "application/octet-stream", len(blob))
        self.wfile.write(blob[: half // 2])
        if not self.registry.gate.is_set():
            time.sleep(PAUSE_S)
        self.wfile.write(blob[half // 2 : half])
        self.registry.gate.wait(PATIENCE_S)
        self.wfile.write(blob[half:])

    def _error(self, status: int, code: str, message: str) -> None:
        told = {"errors": [{"code": code, "message": message, "detail": None}]}
        self._answer(status, "application/json", json.dumps(told).encode())

    def _answer(self, status: int, media_type: str, body: bytes) -> None:
        self._head(status, media_type, len(body), digest_of(body))
        if self.command == "GET":
            self.wfile.write(body)

    def _head(self, status: int, kind: str, size: int, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="lab"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """A test's output is the test's."""
