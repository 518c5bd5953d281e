"""GET /jobs/{id}/passport, and `manage.py passport verify` of what it answers."""

import base64
import io
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.models import Evaluation, Job, RoutingDecision, User
from jobs.passport import NoPassport, passport, public_key, verify
from tests.asserts import assert_problem
from tests.factories import make_artifact, make_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(alice: User, settings: Any) -> Job:
    made = make_job(alice, status="succeeded", env={"LR": "a private value"})
    attempt = made.attempts.get()
    make_artifact(attempt)
    log = settings.DATA_ROOT / attempt.log_path
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"epoch 1\n")
    return made


def get(api: Any, user: User, job: Job) -> Any:
    return api(user).get(f"/api/v1/jobs/{job.pk}/passport")


class TestWhatItSays:
    def test_what_ran_for_whom_and_where(self, api: Any, alice: User, job: Job) -> None:
        told = get(api, alice, job).json()
        assert told["job"]["owner"] == "alice@example.org"
        assert told["job"]["gpu_uuids"] == ["GPU-0"]
        assert told["job"]["asked"]["image"] == job.image
        [attempt] = told["attempts"]
        assert (attempt["reason"], attempt["exit_code"]) == ("completed", 0)
        assert attempt["image_digest"].startswith("sha256:")
        [artifact] = attempt["artifacts"]
        assert artifact.keys() == {"path", "size", "sha256"}
        assert next(event["type"] for event in told["events"]) == "queued"

    def test_the_log_by_its_hash(self, api: Any, alice: User, job: Job) -> None:
        [attempt] = get(api, alice, job).json()["attempts"]
        assert attempt["log_sha256"] == sha256(b"epoch 1\n").hexdigest()

    def test_how_a_model_job_was_routed_and_judged(self, api: Any, alice: User) -> None:
        made = make_job(alice, model_name="sentiment", status="succeeded")
        own = {"number": 1, "cause": "submitted", "policy": made.policy}
        RoutingDecision.objects.create(
            job=made, tier="small", text="It will do.", **own
        )
        shape = {"validator": "shape", "is_accepted": True}
        Evaluation.objects.create(
            attempt=made.attempts.get(), is_accepted=True, outcomes=[shape]
        )
        told = get(api, alice, made).json()
        [decision] = told["decisions"]
        assert (decision["policy"], decision["policy_version"]) == ("sentiment", 1)
        assert (decision["tier"], decision["text"]) == ("small", "It will do.")
        assert told["attempts"][0]["evaluation"]["outcomes"] == [shape]

    def test_names_of_variables_and_no_value(
        self, api: Any, alice: User, job: Job
    ) -> None:
        answer = get(api, alice, job)
        assert answer.json()["job"]["env"] == ["LR"]
        assert "a private value" not in answer.content.decode()

    def test_a_job_that_has_not_ended_has_none(self, api: Any, alice: User) -> None:
        assert_problem(get(api, alice, make_job(alice)), 409, "not_ended")

    def test_a_strangers_is_as_none(self, api: Any, bob: User, job: Job) -> None:
        assert_problem(get(api, bob, job), 404, "not_found")

    def test_one_that_never_started_has_no_log(self, api: Any, alice: User) -> None:
        told = get(api, alice, make_job(alice, status="cancelled")).json()
        assert told["attempts"] == []


class TestVerify:
    def test_what_was_answered_is_genuine(
        self, api: Any, alice: User, job: Job
    ) -> None:
        told = verify(get(api, alice, job).content.decode(), public_key())
        assert told["job"]["id"] == str(job.pk)

    def test_its_order_and_blanks_do_not_matter(self, job: Job) -> None:
        told = passport(job)
        mixed = json.dumps(dict(reversed(told.items())), indent=4)
        assert verify(mixed, public_key())["job"]["id"] == str(job.pk)

    @hypothesis_settings(
        max_examples=300,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        deadline=None,
    )
    @given(st.data())
    def test_each_byte_of_what_it_says_counts(self, job: Job, data: Any) -> None:
        text = json.dumps(passport(job))
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.characters(codec="ascii"))
        changed = text[:at] + other + text[at + 1 :]
        try:
            same = json.loads(changed) == json.loads(text)
        except ValueError:
            same = False
        if same:
            return
        with pytest.raises(NoPassport):
            verify(changed, public_key())

    @pytest.mark.parametrize(
        "text",
        ["", "null", "[]", "{}", '{"signature": 1}', '{"signature": "é"}', "[" * 9999],
    )
    def test_what_is_none_is_told(self, text: str) -> None:
        with pytest.raises(NoPassport, match="This is no passport"):
            verify(text, public_key())

    def test_one_of_another_site_is_told(self, job: Job, settings: Any) -> None:
        text = json.dumps(passport(job))
        ours = public_key()
        settings.SECRET_KEY = "another key of fifty characters or more 0123456789"
        with pytest.raises(NoPassport, match="another site"):
            verify(text, public_key())
        assert verify(text, ours)

    def test_one_that_was_signed_anew_by_another_is_told(self, job: Job) -> None:
        told = {**passport(job), "key": base64.b64encode(b"x" * 32).decode()}
        with pytest.raises(NoPassport, match="another site"):
            verify(json.dumps(told), public_key())


class TestCommand:
    def run(self, *words: str) -> str:
        out = io.StringIO()
        call_command("passport", *words, stdout=out)
        return out.getvalue()

    def test_it_says_whose_it_is(self, job: Job, tmp_path: Path) -> None:
        path = tmp_path / "passport.json"
        path.write_text(json.dumps(passport(job)))
        told = self.run("verify", str(path))
        assert told.startswith(f"Genuine: job {job.pk} of alice@example.org, succeeded")
        key = self.run("key").strip()
        assert self.run("verify", str(path), "--key", key) == told

    def test_it_fails_on_one_that_was_changed(self, job: Job, tmp_path: Path) -> None:
        told = passport(job)
        told["job"]["owner"] = "bob@example.org"
        path = tmp_path / "passport.json"
        path.write_text(json.dumps(told))
        with pytest.raises(CommandError, match="changed after it was signed"):
            self.run("verify", str(path))

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{}"])
    def test_it_says_what_is_none(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "passport.json"
        path.write_bytes(content)
        with pytest.raises(CommandError):
            self.run("verify", str(path))
        with pytest.raises(CommandError, match="can not be read"):
            self.run("verify", str(tmp_path / "none"))
