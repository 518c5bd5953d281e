from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet

from jobs import audit
from jobs.forms.account import SecretForm, TokenForm
from jobs.forms.cloning import initial_of
from jobs.forms.submit import SubmitForm
from jobs.forms.task import TaskForm
from jobs.models import Job, User
from jobs.status import LIVE, TERMINAL, Status

__all__ = [
    "JobFilterForm",
    "LoginForm",
    "SecretForm",
    "SubmitForm",
    "TaskForm",
    "TokenForm",
    "initial_of",
]

# Of the query string: a single status, or one of these.
GROUPS: dict[str, tuple[Status, ...]] = {"live": LIVE, "ended": TERMINAL}


class JobFilterForm(forms.Form):
    """The query string of the job list."""

    q = forms.CharField(
        label="Name, id or image",
        required=False,
        max_length=255,
        widget=forms.TextInput(
            attrs={"type": "search", "placeholder": "Name, id or image"}
        ),
    )
    status = forms.ChoiceField(
        required=False,
        choices=[("", "Any status"), *((word, word) for word in (*GROUPS, *Status))],
    )
    owner = forms.ModelChoiceField(
        User.objects.order_by("email"), required=False, empty_label="Any owner"
    )

    array = forms.UUIDField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not user.is_staff:
            del self.fields["owner"]

    def narrow(self, jobs: QuerySet[Job], *, by_status: bool = True) -> QuerySet[Job]:
        """The jobs that match; none where the query string is not understood."""
        if not self.is_valid():
            return jobs.none()
        asked = self.cleaned_data
        if asked.get("owner"):
            jobs = jobs.filter(owner=asked["owner"])
        if asked["array"]:
            jobs = jobs.filter(array_id=asked["array"])
        if text := asked["q"]:
            jobs = jobs.filter(
                Q(name__icontains=text)
                | Q(image__icontains=text)
                | Q(id__startswith=text.lower())
            )
        if by_status and (status := asked["status"]):
            jobs = jobs.filter(status__in=GROUPS.get(status, (status,)))
        return jobs


# Of one account from one address in a minute; the API has the same rate.
MOST_TRIES = 10


class LoginForm(AuthenticationForm):
    error_messages = {
        "invalid_login": (
            "This address and password do not open an account. A new account works "
            "after an operator has approved it."
        ),
        "throttled": "Too many tries. Wait a minute, then try again.",
    }

    def clean(self) -> dict[str, Any]:
        """Nobody tries out passwords here faster than at the API."""
        tried = str(self.cleaned_data.get("username", ""))[:254]
        minute = timedelta(minutes=1)
        failed = audit.recent("user.login_failed", target=tried, within=minute)
        if failed >= MOST_TRIES:
            raise ValidationError(self.error_messages["throttled"], "throttled")
        return super().clean()
