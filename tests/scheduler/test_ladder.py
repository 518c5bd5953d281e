"""What is asked for after memory was not enough: one rung higher, as far as there are any."""

import pytest

from scheduler.ladder import more_memory, more_vram

SIZES = (24_000, 24_000, 48_000, 80_000)

VRAM = [
    ("shared: the next size above what it asked for", 10_000, True, 24_000, 24_000),
    ("exclusive: it had the whole GPU already", 10_000, False, 24_000, 48_000),
    ("any whole GPU: above the one that it had", None, False, 24_000, 48_000),
    ("shared, with exactly a size", 24_000, True, 24_000, 48_000),
    ("one below the largest", 48_000, False, 48_000, 80_000),
]


@pytest.mark.parametrize(
    ("asked", "is_shared", "had", "expected"),
    [row[1:] for row in VRAM],
    ids=[row[0] for row in VRAM],
)
def test_more_vram(asked: int | None, is_shared: bool, had: int, expected: int) -> None:
    rung = more_vram(asked, is_shared=is_shared, had_mb=had, sizes_mb=SIZES)
    assert rung.changes == {"min_vram_mb": expected}
    assert f"{expected:,} MiB" in rung.text


def test_the_largest_shared_is_followed_by_the_largest_alone() -> None:
    rung = more_vram(80_000, is_shared=True, had_mb=80_000, sizes_mb=SIZES)
    assert rung.changes == {"share": False}


@pytest.mark.parametrize("sizes", [SIZES, ()])
def test_above_the_largest_alone_there_is_nothing(sizes: tuple[int, ...]) -> None:
    rung = more_vram(80_000, is_shared=False, had_mb=80_000, sizes_mb=sizes)
    assert rung.changes == {}
    assert "80,000 MiB, which was not enough" in rung.text


MEMORY = [
    ("twice as much", 4_000, (64_000, 128_000), 8_000),
    ("no more than the largest node has", 100_000, (64_000, 128_000), 128_000),
    ("nothing was asked for", None, (64_000,), 32_768),
]


@pytest.mark.parametrize(
    ("given", "nodes", "expected"),
    [row[1:] for row in MEMORY],
    ids=[row[0] for row in MEMORY],
)
def test_more_memory(given: int | None, nodes: tuple[int, ...], expected: int) -> None:
    assert more_memory(given, nodes).changes == {"memory_mb": expected}


@pytest.mark.parametrize("nodes", [(64_000,), ()])
def test_no_node_has_more(nodes: tuple[int, ...]) -> None:
    rung = more_memory(64_000, nodes)
    assert rung.changes == {}
    assert "No node has more than 64,000 MiB" in rung.text
