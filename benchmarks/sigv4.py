"""CPU of one signature in isolation: a small GET with a warm key, from what is asked of its body to the finished lines,
as `python -m benchmarks.sigv4` prints it.

The figure to stay under is 12 µs on the machine that docs/performance.md describes; the ratio to a bare HMAC of the
same run tells machines apart.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable

from signers.aws import prepare_aws
from signers.secret import Secret
from signers.signing import Outgoing

ROUNDS = 20_000
LINES = (
    (b"host", b"dynamodb.eu-west-1.amazonaws.com"),
    (b"user-agent", b"agent/1.0"),
    (b"accept", b"*/*"),
    (b"content-type", b"application/json"),
)
REQUEST = Outgoing("GET", True, "dynamodb.eu-west-1.amazonaws.com", b"/orders/123?page=2", LINES, 0)


def microseconds(work: Callable[[], object]) -> float:
    """CPU of one call, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        for _ in range(ROUNDS):
            work()
        best = min(best, time.process_time() - begun)
    return best / ROUNDS * 1e6


def main() -> None:
    signing = prepare_aws({"access_key_id": "AKIDEXAMPLE", "secret_access_key": Secret("k" * 40)}, None)
    signed = microseconds(lambda: (signing.need(REQUEST), signing.sign(REQUEST, b"", time.time())))
    bare = microseconds(lambda: hmac.digest(b"k" * 32, b"m" * 128, "sha256"))
    print(f"small signed GET: {signed:.1f} µs of CPU, {signed / bare:.1f} times one HMAC-SHA256 ({bare:.1f} µs)")


if __name__ == "__main__":
    main()
