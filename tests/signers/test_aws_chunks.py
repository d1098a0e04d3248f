"""Signed chunks: the published examples of the S3 reference, any split of the bytes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signers.aws_chunks import CHUNK_LIMIT, ChunkSigner
from signers.secret import Secret
from signers.signing import Unsignable
from signers.sigv4 import Keys, Scope, stamp

WHEN = stamp(1_369_353_600)
DUMMY = b"0" * 64
DERIVED = Keys("AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")).derived(
    WHEN, Scope(b"us-east-1", b"s3")
)
SEED = b"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
SEED_WITH_TRAILER = b"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
CHECKSUM = b"x-amz-checksum-crc32c:sOO8/Q==\r\n"


def chunk(data: bytes, signature: bytes = DUMMY) -> bytes:
    return b"%x;chunk-signature=%b\r\n%b\r\n" % (len(data), signature, data)


PLAIN = chunk(b"a" * 65_536) + chunk(b"a" * 1_024) + chunk(b"")
TRAILING = (
    chunk(b"a" * 65_536) + chunk(b"a" * 1_024) + b"0;chunk-signature=" + DUMMY + b"\r\n" + CHECKSUM
    + b"x-amz-trailer-signature:" + DUMMY + b"\r\n\r\n"
)  # fmt: skip


def signer(*, trailer: bool = False) -> ChunkSigner:
    return ChunkSigner(DERIVED, WHEN, SEED_WITH_TRAILER if trailer else SEED, trailer=trailer)


def run(coder: ChunkSigner, body: bytes, step: int = 1 << 20) -> bytes:
    out = b"".join(coder.feed(body[at : at + step]) for at in range(0, len(body), step))
    return out + coder.end()


def test_chunks_get_the_signatures_of_the_published_example() -> None:
    assert run(signer(), PLAIN) == (
        chunk(b"a" * 65_536, b"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648")
        + chunk(b"a" * 1_024, b"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497")
        + chunk(b"", b"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9")
    )


def test_a_trailer_is_kept_and_signed_as_in_the_published_example() -> None:
    assert run(signer(trailer=True), TRAILING) == (
        chunk(b"a" * 65_536, b"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2")
        + chunk(b"a" * 1_024, b"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7")
        + b"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n"
        + CHECKSUM
        + b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n"
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70_000), st.booleans())
def test_how_the_bytes_arrive_changes_nothing_and_the_length_stays(step: int, trailer: bool) -> None:
    body = TRAILING if trailer else PLAIN
    signed = run(signer(trailer=trailer), body, step)
    assert signed == run(signer(trailer=trailer), body)
    assert len(signed) == len(body)


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nhello\r\n0\r\n\r\n",
        b"zz;chunk-signature=" + DUMMY + b"\r\n",
        chunk(b"hello")[:-2] + b"xx" + chunk(b""),
        chunk(b"hello"),
        chunk(b"hello") + chunk(b"")[:-1],
        PLAIN + b"more",
        b"x" * 2_000,
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(body: bytes) -> None:
    with pytest.raises(Unsignable):
        run(signer(), body)


def test_a_chunk_too_large_to_hold_is_refused_with_the_limit_in_the_message() -> None:
    with pytest.raises(Unsignable, match=str(CHUNK_LIMIT)) as refused:
        signer().feed(b"%x;chunk-signature=%b\r\n" % (CHUNK_LIMIT + 1, DUMMY))
    assert refused.value.too_large
