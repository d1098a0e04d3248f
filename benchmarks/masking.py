"""CPU of looking for a call's credential in its reply: `python -m benchmarks.masking`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.normalisation import microseconds
from proxy.responses.masking import Masks, masker
from signers.masks import renderings

SECRET: Final = 'sk-live/"quoted"+&=0123456789abcdef'
RECORD: Final = {"id": 4711, "title": "An issue with some words in it", "state": "open", "url": "https://up.test/4711"}
CHUNK: Final = 65_536
SIZES: Final = (1_024, CHUNK, 1_048_576)


def body_of(size: int) -> bytes:
    """JSON of about that size."""
    return json.dumps([RECORD] * (size // len(json.dumps(RECORD)) or 1)).encode()[:size]


def searched(masks: Masks, body: bytes, coding: bytes) -> None:
    """As a reply passes: in segments, the last one known to be so."""
    search = masker(masks, coding)
    for start in range(0, len(body), CHUNK):
        search.feed(body[start : start + CHUNK], start + CHUNK >= len(body))
    search.end()


def rows(masks: Masks) -> list[tuple[str, Callable[[], object]]]:
    headers = partial(masks.cover, b"X-Name: value\r\n" * 27)
    found: list[tuple[str, Callable[[], object]]] = [("headers (400 bytes)", headers)]
    for size in SIZES:
        body = body_of(size)
        found.append((f"plain {size // 1024} KiB", partial(searched, masks, body, b"")))
        found.append((f"gzip {size // 1024} KiB of text", partial(searched, masks, gzip.compress(body), b"gzip")))
    found.append(("an event of 90 bytes", partial(searched, masks, b"data: " + b"some words " * 7 + b"\n\n", b"")))
    return found


def main() -> None:
    plain, awkward = Masks(renderings(["sk-live-0123456789abcdefghijklmn"])), Masks(renderings([SECRET]))
    for kind, masks in (("letters and digits", plain), ("characters that every format escapes", awkward)):
        print(f"credential of {kind}: {len(masks.needles)} renderings")
        for name, work in rows(masks):
            print(f"  {name:<26} {microseconds(work, 20):9.1f} µs")


if __name__ == "__main__":
    main()
