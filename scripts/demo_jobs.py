"""The sample jobs of a demo, over the API, as any client would."""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import requests

PATIENCE_S = 60.0
T = TypeVar("T")


def say(text: str = "") -> None:
    print(text, flush=True)


def until(condition: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            sys.exit(f"Waited {PATIENCE_S:.0f} s in vain for {what}; see DATA/*.log.")
        time.sleep(0.1)
    return value


class Api:
    def __init__(self, base_url: str, account: dict[str, str]) -> None:
        self._url = f"{base_url}/api/v1"
        self._session = requests.Session()
        tokens = self.call("POST", "/auth/login", account)
        self._session.headers["Authorization"] = f"Bearer {tokens['access_token']}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._session.request(method, self._url + path, json=body, timeout=30)
        if not answer.ok:
            sys.exit(f"{method} {path}: {answer.status_code} {answer.text}")
        kind = answer.headers.get("Content-Type", "")
        return answer.json() if "json" in kind else answer.text

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.call("GET", f"/jobs/{job_id}"))


SUCCEEDS = """
echo "Hello from attempt $GPUJOBS_ATTEMPT on GPUs $GPUJOBS_GPU_UUIDS"
for step in 1 2 3 4 5; do echo "step $step of 5"; sleep 1; done
echo '{"accuracy": 0.93}' > "$GPUJOBS_ARTIFACTS/metrics.json"
echo "done"
"""
FAILS = "echo 'reading the configuration'; echo 'error: no such file' >&2; exit 3"
WAITS = "echo 'my turn at last'"


def sample_jobs(api: Api, image: str) -> bool:
    """Submit all and show them to the end; whether all went as it should."""
    gpus = until(
        lambda: [g for g in api.call("GET", "/gpus")["results"] if g["is_present"]],
        "the supervisor to find the GPUs",
    )
    free = sum(gpu["foreign_mb"] < 512 for gpu in gpus)
    spec = {"image": image, "timeout_s": 300}

    def submit(name: str, command: str, gpu_count: int) -> str:
        body = {**spec, "name": name, "command": command, "gpu_count": gpu_count}
        return str(api.call("POST", "/jobs", body)["id"])

    first = submit("takes every GPU and succeeds", SUCCEEDS, free)
    waits = ("queued", "starting")
    until(lambda: api.job(first)["status"] not in waits, "job 1 to run")
    if api.job(first)["status"] != "running":
        show(api, 1, first)
        return False
    second = submit("fails with exit code 3", FAILS, 0)
    third = submit("waits for a GPU", WAITS, 1)
    task = {"model_name": "demo", "params": {"prompt": "Which GPU is free?"}}
    fourth = str(api.call("POST", "/jobs", {**task, "name": "names no image"})["id"])
    why = api.call("GET", f"/jobs/{third}/explain")
    say(f"\nJob 3 waits: {why['reason']}. {why['text']}")
    jobs = (first, second, third, fourth)
    ended = [show(api, n, i) for n, i in enumerate(jobs, start=1)]
    [made] = api.call("GET", f"/jobs/{fourth}/decisions")["results"]
    say(f"\nJob 4 was routed by the policy demo: {made['text']}")
    files = api.call("GET", f"/jobs/{first}/artifact")["files"]
    say("\nJob 1 left " + ", ".join(f"{f['path']} ({f['size']} bytes)" for f in files))
    seen = [(job["status"], job["exit_code"]) for job in ended]
    good = [("succeeded", 0), ("failed", 3), ("succeeded", 0), ("succeeded", 0)]
    return seen == good and bool(files)


def show(api: Api, number: int, job_id: str) -> dict[str, Any]:
    ended = ("succeeded", "failed", "cancelled")
    until(lambda: api.job(job_id)["status"] in ended, f"job {number} to end")
    job = api.job(job_id)
    say(f"\nJob {number}, {job['name']}: {job['status']}. {job['reason_text']}")
    for line in api.call("GET", f"/jobs/{job_id}/logs").splitlines():
        say(f"    {line}")
    return job


def stop_jobs(api: Api) -> None:
    """Nothing of the demo outlives it."""
    live = "/jobs?status=queued&status=starting&status=running&limit=200"
    for job in api.call("GET", live)["results"]:
        api.call("POST", f"/jobs/{job['id']}/cancel")
    until(lambda: not api.call("GET", live)["results"], "the jobs to stop")
