"""How often somebody may ask. Counted in files that all web processes share."""

import hashlib
import logging
from typing import TYPE_CHECKING

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

if TYPE_CHECKING:  # views import the classes that are here
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)
# Of the actions that cost more than others; all the rest have one rate together.
SCOPES = {"create": "submit", "logs": "logs"}
RATES: dict[str, str | None] = {
    "login": "10/min",
    "register": "20/hour",
    "password": "10/min",
    "logs": "120/min",
    # Far above what a person or a script means to do: a loop without a pause.
    "submit": "1200/min",
    "other": "100/s",
}


class Counted(SimpleRateThrottle):
    THROTTLE_RATES = RATES

    def allow_request(self, request: Request, view: "APIView") -> bool:
        """A disk that is full stops jobs, and not everybody who wants to look."""
        try:
            return super().allow_request(request, view)
        except OSError as error:
            logger.warning("requests can not be counted: %s", error)
            return True


class PerPerson(Counted):
    """By person, whichever token or session; by address who is not known."""

    scope = "other"

    def allow_request(self, request: Request, view: "APIView") -> bool:
        self.scope = SCOPES.get(getattr(view, "action", ""), self.scope)
        self.rate = self.get_rate()
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: "APIView") -> str:
        known = request.user.is_authenticated
        who = f"user-{request.user.pk}" if known else self.get_ident(request)
        return f"throttle-{self.scope}-{who}"


class ByAddress(Counted):
    scope = "register"

    def get_cache_key(self, request: Request, view: "APIView") -> str:
        return f"throttle-{self.scope}-{self.get_ident(request)}"


class ByAddressAndAccount(Counted):
    """Slows guessing at one account without locking its owner out elsewhere."""

    scope = "login"

    def get_cache_key(self, request: Request, view: "APIView") -> str:
        # A dictionary: the parser takes nothing else.
        account = str(dict(request.data).get("email", "")).casefold().encode()
        digest = hashlib.sha256(account).hexdigest()  # any text, as a cache's key
        return f"throttle-{self.scope}-{self.get_ident(request)}-{digest}"


class OfPasswords(Counted):
    """Who holds somebody's session does not find out the password with it."""

    scope = "password"

    def get_cache_key(self, request: Request, view: "APIView") -> str:
        return f"throttle-{self.scope}-{request.user.pk}"
