"""What the daemon says of a pull, by tables; tests/contracts asks a real one."""

from typing import Any

import pytest

from jobs.status import Reason
from scheduler.runner.base import RateLimited, RunnerFault
from scheduler.runner.docker.pulling import Layers, fault_of, follow


def message(layer: str, status: str, current: Any = None, total: Any = None) -> Any:
    told = {} if current is None else {"current": current, "total": total}
    return {"id": layer, "status": status, "progressDetail": told}


class TestLayers:
    def test_the_sum_is_over_all_that_are_known(self) -> None:
        layers = Layers()
        layers.take(message("a", "Pulling fs layer"))
        layers.take(message("a", "Downloading", 10, 100))
        layers.take(message("b", "Downloading", 5, 50))
        assert (layers.done, layers.total) == (15, 150)

    @pytest.mark.parametrize(
        "status", ["Verifying Checksum", "Download complete", "Pull complete"]
    )
    def test_one_that_was_fetched_is_whole(self, status: str) -> None:
        layers = Layers()
        layers.take(message("a", "Downloading", 10, 100))
        layers.take(message("a", status))
        assert (layers.done, layers.total) == (100, 100)

    def test_unpacking_does_not_count_again(self) -> None:
        layers = Layers()
        layers.take(message("a", "Download complete"))
        for step in (1, 60, 100):
            layers.take(message("a", "Extracting", step, 100))
        assert (layers.done, layers.total) == (100, 100)

    @pytest.mark.parametrize(
        "odd",
        [
            {},
            {"status": "Pulling from lab/train", "id": "1"},
            {"status": "Already exists", "id": "a", "progressDetail": {}},
            {"status": "Downloading", "id": "a", "progressDetail": None},
            message("a", "Downloading", 7, -1),
            message("a", "Downloading", 7, None),
            message("a", "Extracting", 3, None),
            message("a", "Pull complete"),
        ],
    )
    def test_what_names_no_size_counts_nothing(self, odd: Any) -> None:
        layers = Layers()
        layers.take(odd)
        assert (layers.done, layers.total) == (0, 0)

    def test_more_than_was_announced_is_no_more_than_all(self) -> None:
        layers = Layers()
        layers.take(message("a", "Downloading", 170, 100))
        assert (layers.done, layers.total) == (100, 100)


def test_every_step_is_reported_and_an_error_after_the_last() -> None:
    told: list[tuple[int, int]] = []
    error = "write /var/lib/docker/tmp/GetImageBlob1: no space left on device"
    steps = [
        message("a", "Downloading", 1, 4),
        message("a", "Downloading", 3, 4),
        {"error": error, "errorDetail": {"message": error}},
    ]
    with pytest.raises(RunnerFault, match="GetImageBlob1") as caught:
        follow(steps, lambda done, total: told.append((done, total)))
    assert caught.value.reason is Reason.DISK_FULL
    assert told == [(1, 4), (3, 4), (3, 4)]


NOT_FOUND, AUTH = Reason.IMAGE_NOT_FOUND, Reason.IMAGE_AUTH
UNREACHABLE, FULL = Reason.REGISTRY_UNREACHABLE, Reason.DISK_FULL
HUB = (
    "pull access denied for lab/train, repository does not exist or may require "
    "'docker login': denied: requested access to the resource is denied"
)
# (status code or None, what the daemon says, what it means)
TABLE = [
    (500, "manifest unknown", NOT_FOUND),
    (500, "name unknown", NOT_FOUND),
    (404, "manifest for lab/train:9 not found: manifest unknown: x", NOT_FOUND),
    (404, "no such image", NOT_FOUND),
    (500, "received unexpected HTTP status: 404 Not Found", NOT_FOUND),
    (
        500,
        (
            'failed to resolve reference "docker.io/lab/train:9": '
            "docker.io/lab/train:9: not found"
        ),
        NOT_FOUND,
    ),
    (
        500,
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
        NOT_FOUND,
    ),
    (404, HUB, AUTH),
    (500, "denied", AUTH),
    (500, "denied: access forbidden", AUTH),
    (500, "unauthorized: authentication required", AUTH),
    (500, 'Head "https://r.lab/v2/x/manifests/1": no basic auth credentials', AUTH),
    (401, "whatever", AUTH),
    (403, "whatever", AUTH),
    (
        500,
        (
            "failed to authorize: failed to fetch anonymous token: unexpected status from "
            "GET request to https://r.lab/token: 403 Forbidden"
        ),
        AUTH,
    ),
    (500, "toomanyrequests: You have reached your pull rate limit.", UNREACHABLE),
    (429, "whatever", UNREACHABLE),
    (
        500,
        (
            "unexpected status from HEAD request to https://r.lab/v2/x: "
            "429 Too Many Requests"
        ),
        UNREACHABLE,
    ),
    (None, "write /var/lib/docker/tmp/GetImageBlob1: no space left on device", FULL),
    (
        None,
        (
            "failed to register layer: Error processing tar file(exit status 1): "
            "write /opt/x: no space left on device"
        ),
        FULL,
    ),
    # Trouble on the way or on the node: none of it may end a job.
    (500, 'Get "https://r.lab/v2/": dial tcp 10.0.0.1:443: i/o timeout', UNREACHABLE),
    (500, "dial tcp: lookup r.lab on 10.0.0.53:53: no such host", UNREACHABLE),
    (500, "received unexpected HTTP status: 503 Service Unavailable", UNREACHABLE),
    (500, "x509: certificate signed by unknown authority", UNREACHABLE),
    (500, "proxyconnect tcp: Proxy Authentication Required", UNREACHABLE),
    (
        500,
        (
            "error getting credentials - err: exec: docker-credential-pass: executable "
            "file not found in $PATH"
        ),
        UNREACHABLE,
    ),
    (500, "mkdir /var/lib/docker/overlay2/x: permission denied", UNREACHABLE),
    (None, "unexpected EOF", UNREACHABLE),
]


@pytest.mark.parametrize(("status", "told", "reason"), TABLE)
def test_what_an_error_means(status: int | None, told: str, reason: Reason) -> None:
    fault = fault_of(told, status)
    assert fault.reason is reason
    assert told in str(fault)


def test_a_rate_limit_says_what_to_do_and_wants_a_longer_pause() -> None:
    fault = fault_of("toomanyrequests: slow down", 500)
    assert isinstance(fault, RateLimited)
    assert "rate limit" in str(fault)
    assert "docker login" in str(fault)
    assert not isinstance(fault_of("unexpected EOF"), RateLimited)


def test_no_access_is_told_with_both_that_it_may_mean() -> None:
    said = str(fault_of(HUB, 404))
    assert "there is no such image, or it is private" in said
    assert "docker login" in said


def test_a_full_disk_is_told_to_the_operator() -> None:
    assert "An operator should make room" in str(fault_of("no space left on device"))
