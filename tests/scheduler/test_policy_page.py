"""The pages of policies: what they do, and the form by which a task is given to one."""

import html
from typing import Any

import pytest
from django.test import Client

from jobs import policies
from jobs.models import AuditRecord, Job, Quota, User
from scheduler.models import GPU
from tests.factories import make_policy
from tests.scheduler.factories import GB, make_gpu, make_node

SCHEMA = {
    "type": "object",
    "required": ["text", "n", "deep"],
    "properties": {
        "text": {"type": "string"},
        "n": {"type": "integer", "maximum": 5},
        "deep": {"type": "boolean"},
    },
}
GOOD = '{"text": "hi", "n": 1, "deep": true}'
FORM = {"params": GOOD, "risk": "low", "priority": "50", "idempotency_key": "0b6f7f7e"}
URL = "/policies/sentiment/"


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    make_gpu(make_node(), 48 * GB)
    make_policy(
        params=SCHEMA,
        description="What a text <feels>.",
        validators=[
            {"name": "there", "artifact": "r.json"},
            {"name": "sure", "number": "c", "path": "r.json", "at_least": 0.5},
        ],
    )
    client.force_login(alice)
    return client


def text(answer: Any) -> str:
    return html.unescape(answer.content.decode())


def test_the_live_policies_are_listed(page: Client) -> None:
    shown = text(page.get("/policies/"))
    assert '<a href="/policies/sentiment/">sentiment</a>' in shown
    assert "What a text &lt;feels&gt;." in page.get("/policies/").content.decode()
    assert "small < large" in shown


def test_without_any_it_says_how_one_comes_here(client: Client, alice: User) -> None:
    client.force_login(alice)
    assert "No policy is live." in text(client.get("/policies/"))


def test_a_policy_says_what_it_does_and_what_it_needs(page: Client) -> None:
    shown = text(page.get(URL))
    assert "1 GPU with 1.0 GB" in shown
    assert "a file r.json" in shown
    assert "c in r.json is within its bounds" in shown
    assert '"maximum": 5' in shown
    # What the schema asks for stands there to be filled in.
    assert '"text": "",\n  "n": 0,\n  "deep": false' in shown


def test_a_task_is_routed_and_queued(page: Client, alice: User) -> None:
    answer = page.post(URL, FORM)
    job = Job.objects.get()
    assert answer.headers["Location"] == f"/jobs/{job.pk}/"
    assert (job.owner, job.tier, job.risk) == (alice, "small", "low")
    assert job.params == {"text": "hi", "n": 1, "deep": True}
    assert AuditRecord.objects.get(action="job.queued").actor == alice.email
    shown = text(page.get(f"/jobs/{job.pk}/"))
    assert "Why this model" in shown
    assert "small is the smallest that will do" in shown


def test_sending_twice_makes_one_job_and_editing_another(page: Client) -> None:
    first, second = page.post(URL, FORM), page.post(URL, FORM)
    assert first.headers["Location"] == second.headers["Location"]
    page.post(URL, {**FORM, "risk": "medium"})
    assert Job.objects.count() == 2


WRONG = [
    ("no JSON", {"params": "{"}, "This is no JSON"),
    ("a list", {"params": "[]"}, "Give a JSON object."),
    ("nothing", {"params": ""}, "This field is required."),
    ("against the schema", {"params": '{"text": 1, "n": 1, "deep": true}'}, "text"),
    ("too large a number", {"params": GOOD.replace("1", "6")}, "6 is greater"),
    ("a NUL", {"params": GOOD.replace("hi", "\0")}, "Null characters"),
    ("an escaped NUL", {"params": GOOD.replace("hi", "\\u0000")}, "NUL"),
    ("half a character", {"params": GOOD.replace("hi", "\\ud800")}, "NUL"),
    ("nested without end", {"params": "[" * 100_000}, "This is no JSON"),
    ("a risk that is none", {"risk": "tiny"}, "Select a valid choice"),
    ("a priority that is not one's own", {"priority": "90"}, "Above 50"),
    ("a name of two lines", {"name": "a\nb"}, "line"),
]


@pytest.mark.parametrize(
    ("fields", "told"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_bad_task_comes_back_with_what_was_typed(
    page: Client, fields: dict[str, str], told: str
) -> None:
    answer = page.post(URL, {**FORM, **fields})
    assert answer.status_code == 200
    assert told in text(answer)
    assert 'value="0b6f7f7e"' in text(answer)
    assert not Job.objects.exists()


def test_where_no_tier_will_do_it_is_told_and_nothing_is_lost(page: Client) -> None:
    GPU.objects.update(state="quarantined")
    answer = page.post(URL, FORM)
    assert answer.status_code == 422
    assert "No tier of sentiment will do" in text(answer)
    assert '"text": "hi"' in text(answer)


def test_a_full_queue_is_told(page: Client, alice: User) -> None:
    Quota.objects.create(user=alice, queued_jobs=0)
    answer = page.post(URL, FORM)
    assert answer.status_code == 422
    assert "queued jobs of at most 0" in text(answer)


def test_one_that_is_not_live_is_not_there(page: Client) -> None:
    policies.retire(make_policy("other"), by="olga")
    assert page.get("/policies/other/").status_code == 404
    assert page.get("/policies/none/").status_code == 404


def test_a_stranger_is_led_to_the_login(client: Client, db: None) -> None:
    for path in ("/policies/", URL):
        assert client.get(path).headers["Location"].startswith("/login/")
