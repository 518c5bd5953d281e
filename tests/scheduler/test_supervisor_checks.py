"""The supervisor's own checks: invariants every minute, forgotten processes oftener."""

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import Attempt, AuditRecord, JobEvent, User
from jobs.status import Reason
from scheduler.execution import collect, launch
from scheduler.models import Node, Verification
from scheduler.runner.base import RunnerFault, Stray
from scheduler.supervisor import Supervisor
from scheduler.supervisor.loop import STRAYS_EVERY_S, VERIFY_EVERY_S
from tests.fakes import Clock, FakeRunner
from tests.scheduler.factories import make_reserved

pytestmark = pytest.mark.django_db
ID = "f" * 64


def make_done(runner: FakeRunner) -> Attempt:
    attempt = make_reserved()
    launch(str(attempt.pk))
    runner.end(attempt.container_name)
    collect(str(attempt.pk))
    attempt.refresh_from_db()
    return attempt


class TestVerification:
    def test_the_first_turn_says_that_all_is_well(self, supervisor: Supervisor) -> None:
        row = Verification.objects.get()
        assert (row.node, row.findings) == ("gauss", [])

    def test_it_is_done_every_minute(
        self, supervisor: Supervisor, clock: Clock
    ) -> None:
        first = Verification.objects.get().at
        supervisor.turn()
        assert Verification.objects.get().at == first
        clock.now_s += VERIFY_EVERY_S
        supervisor.turn()
        assert Verification.objects.get().at > first

    def test_what_rows_show_counts_at_once_and_is_logged_once(
        self,
        supervisor: Supervisor,
        clock: Clock,
        runner: FakeRunner,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        job = make_done(runner).job
        JobEvent.objects.create(job=job, event_type="failed", actor="x")
        for _ in range(2):
            clock.now_s += VERIFY_EVERY_S
            supervisor.turn()
        [finding] = Verification.objects.get().findings
        assert (finding["invariant"], finding["rows"]) == ("I2", [f"job {job.pk}"])
        assert [r.levelno for r in caplog.records if "I2" in r.message] == [
            logging.WARNING
        ]

    def test_what_may_be_on_its_way_counts_when_it_is_seen_twice(
        self, supervisor: Supervisor, clock: Clock, settings: Any
    ) -> None:
        (settings.RUN_ROOT / "work/left").mkdir(parents=True)
        clock.now_s += VERIFY_EVERY_S
        supervisor.turn()
        assert Verification.objects.get().findings == []
        clock.now_s += VERIFY_EVERY_S
        supervisor.turn()
        [finding] = Verification.objects.get().findings
        assert finding["rows"] == ["folder left"]
        (settings.RUN_ROOT / "work/left").rmdir()
        clock.now_s += VERIFY_EVERY_S
        supervisor.turn()
        assert Verification.objects.get().findings == []

    def test_a_runner_that_is_away_keeps_nothing_from_being_checked(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner
    ) -> None:
        first = Verification.objects.get().at
        clock.now_s += VERIFY_EVERY_S
        runner.faults["observe"] = RunnerFault(Reason.DAEMON_FAULT, "no answer")
        supervisor.turn()
        assert Verification.objects.get().at > first


class TestStrays:
    @pytest.fixture
    def stray(self, runner: FakeRunner, settings: Any) -> Stray:
        """What is left of a container of ours; its job's rows are gone."""
        work = settings.RUN_ROOT / "work/gpujob-x-1"
        mounts = (f"{work}/artifacts", f"{work}/scratch")
        stray = Stray(container_id=ID, processes=((7, "1@b"),), mounts=mounts)
        runner.below[ID] = stray
        return stray

    def look(self, supervisor: Supervisor, clock: Clock) -> None:
        clock.now_s += STRAYS_EVERY_S
        supervisor.turn()

    def test_it_is_ended_when_seen_twice_and_that_is_written_down(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner, stray: Stray
    ) -> None:
        self.look(supervisor, clock)
        assert runner.ended_strays == []
        supervisor.turn()
        assert runner.ended_strays == [], "the same moment is no second look"
        self.look(supervisor, clock)
        assert runner.ended_strays == [stray]
        record = AuditRecord.objects.get(action="stray.ended")
        assert record.target == "gpujob-x-1"
        assert record.details == {"container": ID, "pids": [7]}

    def test_one_that_lost_its_shim_between_two_looks_is_still_known(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner, stray: Stray
    ) -> None:
        self.look(supervisor, clock)
        runner.below[ID] = replace(stray, mounts=())
        self.look(supervisor, clock)
        assert len(runner.ended_strays) == 1

    def test_one_that_does_not_die_is_killed_again_and_told_of_once(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner, stray: Stray
    ) -> None:
        for _ in range(4):
            runner.below[ID] = stray
            self.look(supervisor, clock)
        assert len(runner.ended_strays) == 3
        assert AuditRecord.objects.filter(action="stray.ended").count() == 1

    def test_one_whose_id_our_rows_know_is_ended(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner
    ) -> None:
        id_ = str(make_done(runner).container_id)
        runner.below[id_] = Stray(container_id=id_, processes=((7, "1@b"),))
        self.look(supervisor, clock)
        self.look(supervisor, clock)
        assert [each.container_id for each in runner.ended_strays] == [id_]

    def test_a_stranger_is_left_alone(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner, stray: Stray
    ) -> None:
        stranger = replace(stray, mounts=("/var/lib/kubelet", "/data"))
        runner.below = {ID: stranger}
        for _ in range(3):
            self.look(supervisor, clock)
        assert (runner.ended_strays, runner.below) == ([], {ID: stranger})
        assert not AuditRecord.objects.filter(action="stray.ended").exists()

    def test_one_whose_attempt_is_live_waits_for_its_end(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner
    ) -> None:
        attempt = make_reserved()
        launch(str(attempt.pk))
        attempt.refresh_from_db()
        id_ = str(attempt.container_id)
        runner.containers.clear()
        runner.below[id_] = Stray(container_id=id_, processes=((7, "1@b"),))
        for _ in range(3):
            self.look(supervisor, clock)
        assert runner.ended_strays == []
        collect(str(attempt.pk))
        self.look(supervisor, clock)
        assert [each.container_id for each in runner.ended_strays] == [id_]

    def test_a_runner_that_does_not_answer_is_reported(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner
    ) -> None:
        runner.faults["strays"] = RunnerFault(Reason.DAEMON_FAULT, "no answer")
        self.look(supervisor, clock)
        assert Node.objects.get().reports == ["no answer"]


class TestTheFirstPageOfTheAdmin:
    def page(self, user: User) -> str:
        client = Client()
        client.force_login(user)
        answer = client.get(reverse("admin:index"))
        return answer.content.decode() if answer.status_code == 200 else ""

    def test_it_says_that_all_is_well_and_when_that_was_seen(
        self, supervisor: Supervisor, olga: User
    ) -> None:
        Verification.objects.update(at=timezone.now() - timedelta(seconds=12))
        page = self.page(olga)
        assert "All invariants hold, checked 12 s ago on gauss." in page
        assert "too long ago" not in page

    def test_it_tells_each_finding_with_what_to_do(
        self, supervisor: Supervisor, clock: Clock, runner: FakeRunner, olga: User
    ) -> None:
        job = make_done(runner).job
        JobEvent.objects.create(job=job, event_type="failed", actor="x")
        clock.now_s += VERIFY_EVERY_S
        supervisor.turn()
        page = self.page(olga)
        assert "1 finding against the invariants, checked" in page
        assert f"[job {job.pk}]" in page
        assert "All invariants hold" not in page

    def test_what_a_finding_names_is_text_and_nothing_else(self, olga: User) -> None:
        names = {"rows": ["container <script>"], "is_information": True}
        texts = dict.fromkeys(("invariant", "code", "what", "do"), "<b>")
        Verification.objects.create(node="gauss", findings=[texts | names])
        page = self.page(olga)
        assert "container &lt;script&gt;" in page
        assert "All invariants hold" in page, "information is no fault"
        assert "<b>" not in page

    def test_a_check_of_long_ago_is_said_to_be_old(
        self, supervisor: Supervisor, olga: User
    ) -> None:
        Verification.objects.update(at=timezone.now() - timedelta(minutes=4))
        page = self.page(olga)
        assert "checked 4 min ago on gauss. That is too long ago" in page

    def test_a_node_that_was_never_checked_is_named(self, olga: User) -> None:
        Node.objects.create(name="noether")
        assert "were never checked on noether" in self.page(olga)

    def test_a_site_without_nodes_says_nothing(self, olga: User) -> None:
        assert "invariants" not in self.page(olga)

    def test_nobody_else_sees_it(self, supervisor: Supervisor, alice: User) -> None:
        assert self.page(alice) == ""
