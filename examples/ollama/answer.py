"""Ask a local model and leave its JSON as the result: the server and the model are in
the image, and no network is needed.

Reads the prompt from a file, starts `ollama serve` where OLLAMA_HOST names no server,
and writes what the model answers into GPUJOBS_ARTIFACTS as result.json. Whether that is
good is for the validators to say.
"""

import argparse
import contextlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

LOCAL = "http://127.0.0.1:11434"
PATIENCE_S = 120.0


def ask(server: str, path: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server}{path}", data)  # noqa: S310 - our own server
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return bytes(answer.read())


@contextlib.contextmanager
def server() -> Iterator[str]:
    if "OLLAMA_HOST" in os.environ:
        yield os.environ["OLLAMA_HOST"]
        return
    process = subprocess.Popen(["ollama", "serve"])  # noqa: S607 - of the image
    try:
        until = time.monotonic() + PATIENCE_S
        while not answers(LOCAL):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("The model's server did not start.")
            time.sleep(0.2)
        yield LOCAL
    finally:
        process.terminate()
        process.wait()


def answers(address: str) -> bool:
    try:
        return bool(ask(address, "/api/version"))
    except (urllib.error.URLError, ConnectionError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", type=Path, required=True)
    asked = parser.parse_args()
    with server() as address:
        question = {"model": asked.model, "prompt": asked.prompt.read_text()}
        # The same question gets the same answer, and that in JSON.
        how = {
            "stream": False,
            "format": "json",
            "options": {"temperature": 0, "seed": 7},
        }
        told = json.loads(ask(address, "/api/generate", {**question, **how}))
    folder = Path(os.environ["GPUJOBS_ARTIFACTS"])
    (folder / "result.json").write_text(told["response"])
    print(f"{told.get('eval_count', 0)} tokens by {asked.model}")


if __name__ == "__main__":
    main()
