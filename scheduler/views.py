from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from jobs import views
from jobs.models import Job, User
from scheduler import clusterpage, reservation


class SubmitView(views.SubmitView):
    def admit(self, spec: dict[str, Any]) -> str:
        assert isinstance(self.request.user, User)
        return reservation.never(Job(owner=self.request.user, **spec))


@login_required
@require_GET
def cluster(request: HttpRequest) -> HttpResponse:
    """Every GPU with who is on it, and the jobs that come next."""
    assert isinstance(request.user, User)
    return render(request, "scheduler/cluster.html", clusterpage.page(request.user))
