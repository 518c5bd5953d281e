"""The cluster's parent seals within a second, whatever else it is at."""

import logging
from time import monotonic

import pytest
from django.conf import settings
from django.db import transaction

from jobs import audit
from jobs.models import AuditSeal, UnsealedRecord
from jobs.sealing import Check, anchor
from scheduler import sealer
from scheduler.sealer import sealing
from tests.e2e.stack import until

pytestmark = pytest.mark.django_db(transaction=True)


def is_sealed() -> bool:
    return not UnsealedRecord.objects.exists()


def test_it_takes_less_than_a_second() -> None:
    with sealing():
        for _ in range(3):
            audit.record("job.noted", target=1, by="alice")
            began = monotonic()
            until(is_sealed, "the seal", 5)
            assert monotonic() - began < 1
    assert AuditSeal.objects.count() == 3
    assert list(Check().flaws()) == []


def test_a_transaction_under_way_is_not_waited_for_and_not_sealed() -> None:
    with sealing(), transaction.atomic():
        audit.record("job.noted", target=1, by="alice")
        assert not AuditSeal.objects.exists()
    assert AuditSeal.objects.count() == 1


def test_what_comes_last_is_sealed_at_the_end() -> None:
    with sealing():
        audit.record("job.noted", target=1, by="alice")
    assert is_sealed()


def test_two_of_them_seal_each_record_once() -> None:
    with sealing(), sealing():
        for number in range(200):
            audit.record("job.noted", target=number, by="alice")
        until(is_sealed, "the seals", 10)
    assert AuditSeal.objects.count() == 200
    assert list(Check().flaws()) == []


def test_a_file_that_can_not_be_written_is_told_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "EVERY_S", 0.02)
    anchor.path().mkdir()
    audit.record("job.noted", target=1, by="alice")
    with caplog.at_level(logging.WARNING), sealing():
        until(lambda: caplog.records, "the warning", 5)
        anchor.path().rmdir()
        until(is_sealed, "the seal", 5)
    (told,) = [each.getMessage() for each in caplog.records]
    assert told.startswith("the audit trail can not be sealed: ")
    assert f"Is a directory: '{settings.DATA_ROOT}/audit.anchor'" in told
