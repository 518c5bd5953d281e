from typing import Any

from jobs import views
from jobs.models import Job
from scheduler import placement, reservation


class SubmitView(views.SubmitView):
    def admit(self, spec: dict[str, Any]) -> str:
        request = reservation.request_of(Job(**spec))
        return placement.fits_ever(reservation.snapshot(), request)
