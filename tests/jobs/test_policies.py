"""Policies as rows: versions, what is frozen, and the gate before one goes live."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs import policies
from jobs.models import AuditRecord, ModelTier, RoutingPolicy, SuiteRun
from jobs.routing import document_of, parse
from tests.factories import document, make_policy

pytestmark = pytest.mark.django_db
GATE = {"thresholds": {"accuracy": 0.9}, "max_regression": 0.02}


def store(**changes: Any) -> RoutingPolicy:
    return policies.store(parse(document(**changes)), by="olga")[0]


def judged(row: RoutingPolicy, suite: str = "all", **scores: float) -> SuiteRun:
    now = timezone.now()
    return SuiteRun.objects.create(
        policy=row,
        started_at=now,
        suite=suite,
        suite_digest=suite,
        scores=scores,
        by="olga",
        finished_at=now,
    )


class TestVersions:
    def test_a_policy_is_read_back_as_it_was_written(self) -> None:
        check = {"name": "shape", "json_schema": {"type": "object"}, "path": "a.json"}
        told = document(
            description="of texts",
            rules=[{"name": "long", "weight": 0, "of": "text", "at_least": 0}],
            validators=[check],
            escalate_on=["rejected"],
            max_escalations=1,
            release=GATE,
        )
        policy = parse(told)
        row, is_new = policies.store(policy, by="olga")
        assert is_new
        assert row.read() == policy
        assert document_of(row.read()) == document_of(policy)
        assert not row.is_active

    def test_the_same_again_is_no_new_version(self) -> None:
        first = store()
        assert policies.store(parse(document()), by="olga") == (first, False)

    def test_another_text_is_the_next_version(self) -> None:
        assert [store().version, store(description="x").version] == [1, 2]

    def test_an_image_must_be_one(self) -> None:
        wrong = document()
        wrong["tiers"][0]["image"] = "NOT AN IMAGE"
        with pytest.raises(ValidationError, match="small: Write the image as"):
            policies.store(parse(wrong), by="olga")
        assert not RoutingPolicy.objects.exists()

    def test_a_tier_may_not_set_what_is_ours(self) -> None:
        wrong = document()
        wrong["tiers"][0]["env"] = {"NVIDIA_VISIBLE_DEVICES": "all"}
        with pytest.raises(ValidationError, match="is set by GPU Jobs"):
            policies.store(parse(wrong), by="olga")


class TestFrozen:
    @pytest.fixture
    def used(self) -> RoutingPolicy:
        row = store()
        RoutingPolicy.objects.filter(pk=row.pk).update(used_at=timezone.now())
        return row

    @pytest.mark.parametrize(
        "change",
        [
            {"description": "x"},
            {"rules": [{}]},
            {"max_escalations": 3},
            {"digest": ""},
            {"version": 9},
            {"used_at": None},
        ],
    )
    def test_no_column_changes_once_a_job_was_routed_by_it(
        self, used: RoutingPolicy, change: dict[str, Any]
    ) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            RoutingPolicy.objects.filter(pk=used.pk).update(**change)

    def test_nor_do_its_tiers(self, used: RoutingPolicy) -> None:
        tier = used.tiers.all()[0]
        with pytest.raises(IntegrityError), transaction.atomic():
            ModelTier.objects.filter(pk=tier.pk).update(image="other:1")
        with pytest.raises(IntegrityError), transaction.atomic():
            ModelTier.objects.filter(pk=tier.pk).delete()
        with pytest.raises(IntegrityError), transaction.atomic():
            ModelTier.objects.create(
                policy=used, position=7, name="x", image="x", model_version="1"
            )

    def test_nor_does_it_go(self, used: RoutingPolicy) -> None:
        with pytest.raises(IntegrityError), transaction.atomic():
            RoutingPolicy.objects.filter(pk=used.pk)._raw_delete("default")

    def test_whether_it_is_live_may_change(self, used: RoutingPolicy) -> None:
        policies.activate(used, by="olga")
        policies.retire(used, by="olga")
        assert not used.is_active

    def test_what_no_job_was_routed_by_may_change(self) -> None:
        row = store()
        assert RoutingPolicy.objects.filter(pk=row.pk).update(description="x") == 1
        row.tiers.all().delete()
        row.delete()


class TestTheGate:
    def test_a_version_without_thresholds_goes_live(self) -> None:
        row = store()
        policies.activate(row, by="olga")
        assert row.is_active
        record = AuditRecord.objects.get(action="policy.activated")
        assert (record.target, record.actor) == ("sentiment version 1", "olga")

    def test_only_one_version_is_live(self) -> None:
        first, second = make_policy(), store(description="x")
        policies.activate(second, by="olga")
        first.refresh_from_db()
        assert (first.is_active, second.is_active) == (False, True)

    def test_where_there_are_thresholds_a_suite_must_have_been_run(self) -> None:
        with pytest.raises(
            policies.GateRefused, match=r"run manage\.py evaluate first"
        ):
            policies.activate(store(release=GATE), by="olga")

    def test_below_a_threshold_it_is_refused_with_the_numbers(self) -> None:
        row = store(release=GATE)
        judged(row, accuracy=0.89)
        with pytest.raises(policies.GateRefused, match=r"accuracy is 0.890.*reach 0.9"):
            policies.activate(row, by="olga")

    def test_at_the_threshold_it_goes_live(self) -> None:
        row = store(release=GATE)
        judged(row, accuracy=0.9)
        policies.activate(row, by="olga")
        assert row.is_active

    def test_the_latest_run_counts(self) -> None:
        row = store(release=GATE)
        judged(row, accuracy=1.0)
        judged(row, accuracy=0.1)
        assert policies.refusals(row)

    def test_one_that_was_not_finished_does_not(self) -> None:
        row = store(release=GATE)
        SuiteRun.objects.create(policy=row, suite="all", by="olga")
        assert policies.refusals(row)

    def test_a_worse_version_than_the_live_one_is_refused_and_a_better_one_is_not(
        self,
    ) -> None:
        live = store(release=GATE)
        judged(live, accuracy=0.97, tone=0.8)
        policies.activate(live, by="olga")
        worse = store(release=GATE, description="worse")
        judged(worse, accuracy=0.94, tone=0.9)
        (refusal,) = policies.refusals(worse)
        assert refusal == (
            "accuracy is 0.940, worse than the live version's 0.970 by more than 0.02."
        )
        better = store(release=GATE, description="better")
        judged(better, accuracy=0.96, tone=0.79)
        policies.activate(better, by="olga")
        assert better.is_active

    def test_what_was_judged_by_another_suite_is_not_compared(self) -> None:
        live = store(release=GATE)
        judged(live, accuracy=0.97)
        policies.activate(live, by="olga")
        other = store(release=GATE, description="x")
        judged(other, suite="easy", accuracy=1.0)
        (refusal,) = policies.refusals(other)
        assert "run that through this one too" in refusal

    def test_an_operators_reason_overrides_it_and_is_recorded(self) -> None:
        row = store(release=GATE)
        with pytest.raises(policies.GateRefused):
            policies.activate(row, by="olga", because="   ")
        policies.activate(row, by="olga", because="The old one is gone.")
        record = AuditRecord.objects.get(action="policy.activated")
        assert record.details["because"] == "The old one is gone."
        assert "run manage.py evaluate first" in record.details["overridden"][0]


class TestTheCommand:
    @pytest.fixture
    def file(self, tmp_path: Any) -> Any:
        path = tmp_path / "policy.yaml"
        path.write_text(
            "name: tidy\ntiers:\n- {name: only, image: 'a:1', model_version: '1'}\n"
        )
        return path

    def test_a_file_is_loaded_shown_and_goes_live(self, file: Any, capsys: Any) -> None:
        call_command("policy", "load", str(file))
        assert (
            "It is not live: manage.py policy activate tidy 1"
            in capsys.readouterr().out
        )
        call_command("policy", "activate", "tidy", "1")
        call_command("policy", "show")
        assert "live  tidy 1  only" in capsys.readouterr().out
        call_command("policy", "show", "tidy")
        assert "model_version: '1'" in capsys.readouterr().out
        call_command("policy", "retire", "tidy")
        assert not RoutingPolicy.objects.get().is_active

    def test_check_writes_nothing(self, file: Any, capsys: Any) -> None:
        call_command("policy", "check", str(file))
        assert "tidy is a policy, with the tiers only." in capsys.readouterr().out
        assert not RoutingPolicy.objects.exists()

    @pytest.mark.parametrize(
        ("written", "told"),
        [
            (b"", "object"),
            (b"name: [", "no YAML"),
            (b"\xff\xfe", "can not be read|UTF-8"),
            (b"name: x\ntiers: []\n", "tier"),
            (b"name: x\ntiers: 1\n", "tiers"),
            (b"nmae: x\n", "nmae"),
        ],
    )
    def test_a_file_that_is_none_is_told_with_its_place(
        self, file: Any, written: bytes, told: str
    ) -> None:
        file.write_bytes(written)
        with pytest.raises(CommandError, match=told):
            call_command("policy", "load", str(file))

    def test_what_is_not_there_is_told(self, tmp_path: Any) -> None:
        with pytest.raises(CommandError, match="can not be read"):
            call_command("policy", "load", str(tmp_path / "none.yaml"))
        with pytest.raises(CommandError, match="There is no policy x"):
            call_command("policy", "show", "x")
        with pytest.raises(CommandError, match="There is no job x"):
            call_command("policy", "replay", "x")

    def test_the_gate_says_how_to_override_it(self) -> None:
        store(release=GATE)
        with pytest.raises(CommandError, match="Override it with --because"):
            call_command("policy", "activate", "sentiment", "1")
