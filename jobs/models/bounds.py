"""Bounds and closed lists, as the fields of models take them."""

from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator

MAX_GPUS = 64
MAX_MB = 16 * 1024 * 1024
MAX_TIMEOUT_S = 30 * 24 * 3600


def choices(words: Any) -> list[tuple[str, str]]:
    return [(word.value, word.value) for word in words]


def values(words: Any) -> list[str]:
    return [word.value for word in words]


def between(least: float, most: float) -> list[Any]:
    return [MinValueValidator(least), MaxValueValidator(most)]
