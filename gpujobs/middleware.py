from collections.abc import Callable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from jobs import audit


def remember_address(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Let audit records say from which address a person acted."""

    def middleware(request: HttpRequest) -> HttpResponse:
        token = audit.address.set(request.META.get("REMOTE_ADDR", ""))
        try:
            return get_response(request)
        finally:
            audit.address.reset(token)

    return middleware


def use_time_zone(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Show times, and read them, in the zone of the person."""

    def middleware(request: HttpRequest) -> HttpResponse:
        with timezone.override(_zone_of(request)):
            return get_response(request)

    return middleware


def _zone_of(request: HttpRequest) -> ZoneInfo:
    try:
        return ZoneInfo(getattr(request.user, "time_zone", "UTC"))
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")
