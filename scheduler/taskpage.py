"""The page of a policy: what it does, and the form by which a task is given to it."""

import json
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib.auth.mixins import LoginRequiredMixin
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.functional import cached_property
from django.views.generic import FormView, ListView

from jobs import lifecycle
from jobs.exceptions import OverQuota
from jobs.forms import TaskForm
from jobs.models import Job, RoutingPolicy, User
from scheduler import reservation


class PoliciesView(LoginRequiredMixin, ListView):
    """Those that new jobs are routed by."""

    http_method_names = ["get", "head", "options"]
    template_name = "scheduler/policies.html"
    queryset = RoutingPolicy.objects.active().prefetch_related("tiers").order_by("name")


class PolicyView(LoginRequiredMixin, FormView):
    http_method_names = ["get", "head", "post", "options"]
    template_name = "scheduler/policy.html"
    form_class = TaskForm

    @property
    def me(self) -> User:
        assert isinstance(self.request.user, User)
        return self.request.user

    @cached_property
    def policy(self) -> RoutingPolicy:
        rows = RoutingPolicy.objects.active()
        return get_object_or_404(rows, name=self.kwargs["policy"])

    def get_form_kwargs(self) -> dict[str, Any]:
        told = {"user": self.me, "policy": self.policy}
        return {**super().get_form_kwargs(), **told}

    def get_initial(self) -> dict[str, Any]:
        """As another task was, where the address names one that the person may see."""
        with suppress(ValueError):
            pk = UUID(self.request.GET.get("from", ""))
            rows = Job.objects.visible_to(self.me).filter(policy__name=self.policy.name)
            job = rows.filter(pk=pk).first()
            if job is not None:
                params = json.dumps(job.params, indent=2, ensure_ascii=False)
                return {"params": params, "risk": job.risk, "name": job.name}
        return {}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        told = {"policy": self.policy, "tiers": self.policy.tiers.all()}
        return {**super().get_context_data(**kwargs), **told}

    def form_valid(self, form: TaskForm) -> HttpResponse:
        job = self._first(form.once)
        if job is None:
            try:
                job = self._submit(form)
            except (reservation.Unroutable, OverQuota) as refused:
                form.add_error(None, str(refused))
                context = self.get_context_data(form=form)
                return self.render_to_response(context, status=422)
            except ValidationError as wrong:
                form.add_error(None, wrong)
                return self.form_invalid(form)
        return redirect("job-detail", job.pk)

    def _first(self, key: str | None) -> Job | None:
        mine = Job.objects.filter(owner=self.me)
        return mine.filter(idempotency_key=key).first() if key else None

    def _submit(self, form: TaskForm) -> Job:
        spec = reservation.routed(form.cleaned_data["spec"], self.policy, by=self.me)
        try:
            return lifecycle.submit(by=self.me, idempotency_key=form.once, **spec)
        except (IntegrityError, OverQuota):  # the same form came twice at once
            if job := self._first(form.once):
                return job
            raise
