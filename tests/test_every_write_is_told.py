"""Whoever writes leaves one audit record. What is new must be put into a table here."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from rest_framework.test import APIClient

from jobs import lifecycle
from jobs.models import AuditRecord, Job, Quota, RoutingPolicy, SitePolicy, User
from scheduler.models import GPU, Node
from tests.factories import IMAGE, PASSWORD, make_job, make_policy, make_user
from tests.scheduler.factories import make_gpu, make_node

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(db: None) -> User:
    return make_user("root@example.org", is_staff=True, is_superuser=True)


@pytest.fixture
def client(root: User) -> Client:
    client = Client(REMOTE_ADDR="192.0.2.7")
    client.force_login(root)
    return client


@pytest.fixture
def api(root: User) -> APIClient:
    api = APIClient(REMOTE_ADDR="192.0.2.7")
    api.force_authenticate(root)
    return api


def told(act: Callable[[], Any]) -> list[AuditRecord]:
    """The records that came of it."""
    before = set(AuditRecord.objects.values_list("pk", flat=True))
    act()
    return list(AuditRecord.objects.exclude(pk__in=before))


def address(model: type[Model], verb: str, *args: Any) -> str:
    return reverse(
        f"admin:{model._meta.label_lower.replace('.', '_')}_{verb}", args=args
    )


# --- The admin -----------------------------------------------------------------------


def make_row(model: type[Model]) -> Model:
    if model is Quota:
        return Quota.objects.create(user=make_user("bob@example.org"), gpus=2)
    if model is User:
        return make_user("bob@example.org", name="Bob")
    if model is Group:
        return Group.objects.create(name="vision")
    if model is RoutingPolicy:
        return make_policy()
    if model is SitePolicy:
        return SitePolicy.objects.create()
    node = make_node()
    return make_gpu(node) if model is GPU else node


# By model: the field, what is typed into it, and what the record says of it.
FIELDS: dict[type[Model], tuple[str, str, Any, Any]] = {
    Quota: ("gpus", "8", 2, 8),
    User: ("name", "Robert", "Bob", "Robert"),
    Group: ("name", "robots", "vision", "robots"),
    GPU: ("headroom_mb", "512", 0, 512),
    Node: ("labels", "rack=2", {}, {"rack": "2"}),
    RoutingPolicy: ("description", "of texts", "", "of texts"),
    SitePolicy: ("text", "cpus = 2", "", "cpus = 2"),
}


def changeable(root: User) -> set[type[Model]]:
    request = RequestFactory().get("/")
    request.user = root
    return {
        model
        for model, shown in admin.site._registry.items()
        if shown.has_change_permission(request)
    }


def form_of(client: Client, path: str) -> dict[str, Any]:
    """What a browser would send without a change."""
    context = client.get(path).context
    sets = [inline.formset for inline in context["inline_admin_formsets"]]
    forms = [context["adminform"].form]
    forms += [each for formset in sets for each in (formset.management_form, *formset)]
    values = {
        form[name].html_name: form[name].value()
        for form in forms
        for name in form.fields
        if name != "password"
    }
    # An unticked box sends nothing; a 0 is a 0.
    return {name: v for name, v in values.items() if v is not None and v is not False}


def test_each_model_that_can_be_changed_is_in_the_table(root: User) -> None:
    assert changeable(root) == set(FIELDS)


@pytest.mark.parametrize("model", FIELDS, ids=lambda model: model.__name__)
def test_a_change_in_the_admin_is_told_once_with_before_and_after(
    client: Client, root: User, model: type[Model]
) -> None:
    row = make_row(model)
    path = address(model, "change", row.pk)
    name, typed, before, after = FIELDS[model]
    sent = {**form_of(client, path), name: typed}
    (record,) = told(lambda: client.post(path, sent))
    assert (record.actor, record.address) == (root.email, "192.0.2.7")
    assert record.action == f"{model._meta.model_name}.changed"
    assert record.details == {"before": {name: before}, "after": {name: after}}


@pytest.mark.parametrize("model", FIELDS, ids=lambda model: model.__name__)
def test_what_changes_nothing_is_not_told(client: Client, model: type[Model]) -> None:
    path = address(model, "change", make_row(model).pk)
    assert told(lambda: client.post(path, form_of(client, path))) == []


class TestGroups:
    def test_members_rights_are_told_by_name(self, client: Client) -> None:
        group = Group.objects.create(name="vision")
        right = Permission.objects.get(codename="change_quota")
        path = address(Group, "change", group.pk)
        sent = {"name": "vision", "permissions": [right.pk]}
        (record,) = told(lambda: client.post(path, sent))
        assert record.details == {
            "before": {"permissions": []},
            "after": {"permissions": [str(right)]},
        }

    def test_adding_and_deleting_are_told(self, client: Client) -> None:
        (added,) = told(lambda: client.post(address(Group, "add"), {"name": "vision"}))
        assert (added.action, added.target) == ("group.added", "vision")
        group = Group.objects.get()
        path = address(Group, "delete", group.pk)
        (deleted,) = told(lambda: client.post(path, {"post": "yes"}))
        assert (deleted.action, deleted.target) == ("group.deleted", "vision")
        assert deleted.details["before"]["name"] == "vision"

    def test_no_password_is_told(self, client: Client) -> None:
        password = "long enough and new"
        form = {
            "email": "new@example.org",
            "usable_password": "true",
            "password1": password,
            "password2": password,
            "is_approved": "on",
        }
        (record,) = told(lambda: client.post(address(User, "add"), form))
        assert record.action == "user.added"
        assert "password" not in str(record.details)


# --- API and pages -------------------------------------------------------------------


def waiting(root: User) -> Job:
    return make_job(root)


def held(root: User) -> Job:
    job = make_job(root)
    lifecycle.hold(job, by=root)
    return job


def ended(root: User) -> Job:
    return make_job(root, status="cancelled")


# Route: the job that it is done to, and the action that is told last.
OF_JOBS: dict[str, tuple[Callable[[User], Job], str]] = {
    **{
        f"{face}-{verb}": (job, action)
        for face in ("api", "job")
        for verb, job, action in (
            ("cancel", waiting, "job.cancelled"),
            ("hold", waiting, "job.held"),
            ("release", held, "job.released"),
            ("top", waiting, "job.moved_to_top"),
        )
    },
    "job-delete": (ended, "job.deleted"),
}
OTHERS = {
    *("api-jobs", "api-job", "job-submit", "api-register", "api-login"),
    *("api-refresh", "api-logout", "login", "logout"),
    *("api-review", "job-review", "policy"),
    *("token-add", "token-revoke", "secret-write", "secret-remove"),
    *("api-password", "api-tokens", "api-token", "api-secrets", "api-secret"),
}
READS = {
    *("api-passport", "api-logs", "api-events", "api-attempts", "api-artifact"),
    *("api-decisions", "api-savings"),
    *("api-artifact-download", "api-explain", "api-health", "api-gpus", "api-nodes"),
    *(
        "api-schema",
        "api-docs",
        "api-me",
        "api-policies",
        "health",
        "account",
        "job-csv",
        "cluster",
        "policies",
        "job-list",
        "job-detail",
    ),
}


def routes(under: URLResolver | None = None) -> Iterator[str]:
    for each in (under or get_resolver()).url_patterns:
        if isinstance(each, URLResolver):
            # The admin has its own table, and the session's pages are the same views.
            if each.namespace is None:
                yield from routes(each)
        elif isinstance(each, URLPattern) and each.name:
            yield each.name


def test_each_route_writes_with_a_record_or_only_reads() -> None:
    assert set(routes()) == {*OF_JOBS, *OTHERS, *READS}


@pytest.mark.parametrize("route", OF_JOBS)
def test_what_is_done_to_a_job_is_told(
    client: Client, api: APIClient, root: User, route: str
) -> None:
    make, action = OF_JOBS[route]
    job = make(root)
    by = api if route.startswith("api") else client
    (record,) = told(lambda: by.post(reverse(route, args=[job.pk])))
    assert (record.action, record.target) == (action, str(job.pk))
    assert (record.actor, record.address) == (root.email, "192.0.2.7")


def test_submitting_and_deleting_are_told(
    client: Client, api: APIClient, root: User
) -> None:
    make_gpu(make_node())
    spec = {"image": IMAGE, "gpu_count": 1}
    (submitted,) = told(lambda: api.post(reverse("api-jobs"), spec))
    assert (submitted.action, submitted.actor) == ("job.queued", root.email)
    job = ended(root)
    (deleted,) = told(lambda: api.delete(reverse("api-job", args=[job.pk])))
    assert (deleted.action, deleted.target) == ("job.deleted", str(job.pk))


def test_coming_and_going_are_told(root: User, settings: Any) -> None:
    settings.REGISTRATION = "open"
    api, client = APIClient(), Client()
    who = {"email": root.email, "password": PASSWORD}
    new = {"email": "new@example.org", "password": "long enough and new"}
    tokens: dict[str, Any] = {}

    def refresh() -> None:
        answer = api.post(
            reverse("api-refresh"), {"refresh_token": tokens["refresh_token"]}
        )
        tokens.update(answer.json())

    steps: list[tuple[Callable[[], Any], str]] = [
        (lambda: api.post(reverse("api-register"), new), "registered"),
        (
            lambda: tokens.update(api.post(reverse("api-login"), who).json()),
            "logged_in",
        ),
        (refresh, "refreshed"),
        (
            lambda: api.post(
                reverse("api-logout"), {"refresh_token": tokens["refresh_token"]}
            ),
            "logged_out",
        ),
        (
            lambda: api.post(reverse("api-login"), {**who, "password": "x"}),
            "login_failed",
        ),
    ]
    name = {"username": root.email, "password": PASSWORD}
    for start, end in (
        ("login", "logout"),
        ("rest_framework:login", "rest_framework:logout"),
        ("login", "admin:logout"),
    ):
        steps += [
            (partial(client.post, reverse(start), name), "logged_in"),
            (partial(client.post, reverse(end)), "logged_out"),
        ]
    for act, action in steps:
        assert [record.action for record in told(act)] == [f"user.{action}"]


def test_secrets_and_tokens_are_told_and_never_what_they_are(api: APIClient) -> None:
    one = reverse("api-secret", args=["HF_TOKEN"])
    steps: list[tuple[Callable[[], Any], str]] = [
        (lambda: api.put(one, {"value": "hf_0123456789"}), "secret.written"),
        (lambda: api.delete(one), "secret.deleted"),
    ]
    for act, action in steps:
        (record,) = told(act)
        assert (record.action, record.target) == (action, "HF_TOKEN")
        assert "hf_0123456789" not in str(record.details)
    asked = {"name": "laptop", "scopes": ["read"]}
    answers: list[Any] = []
    path = reverse("api-tokens")
    (made,) = told(lambda: answers.append(api.post(path, asked).json()))
    assert str(answers[0]["token"]) not in f"{made.target} {made.details}"
    gone = reverse("api-token", args=[answers[0]["id"]])
    (record,) = told(lambda: api.delete(gone))
    assert record.actor == made.actor


def test_a_password_that_was_set_in_the_admin_is_told(
    client: Client, root: User
) -> None:
    new = "long enough and new"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    path = reverse("admin:password_change")
    (record,) = told(lambda: client.post(path, form))
    assert (record.action, record.actor) == ("user.password_changed", root.email)
    assert told(lambda: client.post(path, {**form, "old_password": "x"})) == []


# --- Commands ------------------------------------------------------------------------


def test_an_operator_made_by_a_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    out = io.StringIO()
    words = ["createsuperuser", "--noinput", "--email", "new@example.org"]
    (record,) = told(lambda: call_command(*words, stdout=out))
    assert (record.action, record.target) == ("user.added", "new@example.org")
    assert record.details["after"] == {"is_staff": True, "is_superuser": True}
    assert record.actor.endswith("on the console")


def test_a_password_that_a_command_set_is_told(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getpass", lambda **_: "long enough and new")
    (record,) = told(
        lambda: call_command("changepassword", root.email, stdout=io.StringIO())
    )
    assert (record.action, record.target) == ("user.password_set", root.email)
