"""Every endpoint, by every method, for every role: what is answered.

The endpoints come from the URL resolver. One that is in no row fails, and so does a
method that a view of the API takes and no row names. What a page takes and no row
names must be refused to everybody.
"""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import models, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, path, reverse
from django.urls.resolvers import RegexPattern
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework_simplejwt.tokens import RefreshToken

from gpujobs.urls import urlpatterns
from jobs import accounts
from jobs.models import (
    ApiToken,
    Job,
    Quota,
    RoutingPolicy,
    Scope,
    Secret,
    SitePolicy,
    User,
)
from jobs.status import Status
from scheduler.models import GPU, Node
from tests.factories import (
    IMAGE,
    PASSWORD,
    make_artifact,
    make_job,
    make_policy,
    make_user,
)
from tests.scheduler.factories import make_gpu, make_node

pytestmark = pytest.mark.django_db

ROLES = (
    *("anonymous", "suspended", "expired", "reader", "stranger"),
    *("teammate", "owner", "operator", "admin"),
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
Cells = dict[str, int]


def cells(
    closed: int, reader: int, stranger: int, teammate: int, owner: int, staff: int
) -> Cells:
    """`reader` holds the owner's token of the scope read; nobody else holds one."""
    return dict(
        zip(
            ROLES,
            [closed] * 3 + [reader, stranger, teammate, owner, staff, staff],
            strict=True,
        )
    )


OPEN = cells(200, 200, 200, 200, 200, 200)
KNOWN = cells(401, 200, 200, 200, 200, 200)
READ = cells(401, 200, 404, 200, 200, 200)
CHANGE = cells(401, 403, 404, 403, 200, 200)
TOP = cells(401, 403, 404, 403, 403, 200)
GONE = cells(401, 403, 404, 403, 204, 204)
OWN = cells(401, 403, 200, 200, 200, 200)
TOKEN_GONE = cells(401, 403, 404, 404, 204, 404)


def every(status: int, but: Cells | None = None) -> Cells:
    return {**dict.fromkeys(ROLES, status), **(but or {})}


# Where a page is refused for want of a login, it leads there.
PAGE = cells(302, 302, 200, 200, 200, 200)
PAGE_READ = cells(302, 302, 404, 200, 200, 200)
PAGE_ASK = cells(302, 302, 404, 403, 200, 200)
PAGE_DO = cells(302, 302, 404, 403, 302, 302)
PAGE_SEE_OTHER = cells(302, 302, 404, 403, 303, 303)

TABLE: dict[str, dict[str, Cells]] = {
    "api/v1/auth/register": {"POST": every(201)},
    "api/v1/auth/login": {"POST": OPEN},
    "api/v1/auth/refresh": {"POST": OPEN},
    "api/v1/auth/logout": {"POST": every(204)},
    "api/v1/auth/me": {"GET": KNOWN},
    # The others have another password than the body says.
    "api/v1/auth/password": {"POST": cells(401, 403, 400, 400, 200, 400)},
    "api/v1/auth/tokens": {"GET": OWN, "POST": cells(401, 403, 201, 201, 201, 201)},
    "api/v1/auth/tokens/{token}": {"DELETE": TOKEN_GONE},
    # Each has secrets of its own; that of the owner is named here.
    "api/v1/secrets": {"GET": OWN},
    "api/v1/secrets/{name}": {
        "PUT": cells(401, 403, 201, 201, 200, 201),
        "DELETE": TOKEN_GONE,
    },
    "api/v1/policies": {"GET": KNOWN},
    "api/v1/policies/{policy}/savings": {"GET": cells(401, 403, 403, 403, 403, 200)},
    "api/v1/jobs": {"GET": KNOWN, "POST": cells(401, 403, 201, 201, 201, 201)},
    "api/v1/jobs/{pk}": {"GET": READ, "DELETE": GONE},
    "api/v1/jobs/{pk}/cancel": {"POST": CHANGE},
    "api/v1/jobs/{pk}/hold": {"POST": CHANGE},
    "api/v1/jobs/{pk}/release": {"POST": CHANGE},
    "api/v1/jobs/{pk}/top": {"POST": TOP},
    "api/v1/jobs/{pk}/review": {"POST": cells(401, 403, 404, 403, 403, 409)},
    "api/v1/jobs/{pk}/decisions": {"GET": READ},
    "api/v1/jobs/{pk}/logs": {"GET": READ},
    "api/v1/jobs/{pk}/events": {"GET": READ},
    "api/v1/jobs/{pk}/attempts": {"GET": READ},
    "api/v1/jobs/{done}/passport": {"GET": READ},
    "api/v1/jobs/{done}/artifact": {"GET": READ},
    "api/v1/jobs/{done}/artifact/download": {"GET": READ},
    "api/v1/jobs/{pk}/explain": {"GET": READ},
    "api/v1/gpus": {"GET": KNOWN},
    "api/v1/nodes": {"GET": KNOWN},
    "api/v1/health": {"GET": OPEN},
    "health": {"GET": OPEN},
    # What the API can do is no secret; an expired token is told so even here.
    "api/v1/schema": {"GET": every(200, {"expired": 401, "suspended": 200})},
    "api/v1/docs": {"GET": every(200, {"expired": 401, "suspended": 200})},
    "api/v1": {m: every(302) for m in METHODS},
    "api/session/login/": {"GET": every(302, cells(200, 200, 302, 302, 302, 302))},
    "api/session/logout/": {"POST": every(302)},
    "": {"GET": PAGE},
    "jobs/": {"GET": PAGE},
    "jobs/{pk}/": {"GET": PAGE_READ},
    "jobs/{pk}/cancel/": {"GET": PAGE_ASK, "POST": PAGE_DO},
    "policies/": {"GET": PAGE},
    "jobs.csv": {"GET": PAGE},
    "account/": {"GET": PAGE},
    "account/tokens/": {"POST": PAGE},
    "account/tokens/{token}/revoke/": {"POST": cells(302, 302, 404, 404, 302, 404)},
    "account/secrets/": {"POST": PAGE},
    "account/secrets/{name}/remove/": {"POST": every(302)},
    # With an empty form, which says what is missing.
    "policies/{policy}/": {"GET": PAGE, "POST": PAGE},
    "jobs/{pk}/review/": {
        "GET": cells(302, 302, 404, 403, 403, 302),
        "POST": cells(302, 302, 404, 403, 403, 302),
    },
    "jobs/{pk}/delete/": {"GET": PAGE_ASK, "POST": PAGE_DO},
    "jobs/{pk}/hold/": {"POST": PAGE_SEE_OTHER},
    "jobs/{pk}/release/": {"POST": PAGE_SEE_OTHER},
    "jobs/{pk}/top/": {"POST": PAGE_SEE_OTHER},
    "submit/": {"GET": PAGE, "POST": cells(302, 302, 302, 302, 302, 302)},
    "login/": {"GET": every(302, cells(200, 200, 302, 302, 302, 302))},
    "logout/": {"POST": every(302)},
}
# Their form is sent empty here, which is an answer and no login.
ALSO_POST = ("login/", "api/session/login/")
for route in ALSO_POST:
    TABLE[route]["POST"] = cells(200, 200, 302, 302, 302, 302)


# --- What there is -------------------------------------------------------------------


def routes(patterns: Any, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        here = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        else:
            yield here, pattern


def named(route: str) -> str:
    """As in the table: one spelling for regular expressions and for converters."""
    text = re.sub(r"\(\?P<(\w+)>[^)]*\)|<(?:\w+:)?(\w+)>", r"{\1\2}", route)
    text = text.replace("^", "").replace("/?$", "").replace("$", "")
    if "artifact" in text or "passport" in text:
        return text.replace("{pk}", "{done}")
    return text.replace("tokens/{pk}", "tokens/{token}")


def is_api(pattern: URLPattern) -> bool:
    return hasattr(pattern.callback, "cls")


def methods_of(pattern: URLPattern) -> set[str]:
    """Of a view of the API, those that it has a handler for."""
    callback: Any = pattern.callback
    view, actions = callback.cls, getattr(callback, "actions", None)
    return {
        m
        for m in METHODS
        if (m.lower() in actions if actions else hasattr(view, m.lower()))
    }


def not_in_the_table(resolver: URLResolver) -> list[str]:
    missing = []
    for route, pattern in routes(resolver.url_patterns):
        name = named(route)
        if name.startswith("admin/"):
            continue  # by rule, from the registry: below
        if name not in TABLE:
            missing.append(name)
        elif is_api(pattern):
            unsaid = methods_of(pattern) - TABLE[name].keys()
            missing += [f"{method} {name}" for method in sorted(unsaid)]
    return missing


def test_every_endpoint_is_in_the_table_and_no_other() -> None:
    assert not_in_the_table(get_resolver()) == []
    there = {named(route) for route, _ in routes(get_resolver().url_patterns)}
    assert TABLE.keys() <= there


class FakeView(APIView):
    def get(self, request: Request) -> Response:
        return Response({})


def test_a_new_endpoint_is_noticed() -> None:
    fake = path("api/v1/fake", FakeView.as_view())
    resolver = URLResolver(RegexPattern(r"^/"), [*urlpatterns, fake])
    assert not_in_the_table(resolver) == ["api/v1/fake"]


def test_a_new_method_of_an_endpoint_is_noticed() -> None:
    class Wider(FakeView):
        def delete(self, request: Request) -> Response:
            return Response({})

    wider = path("api/v1/gpus", Wider.as_view())
    resolver = URLResolver(RegexPattern(r"^/"), [*urlpatterns, wider])
    assert not_in_the_table(resolver) == ["DELETE api/v1/gpus"]


def test_a_new_endpoint_is_closed_to_tokens_and_strangers(site: "Site") -> None:
    assert site.asked(FakeView.as_view(), "anonymous") == 401
    assert site.asked(FakeView.as_view(), "reader") == 403


# --- Who asks ------------------------------------------------------------------------


class Site:
    """Real rows: one job of the owner that the group may see, and one that ended."""

    def __init__(self) -> None:
        self.group = Group.objects.create(name="vision")
        for role, rights in (
            ("owner", {}),
            ("teammate", {}),
            ("stranger", {}),
            ("suspended", {}),
            ("operator", {"is_staff": True}),
            ("admin", {"is_staff": True, "is_superuser": True}),
        ):
            password = PASSWORD if role == "owner" else "another good phrase"
            user = make_user(f"{role}@example.org", password=password, **rights)
            setattr(self, role, user)
        self.owner.groups.add(self.group)
        self.teammate.groups.add(self.group)
        shared = {"group": "vision", "visibility": "group"}
        self.job = make_job(self.owner, **shared)
        self.done = make_job(self.owner, status=Status.SUCCEEDED, **shared)
        make_artifact(self.done.attempts.get())
        self.policy = make_policy()
        later = timezone.now() + timedelta(days=1)
        self.token, self.text = accounts.issue_token(
            self.owner, name="reader", scopes=[Scope.READ], expires_at=later
        )
        old, self.old_text = accounts.issue_token(
            self.owner, name="old", scopes=[Scope.READ], expires_at=later
        )
        ApiToken.objects.filter(pk=old.pk).update(expiry=timezone.now())
        Secret.objects.create(owner=self.owner, name="HF_TOKEN", sealed="x")
        self.refresh = str(RefreshToken.for_user(self.owner))

    owner: User
    teammate: User
    stranger: User
    suspended: User
    operator: User
    admin: User

    def client(self, role: str) -> Client:
        client = Client(raise_request_exception=False)
        if text := {"reader": self.text, "expired": self.old_text}.get(role):
            client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {text}"
        elif role != "anonymous":
            client.force_login(getattr(self, role))
        if role == "suspended":
            User.objects.filter(pk=self.suspended.pk).update(
                suspended_at=timezone.now()
            )
        return client

    def body(self, name: str) -> dict[str, Any]:
        bodies: dict[str, dict[str, Any]] = {
            "api/v1/auth/register": {
                "email": "n@example.org",
                "password": "a long one",
            },
            "api/v1/auth/login": {"email": self.owner.email, "password": PASSWORD},
            "api/v1/auth/refresh": {"refresh_token": self.refresh},
            "api/v1/auth/logout": {"refresh_token": self.refresh},
            "api/v1/auth/password": {
                "old_password": PASSWORD,
                "new_password": "yet another phrase",
            },
            "api/v1/auth/tokens": {"name": "x", "scopes": ["read"]},
            "api/v1/secrets/{name}": {"value": "a long enough one"},
            "api/v1/jobs/{pk}/review": {"accepts": True},
            "api/v1/jobs": {"image": IMAGE, "gpu_count": 0},
            "submit/": {
                **{"image": IMAGE, "gpu_count": "0", "timeout_s": "1h"},
                **{"grace_s": "10", "priority": "50"},
            },
        }
        return bodies.get(name, {})

    def status(self, role: str, method: str, name: str) -> int:
        address = "/" + name.format(
            pk=self.job.pk,
            done=self.done.pk,
            token=self.token.pk,
            name="HF_TOKEN",
            policy=self.policy.name,
        )
        sends_json = method != "GET" and name.startswith("api/v1/")
        kind = {"content_type": "application/json"} if sends_json else {}
        ask = getattr(self.client(role), method.lower())
        sent = self.body(name) if method in TABLE[name] else {}
        answer = ask(address, sent if kind or method == "POST" else None, **kind)
        if answer.streaming:  # read to its end, it closes its file
            b"".join(answer.streaming_content)
        return int(answer.status_code)

    def asked(self, view: Callable[..., Any], role: str) -> int:
        request = self.client(role).request(PATH_INFO="/api/v1/auth/me").wsgi_request
        return int(view(request).status_code)


@pytest.fixture
def site(db: None, settings: Any) -> Site:
    settings.REGISTRATION = "open"
    return Site()


def answers(site: Site, method: str, name: str) -> Cells:
    """Each role asks of the same rows: what one did is taken back."""
    given = {}
    for role in ROLES:
        with transaction.atomic():
            given[role] = site.status(role, method, name)
            transaction.set_rollback(True)
    return given


@pytest.mark.parametrize(
    ("name", "method"), [(n, m) for n, row in TABLE.items() for m in row]
)
def test_each_role_gets_what_the_table_says(site: Site, name: str, method: str) -> None:
    assert answers(site, method, name) == TABLE[name][method]


@pytest.mark.parametrize("name", TABLE)
def test_what_no_row_names_is_refused_to_all(site: Site, name: str) -> None:
    for method in METHODS:
        if method not in TABLE[name]:
            cache.clear()  # who registers is counted, whatever the method
            given = answers(site, method, name)
            assert set(given.values()) <= {302, 401, 403, 405}, (method, given)
            # Who is logged in is led away from a login before all else.
            refused = 302 if name in ALSO_POST else 405
            assert given["owner"] == refused, (method, given)
            assert given["anonymous"] in (405, 401, 302), (method, given)


# --- The admin: by rule --------------------------------------------------------------

REGISTRY = sorted(admin.site._registry, key=lambda model: model._meta.label)
NO_OPERATOR = [role for role in ROLES if role not in ("operator", "admin")]
# All others are looked at by operators, and changed by nobody.
ADDED = (User, Group, Quota, RoutingPolicy)
CHANGED = (*ADDED, GPU, Node)
CHANGED_BY_OPERATORS = (GPU, Node)
DELETED = (Group, Quota)


def rows_for_the_admin(site: Site) -> None:
    make_gpu(make_node())
    Quota.objects.create(user=site.owner, gpus=1)
    # There is one at most: nobody adds another.
    SitePolicy.objects.create()
    make_job(site.owner, status=Status.FAILED)


def admin_status(site: Site, role: str, method: str, view: str, *args: Any) -> int:
    with transaction.atomic():
        ask = getattr(site.client(role), method)
        answer = ask(reverse(f"admin:{view}", args=args))
        transaction.set_rollback(True)
    if role in NO_OPERATOR:
        assert answer.status_code == 302, (role, view)
        assert re.match(r"/(admin/)?login/", answer["Location"]), (role, view)
    return int(answer.status_code)


@pytest.mark.parametrize("model", REGISTRY, ids=lambda model: model.__name__)
def test_each_model_of_the_admin(site: Site, model: type[models.Model]) -> None:
    rows_for_the_admin(site)
    row = model._default_manager.first()
    one = [row.pk] if row else ["1"]
    prefix = model._meta.label_lower.replace(".", "_")
    sees = model is not Group
    expected = {
        ("get", "changelist", "operator"): 200 if sees else 403,
        ("get", "changelist", "admin"): 200,
        ("get", "add", "operator"): 403,
        ("get", "add", "admin"): 200 if model in ADDED else 403,
        ("post", "add", "operator"): 403,
        ("post", "add", "admin"): 200 if model in ADDED else 403,
        ("get", "delete", "operator"): 403,
        ("get", "delete", "admin"): 200 if model in DELETED else 403,
        ("post", "delete", "operator"): 403,
        ("post", "change", "operator"): 200 if model in CHANGED_BY_OPERATORS else 403,
        ("post", "change", "admin"): 200 if model in CHANGED else 403,
    }
    if model is SitePolicy:  # an empty form is a policy: that of the hosts
        expected["post", "change", "admin"] = 302
    if row:
        expected |= {
            ("get", "change", "operator"): 200 if sees else 403,
            ("get", "change", "admin"): 200,
            ("get", "history", "operator"): 200 if sees else 403,
            ("get", "history", "admin"): 200,
        }
    given = {}
    for method, verb, role in expected:
        args = [] if verb in ("changelist", "add") else one
        view = f"{prefix}_{verb}"
        given[method, verb, role] = admin_status(site, role, method, view, *args)
        for closed in NO_OPERATOR:
            admin_status(site, closed, method, view, *args)
    assert given == expected


def test_what_the_admin_has_beside_its_models_is_known() -> None:
    """Another view there needs a line here, and a test of who may use it."""
    by_model = {f"{m._meta.app_label}_{m._meta.model_name}" for m in REGISTRY}
    others = set()
    for pattern in (p for _, p in routes(admin.site.urls[0])):
        model = (pattern.name or "").rpartition("_")[0]
        if pattern.name and model not in by_model:
            others.add(pattern.name)
    assert others == {
        *["index", "login", "logout", "password_change", "password_change_done"],
        *["autocomplete", "jsi18n", "view_on_site", "app_list"],
        "auth_user_password_change",
    }


@pytest.mark.parametrize(
    ("view", "operator", "super_"),
    [
        ("index", 200, 200),
        ("password_change", 200, 200),
        ("password_change_done", 200, 200),
        ("autocomplete", 403, 403),
        ("jsi18n", 200, 200),
    ],
)
def test_the_rest_of_the_admin(
    site: Site, view: str, operator: int, super_: int
) -> None:
    for role in NO_OPERATOR:
        admin_status(site, role, "get", view)
    assert admin_status(site, "operator", "get", view) == operator
    assert admin_status(site, "admin", "get", view) == super_


def test_only_a_superuser_sets_a_password_in_the_admin(site: Site) -> None:
    view, who = "auth_user_password_change", site.owner.pk
    for role in NO_OPERATOR:
        admin_status(site, role, "get", view, who)
    assert admin_status(site, "operator", "get", view, who) == 403
    assert admin_status(site, "admin", "get", view, who) == 200
    assert Job.objects.count() == 2
