from django.conf import settings
from django.http import HttpRequest

NO_ISOLATION = "There is no isolation: jobs run as plain processes on this machine."
SIMULATED = "The GPUs are simulated: no job gets a real one."


def site(request: HttpRequest) -> dict[str, str]:
    """What every page must say about this site, in one line; empty if nothing."""
    said = [
        NO_ISOLATION if settings.RUNNER == "process" else "",
        SIMULATED if settings.INVENTORY == "simulated" else "",
    ]
    return {"site_notice": " ".join(filter(None, said))}
