from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Max, QuerySet
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest

from jobs import audit, policies
from jobs.admin.base import HistoryAdmin, LooksOnly, ToldAdmin
from jobs.models import (
    Evaluation,
    ModelTier,
    RoutingDecision,
    RoutingPolicy,
    SuiteRun,
)
from jobs.models.routing import digest_of
from jobs.routing import RoutingError, document_of, parse

FROZEN = "A job was routed by this version. Choose 'Save as new': the next version."


class PolicyForm(forms.ModelForm):
    def clean(self) -> dict[str, Any] | None:
        if self.instance.is_frozen and self.changed_data:
            raise ValidationError(FROZEN, "frozen")
        return super().clean()


class TierFormSet(BaseInlineFormSet):
    """The policy and its tiers are judged together, before either is saved."""

    def clean(self) -> None:
        super().clean()
        if any(self.errors):
            return
        if self.instance.is_frozen:
            if self.has_changed():
                raise ValidationError(FROZEN, "frozen")
            return
        kept = [f for f in self.forms if f.cleaned_data and not self._is_deleted(f)]
        tiers = sorted((form.instance for form in kept), key=lambda tier: tier.position)
        document = {
            **self.instance.own_document(),
            "tiers": [tier.document() for tier in tiers],
        }
        try:
            policy = parse(document)
            policies.check_tiers(policy)
        except RoutingError as error:
            raise ValidationError(str(error), "bad_policy") from error
        self.instance.digest = digest_of(document_of(policy))

    def _is_deleted(self, form: forms.BaseForm) -> bool:
        return bool(self.can_delete and form.cleaned_data.get("DELETE"))


class TierInline(admin.StackedInline):
    """Also of a version that is frozen: it is the beginning of a new one."""

    model = ModelTier
    formset = TierFormSet
    extra = 0
    has_view_permission = LooksOnly.has_view_permission


def _tiers(row: RoutingPolicy) -> list[dict[str, Any]]:
    return [tier.document() for tier in row.tiers.order_by("position")]


@admin.register(RoutingPolicy)
class RoutingPolicyAdmin(ToldAdmin):
    """Every operator may read; who writes needs the right to, as images and commands
    are in it. What a job was routed by is frozen: save it as a new version."""

    form = PolicyForm
    list_display = ("name", "version", "is_active", "work", "used_at", "activated_at")
    list_filter = ("is_active", "name")
    search_fields = ("name", "description")
    readonly_fields = ("version", "is_active", "used_at", "activated_at", "created_by")
    inlines = (TierInline,)
    actions = ("activate", "retire")
    save_as = True
    save_as_continue = False
    has_view_permission = LooksOnly.has_view_permission
    has_module_permission = LooksOnly.has_module_permission

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_in_use = obj is not None and (obj.is_frozen or obj.is_active)
        return not is_in_use and super().has_delete_permission(request, obj)

    def save_model(
        self, request: HttpRequest, obj: RoutingPolicy, form: Any, change: bool
    ) -> None:
        if not change:
            same = RoutingPolicy.objects.filter(name=obj.name)
            obj.version = (same.aggregate(last=Max("version"))["last"] or 0) + 1
            obj.created_by = str(request.user)
        super().save_model(request, obj, form, change)

    def save_related(
        self, request: HttpRequest, form: Any, formsets: Any, change: bool
    ) -> None:
        """Tiers are told of with their policy, all of them before and after."""
        before = _tiers(form.instance)
        super().save_related(request, form, formsets, change)
        after = _tiers(form.instance)
        if before != after:
            told = {"before": {"tiers": before}, "after": {"tiers": after}}
            audit.change(
                "routingpolicy.tiers_changed",
                target=form.instance,
                by=request.user,
                **told,
            )

    @admin.action(
        description="Let new jobs be routed by the selected version",
        permissions=["change"],
    )
    def activate(self, request: HttpRequest, queryset: QuerySet[RoutingPolicy]) -> None:
        for row in queryset:
            try:
                policies.activate(row, by=request.user)
                self.message_user(request, f"{row} is live.")
            except policies.GateRefused as refused:
                text = (
                    f"{row} is not live: {refused} Who must override that gives a "
                    "reason: manage.py policy activate --because."
                )
                self.message_user(request, text, messages.ERROR)

    @admin.action(
        description="Route no new jobs by the selected version", permissions=["change"]
    )
    def retire(self, request: HttpRequest, queryset: QuerySet[RoutingPolicy]) -> None:
        for row in queryset:
            policies.retire(row, by=request.user)


@admin.register(ModelTier)
class ModelTierAdmin(HistoryAdmin):
    """To be searched; a tier is changed with its policy."""

    list_display = ("name", "policy", "position", "image", "gpu_count", "min_vram_mb")
    list_select_related = ("policy",)
    search_fields = ("name", "image", "policy__name")


@admin.register(RoutingDecision)
class RoutingDecisionAdmin(HistoryAdmin):
    list_display = ("job", "number", "cause", "policy", "tier", "text", "created_at")
    list_filter = ("cause",)
    list_select_related = ("job", "policy")
    search_fields = ("job__id", "tier")


@admin.register(Evaluation)
class EvaluationAdmin(HistoryAdmin):
    list_display = ("attempt", "is_accepted", "review_until", "reviewed_by")
    list_filter = ("is_accepted", "review_accepts")
    list_select_related = ("attempt",)


@admin.register(SuiteRun)
class SuiteRunAdmin(HistoryAdmin):
    list_display = ("suite", "policy", "scores", "started_at", "finished_at", "by")
    list_select_related = ("policy",)
