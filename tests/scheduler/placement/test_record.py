"""A pass as text: read back it decides the same."""

import json

import pytest
from hypothesis import given

from scheduler.placement import Lane, Snapshot, plan
from scheduler.placement.record import differences, digest, dump, load, outcome
from tests.scheduler.placement.builders import asks, busy, cluster, gpu, lane
from tests.scheduler.placement.test_properties import clusters, lines


@given(clusters(), lines())
def test_what_was_written_decides_the_same(
    snapshot: Snapshot, lanes: list[Lane]
) -> None:
    made = plan(snapshot, lanes)
    text = dump(snapshot, lanes, made)
    read, read_lanes = load(text)
    assert read == snapshot
    again = plan(read, read_lanes)
    assert json.dumps(outcome(again)) == json.dumps(outcome(made))
    assert dump(read, read_lanes, again) == text


def test_a_long_lane_is_cut_and_counted() -> None:
    jobs = lane(asks(), *(f"j{i}" for i in range(1000)))
    snapshot = cluster(gpu(0), gpu(1))
    text = dump(snapshot, [jobs], plan(snapshot, [jobs]))
    (read,) = load(text)[1]
    assert (len(read.jobs), read.waiting) == (13, 1000)


def test_the_hash_is_of_every_input() -> None:
    jobs = [lane(asks(), "a")]
    one, other = cluster(gpu(0)), cluster(gpu(0, foreign_mb=1))
    texts = {dump(snapshot, jobs, plan(snapshot, jobs)) for snapshot in (one, other)}
    assert len({digest(text) for text in texts}) == 2


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 0"):
        load('{"version": 0}')


def test_what_came_out_differently_is_told_job_by_job() -> None:
    snapshot = cluster(gpu(0))
    was = outcome(plan(snapshot, [lane(asks(), "a")]))
    held = cluster(gpu(0, holdings=busy()))
    now = outcome(plan(held, [lane(asks(), "a")]))
    told = list(differences(was, now))
    assert [text.split(":")[0] for text in told] == [
        "placed a",
        "waits a",
        "reserved a",
    ]
    assert list(differences(was, was)) == []
