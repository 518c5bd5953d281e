from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from jobs import accounts, audit
from jobs.admin.base import HistoryAdmin, ToldAdmin
from jobs.models import ApiToken, Secret, User


@login_required
def log_in(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """One login page for all. The admin's own counts no tries and tells no audit."""
    if not admin.site.has_permission(request):
        raise PermissionDenied
    return redirect("admin:index")


admin.site.login = log_in  # type: ignore[method-assign]

_end_session, _change_password = admin.site.logout, admin.site.password_change


def change_own_password(
    request: HttpRequest, extra_context: dict[str, Any] | None = None
) -> HttpResponse:
    with transaction.atomic():
        answer = _change_password(request, extra_context)
        if request.method == "POST" and answer.status_code == 302:
            assert isinstance(request.user, User)
            audit.record("user.password_changed", target=request.user, by=request.user)
            accounts.revoke_tokens(request.user, by=request.user)
    return answer


def _logout(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    if request.method == "POST" and request.user.is_authenticated:
        audit.record("user.logged_out", target=request.user, by=request.user)
    return _end_session(request, extra_context)


admin.site.logout = _logout  # type: ignore[method-assign,assignment]
admin.site.password_change = change_own_password  # type: ignore[method-assign,assignment]

# They show refresh tokens that somebody may still log in with.
for _name in ("OutstandingToken", "BlacklistedToken"):
    admin.site.unregister(apps.get_model("token_blacklist", _name))


@admin.register(ApiToken)
class ApiTokenAdmin(HistoryAdmin):
    list_display = ("name", "user", "scopes", "created", "expiry", "last_used_at")
    list_select_related = ("user",)
    list_filter = ("user",)
    search_fields = ("name", "user__email")
    ordering = ("-created",)
    exclude = ("digest", "token_key")
    actions = ("revoke",)

    @admin.action(description="Revoke", permissions=["view"])
    def revoke(self, request: HttpRequest, tokens: QuerySet[ApiToken]) -> None:
        ended = [accounts.revoke_token(token, by=request.user) for token in tokens]
        self.message_user(request, f"{sum(ended)} API tokens revoked.")


@admin.register(Secret)
class SecretAdmin(HistoryAdmin):
    """Who has one of which name; its value nobody reads."""

    list_display = ("name", "owner", "created_at", "updated_at", "last_used_at")
    list_select_related = ("owner",)
    search_fields = ("name", "owner__email")
    ordering = ("-updated_at",)
    exclude = ("sealed",)


class StandingForm(forms.ModelForm):
    """Two boxes for the two times that say whether an account may log in."""

    is_approved = forms.BooleanField(label="Approved", required=False, initial=True)
    is_suspended = forms.BooleanField(
        label="Suspended", required=False, help_text="Logs the person out everywhere."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.initial["is_approved"] = self.instance.approved_at is not None
            self.initial["is_suspended"] = self.instance.suspended_at is not None

    def save(self, commit: bool = True) -> User:
        for box, field in (
            ("is_approved", "approved_at"),
            ("is_suspended", "suspended_at"),
        ):
            ticked = self.cleaned_data[box]
            since = getattr(self.instance, field)
            setattr(self.instance, field, (since or timezone.now()) if ticked else None)
        return super().save(commit)


class NewUserForm(StandingForm, AdminUserCreationForm):
    class Meta:
        model = User
        fields = ("email",)


class ChangedUserForm(StandingForm, UserChangeForm):
    class Meta:
        model = User
        fields = ("email",)


@admin.register(User)
class UserAdmin(ToldAdmin, DjangoUserAdmin):
    form = ChangedUserForm
    add_form = NewUserForm
    ordering = ("email",)
    list_display = ("email", "name", "is_staff", "may_log_in", "created_at")
    list_filter = ("is_staff", "is_superuser", "groups")
    search_fields = ("email", "name")
    readonly_fields = ("created_at", "last_login", "approved_at", "suspended_at")
    actions = ("approve", "suspend")
    fieldsets = (
        (None, {"fields": ("email", "password", "name", "time_zone", "uid", "gid")}),
        (
            "Standing",
            {
                "fields": (
                    ("is_approved", "approved_at"),
                    ("is_suspended", "suspended_at"),
                    "created_at",
                    "last_login",
                )
            },
        ),
        (
            "Rights",
            {"fields": ("is_staff", "is_superuser", "groups", "user_permissions")},
        ),
    )
    add_fieldsets = (
        (
            None,
            {
                "fields": (
                    "email",
                    "name",
                    "usable_password",
                    "password1",
                    "password2",
                    "is_approved",
                    "is_suspended",
                )
            },
        ),
    )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_active and request.user.is_staff

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Who could set an operator's password or address would be that operator.
        above = obj is not None and (obj.is_staff or obj.is_superuser)
        if above and not request.user.is_superuser:
            return False
        return super().has_change_permission(request, obj)

    @transaction.atomic
    def user_change_password(
        self,
        request: HttpRequest,
        id: str,  # noqa: A002 - its name there
        form_url: str = "",
    ) -> HttpResponse:
        answer = super().user_change_password(request, id, form_url)
        if request.method == "POST" and answer.status_code == 302:
            user = User.objects.get(pk=id)
            audit.record("user.password_set", target=user, by=request.user)
            accounts.revoke_tokens(user, by=request.user)
        return answer

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # their jobs and what they did stay: suspend instead

    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[Any, ...]:
        # Else who may change accounts could make their own account anything.
        # Whose files their jobs may touch is such a right too.
        rights = (
            "is_staff",
            "is_superuser",
            "groups",
            "user_permissions",
            "uid",
            "gid",
        )
        own = () if request.user.is_superuser else rights
        return (*super().get_readonly_fields(request, obj), *own)

    def save_model(
        self, request: HttpRequest, obj: Model, form: Any, change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        assert isinstance(obj, User)
        if obj.suspended_at and "is_suspended" in form.changed_data:
            accounts.log_out_everywhere(obj, by=request.user)

    @admin.display(boolean=True, description="may log in")
    def may_log_in(self, user: User) -> bool:
        return user.is_active

    @admin.action(description="Approve", permissions=["change"])
    def approve(self, request: HttpRequest, users: QuerySet[User]) -> None:
        self._set(request, users.filter(approved_at=None), "approved_at")

    @admin.action(description="Suspend", permissions=["change"])
    def suspend(self, request: HttpRequest, users: QuerySet[User]) -> None:
        self._set(request, users.filter(suspended_at=None), "suspended_at")

    def _set(self, request: HttpRequest, users: QuerySet[User], field: str) -> None:
        word = field.removesuffix("_at")
        allowed = [u for u in users if self.has_change_permission(request, u)]
        for user in allowed:
            before = {field: getattr(user, field)}
            after = {field: timezone.now()}
            setattr(user, field, after[field])
            with transaction.atomic():
                user.save(update_fields=[field])
                audit.change(
                    f"user.{word}",
                    target=user,
                    by=request.user,
                    before=before,
                    after=after,
                )
                if user.suspended_at:
                    accounts.log_out_everywhere(user, by=request.user)
        self.message_user(request, f"{len(allowed)} accounts {word}.")
