"""The form of a spec. Its rules and messages are those of jobs.spec and the models."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

from django import forms

from jobs import spec
from jobs.forms.fields import (
    CommandField,
    PairsField,
    ParentsField,
    SecondsField,
    SecretsField,
    SizeField,
    VolumesField,
    rules,
    text_input,
)
from jobs.forms.once import once
from jobs.models import User
from jobs.models.job import DEFAULT_PRIORITY
from jobs.models.secret import refuse_missing
from jobs.models.sitepolicy import told_allowed
from jobs.spec.placing import TERMS
from jobs.status import Visibility


class Fold(NamedTuple):
    title: str
    fields: list[forms.BoundField]
    is_open: bool


class SubmitForm(forms.Form):
    """Takes a spec as people write it; `cleaned_data["spec"]` is values of Job, and
    `cleaned_data["terms"]` what lifecycle.submit takes beside them."""

    image = forms.CharField(
        validators=[spec.check_image],
        required=False,
        widget=text_input(**{"class": "mono"}),
        help_text="As for docker pull, for example pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime.",
    )
    command = CommandField(
        validators=[spec.check_command],
        help_text="Run by /bin/sh -c. Write results to $GPUJOBS_ARTIFACTS, in a container /artifacts. Empty: the image's own command.",
    )
    gpu_count = forms.IntegerField(
        label="GPUs",
        initial=1,
        validators=rules("gpu_count"),
        widget=text_input(inputmode="numeric"),
        help_text="All on one node. 0 for a job without GPU.",
    )
    min_vram_mb = SizeField(
        "min_vram_mb",
        label="VRAM for each GPU",
        widget=text_input(placeholder="any"),
        help_text="24G, or 24000 for MiB. Empty: any whole GPU.",
    )
    timeout_s = SecondsField(
        "timeout_s",
        required=True,
        label="Time limit",
        initial="1h",
        help_text="For each attempt: 90m, 2h, or 5400 for seconds.",
    )
    name = forms.CharField(
        required=False,
        validators=[spec.check_name],
        widget=text_input(),
        help_text="Empty: named after the image.",
    )
    priority = forms.IntegerField(
        initial=DEFAULT_PRIORITY,
        validators=rules("priority"),
        widget=text_input(inputmode="numeric"),
        help_text="0 to 100; a higher one goes first.",
    )
    grace_s = SecondsField(
        "grace_s",
        required=True,
        label="Grace",
        initial="10s",
        help_text="Between SIGTERM and SIGKILL when the job is stopped.",
    )
    cpus = forms.FloatField(
        label="CPUs",
        required=False,
        validators=rules("cpus"),
        widget=text_input(inputmode="decimal"),
        help_text="For example 4 or 0.5. Empty: the fair part of its GPUs.",
    )
    memory_mb = SizeField(
        "memory_mb",
        label="Memory",
        help_text="16G, or 16000 for MiB. Empty: the fair part of its GPUs.",
    )
    shm_mb = SizeField(
        "shm_mb",
        label="Shared memory",
        help_text="The size of /dev/shm, which data loaders use.",
    )
    gpu_name = forms.CharField(
        label="GPU type",
        required=False,
        max_length=100,
        validators=[spec.check_name],
        widget=text_input(placeholder="any"),
        help_text="A pattern for its name, for example *A100*.",
    )
    share = forms.BooleanField(
        label="Share the GPU with other jobs",
        required=False,
        help_text="The job then may use only the VRAM that it asks for.",
    )
    node_name = forms.CharField(
        label="Node",
        required=False,
        validators=[spec.check_name],
        widget=text_input(placeholder="any"),
        help_text="The name of the one node that it may run on.",
    )
    node_labels = PairsField(
        check=spec.check_labels,
        label="Labels of the node",
        help_text="NAME=value, one a line. It runs on a node that has them all.",
    )
    begin_at = forms.DateTimeField(
        label="Not before",
        required=False,
        validators=[spec.check_begin],
        widget=forms.DateTimeInput(
            format="%Y-%m-%dT%H:%M", attrs={"type": "datetime-local"}
        ),
        help_text="In your time zone. Empty: as soon as there is room.",
    )
    depends_on = ParentsField(
        label="After other jobs",
        help_text="One id a line: each must have succeeded. after_any: before the id takes every ending. The id of an array is that of its first task.",
    )
    array = forms.CharField(
        required=False,
        widget=text_input(placeholder="0-99%4"),
        help_text="One job for each index, which it finds in GPUJOBS_ARRAY_INDEX; %4 runs at most 4 at once.",
    )
    group = forms.ChoiceField(
        required=False, help_text="Which of your groups it is accounted to."
    )
    visibility = forms.ChoiceField(
        label="Who may look at it",
        required=False,
        choices=[(Visibility.OWNER, "You"), (Visibility.GROUP, "Your group")],
        help_text="Its log and files too; only you change it.",
    )
    hold = forms.BooleanField(
        label="Hold it",
        required=False,
        help_text="It stays in the queue until you release it.",
    )
    env = PairsField(
        check=spec.check_env,
        label="Environment",
        help_text="NAME=value, one a line.",
    )
    secrets = SecretsField(
        help_text="Names of your secrets, one a line; VARIABLE=name where they differ."
    )
    volumes = VolumesField(
        help_text="/host/path:/data:ro or :rw, or a name in place of the path, one a line. Without a mode it is ro."
    )
    network = forms.CharField(
        required=False,
        validators=[spec.check_network],
        widget=text_input(placeholder="as usual here"),
        help_text="none, bridge, or one that the operator has named.",
    )
    idempotency_key = forms.CharField(
        required=False, max_length=36, widget=forms.HiddenInput
    )

    FOLDS = {
        "Name, priority and grace": ("name", "priority", "grace_s"),
        "Processors, memory and GPU type": (
            "cpus",
            "memory_mb",
            "shm_mb",
            "gpu_name",
            "share",
        ),
        "Where and when": (
            "node_name",
            "node_labels",
            "begin_at",
            "depends_on",
            "array",
            "group",
            "visibility",
            "hold",
        ),
        "Environment, secrets, volumes and network": (
            *("env", "secrets", "volumes", "network"),
        ),
    }

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user
        self._choose_group()
        self.initial.setdefault("idempotency_key", str(uuid4()))

    def _choose_group(self) -> None:
        mine = self._user.groups.values_list("name", flat=True)
        names = sorted(mine, key=str.casefold)
        if not names:
            del self.fields["group"], self.fields["visibility"]
            return
        field = self.fields["group"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in names]
        field.initial = names[0]

    def folds(self) -> Iterator[Fold]:
        for title, names in self.FOLDS.items():
            known = [name for name in names if name in self.fields]
            fields = [self[name] for name in known]
            yield Fold(title, fields, any(map(self._is_touched, known)))

    def _is_touched(self, name: str) -> bool:
        if not self.is_bound:
            return False
        first = self.get_initial_for_field(self.fields[name], name)
        sent = self.data.get(name, first)
        return name in self.errors or str(sent or "") != str(first or "")

    def clean_priority(self) -> int:
        priority: int = self.cleaned_data["priority"]
        if not self._user.has_perm("jobs.raise_priority"):
            spec.check_priority(priority, most=DEFAULT_PRIORITY)
        return priority

    def clean_secrets(self) -> dict[str, str]:
        named: dict[str, str] = self.cleaned_data["secrets"]
        refuse_missing(self._user, named.values())
        return named

    def clean_array(self) -> str:
        text: str = self.cleaned_data["array"]
        if text:
            spec.array.parse(text)
        return text

    def clean(self) -> dict[str, Any]:
        if self.errors:
            return self.cleaned_data
        spec.check(self.cleaned_data, told_allowed())
        asked = {name: v for name, v in self.cleaned_data.items() if name in _SPEC}
        asked["name"] = asked["name"].strip() or spec.default_name(asked)
        asked["group"] = self._user.group_for(asked.get("group", ""))
        asked["visibility"] = asked.get("visibility") or Visibility.OWNER
        spec.check_visibility(asked["visibility"], asked["group"])
        self.cleaned_data["spec"] = asked
        self.cleaned_data["terms"] = {name: self.cleaned_data[name] for name in TERMS}
        return self.cleaned_data

    @property
    def once(self) -> str | None:
        asked = [self.cleaned_data["spec"], self.cleaned_data["terms"]]
        return once(self.cleaned_data["idempotency_key"], asked)


_SPEC = SubmitForm.base_fields.keys() - {"idempotency_key", *TERMS}
