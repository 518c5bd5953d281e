"""The host's file: what it says, and what it may not say."""

import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from jobs.hostpolicy import (
    Declared,
    HostPolicy,
    HostPolicyError,
    host_policy,
    narrowed,
    parse,
    repository,
    said,
)

WHOLE = """
images = ["docker.io/pytorch/*", "registry.lab:5000/*"]
read_only = ["/srv/datasets"]
writable = ["/srv/projects"]
networks = ["none", "lab"]
allow_root = false
min_uid = 2000
min_gid = 2000
capabilities = ["IPC_LOCK"]
gpu_count = 4
cpus = 16.5
memory_mb = 64000
shm_mb = 8000
timeout_s = 86400

[volumes]
sets = "/srv/sets"
work = {path = "/srv/work", writable = true}
"""


def test_every_key_is_read() -> None:
    assert parse(WHOLE) == HostPolicy(
        images=("docker.io/pytorch/*", "registry.lab:5000/*"),
        read_only=(PurePosixPath("/srv/datasets"),),
        writable=(PurePosixPath("/srv/projects"),),
        networks=("none", "lab"),
        min_uid=2000,
        min_gid=2000,
        capabilities=("IPC_LOCK",),
        gpu_count=4,
        cpus=16.5,
        memory_mb=64000,
        shm_mb=8000,
        timeout_s=86400,
        volumes=(
            Declared(name="sets", path=PurePosixPath("/srv/sets")),
            Declared(name="work", path=PurePosixPath("/srv/work"), is_writable=True),
        ),
    )


@pytest.mark.parametrize(
    ("text", "told", "what"),
    [
        ("image = []", "there is no image. There are: ", "a mistyped key"),
        ("[limits]\ncpus = 1", "there is no limits", "a table"),
        ("images", "this is no TOML", "half a line"),
        ('images = "docker.io/*"', "a list of texts", "a text for a list"),
        ("images = [1]", "a list of texts", "a list of numbers"),
        ('images = [""]', "a list of texts", "an empty pattern"),
        ('read_only = ["srv"]', "no absolute path", "a relative root"),
        ('read_only = ["/srv/../etc"]', "no absolute path", "a way up"),
        ('writable = ["/"]', "the system's own files", "the root of all"),
        ('read_only = ["/etc/x"]', "the system's own files", "below /etc"),
        ('read_only = ["/var"]', "the system's own files", "around Docker's folder"),
        ('read_only = ["/var/run"]', "the system's own files", "where the sockets lie"),
        (
            'read_only = ["/proc/1/root"]',
            "the system's own files",
            "another way to all",
        ),
        ('volumes = ["sets"]', "is a table", "names without folders"),
        ('volumes = {Sets = "/srv"}', "is no name", "a name in capitals"),
        ('volumes = {"" = "/srv"}', "is no name", "no name"),
        ('volumes = {"a/b" = "/srv"}', "is no name", "a name like a path"),
        ('volumes = {a = "srv"}', "no absolute path", "a relative folder"),
        ('volumes = {a = "/etc"}', "the system's own files", "the system's folder"),
        ("volumes = {a = 1}", "write a =", "a number for a folder"),
        ("volumes = {a = {writable = true}}", "write a =", "no folder"),
        ('volumes = {a = {path = "/a", mode = "rw"}}', "write a =", "a mistyped word"),
        ('volumes = {a = {path = "/a", writable = 1}}', "true or false", "a number"),
        ('networks = ["host"]', "be the host to its network", "the host's network"),
        ('networks = ["container:x"]', "be the host", "another container's network"),
        ('capabilities = ["SYS_ADMIN"]', "SYS_ADMIN is not one of", "root by a name"),
        ('capabilities = ["ALL"]', "ALL is not one of", "all of them"),
        ("allow_root = 1", "true or false", "a number for a boolean"),
        ("min_uid = 0", "a number from 1 on", "root as the least"),
        ("min_uid = true", "a number from 1 on", "a boolean for a number"),
        ("cpus = -1", "0 or more", "a negative limit"),
        ("cpus = nan", "0 or more", "no number"),
        ("gpu_count = 1.5", "0 or more", "half a GPU"),
        ('memory_mb = "64G"', "0 or more", "a text for a number"),
    ],
)
def test_nothing_in_it_is_ignored(text: str, told: str, what: str) -> None:
    with pytest.raises(HostPolicyError) as caught:
        parse(text)
    assert told in str(caught.value), what


class TestTheFile:
    def test_without_one_the_strict_values_hold(self, tmp_path: Path) -> None:
        assert host_policy(tmp_path / "none.toml") == HostPolicy()

    def test_one_that_changed_is_read_anew(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.toml"
        path.write_text("min_uid = 1")
        assert host_policy(path).min_uid == 1
        path.write_text("min_uid = 22")
        os.utime(path, ns=(1, 1))
        assert host_policy(path).min_uid == 22

    @pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
    def test_one_that_others_may_write_is_not_believed(
        self, tmp_path: Path, mode: int
    ) -> None:
        path = tmp_path / "policy.toml"
        path.write_text("")
        path.chmod(mode)
        with pytest.raises(HostPolicyError, match="nobody else may write it: chown"):
            host_policy(path)

    def test_nor_is_that_of_somebody_else(
        self, tmp_path: Path, monkeypatch: Any
    ) -> None:
        path = tmp_path / "policy.toml"
        path.write_text("")
        if os.geteuid() == 0:
            os.chown(path, 12345, 0)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(HostPolicyError, match="must be root's"):
            host_policy(path)

    def test_an_error_names_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.toml"
        path.write_text("x = 1")
        with pytest.raises(HostPolicyError, match=rf"{path}: there is no x"):
            host_policy(path)

    def test_no_text_at_all_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.toml"
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(HostPolicyError, match="can not be read"):
            host_policy(path)

    def test_a_folder_in_its_place_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(HostPolicyError, match="can not be read"):
            host_policy(tmp_path)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1", "docker.io/library/busybox"),
        ("busybox:1@sha256:" + "a" * 64, "docker.io/library/busybox"),
        ("pytorch/pytorch:2", "docker.io/pytorch/pytorch"),
        ("docker.io/pytorch/pytorch", "docker.io/pytorch/pytorch"),
        ("nvcr.io/nvidia/pytorch:26.01-py3", "nvcr.io/nvidia/pytorch"),
        ("localhost/x", "localhost/x"),
        ("localhost:5000/x:y", "localhost:5000/x"),
        ("169.254.169.254/x:y", "169.254.169.254/x"),
        ("lab:5000/x", "lab:5000/x"),
    ],
)
def test_a_short_name_is_completed_as_docker_does(image: str, name: str) -> None:
    assert repository(image) == name


class TestStrict:
    """T13, and more: what holds where nobody said anything."""

    strict = HostPolicy()

    @pytest.mark.parametrize(
        "image", ["busybox:1", "pytorch/pytorch", "nvcr.io/nvidia/cuda", "ghcr.io/a/b"]
    )
    def test_public_registries_may_be_pulled_from(self, image: str) -> None:
        assert self.strict.refusal_of_image(image) == ""

    @pytest.mark.parametrize(
        "image",
        [
            "localhost:5000/x",
            "127.0.0.1/x",
            "169.254.169.254/latest:y",
            "10.0.0.1:80/x",
            "registry.internal/x",
            "docker.io.evil.example/x",
            "evil.example/docker.io/x",
        ],
    )
    def test_a_pull_reaches_nothing_else(self, image: str) -> None:
        told = self.strict.refusal_of_image(image)
        assert "not among the images that may run here. Allowed: docker.io/*" in told

    def test_nothing_is_mounted(self) -> None:
        told = self.strict.refusal_of_volume("/home", "ro")
        assert told.endswith("The operator of this site allows none.")

    @pytest.mark.parametrize(("uid", "gid"), [(0, 0), (0, 1000), (1000, 0)])
    def test_nobody_is_root(self, uid: int, gid: int) -> None:
        assert self.strict.refusal_of_user(uid, gid) == "No job may run as root here."

    def test_nor_one_of_the_systems_own(self) -> None:
        assert "from 1000:100 on" in self.strict.refusal_of_user(33, 1000)
        assert "from 1000:100 on" in self.strict.refusal_of_user(1000, 33)
        assert self.strict.refusal_of_user(1000, 100) == ""

    def test_a_network_that_was_not_named_is_refused(self) -> None:
        assert self.strict.refusal_of_network("bridge") == ""
        assert "Allowed: none, bridge" in self.strict.refusal_of_network("lab")


class TestAsDeclared:
    declared = parse(WHOLE)

    @pytest.mark.parametrize(
        ("source", "mode", "is_allowed", "what"),
        [
            ("/srv/datasets", "ro", True, "a root itself"),
            ("/srv/datasets/a", "ro", True, "a folder under it"),
            ("/srv/projects/a", "ro", True, "one that might be written, to be read"),
            ("/srv/projects/a", "rw", True, "one that may be written"),
            ("/srv/datasets/a", "rw", False, "one that may only be read"),
            ("/srv/datasets2", "ro", False, "a name that a root begins"),
            ("/srv", "ro", False, "the parent of a root"),
            ("/etc", "ro", False, "a path under no root"),
            ("/var/run/docker.sock", "ro", False, "Docker's socket"),
        ],
    )
    def test_a_volume(
        self, source: str, mode: str, is_allowed: bool, what: str
    ) -> None:
        refusal = self.declared.refusal_of_volume(source, mode)
        assert (refusal == "") is is_allowed, what

    @pytest.mark.parametrize(
        ("name", "mode", "told"),
        [
            ("sets", "ro", ""),
            ("sets", "rw", "The volume sets is read-only"),
            ("work", "ro", ""),
            ("work", "rw", ""),
            ("none", "ro", "There is no volume none here. There are: sets, work."),
        ],
    )
    def test_a_volume_by_its_name(self, name: str, mode: str, told: str) -> None:
        refusal = self.declared.refusal_of_volume(name, mode)
        assert refusal.startswith(told) if told else refusal == ""

    def test_its_folder_is_allowed_by_its_name_alone(self) -> None:
        assert self.declared.refusal_of_volume("/srv/sets", "ro")

    def test_the_refusal_names_the_roots(self) -> None:
        told = self.declared.refusal_of_volume("/etc", "ro")
        assert "Allowed are paths under /srv/datasets, /srv/projects." in told
        told = self.declared.refusal_of_volume("/srv/datasets", "rw")
        assert "to be written to. Allowed are paths under /srv/projects." in told

    @pytest.mark.parametrize(
        ("name", "most"),
        [
            ("gpu_count", 4),
            ("cpus", 16.5),
            ("memory_mb", 64000),
            ("shm_mb", 8000),
            ("timeout_s", 86400),
        ],
    )
    def test_a_limit_holds_to_the_last_one(self, name: str, most: float) -> None:
        assert self.declared.refusal_of_size(name, most) == ""
        assert f"At most {most:,}" in self.declared.refusal_of_size(name, most + 1)
        assert self.declared.refusal_of_size(name, None) == ""

    def test_where_root_is_allowed_a_job_may_be_root(self) -> None:
        assert parse("allow_root = true").refusal_of_user(0, 0) == ""


class TestNarrowed:
    """What the site's row says: never more than the host."""

    host = parse(WHOLE)

    def with_row(self, text: str) -> HostPolicy:
        return narrowed(self.host, said(text))

    def test_a_row_that_says_nothing_changes_nothing(self) -> None:
        assert self.with_row("") == self.host

    @pytest.mark.parametrize(
        ("text", "name", "value"),
        [
            ("gpu_count = 2", "gpu_count", 2),
            ("gpu_count = 8", "gpu_count", 4),
            ("cpus = 1", "cpus", 1),
            ("timeout_s = 60", "timeout_s", 60),
            ("min_uid = 3000", "min_uid", 3000),
            ("min_uid = 1", "min_uid", 2000),
            ("allow_root = true", "allow_root", False),
            ('networks = ["none", "bridge"]', "networks", ("none",)),
            ("networks = []", "networks", ()),
            ('capabilities = ["SYS_NICE"]', "capabilities", ()),
            ('capabilities = ["IPC_LOCK", "KILL"]', "capabilities", ("IPC_LOCK",)),
            ("read_only = []", "read_only", ()),
            ('writable = ["/srv"]', "writable", (PurePosixPath("/srv/projects"),)),
            (
                'writable = ["/srv/projects/a", "/home"]',
                "writable",
                (PurePosixPath("/srv/projects/a"),),
            ),
        ],
    )
    def test_it_is_the_less_of_the_two(self, text: str, name: str, value: Any) -> None:
        assert getattr(self.with_row(text), name) == value

    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("volumes = {}", {}),
            ('volumes = {sets = "/elsewhere", more = "/srv/x"}', {"sets": False}),
            ('volumes = {work = "/srv/work"}', {"work": False}),
            ('volumes = {work = {path = "/x", writable = true}}', {"work": True}),
            ('volumes = {sets = {path = "/x", writable = true}}', {"sets": False}),
        ],
    )
    def test_a_volume_stays_where_the_host_has_it(
        self, text: str, left: dict[str, bool]
    ) -> None:
        found = self.with_row(text).volumes
        assert {each.name: each.is_writable for each in found} == left
        assert all(str(each.path) == f"/srv/{each.name}" for each in found)

    @pytest.mark.parametrize(
        ("image", "is_allowed", "what"),
        [
            ("pytorch/pytorch", True, "in both lists"),
            ("pytorch/other", False, "in the host's alone"),
            ("nvcr.io/nvidia/cuda", False, "in the row's alone"),
        ],
    )
    def test_an_image_is_in_both_lists(
        self, image: str, is_allowed: bool, what: str
    ) -> None:
        policy = self.with_row('images = ["docker.io/*/pytorch", "nvcr.io/*"]')
        assert (policy.refusal_of_image(image) == "") is is_allowed, what

    def test_where_the_host_has_no_limit_the_rows_holds(self) -> None:
        assert narrowed(HostPolicy(), said("memory_mb = 512")).memory_mb == 512
