from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

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
