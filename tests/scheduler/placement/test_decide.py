"""Whether and where one request is placed, by tables. Each row carries the sentence
that explains it."""

from dataclasses import replace

import pytest

from jobs.status import WaitReason
from scheduler.placement import (
    Node,
    Placement,
    Request,
    Snapshot,
    Taken,
    Wait,
    decide,
    fits_ever,
)
from scheduler.placement.passing import Walk
from scheduler.placement.why import explain_lines
from tests.scheduler.placement.builders import GB, asks, busy, cluster, gpu, holds

PLACED = [
    (
        "an exclusive job takes the smallest sufficient GPU",
        cluster(gpu(0, 48), gpu(1, 24)),
        asks(gb=20),
        {1},
    ),
    (
        "with no VRAM named, an exclusive job takes any whole GPU",
        cluster(gpu(0, 24), gpu(1, 8)),
        asks(),
        {1},
    ),
    (
        "a shared job packs onto the GPU with least room that is enough",
        cluster(gpu(0), gpu(1, holdings=(holds(10),)), gpu(2, holdings=(holds(20),))),
        asks(gb=8, share=True),
        {1},
    ),
    (
        "a shared job that fills the GPU to the last MiB fits",
        cluster(gpu(0, holdings=(holds(10),))),
        asks(gb=14, share=True),
        {0},
    ),
    (
        "two GPUs come from one node, though each node has one smaller one",
        cluster(gpu(0, 8, "a"), gpu(1, 48, "a"), gpu(2, 8, "b")),
        asks(2),
        {0, 1},
    ),
    (
        "among nodes, the one that is left with least over is taken",
        cluster(gpu(0, 48, "a"), gpu(1, 24, "b")),
        asks(gb=12),
        {1},
    ),
    (
        "foreign use below the tolerance, a desktop session, does not disturb",
        cluster(gpu(0, foreign_mb=300)),
        asks(gb=20),
        {0},
    ),
    (
        "foreign use of just what is put up with does not disturb",
        cluster(gpu(0, foreign_mb=512)),
        asks(),
        {0},
    ),
    (
        "of two that leave as much over, the one with the lower index is taken",
        cluster(gpu(5, index=1), gpu(7, index=0)),
        asks(),
        {7},
    ),
    (
        "a shared job fits beside foreign use where the VRAM is enough",
        cluster(gpu(0, foreign_mb=10 * GB)),
        asks(gb=12, share=True),
        {0},
    ),
    (
        "a GPU name pattern chooses, whatever the case of its letters",
        cluster(gpu(0, 8), gpu(1, 48, name="NVIDIA RTX A6000")),
        asks(gb=4, gpu_name="*a6000*"),
        {1},
    ),
    (
        "a GPU of which nothing is usable is passed over, whatever is asked",
        cluster(gpu(0, headroom_mb=24 * GB), gpu(1, 48)),
        asks(),
        {1},
    ),
    (
        "a GPU that is draining is passed over",
        cluster(gpu(0, state="draining"), gpu(1, 48)),
        asks(),
        {1},
    ),
    (
        "a node that has the image is taken, though another fits better",
        cluster(
            gpu(0, 24, "a"),
            gpu(1, 48, "b"),
            a=Node(name="a"),
            b=Node(name="b", images=frozenset({"x:1"})),
        ),
        asks(gb=20, image="x:1"),
        {1},
    ),
]


@pytest.mark.parametrize(
    ("snapshot", "request_", "chosen"),
    [row[1:] for row in PLACED],
    ids=[row[0] for row in PLACED],
)
def test_it_is_placed(snapshot: Snapshot, request_: Request, chosen: set[int]) -> None:
    decision = decide(snapshot, request_)
    assert isinstance(decision, Placement)
    assert {gpu.id for gpu in decision.gpus} == chosen


WAITS = [
    (
        "a GPU is held, and its holder is named",
        cluster(gpu(0, holdings=busy())),
        asks(),
        WaitReason.RESOURCES,
        "gauss GPU 0: an exclusive job holds all 24,576 MiB of it.",
    ),
    (
        "an exclusive job does not go beside a shared one",
        cluster(gpu(0, holdings=(holds(1),))),
        asks(),
        WaitReason.RESOURCES,
        "a shared job holds 1,024 MiB of it",
    ),
    (
        "a shared job does not go beside an exclusive one",
        cluster(gpu(0, holdings=busy())),
        asks(gb=1, share=True),
        WaitReason.RESOURCES,
        "an exclusive job holds all 24,576 MiB of it",
    ),
    (
        "a job that measured more than it promised counts with what it uses",
        cluster(gpu(0, holdings=(holds(4, measured_gb=12),))),
        asks(gb=16, share=True),
        WaitReason.RESOURCES,
        "12,288 MiB are free",
    ),
    (
        "a job that has not allocated yet counts with its promise",
        cluster(gpu(0, holdings=(holds(12, measured_gb=0),))),
        asks(gb=16, share=True),
        WaitReason.RESOURCES,
        "12,288 MiB are free",
    ),
    (
        "one MiB too much waits",
        cluster(gpu(0, holdings=(holds(10),))),
        replace(asks(gb=14, share=True), min_vram_mb=14 * GB + 1),
        WaitReason.RESOURCES,
        "14,336 MiB are free",
    ),
    (
        "a GPU filled by a process started by hand is not used",
        cluster(gpu(0, foreign_mb=20 * GB)),
        asks(gb=22),
        WaitReason.FOREIGN_USE,
        "20,480 MiB are used by processes outside GPU Jobs",
    ),
    (
        "a 1 GB job, 20 GB foreign and a request of 22 GB: it waits, with figures",
        cluster(gpu(0, 24, foreign_mb=20 * GB, holdings=(holds(1),))),
        asks(gb=22, share=True),
        WaitReason.FOREIGN_USE,
        "gauss GPU 0: 20,480 MiB are used by processes outside GPU Jobs",
    ),
    (
        "the driver's reserve and the operator's headroom are not usable",
        cluster(
            gpu(0, reserved_mb=600, headroom_mb=1000), gpu(1, 48, state="draining")
        ),
        asks(gb=23),
        WaitReason.DRAINING,
        "only 22,976 MiB are usable",
    ),
    (
        "two GPUs on two nodes are not two GPUs on one node",
        cluster(gpu(0, node="a"), gpu(1, node="b"), gpu(2, node="b", is_present=False)),
        asks(2),
        WaitReason.DRAINING,
        "b GPU 2: the driver does not list it",
    ),
    (
        "every GPU is in quarantine",
        cluster(gpu(0, state="quarantined", state_reason="fell off the bus")),
        asks(),
        WaitReason.DRAINING,
        "gauss GPU 0: it is quarantined: fell off the bus.",
    ),
    (
        "one is held and the other draining",
        cluster(gpu(0, holdings=busy()), gpu(1, state="draining")),
        asks(2),
        WaitReason.DRAINING,
        "What would is out of service.",
    ),
    (
        "foreign use of one MiB more than is put up with",
        cluster(gpu(0, foreign_mb=513)),
        asks(),
        WaitReason.FOREIGN_USE,
        "513 MiB are used by processes outside",
    ),
    (
        "no node is up",
        cluster(gpu(0), gauss=Node(name="gauss", state="down")),
        asks(),
        WaitReason.NODE_DOWN,
        "no node is up",
    ),
    (
        "the image is still being pulled",
        cluster(gpu(0)),
        asks(image="x:1"),
        WaitReason.IMAGE_PULL,
        "does not have the image yet",
    ),
    (
        "the last pull of its image failed, and why",
        cluster(
            gpu(0),
            gauss=Node(name="gauss", pulls={"x:1": "connection refused"}),
        ),
        asks(image="x:1"),
        WaitReason.IMAGE_PULL,
        "does not have the image yet: connection refused.",
    ),
    (
        "hardware shrank below what was accepted",
        cluster(gpu(0, 8)),
        asks(gb=16),
        WaitReason.NEVER_FITS,
        "the largest GPU has 8,192 MiB usable",
    ),
]


@pytest.mark.parametrize(
    ("snapshot", "request_", "reason", "text"),
    [row[1:] for row in WAITS],
    ids=[row[0] for row in WAITS],
)
def test_it_waits_with_a_reason_and_numbers(
    snapshot: Snapshot, request_: Request, reason: WaitReason, text: str
) -> None:
    decision = decide(snapshot, request_)
    assert isinstance(decision, Wait)
    assert decision.reason == reason
    assert text in decision.text


def test_the_missing_mib_of_each_gpu_are_told() -> None:
    snapshot = cluster(gpu(0, holdings=(holds(20),)), gpu(1, 8))
    walk = Walk(snapshot, [], reservations=0)
    lines = explain_lines(walk.board, asks(gb=10, share=True))
    assert [(line.blocked_by, line.missing_mb) for line in lines] == [
        ("vram", 6 * GB),
        ("too_small", 2 * GB),
    ]


def test_a_gpu_that_would_do_says_so() -> None:
    walk = Walk(cluster(gpu(0), gpu(1, state="quarantined")), [], reservations=0)
    lines = explain_lines(walk.board, asks())
    assert [line.blocked_by for line in lines] == ["", "quarantined"]
    assert lines[0].text == "it would do"


def test_an_exclusive_job_reserves_all_that_is_usable() -> None:
    decision = decide(cluster(gpu(0, reserved_mb=500)), asks(gb=2))
    assert isinstance(decision, Placement)
    assert decision.vram_mb == (24 * GB - 500,)


class TestJobsWithoutAGpu:
    def test_any_node_that_is_up_will_do(self) -> None:
        decision = decide(cluster(gpu(0)), asks(0))
        assert isinstance(decision, Placement)
        assert (decision.node, decision.gpus) == ("gauss", ())

    def test_they_wait_when_every_cpu_is_taken(self) -> None:
        full = Node(name="gauss", cpus=1, taken=(Taken(millicpus=1000),))
        decision = decide(cluster(gpu(0), gauss=full), asks(0))
        assert isinstance(decision, Wait)
        assert decision.reason == WaitReason.RESOURCES

    def test_they_wait_for_their_image(self) -> None:
        decision = decide(cluster(gpu(0)), asks(0, image="x:1"))
        assert isinstance(decision, Wait)
        assert decision.reason == WaitReason.IMAGE_PULL

    def test_they_wait_for_a_node(self) -> None:
        down = cluster(gpu(0), gauss=Node(name="gauss", state="down"))
        decision = decide(down, asks(0))
        assert isinstance(decision, Wait)
        assert decision.reason == WaitReason.NODE_DOWN


NEVER = [
    ("too many GPUs", asks(3), "one node has at most 2,"),
    ("more VRAM than the largest GPU has", asks(gb=49), "49,152 MiB usable"),
    (
        "two GPUs of which only one is that large",
        asks(2, gb=40),
        "one node has at most 1,",
    ),
    (
        "a GPU name that no GPU has",
        asks(gpu_name="*H100*"),
        "No GPU here is named *H100*. There are: NVIDIA GeForce RTX 3090.",
    ),
    ("more CPUs than a node has", asks(cpus=9), "node gauss has 8 CPUs"),
    (
        "a node that is not there",
        asks(node_name="nix"),
        "There is no node nix. There are: gauss.",
    ),
    (
        "more memory than a node has, with no GPU",
        asks(0, memory_mb=65 * GB),
        "node gauss has 65,536 MiB of memory",
    ),
]


@pytest.mark.parametrize(
    ("request_", "text"), [r[1:] for r in NEVER], ids=[r[0] for r in NEVER]
)
def test_what_can_never_fit_is_refused_with_numbers(
    request_: Request, text: str
) -> None:
    two_sizes = cluster(
        gpu(0, 24),
        gpu(1, 48, holdings=busy(48)),
        gauss=Node(name="gauss", cpus=8, memory_mb=64 * GB),
    )
    assert text in fits_ever(two_sizes, request_)


def test_what_is_only_busy_or_draining_can_fit() -> None:
    taken = cluster(gpu(0, state="draining", holdings=busy()))
    assert fits_ever(taken, asks(gb=24)) == ""


def test_nothing_is_refused_before_a_node_has_joined() -> None:
    assert fits_ever(Snapshot(nodes={}, gpus={}), asks(8)) == ""


@pytest.mark.parametrize(
    ("state", "refusal"), [("joining", ""), ("up", "No node here has a GPU")]
)
def test_nor_before_it_has_told_which_gpus_it_has(state: str, refusal: str) -> None:
    told = fits_ever(cluster(gauss=Node(name="gauss", state=state)), asks(1))
    assert told[: len("No node here has a GPU")] == refusal


def test_what_is_known_of_a_node_that_joins_again_is_not_forgotten() -> None:
    again = cluster(gpu(0), gauss=Node(name="gauss", state="joining"))
    assert "one node has at most 1" in fits_ever(again, asks(2))
