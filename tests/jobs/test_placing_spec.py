from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone as clock

from jobs import spec
from jobs.hostpolicy import HostPolicy
from jobs.spec import Parent
from jobs.status import Condition

ONE = "0b6f7f7e-3f62-4c53-9d0e-0d6f3f9f8a11"
OTHER = "1b6f7f7e-3f62-4c53-9d0e-0d6f3f9f8a11"


def refusal(check: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        check(value)
    assert caught.value.code is not None
    return caught.value.code


# --- Labels --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"zone": "lab"},
        {"gpu.vendor/name": "NVIDIA-A100_80"},
        {"a" * 63: "b" * 63},
        {str(number): "1" for number in range(20)},
    ],
)
def test_labels_are_taken(labels: dict[str, str]) -> None:
    spec.check_labels(labels)


@pytest.mark.parametrize(
    ("labels", "code", "what"),
    [
        (None, "bad_labels", "null"),
        ("zone=lab", "bad_labels", "a string"),
        ([["zone", "lab"]], "bad_labels", "a list"),
        ({str(n): "1" for n in range(21)}, "too_many_labels", "21 labels"),
        ({"": "lab"}, "bad_label", "an empty name"),
        ({"zone": ""}, "bad_label", "an empty value"),
        ({"zone": None}, "bad_label", "null as value"),
        ({"zone": 1}, "bad_label", "a number as value"),
        ({"zone": True}, "bad_label", "a boolean as value"),
        ({"zone": ["lab"]}, "bad_label", "a list as value"),
        ({"zone": {"a": "b"}}, "bad_label", "an object as value"),
        ({"a" * 64: "lab"}, "bad_label", "a name of 64 characters"),
        ({"zone": "b" * 100_000}, "bad_label", "a huge value"),
        ({"zone": "the lab"}, "bad_label", "a space"),
        ({"zone": "lab\n"}, "bad_label", "a newline"),
        ({"zone\x00": "lab"}, "bad_label", "a NUL"),
        ({"zone": "l\u00e4b"}, "bad_label", "a letter with dots"),
        ({"zone": "\u0661"}, "bad_label", "an Arabic digit"),
        ({"zone": "\ud800"}, "bad_label", "half a surrogate pair"),
        ({"a=b": "lab"}, "bad_label", "an equals sign"),
    ],
)
def test_what_are_no_labels_is_refused(labels: Any, code: str, what: str) -> None:
    assert refusal(spec.check_labels, labels) == code, what


# --- Begin ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begin_at",
    [
        clock.now(),
        clock.now() - timedelta(days=3650),
        clock.now() + timedelta(days=365),
        datetime(1970, 1, 1, tzinfo=UTC),
    ],
)
def test_a_time_that_is_past_or_within_a_year_is_taken(begin_at: datetime) -> None:
    spec.check_begin(begin_at)


@pytest.mark.parametrize(
    ("begin_at", "code"),
    [
        (clock.now() + timedelta(days=367), "max_value"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), "max_value"),
        (datetime(1969, 12, 31, tzinfo=UTC), "min_value"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), "min_value"),
    ],
)
def test_a_time_that_is_far_away_is_refused(begin_at: datetime, code: str) -> None:
    assert refusal(spec.check_begin, begin_at) == code


# --- Other jobs ----------------------------------------------------------------------


def test_a_job_id_alone_means_after_its_success() -> None:
    asked = [
        ONE,
        {"job_id": OTHER.upper(), "condition": "after_any"},
    ]
    assert spec.clean_parents(asked) == [
        Parent(UUID(ONE), Condition.AFTER_OK),
        Parent(UUID(OTHER), Condition.AFTER_ANY),
    ]
    assert spec.clean_parents([{"job_id": ONE}]) == [Parent(UUID(ONE))]
    assert spec.clean_parents([]) == []


@pytest.mark.parametrize(
    ("asked", "code", "what"),
    [
        (None, "bad_depends_on", "null"),
        (ONE, "bad_depends_on", "a string"),
        ({"job_id": ONE}, "bad_depends_on", "an object"),
        ([None], "bad_depends_on", "null in it"),
        ([1], "bad_depends_on", "a number in it"),
        ([[ONE]], "bad_depends_on", "a list in it"),
        ([{}], "bad_depends_on", "an empty object"),
        ([{"condition": "after_ok"}], "bad_depends_on", "a condition of nothing"),
        ([{"job_id": ONE, "id": 1}], "bad_depends_on", "an unknown name"),
        ([{"job_id": ONE, "condition": "after"}], "bad_depends_on", "another word"),
        ([{"job_id": ONE, "condition": None}], "bad_depends_on", "null as condition"),
        ([{"job_id": ONE, "condition": ["after_ok"]}], "bad_depends_on", "a list"),
        ([""], "bad_job_id", "an empty id"),
        ([" " + ONE], "bad_job_id", "a space in front"),
        ([ONE + "\n"], "bad_job_id", "a newline behind"),
        (["{" + ONE + "}"], "bad_job_id", "braces"),
        ([ONE.replace("-", "")], "bad_job_id", "no dashes"),
        (["urn:uuid:" + ONE], "bad_job_id", "a URN"),
        ([ONE[:-1]], "bad_job_id", "too short"),
        ([ONE[:-1] + "\u0661"], "bad_job_id", "an Arabic digit"),
        (["x" * 100_000], "bad_job_id", "a huge text"),
        (["\x00"], "bad_job_id", "a NUL"),
        ([{"job_id": 5}], "bad_job_id", "a number as id"),
        ([{"job_id": None}], "bad_job_id", "null as id"),
        ([ONE, ONE], "doubled_parent", "one twice"),
        ([ONE, ONE.upper()], "doubled_parent", "one in two writings"),
        (
            [ONE, {"job_id": ONE, "condition": "after_any"}],
            "doubled_parent",
            "one in two ways",
        ),
        ([ONE] * 101, "too_many_parents", "101"),
    ],
)
def test_what_is_no_list_of_jobs_is_refused(asked: Any, code: str, what: str) -> None:
    assert refusal(spec.clean_parents, asked) == code, what


def test_a_large_array_waits_for_few_jobs() -> None:
    parents = [Parent(UUID(int=number)) for number in range(11)]
    asked = {"image": "busybox", "array": "0-999", "depends_on": parents}
    with pytest.raises(ValidationError) as caught:
        spec.check(asked, HostPolicy())
    [error] = caught.value.error_dict["depends_on"]
    assert error.code == "too_many_parents"
    assert "at most 10 jobs" in str(error.message)
    spec.check({**asked, "depends_on": parents[:10]}, HostPolicy())
    spec.check({**asked, "array": ""}, HostPolicy())


# --- Memory --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory_mb", "shm_mb"), [(None, 64), (64, None), (64, 64), (None, None)]
)
def test_shared_memory_within_memory_is_taken(
    memory_mb: int | None, shm_mb: int | None
) -> None:
    spec.check(
        {"image": "busybox", "memory_mb": memory_mb, "shm_mb": shm_mb}, HostPolicy()
    )


def test_shared_memory_over_memory_is_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        spec.check(
            {"image": "busybox", "memory_mb": 1024, "shm_mb": 1025}, HostPolicy()
        )
    [error] = caught.value.error_dict["shm_mb"]
    assert error.code == "shm_over_memory"
    assert "Shared memory counts in memory" in str(error.message)
    assert "1,024 MiB" in str(error.message)
