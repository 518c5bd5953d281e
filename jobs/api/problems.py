"""Every error of the API as RFC 9457 problem details."""

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.contrib.sessions.exceptions import SessionInterrupted
from django.core.exceptions import (
    PermissionDenied,
    SuspiciousOperation,
    ValidationError,
)
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
)
from django.template.loader import render_to_string
from django.views import defaults
from rest_framework.exceptions import APIException, ErrorDetail, ParseError
from rest_framework.exceptions import ValidationError as InvalidRequest
from rest_framework.renderers import BrowsableAPIRenderer
from rest_framework.response import Response
from rest_framework.serializers import as_serializer_error
from rest_framework.settings import api_settings

from jobs import outage
from jobs.exceptions import OperatorsOnly, OverQuota, TransitionConflict
from jobs.models import Job
from jobs.status import Status

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
API_PREFIX = "/api/"
EXPIRED = "The access token has expired or is not ours. Log in again, or refresh it."


class Problem(APIException):
    """An error whose body has members of its own beside the usual ones."""

    def __init__(
        self, detail: str | None = None, code: str | None = None, **extra: Any
    ) -> None:
        super().__init__(detail, code)
        self.extra = extra


class TooLarge(Problem):
    status_code = 413
    default_code = "too_large"


class Missing(Problem):
    status_code = 404
    default_code = "not_found"


class Conflict(Problem):
    status_code = 409
    default_code = "conflict"


class Forbidden(Problem):
    status_code = 403
    default_code = "permission_denied"


class Unplaceable(Problem):
    """Well formed, but nothing that this site has could ever run it."""

    status_code = 422
    default_code = "never_fits"


class OverLimit(Problem):
    """Well formed, but more than the sender may have at once."""

    status_code = 422
    default_code = "over_quota"


class Unavailable(Problem):
    status_code = 503
    default_code = "no_database"
    default_detail = outage.TEXT
    wait = outage.RETRY_AFTER_S


def handle(exc: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's exception handler: None leaves `exc` to Django, as a 500."""
    error = _translate(exc, context)
    if error is None:
        return None
    request = context["request"]
    response = Response(
        _body(error, request.path), status=error.status_code, headers=_headers(error)
    )
    # Known too late for an error of the negotiation itself, hence the default.
    renderer = getattr(request, "accepted_renderer", None)
    if not isinstance(renderer, BrowsableAPIRenderer):
        response.content_type = CONTENT_TYPE
    return response


def _translate(exc: Exception, context: Mapping[str, Any]) -> APIException | None:
    match exc:
        case APIException():
            return exc
        case TransitionConflict():
            return _conflict(exc, context["kwargs"]["pk"])
        case OperatorsOnly():
            return Forbidden(str(exc), "operators_only")
        case OverQuota():
            return OverLimit(str(exc))
        # A rule of the spec that only the rows can tell, refused by the lifecycle.
        case ValidationError():
            return InvalidRequest(as_serializer_error(exc))
        case PermissionDenied():
            return Forbidden(str(exc) or "You may not do this.")
        # A row may also be deleted while a request works on it.
        case Http404() | Job.DoesNotExist():
            return Missing("There is no such thing, or it is not yours.")
        case SuspiciousOperation():
            return ParseError("The request is malformed.", "bad_request")
        case _ if outage.is_outage(exc):
            logger.error("the database can not be used: %s", exc)
            return Unavailable()
        case _:
            return None


def _headers(error: APIException) -> dict[str, str]:
    """What the framework's views left on the exception for its handler."""
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(math.ceil(wait))
    return headers


def _conflict(exc: TransitionConflict, pk: str) -> Conflict:
    # Read again: the conflict is that the row is not what the caller took it for.
    status = Job.objects.values_list("status", flat=True).filter(pk=pk).first()
    return Conflict(
        str(exc), job_status=status, allowed_actions=allowed_actions(status)
    )


def allowed_actions(status: str | None) -> list[str]:
    if status is None:
        return []
    return {
        Status.QUEUED: ["cancel", "delete"],
        Status.STARTING: ["cancel"],
        Status.RUNNING: ["cancel"],
    }.get(Status(status), ["delete"])


def _body(error: APIException, instance: str) -> dict[str, Any]:
    extra = error.extra if isinstance(error, Problem) else {}
    if isinstance(error, InvalidRequest):
        errors = list(_flatten(error.detail, ()))
        code, detail = _summary(errors)
        extra = {"errors": errors}
    else:
        code, detail = _told(error.detail)
    return problem(error.status_code, code, detail, instance, **extra)


def _told(detail: Any) -> tuple[str, str]:
    if isinstance(detail, Mapping):  # simplejwt's errors
        code = str(detail["code"])
        return code, EXPIRED if code == "token_not_valid" else str(detail["detail"])
    return detail.code, str(detail)


def _summary(errors: list[dict[str, str]]) -> tuple[str, str]:
    codes = {error["code"] for error in errors}
    if len(errors) == 1:
        name, detail = errors[0]["pointer"].lstrip("/"), errors[0]["detail"]
        return codes.pop(), f"{name}: {detail}" if name else detail
    code = codes.pop() if len(codes) == 1 else "invalid"
    return code, f"{len(errors)} things are wrong with this request: see errors."


def _flatten(detail: Any, path: tuple[str | int, ...]) -> Iterator[dict[str, str]]:
    if isinstance(detail, ErrorDetail):
        yield {
            "pointer": pointer(path),
            "code": detail.code or "invalid",
            "detail": str(detail),
        }
    elif isinstance(detail, Mapping):
        for key, part in detail.items():
            at_top = key == api_settings.NON_FIELD_ERRORS_KEY
            yield from _flatten(part, path if at_top else (*path, key))
    else:
        for position, part in enumerate(detail):
            is_text = isinstance(part, ErrorDetail)
            yield from _flatten(part, path if is_text else (*path, position))


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in steps)


def problem(
    status: int, code: str, detail: str, instance: str, **extra: Any
) -> dict[str, Any]:
    return {
        "type": f"/problems/{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        **extra,
    }


def _respond(request: HttpRequest, status: int, code: str, detail: str) -> HttpResponse:
    return JsonResponse(
        problem(status, code, detail, request.path),
        status=status,
        content_type=CONTENT_TYPE,
    )


# Django's own handlers, for what fails before or outside a view of the API.


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if isinstance(exception, SessionInterrupted) and _is_outage_behind(exception):
        return unavailable(request)
    if not request.path.startswith(API_PREFIX):
        return defaults.bad_request(request, exception)
    return _respond(request, 400, "bad_request", "The request is malformed.")


def _is_outage_behind(error: BaseException | None) -> bool:
    """A session that can not be written is told of as one that was deleted."""
    while error is not None and not outage.is_outage(error):
        error = error.__context__
    return error is not None


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not request.path.startswith(API_PREFIX):
        return defaults.page_not_found(request, exception)
    return _respond(
        request, 404, "not_found", "There is nothing here. See /api/v1/docs."
    )


def unavailable(request: HttpRequest) -> HttpResponse:
    """Asks the database for nothing."""
    if request.path.startswith((API_PREFIX, "/health")):
        answer = _respond(request, 503, "no_database", outage.TEXT)
    else:
        answer = HttpResponse(render_to_string("503.html"), status=503)
    answer["Retry-After"] = str(outage.RETRY_AFTER_S)
    return answer


def server_error(request: HttpRequest) -> HttpResponseBase:
    # Of a middleware, as what a view raises does not come here.
    if outage.is_outage(sys.exc_info()[1]):
        return unavailable(request)
    if not request.path.startswith(API_PREFIX):
        return defaults.server_error(request)
    return _respond(
        request,
        500,
        "server_error",
        "This is our fault and has been logged. Try again.",
    )
