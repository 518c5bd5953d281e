"""The record of a pass, and making it again."""

import json
import zlib
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from scheduler.models import GPU, DecisionRecord, GpuState
from scheduler.reservation import run_passes, wake
from tests.factories import make_job, make_user
from tests.scheduler.factories import GB

pytestmark = pytest.mark.django_db


@pytest.fixture
def decision(gpus: list[GPU]) -> DecisionRecord:
    """Of a pass that placed some, kept GPUs for one, and left others waiting."""
    owner = make_user()
    for _ in range(30):
        make_job(owner, gpu_count=1, min_vram_mb=40 * GB)
    make_job(owner, gpu_count=4, min_vram_mb=20 * GB, node_labels={})
    make_job(make_user(), gpu_count=1, share=True, min_vram_mb=2 * GB)
    wake()
    run_passes()
    return DecisionRecord.objects.get()


def replayed(*args: Any, **options: Any) -> str:
    out = StringIO()
    call_command("replay_decision", *args, stdout=out, **options)
    return out.getvalue()


def test_it_comes_out_the_same(decision: DecisionRecord) -> None:
    said = replayed(decision.pk)
    assert said.endswith("The same as recorded.\n")
    for job_id in decision.outcome["placed"]:
        assert f"{job_id} -> gauss: GPU-" in said


def test_it_holds_the_head_of_each_lane_and_not_the_whole_queue(
    decision: DecisionRecord,
) -> None:
    inputs = json.loads(zlib.decompress(decision.inputs))
    first = max(inputs["lanes"], key=lambda lane: lane["length"])
    assert first["length"] == 30
    assert len(first["jobs"]) < 15


def test_it_can_be_made_again_on_another_machine(
    decision: DecisionRecord, tmp_path: Path
) -> None:
    path = tmp_path / "decision.json"
    replayed(decision.pk, export=path)
    DecisionRecord.objects.all().delete()
    GPU.objects.update(state=GpuState.DRAINING)
    assert "The same as recorded." in replayed(file=path)


def test_a_file_that_can_not_be_written_is_told(
    decision: DecisionRecord, tmp_path: Path
) -> None:
    with pytest.raises(CommandError, match="can not be written"):
        replayed(decision.pk, export=tmp_path / "none" / "x.json")


def test_a_pass_that_places_nothing_leaves_none(gpus: list[GPU]) -> None:
    GPU.objects.update(state=GpuState.DRAINING)
    make_job()
    wake()
    run_passes()
    assert not DecisionRecord.objects.exists()


def test_old_ones_go(decision: DecisionRecord, settings: Any) -> None:
    settings.KEEP_DECISIONS_D = 3
    old = timezone.now() - timedelta(days=3, minutes=1)
    DecisionRecord.objects.update(at=old)
    make_job(gpu_count=0)
    wake()
    run_passes()
    assert DecisionRecord.objects.get().pk != decision.pk


def test_another_outcome_is_told(decision: DecisionRecord) -> None:
    job_id = next(iter(decision.outcome["placed"]))
    decision.outcome["placed"][job_id]["node"] = "euler"
    decision.save()
    with pytest.raises(CommandError, match=f"placed {job_id}: was .*euler.*gauss"):
        replayed(decision.pk)


def test_inputs_that_were_changed_are_told(decision: DecisionRecord) -> None:
    text = zlib.decompress(decision.inputs).decode().replace('"cpus":8', '"cpus":9')
    decision.inputs = zlib.compress(text.encode())
    decision.save()
    with pytest.raises(CommandError, match="another hash"):
        replayed(decision.pk)


def _with(**fields: Any) -> Callable[[bytes], bytes]:
    def spoil(inputs: bytes) -> bytes:
        data = json.loads(zlib.decompress(inputs))
        data["snapshot"] |= fields
        return zlib.compress(json.dumps(data).encode())

    return spoil


SPOILT: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("nothing", lambda _: b""),
    ("no zlib", lambda _: b"x"),
    ("cut short", lambda b: b[: len(b) // 2]),
    ("no JSON", lambda _: zlib.compress(b"{")),
    ("another version", lambda _: zlib.compress(b'{"version": 0}')),
    ("a part missing", lambda _: zlib.compress(b'{"version": 1}')),
    ("another type", lambda _: zlib.compress(b"[]")),
    ("parts of another type", _with(nodes=[])),
    ("a GPU without its node", _with(nodes={})),
]


@pytest.mark.parametrize("spoil", [s for _, s in SPOILT], ids=[n for n, _ in SPOILT])
def test_what_can_not_be_read_is_said_so(
    decision: DecisionRecord, spoil: Callable[[bytes], bytes]
) -> None:
    decision.inputs = spoil(bytes(decision.inputs))
    decision.save()
    with pytest.raises(CommandError, match="can not be replayed"):
        replayed(decision.pk)


def test_an_outcome_that_is_none_can_not_be_compared(
    decision: DecisionRecord, tmp_path: Path
) -> None:
    path = tmp_path / "decision.json"
    replayed(decision.pk, export=path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "outcome": None}))
    with pytest.raises(CommandError, match="can not be replayed"):
        replayed(file=path)


def test_a_number_that_is_not_kept_is_told_which_are(decision: DecisionRecord) -> None:
    with pytest.raises(CommandError, match=f"Kept are {decision.pk} to {decision.pk}"):
        replayed(0)


def test_without_any_it_says_so() -> None:
    with pytest.raises(CommandError, match="None is kept"):
        replayed(1)


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", "\0"])
def test_a_file_that_is_no_record_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(CommandError, match="is no record"):
        replayed(file=path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is no record"):
        replayed(file=tmp_path / "none")


@pytest.mark.parametrize("options", [{}, {"file": Path("x"), "id": 1}])
def test_it_takes_a_number_or_a_file(options: dict[str, Any]) -> None:
    args = [options.pop("id")] if "id" in options else []
    with pytest.raises(CommandError, match="or --file"):
        replayed(*args, **options)
