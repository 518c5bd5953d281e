"""The record of each pass that placed something, and how to make it again."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from scheduler import placement
from scheduler.models import DecisionRecord
from scheduler.models import Lane as LaneRow
from scheduler.placement import Lane, Plan, Snapshot, record

# A lane that was not served for so long ages from its first job as a new one does.
LANES_KEPT = timedelta(days=90)


def keep(snapshot: Snapshot, lanes: Sequence[Lane], made: Plan) -> DecisionRecord:
    """Store what the pass considered and what it came to; let the old ones go."""
    old = timezone.now() - timedelta(days=settings.KEEP_DECISIONS_D)
    DecisionRecord.objects.filter(at__lt=old).delete()
    LaneRow.objects.filter(served_at__lt=timezone.now() - LANES_KEPT).delete()
    inputs = record.dump(snapshot, lanes, made)
    return DecisionRecord.objects.create(
        inputs=zlib.compress(inputs.encode()),
        inputs_hash=record.digest(inputs),
        outcome=record.outcome(made),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of making a recorded pass again."""

    is_intact: bool  # the inputs have the hash that was recorded
    differences: list[str]
    outcome: dict[str, Any]


def replay(inputs: bytes, inputs_hash: str, outcome: dict[str, Any]) -> Replay:
    """Decide again from the recorded inputs. Raises ValueError where they are not
    readable by this version."""
    try:
        text = zlib.decompress(inputs).decode()
        again = record.outcome(placement.plan(*record.load(text)))
        differences = list(record.differences(outcome, again))
    except (zlib.error, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"These inputs can not be read: {error}") from error
    return Replay(
        is_intact=record.digest(text) == inputs_hash,
        differences=differences,
        outcome=again,
    )
