"""Fields that take numbers, times and lists as people write them."""

import re
from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Field

from jobs import spec
from jobs.models import Job

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([MGT]?)(?:I?B)?", re.IGNORECASE)
_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_SECONDS = re.compile(r"\d{1,9}")
_CLOCK = re.compile(r"(\d{1,6}):([0-5]\d):([0-5]\d)")
_PARTS = re.compile(
    r"(?:(\d{1,6})\s*d)?\s*(?:(\d{1,6})\s*h)?\s*(?:(\d{1,6})\s*m(?:in)?)?"
    r"\s*(?:(\d{1,9})\s*s)?",
    re.IGNORECASE,
)


def rules(name: str) -> list[Callable[[Any], None]]:
    """The bounds that the model's field has."""
    field = Job._meta.get_field(name)
    assert isinstance(field, Field)
    return list(field.validators)


def text_input(**attrs: str) -> forms.TextInput:
    return forms.TextInput(attrs={"autocomplete": "off", **attrs})


class WrittenField(forms.CharField):
    """A number in a person's writing, in the bounds of a field of Job."""

    def __init__(self, of: str, **kwargs: Any) -> None:
        given = {"required": False, "validators": rules(of), "widget": text_input()}
        super().__init__(**{**given, **kwargs})


class SizeField(WrittenField):
    """An amount of memory: `24G`, `24 GB`, or MiB as in the API."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        found = _SIZE.fullmatch(text)
        if not found:
            raise ValidationError(
                "Write a size as 24G, 24 GB, or 24000 for MiB.", "bad_size"
            )
        return round(float(found[1]) * _MIB[found[2].upper()])


class SecondsField(WrittenField):
    """A span of time: `90m`, `2h`, `1h 30m`, `1:30:00`, or seconds as in the API."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        if _SECONDS.fullmatch(text):
            return int(text)
        if clock := _CLOCK.fullmatch(text):
            hours, minutes, seconds = map(int, clock.groups())
            return hours * 3600 + minutes * 60 + seconds
        if parts := _PARTS.fullmatch(text):
            days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
            return days * 86400 + hours * 3600 + minutes * 60 + seconds
        raise ValidationError(
            "Write a time as 90m, 2h, 1:30:00, or 5400 for seconds.", "bad_time"
        )


class LinesField(forms.CharField):
    """One thing a line; empty lines say nothing."""

    widget = forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"})

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"required": False, "strip": False, **kwargs})

    def text(self, value: Any) -> str:
        # A browser sends \r\n, which no shell takes for the end of a line.
        return (super().to_python(value) or "").replace("\r\n", "\n")

    def lines(self, value: Any) -> list[str]:
        return [line for line in self.text(value).split("\n") if line.strip()]


class PairsField(LinesField):
    """NAME=value, one a line, which `check` has the last word on."""

    def __init__(self, *, check: Callable[[Any], None], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._check = check

    def to_python(self, value: Any) -> Any:
        pairs: dict[str, str] = {}
        for line in self.lines(value):
            key, sign, text = line.partition("=")
            if not sign:
                raise ValidationError("Write each line as NAME=value.", "bad_pair")
            pairs[key.strip()] = text
        self._check(pairs)
        return pairs


class ParentsField(LinesField):
    """A job's id a line, after_any: before it where it need not succeed."""

    def to_python(self, value: Any) -> Any:
        return spec.clean_parents([self._parent(line) for line in self.lines(value)])

    def _parent(self, line: str) -> dict[str, str]:
        condition, _, job_id = line.strip().rpartition(":")
        return {"job_id": job_id, **({"condition": condition} if condition else {})}


class VolumesField(LinesField):
    def to_python(self, value: Any) -> Any:
        return spec.clean_volumes([line.strip() for line in self.lines(value)])


class SecretsField(LinesField):
    """A secret's name a line, VARIABLE=name where the two differ."""

    def to_python(self, value: Any) -> Any:
        pairs = (line.strip().partition("=") for line in self.lines(value))
        return spec.clean_secrets(
            {key.strip(): (name if sign else key).strip() for key, sign, name in pairs}
        )


class CommandField(LinesField):
    def to_python(self, value: Any) -> Any:
        return self.text(value).strip() or None
