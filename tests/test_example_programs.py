"""The programs of the examples, run as a job runs them."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs.routing import Risk, parse_yaml
from scheduler.planner import Ground, plan
from tests.e2e.stack import ROOT

EXAMPLES = ROOT / "examples"
FREE = Ground(never={}, over_quota={})


class Ollama(BaseHTTPRequestHandler):
    """Speaks as much of Ollama's API as the example asks for."""

    asked: dict[str, Any]

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        type(self).asked = json.loads(self.rfile.read(length))
        answer = {"response": '{"steps": []}', "done": True, "eval_count": 7}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Not into the tests' output."""


@pytest.fixture
def server() -> Iterator[str]:
    serving = HTTPServer(("127.0.0.1", 0), Ollama)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_what_a_model_answers_is_the_result_whatever_it_is(
    server: str, tmp_path: Path
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Plan it. {{ x }}")
    command = [sys.executable, str(EXAMPLES / "ollama" / "answer.py")]
    done = subprocess.run(
        [*command, "--model", "qwen2.5:7b", "--prompt", str(prompt)],
        env={"OLLAMA_HOST": server, "GPUJOBS_ARTIFACTS": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "7 tokens by qwen2.5:7b\n"
    assert json.loads((tmp_path / "result.json").read_text()) == {"steps": []}
    assert Ollama.asked["prompt"] == "Plan it. {{ x }}"
    assert (Ollama.asked["format"], Ollama.asked["stream"]) == ("json", False)


@pytest.mark.parametrize(
    ("file", "params", "risk", "tier"),
    [
        ("policy.yaml", {"goal": "tidy up", "context": ""}, Risk.LOW, "qwen-7b"),
        ("policy.yaml", {"goal": "tidy up", "context": ""}, Risk.MEDIUM, "qwen-14b"),
        ("policy.yaml", {"goal": "prove it", "context": "x" * 9000}, Risk.LOW, "llama-70b"),
        ("policy.yaml", {"goal": "tidy up", "context": ""}, Risk.HIGH, ""),
        ("policy-research.yaml", {"question": "what?", "sources": ["a"]}, Risk.LOW, "qwen-7b"),
        ("policy-research.yaml", {"question": "compare", "sources": ["a"] * 6}, Risk.LOW, "qwen-14b"),
    ],
)  # fmt: skip
def test_a_role_goes_to_the_smallest_model_that_will_do(
    file: str, params: dict[str, Any], risk: Risk, tier: str
) -> None:
    policy = parse_yaml((EXAMPLES / "ollama" / file).read_text())
    assert plan(policy, params, risk, FREE).tier == tier
