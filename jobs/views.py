"""The pages about jobs. What a person may not see does not exist for them."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.core.exceptions import NON_FIELD_ERRORS
from django.core.paginator import Paginator
from django.db import IntegrityError, transaction
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods
from django.views.generic import FormView

from jobs import audit, lifecycle, storage
from jobs.exceptions import TransitionConflict
from jobs.forms import JobFilterForm, LoginForm, SubmitForm
from jobs.models import Artifact, Attempt, Job, User
from jobs.status import LIVE, TERMINAL, Status

PAGE_SIZE = 25
# A job may leave 10,000 files; the API lists them all.
MOST_FILES = 200
LOG_LINES = 500
LOG_BYTES = 256 * 1024

# Of each tab: its name, its value in the query string, and the statuses it holds.
TABS: tuple[tuple[str, str, tuple[Status, ...]], ...] = (
    ("All", "", tuple(Status)),
    ("Queued", "queued", (Status.QUEUED,)),
    ("Live", "live", LIVE),
    ("Ended", "ended", TERMINAL),
)


def _me(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # every page here asks for a login
    return request.user


def _visible(request: HttpRequest) -> QuerySet[Job]:
    return Job.objects.visible_to(_me(request)).select_related("owner")


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
        "is_filtered": bool(form.changed_data),
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
    job = get_object_or_404(_visible(request), pk=pk)
    attempts = list(job.attempts.order_by("-number"))
    context = {
        "job": job,
        "attempts": attempts,
        "latest": attempts[0] if attempts else None,
        "events": job.events.order_by("-id"),
        "artifacts": _artifacts(job),
        "most_files": MOST_FILES,
        # Values often are passwords: only their owner sees them, no operator.
        "env": job.env if job.owner_id == _me(request).pk else dict.fromkeys(job.env),
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
    job = get_object_or_404(_visible(request), pk=pk)
    if request.method == "GET":
        return render(request, "jobs/confirm_cancel.html", {"job": job})
    try:
        lifecycle.request_cancel(job, by=_me(request))
    except TransitionConflict as conflict:
        messages.warning(request, str(conflict))
        return redirect("job-detail", pk)
    said = "Cancelled." if job.is_terminal else "It is asked to stop, and ends soon."
    messages.success(request, said)
    return redirect("job-detail", pk)


@login_required
@require_http_methods(["GET", "POST"])
def job_delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    job = get_object_or_404(_visible(request), pk=pk)
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

    template_name = "jobs/submit.html"
    form_class = SubmitForm

    def admit(self, spec: dict[str, Any]) -> str:
        """Return why no node could ever run this, or an empty text."""
        return ""

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "user": _me(self.request)}

    def form_valid(self, form: SubmitForm) -> HttpResponse:
        job = self._first(form.once)
        if job is None:
            if refusal := self.admit(form.cleaned_data["spec"]):
                form.add_error(None, refusal)
                return self.render_to_response(
                    self.get_context_data(form=form), status=422
                )
            job = self._submit(form)
        return redirect("job-detail", job.pk)

    def _first(self, key: str | None) -> Job | None:
        mine = Job.objects.filter(owner=_me(self.request))
        return mine.filter(idempotency_key=key).first() if key else None

    def _submit(self, form: SubmitForm) -> Job:
        try:
            return lifecycle.submit(
                by=_me(self.request),
                idempotency_key=form.once,
                **form.cleaned_data["spec"],
            )
        except IntegrityError:  # the same form came twice at once
            if job := self._first(form.once):
                return job
            raise


class LoginView(DjangoLoginView):
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
