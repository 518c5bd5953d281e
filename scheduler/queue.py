"""The one door to django-q2. Nothing else imports it."""

from django_q.cluster import Cluster
from django_q.tasks import async_task


def enqueue(name: str, *ids: str) -> None:
    """Ask the cluster for a task of scheduler.tasks, in the caller's transaction.

    Delivery is at most once in effect, so whoever needs it done asks again. Results
    are not kept: a task tells what it did through rows.
    """
    async_task(f"scheduler.tasks.{name}", *ids, q_options={"save": False})


def run_cluster() -> None:
    """Start django-q2's cluster; it ends on SIGTERM, after the tasks at work."""
    Cluster().start()
