"""A job as it would be written again: in the form, as JSON, for curl and for docker."""

import html
import json
import shlex
from typing import Any

import pytest
from django.test import Client

from jobs import retelling
from jobs.forms import SubmitForm, initial_of
from jobs.models import Job, User
from jobs.status import Status
from tests.factories import IMAGE, make_job, make_policy

WHOLE: dict[str, Any] = {
    "name": "train",
    "image": IMAGE,
    "command": "python 'my train.py' | tee log",
    "gpu_count": 2,
    "min_vram_mb": 8000,
    "cpus": 1.5,
    "memory_mb": 4000,
    "shm_mb": 1000,
    "gpu_name": "*3090*",
    "env": {"LR": "0.1", "TEXT": "a=b c"},
    "volumes": [{"source": "/srv/x", "target": "/data", "mode": "rw"}],
    "network": "none",
    "timeout_s": 90,
    "grace_s": 5,
    "priority": 40,
    "node_labels": {"zone": "lab"},
}


@pytest.fixture(autouse=True)
def _allowed(declare: Any, settings: Any) -> None:
    settings.RUNNER = "docker"
    declare(writable=["/srv"])


def sent_again(job: Job, user: User) -> dict[str, Any]:
    """What comes of sending the form as it is filled in."""
    form = SubmitForm(initial=initial_of(job, user), user=user)
    data = {name: form[name].value() for name in form.fields}
    sent = SubmitForm({k: v for k, v in data.items() if v is not None}, user=user)
    assert sent.is_valid(), sent.errors
    return dict(sent.cleaned_data["spec"])


def test_sent_as_it_stands_it_asks_for_the_same(alice: User) -> None:
    job = make_job(alice, **WHOLE)
    again = sent_again(job, alice)
    assert {name: again[name] for name in WHOLE} == WHOLE


def test_a_list_of_words_becomes_the_line_that_a_shell_reads_so(alice: User) -> None:
    words = ["python", "my file.py", "--text", "it's $HOME"]
    line = initial_of(make_job(alice, command=words), alice)["command"]
    assert shlex.split(line) == words


def test_it_is_what_was_asked_for_before_any_escalation(alice: User) -> None:
    job = make_job(alice, min_vram_mb=48_000, asked={"min_vram_mb": 8000})
    assert initial_of(job, alice)["min_vram_mb"] == 8000
    assert retelling.spec_of(job, {})["min_vram_mb"] == 8000


class TestThePage:
    def text(self, user: User, path: str) -> str:
        client = Client()
        client.force_login(user)
        answer = client.get(path)
        assert answer.status_code == 200
        return html.unescape(answer.content.decode())

    def test_a_clone_is_a_link_away(self, alice: User) -> None:
        job = make_job(alice, **WHOLE)
        assert f"/submit/?from={job.pk}" in self.text(alice, f"/jobs/{job.pk}/")
        shown = self.text(alice, f"/submit/?from={job.pk}")
        assert "python 'my train.py' | tee log" in shown
        assert "TEXT=a=b c" in shown
        assert "/srv/x:/data:rw" in shown

    def test_of_another_persons_job_nothing_is_filled_in(
        self, alice: User, bob: User
    ) -> None:
        job = make_job(bob, **WHOLE)
        assert "my train.py" not in self.text(alice, f"/submit/?from={job.pk}")

    def test_an_operator_gets_names_of_variables_and_no_value(
        self, alice: User, olga: User
    ) -> None:
        job = make_job(alice, env={"TOKEN": "hf_private"}, secrets={})
        for path in (f"/submit/?from={job.pk}", f"/jobs/{job.pk}/"):
            shown = self.text(olga, path)
            assert "TOKEN" in shown
            assert "hf_private" not in shown

    @pytest.mark.parametrize("value", ["", "x", "0" * 36, "../", "%00"])
    def test_what_is_no_job_fills_in_nothing(self, alice: User, value: str) -> None:
        self.text(alice, f"/submit/?from={value}")

    def test_a_model_job_is_cloned_on_its_policys_page(self, alice: User) -> None:
        make_policy()
        job = make_job(alice, model_name="sentiment", params={"text": "hi"})
        link = f"/policies/sentiment/?from={job.pk}"
        assert link in self.text(alice, f"/jobs/{job.pk}/")
        assert '"text": "hi"' in self.text(alice, link)

    def test_one_that_failed_says_what_to_do_next(self, alice: User) -> None:
        job = make_job(alice, status=Status.FAILED)
        assert "Read the end of its log" in self.text(alice, f"/jobs/{job.pk}/")


class TestRetold:
    def test_as_json_it_is_what_the_api_takes(self, api: Any, alice: User) -> None:
        job = make_job(alice, **WHOLE)
        told = retelling.spec_of(job, job.env)
        answer = api(alice).post("/api/v1/jobs?dry_run=true", told)
        assert answer.status_code == 200, answer.json()
        assert told == WHOLE

    def test_what_is_usual_is_left_out(self, alice: User) -> None:
        assert retelling.spec_of(make_job(alice, name="x"), {}) == {
            "name": "x",
            "image": IMAGE,
        }

    def test_a_model_job_is_its_model_and_params(self, alice: User) -> None:
        job = make_job(alice, name="x", model_name="sentiment", params={"n": 1})
        assert retelling.spec_of(job, {}) == {
            **{"name": "x", "model_name": "sentiment", "params": {"n": 1}},
            "risk": "low",
        }

    @pytest.mark.parametrize("name", ["it's; rm -rf /", '$(reboot) "x"', "a\\b"])
    def test_no_name_breaks_out_of_a_line_for_a_shell(
        self, alice: User, name: str
    ) -> None:
        job = make_job(alice, name=name, command=["echo", name], env={"A": name})
        told = retelling.as_curl(retelling.spec_of(job, job.env), "http://x/jobs")
        words = shlex.split(told.replace("\\\n", " "))
        assert words[:2] == ["curl", "http://x/jobs"]
        assert json.loads(words[-1])["name"] == name
        words = shlex.split(retelling.as_docker_run(job, job.env))
        assert words[-2:] == ["echo", name]
        assert f"A={name}" in words

    def test_docker_run_has_what_docker_knows_of(self, alice: User) -> None:
        told = retelling.as_docker_run(make_job(alice, **WHOLE), {"LR": None})
        assert told == (
            "docker run --rm --gpus 2 --cpus 1.5 --memory 4000m --shm-size 1000m "
            f"--network none -e LR -v /srv/x:/data:rw {IMAGE} "
            "/bin/sh -c 'python '\"'\"'my train.py'\"'\"' | tee log'"
        )
