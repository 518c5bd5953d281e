"""Stop: a wish that was written is carried out, SIGTERM first, then SIGKILL."""

from django.utils import timezone

from jobs.failpoints import failpoint
from jobs.models import Attempt
from jobs.status import Phase
from scheduler.execution.ground import attempt_lock, look, node_runner, read


def stop(attempt_id: str) -> None:
    """Carry out a stop wish: SIGTERM first, SIGKILL once the grace is over."""
    with attempt_lock(attempt_id) as held:
        attempt = read(attempt_id) if held else None
        if attempt is None or attempt.phase != Phase.RUNNING or not attempt.stop_reason:
            return
        now, grace_s = timezone.now(), attempt.job.grace_s
        sent = attempt.stop_sent_at
        if sent is None:
            Attempt.objects.filter(pk=attempt.pk).update(stop_sent_at=now)
            failpoint("stop.written")
        force = not grace_s or (
            # Either way: a clock set back must not spare it for hours.
            sent is not None and abs((now - sent).total_seconds()) >= grace_s
        )
        if (sent is None or force) and look(attempt) is not None:
            node_runner().stop(attempt.container, force=force)
            failpoint("stop.forced" if force else "stop.sent")
