"""What a trusted reverse proxy says of a request: from where, and who it is.

Only the peer itself can be trusted: whoever may connect writes any header.
"""

import ipaddress
from collections.abc import Callable
from contextlib import suppress

from django.conf import settings
from django.contrib.auth import login, logout
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse

from jobs import accounts, audit
from jobs.models import User

BACKEND = "django.contrib.auth.backends.ModelBackend"
# In the session: the proxy opened it, so that it ends with the proxy's word.
OPENED = "opened_by_proxy"
GetResponse = Callable[[HttpRequest], HttpResponse]


def is_trusted(address: str) -> bool:
    """A gunicorn behind a Unix socket sees no address: `unix` in the list means that."""
    if not address:
        return "unix" in settings.TRUSTED_PROXIES
    try:
        peer = ipaddress.ip_address(address)
    except ValueError:
        return False
    peer = getattr(peer, "ipv4_mapped", None) or peer
    return any(peer in network for network in _networks())


def _networks() -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    names = [name for name in settings.TRUSTED_PROXIES if name != "unix"]
    return [ipaddress.ip_network(name, strict=False) for name in names]


def client_address(peer: str, forwarded: str) -> str:
    """The nearest hop that is no trusted proxy; what is left of it anybody may have
    written."""
    address = peer
    for hop in reversed(forwarded.split(",")):
        if not is_trusted(address):
            break
        try:
            address = str(ipaddress.ip_address(hop.strip()))
        except ValueError:
            break
    return address


def see_through_proxies(get_response: GetResponse) -> GetResponse:
    """Audit records and throttles then see the client, and not the proxy."""
    try:
        _networks()
    except ValueError as error:
        text = f"GPUJOBS_TRUSTED_PROXIES: {error}."
        raise ImproperlyConfigured(text) from error

    def middleware(request: HttpRequest) -> HttpResponse:
        peer = request.META.get("REMOTE_ADDR", "")
        request.META["gpujobs.is_proxied"] = is_trusted(peer)
        forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "")
        request.META["REMOTE_ADDR"] = client_address(peer, forwarded)
        return get_response(request)

    return middleware


def log_in_by_proxy(get_response: GetResponse) -> GetResponse:
    """Single sign-on: the proxy names the person in a header, with each request."""
    if settings.PROXY_HEADER and not settings.TRUSTED_PROXIES:
        raise ImproperlyConfigured(
            "GPUJOBS_PROXY_HEADER is believed of GPUJOBS_TRUSTED_PROXIES only: set both."
        )

    def middleware(request: HttpRequest) -> HttpResponse:
        if settings.PROXY_HEADER:
            _follow(request)
        return get_response(request)

    return middleware


def _follow(request: HttpRequest) -> None:
    name = "HTTP_" + settings.PROXY_HEADER.upper().replace("-", "_")
    said = request.META.get(name, "") if request.META["gpujobs.is_proxied"] else ""
    user = _person(said.strip())
    if user is not None and user.is_active:
        if request.user != user:
            login(request, user, backend=BACKEND)
            request.session[OPENED] = True
            audit.record("user.logged_in", target=user, by=user, by_proxy=True)
    elif said or request.session.get(OPENED):
        logout(request)


def _person(email: str) -> User | None:
    """Whose address it is; made now if registration is not closed. Never an operator."""
    try:
        validate_email(email)
        User._meta.get_field("email").run_validators(email)
    except ValidationError:
        return None
    if user := User.objects.filter(email__iexact=email).first():
        return user
    if settings.REGISTRATION == "closed" or not accounts.takes_mail_of(email):
        return None
    with suppress(IntegrityError):  # another request of the same page was first
        return accounts.register(email, None)
    return User.objects.filter(email__iexact=email).first()
