"""The forms of a person's own account: tokens and secrets."""

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone

from jobs import spec, vault
from jobs.models import Scope, User

DAYS = (1, 7, 30, 90, 180, 366)


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=100,
        validators=[spec.check_name],
        help_text="What it is for, as laptop.",
    )
    scopes = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple,
        initial=[Scope.READ, Scope.SUBMIT],
        help_text="read reads; submit submits too, and changes what is yours; operate does what you may as an operator.",
    )
    days = forms.TypedChoiceField(
        label="Ends after",
        coerce=int,
        initial=90,
        choices=[(days, "a day" if days == 1 else f"{days} days") for days in DAYS],
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed = [s for s in Scope if s != Scope.OPERATE or user.is_staff]
        field = self.fields["scopes"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(scope.value, scope.value) for scope in allowed]

    @property
    def asked(self) -> dict[str, Any]:
        """As accounts.issue_token takes it."""
        cleaned = self.cleaned_data
        return {
            "name": cleaned["name"],
            "scopes": [scope for scope in Scope if scope in cleaned["scopes"]],
            "expires_at": timezone.now() + timedelta(days=cleaned["days"]),
        }


class SecretForm(forms.Form):
    name = forms.CharField(
        max_length=64,
        validators=[spec.check_secret_name],
        help_text="As WANDB_API_KEY; one that is there is written anew.",
    )
    value = forms.CharField(
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Nobody can read it again, only your jobs.",
    )

    def clean_value(self) -> str:
        value: str = self.cleaned_data["value"]
        vault.check_value(value)
        spec.check_text(value)
        return value
