import logging
from collections.abc import Callable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db import Error, connection
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from jobs import audit, outage
from jobs.api.problems import unavailable

logger = logging.getLogger(__name__)


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


class TellOfOutage:
    """What fails because the database is away is 503, and not our fault. The views of
    the API say so themselves; what other middleware raises comes to handler500."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._look_up_person(request) or self.get_response(request)
        if response.status_code == 503:
            _start_afresh()
        return response

    def _look_up_person(self, request: HttpRequest) -> HttpResponse | None:
        """Here, since whoever asks for the user first meets the outage."""
        try:
            bool(request.user)
        except Error as error:
            if answer := self.process_exception(request, error):
                return answer
            raise
        return None

    def process_exception(
        self, request: HttpRequest, error: Exception
    ) -> HttpResponse | None:
        if not outage.is_outage(error):
            return None
        logger.error("the database can not be used: %s", error)
        return unavailable(request)


def _start_afresh() -> None:
    """A new connection may find the server that took over."""
    if not connection.in_atomic_block:
        connection.close()


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
