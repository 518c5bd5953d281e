"""Arrays, chains, holds, the top of the queue, and how few passes many jobs cost."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from tests.e2e.gates import Gates
from tests.e2e.operator import Operator
from tests.e2e.stack import Person, Stack, until
from tests.e2e.test_two_hundred_jobs import deaths
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("tidy")]


def asks(command: str = "true", **fields: Any) -> dict[str, Any]:
    return {"image": IMAGE, "command": command, "gpu_count": 0, "grace_s": 1, **fields}


def tasks_of(person: Person, array_id: str) -> list[dict[str, Any]]:
    """The tasks of an array, by their index."""
    found = person.get("/jobs", array_id=array_id, limit=200).json()["results"]
    return sorted(found, key=lambda task: task["array_index"])


def most_at_once(spans: Iterable[tuple[Any, Any]]) -> int:
    """Of spans of time, how many go on together at most. One that ends as another
    begins is gone."""
    edges = [edge for start, end in spans for edge in ((start, 1), (end, -1))]
    count = most = 0
    for _, step in sorted(edges):
        count += step
        most = max(most, count)
    return most


class TestArrays:
    def test_two_tasks_run_at_once_and_never_three(
        self, ada: Person, daemon: PrivateDaemon, session_machine: StandInMachine
    ) -> None:
        before = len(session_machine.starts())
        command = "echo task $GPUJOBS_ARRAY_INDEX; sleep 0.7"
        with deaths(daemon) as died:
            first = ada.submit(**asks(command, array="0-5%2", gpu_count=1))
            tasks = tasks_of(ada, first)
            assert [task["array_index"] for task in tasks] == [0, 1, 2, 3, 4, 5]
            for task in tasks:
                ada.wait_for(task["id"], "succeeded")
            starts = session_machine.starts()[before:]
            until(lambda: {s.container_id for s in starts} <= {*died}, "Docker's word")
        for task in tasks:
            assert ada.log(task["id"]) == b"task %d\n" % task["array_index"]
        # By the hook's own log and Docker's own times; four GPUs were free all along.
        spans = [(start.at, died[start.container_id][1]) for start in starts]
        assert (len(spans), most_at_once(spans)) == (6, 2)

    def test_its_limit_is_told_and_the_whole_of_it_is_cancelled_at_once(
        self, ada: Person, gates: Gates
    ) -> None:
        first = ada.submit(**gates.asks(array="0-5%2", gpu_count=0))
        tasks = tasks_of(ada, first)
        for task in tasks[:2]:
            ada.wait_for(task["id"], "running")
        said = "Its array lets 2 of its tasks run at once."
        until(lambda: ada.job(tasks[2]["id"])["wait_text"] == said, "the limit")
        assert ada.job(tasks[2]["id"])["wait_reason"] == "quota"
        # Any of its tasks stands for the array.
        answer = ada.post(f"/jobs/{tasks[4]['id']}/cancel?array=true")
        assert answer.status_code == 200
        ended = [ada.wait_for(task["id"], "cancelled") for task in tasks]
        assert {job["reason"] for job in ended} == {"cancelled_by_user"}
        assert [bool(job["started_at"]) for job in ended] == [True] * 2 + [False] * 4
        again = ada.post(f"/jobs/{tasks[4]['id']}/cancel?array=true")
        assert again.status_code == 409

    def test_a_job_after_an_array_waits_for_its_last_task(
        self, ada: Person, gates: Gates
    ) -> None:
        spec = gates.asks(array="1-2%1", gpu_count=0)
        first = ada.submit(**spec)
        after = ada.submit(**asks(depends_on=[first]))
        ada.wait_for(first, "running")
        assert ada.job(after)["wait_reason"] == "dependency"
        gates.open(spec)
        job = ada.wait_for(after, "succeeded")
        ends = [task["finished_at"] for task in tasks_of(ada, first)]
        assert job["started_at"] >= max(ends)


class TestOrder:
    def test_a_chain_of_three_runs_in_its_order(self, ada: Person) -> None:
        first = ada.submit(**asks("echo 1"))
        second = ada.submit(**asks("echo 2", depends_on=[first]))
        third = ada.submit(**asks("echo 3", depends_on=[second]))
        ada.wait_for(third, "succeeded")
        chain = [ada.job(job_id) for job_id in (first, second, third)]
        times = [job[when] for job in chain for when in ("started_at", "finished_at")]
        assert times == sorted(times)
        assert [ada.log(job["id"]) for job in chain] == [b"1\n", b"2\n", b"3\n"]

    def test_a_job_that_is_submitted_held_starts_only_once_it_is_released(
        self, ada: Person
    ) -> None:
        held = ada.submit(**asks(hold=True))
        later = ada.submit(**asks())
        ended = ada.wait_for(later, "succeeded")
        assert ada.job(held)["wait_reason"] == "held"
        assert ada.post(f"/jobs/{held}/release").status_code == 200
        job = ada.wait_for(held, "succeeded")
        assert job["started_at"] >= ended["finished_at"]
        story = [event["event_type"] for event in ada.events(held)]
        assert story[:3] == ["queued", "released", "starting"]

    def test_a_job_that_an_operator_moves_to_the_top_starts_before_an_older_one(
        self, ada: Person, operator: Operator, gates: Gates
    ) -> None:
        spec = gates.asks(gpu_count=4)
        holder = ada.submit(**spec)
        ada.wait_for(holder, "running")
        older, newer = (ada.submit(**asks(gpu_count=4)) for _ in range(2))
        place = {job: ada.get(f"/jobs/{job}/explain").json() for job in (older, newer)}
        assert [place[job]["place_in_line"] for job in (older, newer)] == [1, 2]
        assert ada.post(f"/jobs/{newer}/top").status_code == 403
        assert operator.post(f"/jobs/{newer}/top").status_code == 200
        assert ada.get(f"/jobs/{newer}/explain").json()["place_in_line"] == 1
        gates.open(spec)
        ended = [ada.wait_for(job, "succeeded") for job in (older, newer)]
        assert ended[0]["started_at"] >= ended[1]["finished_at"]


# --- How many passes -----------------------------------------------------------------

# Written by the database itself each time a process takes or leaves the lease, so that
# neither a pass nor an overlap can be missed.
WATCH = {
    "sqlite": """
CREATE TABLE passes_seen
    (id INTEGER PRIMARY KEY, before TEXT, holder TEXT, served INTEGER, who TEXT);
CREATE TRIGGER watch_passes AFTER UPDATE OF holder ON scheduler_passlease
WHEN OLD.holder <> NEW.holder BEGIN
    INSERT INTO passes_seen (before, holder, served, who)
    VALUES (OLD.holder, NEW.holder, NEW.served, '');
END;
""",
    "postgresql": """
CREATE TABLE passes_seen
    (id BIGSERIAL, before TEXT, holder TEXT, served BIGINT, who TEXT);
CREATE FUNCTION note_pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO passes_seen (before, holder, served, who) VALUES
    (OLD.holder, NEW.holder, NEW.served, current_setting('application_name'));
    RETURN NULL;
END $$;
CREATE TRIGGER watch_passes AFTER UPDATE OF holder ON scheduler_passlease
FOR EACH ROW WHEN (OLD.holder <> NEW.holder) EXECUTE FUNCTION note_pass();
""",
}
START = f"""
from django.db import connection
statements = {WATCH!r}[connection.vendor]
with connection.cursor() as cursor:
    run = getattr(cursor, "executescript", cursor.execute)
    run(statements)
"""
# JSON of all that was seen, and of how many wakes were asked for and served.
READ = """
import json
from django.db import connection
from scheduler.models import PassLease
with connection.cursor() as cursor:
    cursor.execute("SELECT before, holder, served, who FROM passes_seen ORDER BY id")
    rows = cursor.fetchall()
lease = PassLease.objects.get(id=1)
print(json.dumps({"rows": rows, "wakes": lease.wakes, "served": lease.served}))
"""


class Step(NamedTuple):
    """One process takes the lease or leaves it."""

    before: str
    holder: str
    served: int
    who: str


class Seen(NamedTuple):
    steps: list[Step]
    wakes: int
    served: int

    @property
    def passes(self) -> int:
        return sum(not step.holder for step in self.steps)

    def since(self, earlier: "Seen") -> "Seen":
        steps = self.steps[len(earlier.steps) :]
        return Seen(steps, self.wakes - earlier.wakes, self.served - earlier.served)


@pytest.fixture(scope="module")
def watched(stack: Stack) -> Stack:
    """From here on the database writes down each pass."""
    stack.shell(START)
    return stack


def look(stack: Stack) -> Seen:
    found = json.loads(stack.shell(READ))
    steps = [Step(*row) for row in found["rows"]]
    return Seen(steps, found["wakes"], found["served"])


def settled(stack: Stack) -> Seen:
    """Once no wake stands that was not served, and no pass is under way."""

    def quiet() -> Seen | None:
        seen = look(stack)
        is_free = not seen.steps or not seen.steps[-1].holder
        return seen if is_free and seen.wakes == seen.served else None

    return until(quiet, "every wake to be served")


class Crowd:
    """A person at several terminals, none of whose jobs may start."""

    def __init__(self, stack: Stack, operator: Operator, email: str) -> None:
        me = stack.person(email)
        operator.admin.allow(me.get("/auth/me").json()["id"], running_jobs=0)
        token = stack.token(email)
        self._terminals = [Person(stack.url, token) for _ in range(8)]
        self.first = self._terminals[0]

    def submit(self, count: int) -> None:
        def work(terminal: Person) -> None:
            for _ in range(count // len(self._terminals)):
                terminal.submit(**asks())

        with ThreadPoolExecutor(len(self._terminals)) as pool:
            list(pool.map(work, self._terminals))


@pytest.fixture(scope="module")
def crowd(stack: Stack, operator: Operator) -> Crowd:
    return Crowd(stack, operator, "crowd@example.org")


class TestPasses:
    def test_a_thousand_tasks_submitted_at_once_cost_one_pass_or_two(
        self, watched: Stack, crowd: Crowd
    ) -> None:
        before = settled(watched)
        first = crowd.first.submit(**asks(array="0-999"))
        until(lambda: crowd.first.job(first)["wait_reason"] == "quota", "a pass")
        seen = settled(watched).since(before)
        assert crowd.first.get("/jobs", array_id=first, limit=1).json()["count"] == 1000
        # One for the submission; the supervisor's net may ask for another meanwhile.
        assert 1 <= seen.passes <= 2
        assert seen.passes <= seen.wakes <= 2

    def test_submissions_that_no_pass_has_served_yet_are_served_by_one(
        self, watched: Stack, crowd: Crowd
    ) -> None:
        before = settled(watched)
        watched.stop("cluster")
        crowd.submit(304)
        watched.start("cluster")
        seen = settled(watched).since(before)
        assert seen.wakes >= 304
        assert seen.served == seen.wakes
        assert 1 <= seen.passes <= 3

    def test_no_pass_is_made_without_a_wake(self, watched: Stack, crowd: Crowd) -> None:
        before = settled(watched)
        crowd.submit(304)
        seen = settled(watched).since(before)
        assert seen.served == seen.wakes
        # How many depends on how fast they come, and on how fast a pass is.
        assert 1 <= seen.passes <= seen.wakes

    def test_of_two_clusters_one_makes_a_pass_at_a_time(
        self, watched: Stack, crowd: Crowd
    ) -> None:
        before = settled(watched)
        url = watched.env["DATABASE_URL"]
        tells_who = url.startswith("postgres")
        named = {"DATABASE_URL": f"{url}?application_name=second"}
        watched.start("cluster-2", env=named if tells_who else {})

        def both_made_some() -> bool:
            crowd.submit(80)
            who = {step.who for step in look(watched).since(before).steps}
            return who == {"", "second"} or not tells_who

        try:
            until(both_made_some, "a pass of each cluster")
            seen = settled(watched).since(before)
        finally:
            watched.stop("cluster-2")
        assert seen.passes > 1
        # Each was left before the next was taken: there was no overlap.
        for taken, left in zip(seen.steps[::2], seen.steps[1::2], strict=True):
            assert (taken.before, left.holder) == ("", "")
            assert taken.holder == left.before
        served = [step.served for step in seen.steps]
        assert served == sorted(served)
