"""The form of a model job: what a policy needs to be told."""

import json
from typing import Any
from uuid import uuid4

from django import forms
from django.core.exceptions import ValidationError

from jobs import spec
from jobs.forms.fields import rules, text_input
from jobs.forms.once import once
from jobs.models import RoutingPolicy, User
from jobs.models.job import DEFAULT_PRIORITY
from jobs.routing import Risk
from jobs.spec import UNSTORABLE

MOST_PARAMS = 512 * 1024


class TaskForm(forms.Form):
    """`cleaned_data["spec"]` is what the API would take for `policy`."""

    params = forms.CharField(
        label="Params",
        max_length=MOST_PARAMS,
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 8, "class": "mono", "spellcheck": "false"}
        ),
        help_text="A JSON object, as the policy's schema asks for.",
    )
    risk = forms.ChoiceField(
        choices=[(risk.value, risk.value) for risk in Risk],
        initial=Risk.LOW.value,
        help_text="What a wrong result may cost; smaller models are trusted with less.",
    )
    name = forms.CharField(
        required=False,
        validators=[spec.check_name],
        widget=text_input(),
        help_text="Empty: named after the policy.",
    )
    priority = forms.IntegerField(
        initial=DEFAULT_PRIORITY,
        validators=rules("priority"),
        widget=text_input(inputmode="numeric"),
        help_text="0 to 100; a higher one goes first.",
    )
    idempotency_key = forms.CharField(
        required=False, max_length=36, widget=forms.HiddenInput
    )

    def __init__(
        self, *args: Any, user: User, policy: RoutingPolicy, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._user = user
        self._policy = policy
        self.initial.setdefault("idempotency_key", str(uuid4()))
        self.initial.setdefault("params", _skeleton(policy.params))

    def clean_params(self) -> dict[str, Any]:
        text: str = self.cleaned_data["params"]
        if UNSTORABLE.search(text):
            raise ValidationError("Remove the NUL characters.", "bad_text")
        try:
            params = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValidationError(f"This is no JSON: {error}.", "bad_params") from None
        if not isinstance(params, dict):
            raise ValidationError("Give a JSON object.", "bad_params")
        return params

    def clean_priority(self) -> int:
        priority: int = self.cleaned_data["priority"]
        if not self._user.has_perm("jobs.raise_priority"):
            spec.check_priority(priority, most=DEFAULT_PRIORITY)
        return priority

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            cleaned = self.cleaned_data
            self.cleaned_data["spec"] = {
                "model_name": self._policy.name,
                "params": cleaned["params"],
                "risk": cleaned["risk"],
                "name": cleaned["name"].strip() or self._policy.name,
                "priority": cleaned["priority"],
                "group": self._user.group_for(""),
            }
        return self.cleaned_data

    @property
    def once(self) -> str | None:
        return once(self.cleaned_data["idempotency_key"], self.cleaned_data["spec"])


_EMPTY: dict[str, Any] = {"string": "", "boolean": False, "array": [], "object": {}}


def _skeleton(schema: Any) -> str:
    """What the schema requires, to be filled in."""
    if not isinstance(schema, dict):
        return "{}"
    properties = schema.get("properties") or {}
    required = [name for name in schema.get("required") or () if name in properties]
    told = {name: _EMPTY.get(properties[name].get("type"), 0) for name in required}
    return json.dumps(told, indent=2)
