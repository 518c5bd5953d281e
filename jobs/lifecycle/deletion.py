"""Delete: a job and its story go, and what waits for it remembers how it ended."""

from django.db import transaction

from jobs import audit, storage
from jobs.exceptions import TransitionConflict
from jobs.lifecycle.dependencies import remember_deleted
from jobs.lifecycle.requests import request_cancel
from jobs.models import Job, User
from jobs.status import Status


@transaction.atomic
def delete(job: Job, *, by: User) -> None:
    """Remove a job and its story; a queued one is cancelled first.

    Raises TransitionConflict while it is starting or running. The audit stays.
    """
    if job.status == Status.QUEUED:
        request_cancel(job, by=by)
    job.refresh_from_db()
    if not job.is_terminal:
        raise TransitionConflict(f"{job} is {job.status}: cancel it first.")
    remember_deleted(job)
    audit.record("job.deleted", target=job.pk, by=by, status=job.status)
    pk = job.pk

    def remove_files() -> None:
        storage.remove_files(pk)

    # A web process that may not remove them leaves them to the supervisor's sweep.
    transaction.on_commit(remove_files, robust=True)
    with audit.purge_door("events"):
        job.delete()
