from typing import Any

import pytest

from jobs.forms import SubmitForm
from jobs.models import User
from tests.factories import IMAGE

pytestmark = pytest.mark.django_db

PLAIN = {
    "image": IMAGE,
    "gpu_count": "1",
    "timeout_s": "1h",
    "grace_s": "10s",
    "priority": "50",
}


def filled(user: User, **values: Any) -> SubmitForm:
    form = SubmitForm({**PLAIN, **values}, user=user)
    form.is_valid()
    return form


def test_an_image_is_enough(alice: User) -> None:
    spec = filled(alice).cleaned_data["spec"]
    assert spec["name"] == "pytorch"
    assert (spec["command"], spec["env"], spec["volumes"]) == (None, {}, [])
    assert (spec["gpu_count"], spec["min_vram_mb"], spec["share"]) == (1, None, False)
    assert (spec["timeout_s"], spec["grace_s"], spec["priority"]) == (3600, 10, 50)


@pytest.mark.parametrize(
    ("written", "mib"),
    [
        ("24G", 24576),
        ("24 GB", 24576),
        ("24gib", 24576),
        ("1.5G", 1536),
        ("24000", 24000),
        ("24000 MB", 24000),
        (" 500M ", 500),
        ("1T", 1024 * 1024),
        ("", None),
    ],
)
def test_sizes_as_people_write_them(alice: User, written: str, mib: int) -> None:
    assert filled(alice, min_vram_mb=written).cleaned_data["spec"]["min_vram_mb"] == mib


@pytest.mark.parametrize("written", ["lots", "24X", "-1", "1e3", "9" * 5000, "G"])
def test_a_size_that_is_none_tells_how_to_write_one(alice: User, written: str) -> None:
    assert "24G" in str(filled(alice, min_vram_mb=written).errors["min_vram_mb"])


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30", 30),
        ("90m", 5400),
        ("2h", 7200),
        ("1h 03m", 3780),
        ("8m 47s", 527),
        ("1:30:00", 5400),
        ("2d", 172800),
    ],
)
def test_times_as_people_write_them(alice: User, written: str, seconds: int) -> None:
    assert filled(alice, timeout_s=written).cleaned_data["spec"]["timeout_s"] == seconds


@pytest.mark.parametrize("written", ["soon", "1:30", "1h 30", "-5", "1.5h", "9" * 5000])
def test_a_time_that_could_be_misread_is_refused(alice: User, written: str) -> None:
    assert "1:30:00" in str(filled(alice, timeout_s=written).errors["timeout_s"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu_count", "65"),
        ("timeout_s", "31d"),
        ("timeout_s", "0"),
        ("min_vram_mb", "0"),
        ("memory_mb", "1M"),
        ("grace_s", "10m"),
        ("priority", "101"),
        ("cpus", "nan"),
        ("image", "Bad Image"),
        ("name", "two\nlines"),
        ("gpu_name", "x" * 101),
        ("env", "no sign"),
        ("env", "NVIDIA_VISIBLE_DEVICES=all"),
        ("volumes", "/etc:/data"),
        ("command", "nul\x00"),
    ],
)
def test_the_rules_are_those_of_the_api(alice: User, field: str, value: str) -> None:
    assert list(filled(alice, **{field: value}).errors) == [field]


def test_fields_that_do_not_go_together_are_refused_where_they_stand(
    alice: User,
) -> None:
    assert list(filled(alice, share="on").errors) == ["min_vram_mb"]
    assert list(filled(alice, gpu_count="0", min_vram_mb="1G").errors) == [
        "min_vram_mb"
    ]
    assert list(filled(alice, image="").errors) == ["image"]


def test_lines_become_env_and_volumes(alice: User, declare: Any) -> None:
    declare(writable=["/srv"])
    spec = filled(
        alice,
        env="A=1\r\n\r\nB=x=y ",
        volumes="/srv/in:/data\r\n/srv/out:/outputs:rw\r\n",
        command="echo 1\r\necho 2\r\n",
    ).cleaned_data["spec"]
    assert spec["env"] == {"A": "1", "B": "x=y "}
    assert spec["volumes"] == [
        {"source": "/srv/in", "target": "/data", "mode": "ro"},
        {"source": "/srv/out", "target": "/outputs", "mode": "rw"},
    ]
    assert spec["command"] == "echo 1\necho 2"


def test_priority_above_the_default_needs_a_permission(alice: User, olga: User) -> None:
    olga.is_superuser = True
    assert list(filled(alice, priority="51").errors) == ["priority"]
    assert filled(olga, priority="51").is_valid()


def test_the_key_holds_for_the_same_spec_only(alice: User) -> None:
    def once(**values: Any) -> str | None:
        return filled(alice, idempotency_key="k", **values).once

    assert once() == once()
    assert once() != once(command="other")
    assert filled(alice).once is None


def test_folds_open_where_something_was_filled_in(alice: User) -> None:
    shut = [fold.is_open for fold in filled(alice).folds()]
    touched = [fold.is_open for fold in filled(alice, env="broken").folds()]
    assert (shut, touched) == ([False] * 4, [False, False, False, True])
