"""Which processes that Docker forgot are ours, and when they are ended."""

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from scheduler.runner.base import ContainerState, Observation, Stray
from scheduler.strays import OurStray, ours, to_end

WORK = PurePosixPath("/srv/gpujobs/run/work")
ID = "a" * 64
STRAY = Stray(container_id=ID, processes=((7, "1@boot"), (8, "2@boot")))


def mounting(*sources: str) -> Stray:
    return replace(STRAY, mounts=sources)


def own(name: str) -> list[str]:
    return [f"{WORK}/{name}/{folder}" for folder in ("artifacts", "scratch")]


WHOSE = [
    ("its id is in our rows", STRAY, {ID: "gpujob-x-1"}, "gpujob-x-1"),
    ("another id is in our rows", STRAY, {"b" * 64: "gpujob-x-1"}, None),
    ("it mounts what only we mount", mounting(*own("gpujob-x-1")), {}, "gpujob-x-1"),
    (
        "it mounts a volume besides",
        mounting("/data", *own("gpujob-x-1")),
        {},
        "gpujob-x-1",
    ),
    ("it mounts nothing", STRAY, {}, None),
    ("it mounts somebody's folder", mounting("/data", "/home/ada"), {}, None),
    ("it mounts the whole work folder, to watch it", mounting(str(WORK)), {}, None),
    ("it mounts one of the two", mounting(own("gpujob-x-1")[0]), {}, None),
    (
        "it mounts one of this and one of that",
        mounting(own("gpujob-x-1")[0], own("gpujob-y-1")[1]),
        {},
        None,
    ),
    (
        "it mounts those of two, as none of ours does",
        mounting(*own("gpujob-x-1"), *own("gpujob-y-1")),
        {},
        None,
    ),
    (
        "it mounts the same names of another installation",
        mounting("/other/work/gpujob-x-1/artifacts", "/other/work/gpujob-x-1/scratch"),
        {},
        None,
    ),
    (
        "it mounts a folder inside them",
        mounting(*(f"{path}/deeper" for path in own("gpujob-x-1"))),
        {},
        None,
    ),
]


@pytest.mark.parametrize(
    ("stray", "names", "whose"), [row[1:] for row in WHOSE], ids=[r[0] for r in WHOSE]
)
def test_whose_it_is(stray: Stray, names: dict[str, str], whose: str | None) -> None:
    found = ours([stray], work=WORK, names=names)
    assert [each.name for each in found] == ([whose] if whose else [])


OURS = OurStray(stray=STRAY, name="gpujob-x-1")
BOX = Observation(
    name="gpujob-x-1", nonce="n", container_id="b" * 64, state=ContainerState.RUNNING
)
LIVE = {"gpujob-x-1"}

WHEN = [
    ("seen for the first time it may be on its way out", set(), set(), [], False),
    ("seen twice, of an attempt that ended", {ID}, set(), [], True),
    ("its attempt is live, and others look into that", {ID}, LIVE, [], False),
    ("its attempt is live, in another container", {ID}, LIVE, [BOX], True),
    (
        "Docker knows it after all",
        {ID},
        set(),
        [replace(BOX, container_id=ID)],
        False,
    ),
]


@pytest.mark.parametrize(
    ("before", "live", "containers", "is_ended"),
    [row[1:] for row in WHEN],
    ids=[row[0] for row in WHEN],
)
def test_when_it_is_ended(
    before: set[str], live: set[str], containers: list[Observation], is_ended: bool
) -> None:
    found = to_end([OURS], before=before, live=live, containers=containers)
    assert found == ([OURS] if is_ended else [])
