"""The page on which an operator accepts or rejects a result."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from jobs import lifecycle
from jobs.exceptions import TransitionConflict
from jobs.models import Evaluation, Job, User
from jobs.status import IN_REVIEW

MOST_FILES = 200
MOST_TEXT = 4000


@login_required
@require_http_methods(["GET", "POST"])
def job_review(request: HttpRequest, pk: UUID) -> HttpResponse:
    assert isinstance(request.user, User)
    job = get_object_or_404(Job.objects.visible_to(request.user), pk=pk)
    if not request.user.is_staff:
        raise PermissionDenied
    if request.method == "POST" and request.POST.get("accepts") in ("true", "false"):
        return _review(request, job, request.user)
    if job.reason != IN_REVIEW:
        messages.warning(request, f"{job} has no result that waits for a review.")
        return redirect("job-detail", pk)
    evaluation = Evaluation.objects.get(attempt__job=job, review_until__isnull=False)
    files = evaluation.attempt.artifacts.all()[:MOST_FILES]
    context = {"job": job, "evaluation": evaluation, "artifacts": files}
    return render(request, "jobs/review.html", context)


def _review(request: HttpRequest, job: Job, by: User) -> HttpResponse:
    accepts = request.POST["accepts"] == "true"
    # NUL can not be stored; a person did not type it.
    text = request.POST.get("text", "").replace("\0", "")[:MOST_TEXT]
    try:
        lifecycle.review(job, accepts=accepts, text=text, by=by)
        messages.success(request, "Accepted." if accepts else "Rejected.")
    except TransitionConflict as conflict:
        messages.warning(request, str(conflict))
    return redirect("job-detail", job.pk)
