"""The pages about jobs. What a person may not see does not exist for them."""

import json
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.contrib.auth.views import LogoutView as DjangoLogoutView
from django.core.exceptions import (
    NON_FIELD_ERRORS,
    PermissionDenied,
    ValidationError,
)
from django.core.paginator import Paginator
from django.db import IntegrityError, transaction
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django.views.generic import FormView

from jobs import audit, lifecycle, retelling, storage
from jobs.exceptions import OperatorsOnly, OverQuota, TransitionConflict
from jobs.forms import JobFilterForm, LoginForm, SubmitForm, initial_of
from jobs.models import Artifact, Attempt, Job, User
from jobs.status import LIVE, TERMINAL, Status

PAGE_SIZE = 25
# A job may leave 10,000 files; the API lists them all.
MOST_FILES = 200
PARAMS_SHOWN = 2000
LOG_LINES = 500
LOG_BYTES = 256 * 1024

# Of each tab: its name, its value in the query string, and the statuses it holds.
TABS: tuple[tuple[str, str, tuple[Status, ...]], ...] = (
    ("All", "", tuple(Status)),
    ("Queued", "queued", (Status.QUEUED,)),
    ("Live", "live", LIVE),
    ("Ended", "ended", TERMINAL),
)


class SeeOther(HttpResponseRedirect):
    """What is done is done: the page that comes next is asked for with GET."""

    status_code = 303


def _me(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # every page here asks for a login
    return request.user


def _visible(request: HttpRequest) -> QuerySet[Job]:
    return Job.objects.visible_to(_me(request)).select_related("owner")


def _to_change(request: HttpRequest, pk: UUID) -> Job:
    job = get_object_or_404(_visible(request), pk=pk)
    if not job.may_be_changed_by(_me(request)):
        raise PermissionDenied
    return job


@login_required
@require_GET
def job_list(request: HttpRequest) -> HttpResponse:
    form = JobFilterForm(request.GET, user=_me(request))
    jobs = _visible(request)
    latest = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number")
    matching = form.narrow(jobs).annotate(
        node=Subquery(latest.values("node")[:1]),
        attempt_started_at=Subquery(latest.values("started_at")[:1]),
    )
    context = {
        "form": form,
        "tabs": _tabs(
            form.narrow(jobs, by_status=False), request.GET.get("status", "")
        ),
        "page": Paginator(matching, PAGE_SIZE).get_page(request.GET.get("page")),
        "shows_owners": _me(request).is_staff or _me(request).groups.exists(),
        "is_filtered": bool(form.changed_data),
        "array": form.cleaned_data.get("array"),
        "now": timezone.now(),
    }
    return render(request, "jobs/list.html", context)


def _tabs(jobs: QuerySet[Job], status: str) -> list[dict[str, Any]]:
    counts = jobs.order_by().aggregate(
        **{name: Count("pk", Q(status__in=held)) for name, _, held in TABS}
    )
    return [
        {
            "name": name,
            "value": value,
            "count": counts[name],
            "is_current": status == value,
        }
        for name, value, _ in TABS
    ]


@login_required
@require_GET
def job_detail(request: HttpRequest, pk: UUID) -> HttpResponse:
    job = get_object_or_404(_visible(request).select_related("policy"), pk=pk)
    rows = job.attempts.select_related("evaluation", "subject")
    attempts = list(rows.order_by("-number"))
    # Values often are passwords: only their owner sees them, no operator.
    is_own = job.owner_id == _me(request).pk
    env = job.env if is_own else dict.fromkeys(job.env)
    context = {
        "job": job,
        "may_change": job.may_be_changed_by(_me(request)),
        "may_release": job.may_be_released_by(_me(request)),
        "attempts": attempts,
        "latest": attempts[0] if attempts else None,
        "events": job.events.order_by("-id"),
        "artifacts": _artifacts(job),
        "decisions": job.decisions.all(),
        "params": json.dumps(job.params, ensure_ascii=False)[:PARAMS_SHOWN],
        "most_files": MOST_FILES,
        "env": env,
        "retold": retelling.retold(
            job, env, request.build_absolute_uri(reverse("api-jobs"))
        ),
        "log": storage.tail(job, most_lines=LOG_LINES, most_bytes=LOG_BYTES),
    }
    return render(request, "jobs/detail.html", context)


def _artifacts(job: Job) -> QuerySet[Artifact]:
    """A job that did not succeed has no result, whatever its attempts left."""
    if job.status != Status.SUCCEEDED:
        return Artifact.objects.none()
    latest = job.attempts.accepted().values("pk")[:1]
    return Artifact.objects.filter(attempt__in=latest)[:MOST_FILES]


@login_required
@require_http_methods(["GET", "POST"])
def job_cancel(request: HttpRequest, pk: UUID) -> HttpResponse:
    job = _to_change(request, pk)
    if request.method == "GET":
        return render(request, "jobs/confirm_cancel.html", {"job": job})
    of_array = job.array_id is not None and request.POST.get("array") == "true"
    try:
        if of_array:
            lifecycle.each_task(lifecycle.request_cancel, job, by=_me(request))
        else:
            lifecycle.request_cancel(job, by=_me(request))
    except TransitionConflict as conflict:
        messages.warning(request, str(conflict))
        return redirect("job-detail", pk)
    if of_array:
        messages.success(request, "All tasks are cancelled, or are asked to stop.")
        return redirect("job-detail", pk)
    said = "Cancelled." if job.is_terminal else "It is asked to stop, and ends soon."
    messages.success(request, said)
    return redirect("job-detail", pk)


@login_required
@require_POST
def job_hold(request: HttpRequest, pk: UUID) -> HttpResponse:
    return _change(request, pk, lifecycle.hold, "Held: it waits for its release.")


@login_required
@require_POST
def job_release(request: HttpRequest, pk: UUID) -> HttpResponse:
    return _change(request, pk, lifecycle.release_hold, "Released.")


@login_required
@require_POST
def job_top(request: HttpRequest, pk: UUID) -> HttpResponse:
    return _change(request, pk, lifecycle.move_to_top, "It is first in the queue now.")


def _change(
    request: HttpRequest, pk: UUID, verb: lifecycle.Verb, said: str
) -> HttpResponse:
    job = _to_change(request, pk)
    try:
        verb(job, by=_me(request))
        messages.success(request, said)
    except (TransitionConflict, OperatorsOnly) as refusal:
        messages.warning(request, str(refusal))
    return SeeOther(reverse("job-detail", args=[pk]))


@login_required
@require_http_methods(["GET", "POST"])
def job_delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    job = _to_change(request, pk)
    if request.method == "GET":
        return render(request, "jobs/confirm_delete.html", {"job": job})
    try:
        lifecycle.delete(job, by=_me(request))
    except TransitionConflict as conflict:
        messages.warning(request, str(conflict))
        return redirect("job-detail", pk)
    messages.success(request, f"{job.name} is deleted.")
    return redirect("job-list")


class SubmitView(LoginRequiredMixin, FormView):
    """The scheduler extends this: it overrides `admit`, which needs the hardware."""

    http_method_names = ["get", "head", "post", "options"]
    template_name = "jobs/submit.html"
    form_class = SubmitForm

    def admit(self, spec: dict[str, Any]) -> str:
        """Return why no node could ever run this, or an empty text."""
        return ""

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "user": _me(self.request)}

    def get_initial(self) -> dict[str, Any]:
        """As another job was, where the address names one that the person may see."""
        with suppress(ValueError):
            pk = UUID(self.request.GET.get("from", ""))
            job = _visible(self.request).filter(pk=pk, model_name="").first()
            return initial_of(job, _me(self.request)) if job else {}
        return {}

    def form_valid(self, form: SubmitForm) -> HttpResponse:
        job = self._first(form.once)
        if job is None:
            if refusal := self.admit(form.cleaned_data["spec"]):
                return self._refuse(form, refusal)
            try:
                job = self._submit(form)
            except OverQuota as refused:
                return self._refuse(form, str(refused))
            except ValidationError as wrong:  # what only the rows can tell
                form.add_error(None, wrong)
                return self.form_invalid(form)
        return redirect("job-detail", job.pk)

    def _refuse(self, form: SubmitForm, text: str) -> HttpResponse:
        form.add_error(None, text)
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def _first(self, key: str | None) -> Job | None:
        mine = Job.objects.filter(owner=_me(self.request))
        return mine.filter(idempotency_key=key).first() if key else None

    def _submit(self, form: SubmitForm) -> Job:
        try:
            return lifecycle.submit(
                by=_me(self.request),
                idempotency_key=form.once,
                **form.cleaned_data["terms"],
                **form.cleaned_data["spec"],
            )
        except (IntegrityError, OverQuota):  # the same form came twice at once
            if job := self._first(form.once):
                return job
            raise


class LoginView(DjangoLoginView):
    http_method_names = ["get", "head", "post", "options"]
    authentication_form = LoginForm
    redirect_authenticated_user = True

    @transaction.atomic
    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        audit.record("user.logged_in", target=form.get_user(), by=form.get_user())
        return super().form_valid(form)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        if not form.has_error(NON_FIELD_ERRORS, "throttled"):
            tried = str(form.data.get("username", ""))[:254]
            audit.record("user.login_failed", target=tried, by="anonymous")
        return super().form_invalid(form)


class LogoutView(DjangoLogoutView):
    @transaction.atomic
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            audit.record("user.logged_out", target=request.user, by=request.user)
        return super().post(request, *args, **kwargs)
