"""What an AWS service does with a request: recompute the signature over what arrived, and the hash of the payload.

Written apart from the product, on the standard library alone, and stricter than any service: every x-amz-* header has
to be covered, and nothing that a hop may change.
"""

from __future__ import annotations

import hashlib
import hmac
import posixpath
import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote_to_bytes

from tests.flows.upstreams import Request

KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
EMPTY = hashlib.sha256(b"").hexdigest()
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/([\w-]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)


def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def decoded_chunks(body: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """[(data, signature or b"")] and the trailer section of an aws-chunked body."""
    chunks, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size, _, extension = body[at:end].partition(b";chunk-signature=")
        data = body[end + 2 : end + 2 + int(size, 16)]
        chunks.append((data, extension))
        if not data:
            return chunks, body[end + 2 :]
        at = end + 2 + len(data) + 2


class Verified:
    """A request whose signature holds. Raises AssertionError otherwise.

    `normalise`: the path's dot segments and empty segments are taken out first, as services other than S3 do. `keys`
    are the access keys that the service knows: secrets by id.
    """

    def __init__(
        self, request: Request, *, normalise: bool = False, keys: Mapping[str, str] = MappingProxyType({KEY_ID: SECRET})
    ) -> None:
        self.request = request
        self.normalise = normalise
        lines = request.all("Authorization")
        assert len(lines) == 1, request.head
        match = AUTHORIZATION.fullmatch(lines[0])
        assert match is not None, lines
        self.key_id, self.date, self.region, self.service, names, self.signature = match.groups()
        assert self.key_id in keys
        self.names = names.split(";")
        self.key = signing_key(keys[self.key_id], self.date, self.region, self.service)
        self.time = self.only("X-Amz-Date")
        assert self.time.startswith(self.date)
        self._check_names()
        self.payload = self._payload()
        self.scope = f"{self.date}/{self.region}/{self.service}/aws4_request"
        self._check_signature()

    def only(self, name: str) -> str:
        values = self.request.all(name)
        assert len(values) == 1, (name, values)
        return values[0]

    def _check_names(self) -> None:
        present = {name.lower() for name in self.request.names}
        wanted = {n for n in present if n.startswith("x-amz-") or n in ("host", "content-type", "content-md5")}
        assert set(self.names) == wanted
        assert self.names == sorted(self.names)

    def _payload(self) -> str:
        given = self.request.all("X-Amz-Content-SHA256")
        if not given:
            return hashlib.sha256(self.request.body).hexdigest()
        if re.fullmatch("[0-9a-f]{64}", given[0]):
            assert hashlib.sha256(self.request.body).hexdigest() == given[0]
        return given[0]

    def _check_signature(self) -> None:
        path, _, query = self.request.target.partition(b"?")
        canonical = "\n".join(
            [
                self.request.method,
                self._path(path.decode()),
                self._query(query),
                *[f"{name}:{','.join(self._folded(name))}" for name in self.names],
                "",
                ";".join(self.names),
                self.payload,
            ]
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self.time}\n{self.scope}\n{digest}"
        assert hmac.digest(self.key, text.encode(), "sha256").hex() == self.signature, canonical

    def _path(self, path: str) -> str:
        if self.service == "s3":
            return path
        if self.normalise:
            end = "/" if path.endswith("/") and path.strip("/") else ""
            path = posixpath.normpath("/" + path.lstrip("/"))
            path += end if path != "/" else ""
        return quote(path, safe="/~")

    def _folded(self, name: str) -> list[str]:
        return [" ".join(value.split()) for value in self.request.all(name)]

    @staticmethod
    def _query(query: bytes) -> str:
        pairs = [part.partition(b"=")[::2] for part in query.split(b"&") if part]
        coded = [(quote(unquote_to_bytes(n), safe="~"), quote(unquote_to_bytes(v), safe="~")) for n, v in pairs]
        return "&".join(f"{name}={value}" for name, value in sorted(coded))

    @property
    def content(self) -> bytes:
        """The object in the body, its chunk and trailer signatures checked where it has them."""
        if not self.payload.startswith("STREAMING-"):
            return self.request.body
        chunks, trailer = decoded_chunks(self.request.body)
        if self.payload.startswith("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"):
            previous = self._check_chunks(chunks)
            if self.payload.endswith("-TRAILER"):
                self._check_trailer(trailer, previous)
        content = b"".join(data for data, _ in chunks)
        assert int(self.only("X-Amz-Decoded-Content-Length")) == len(content)
        return content

    def _check_chunks(self, chunks: list[tuple[bytes, bytes]]) -> str:
        previous = self.signature
        for data, signature in chunks:
            digest = hashlib.sha256(data).hexdigest()
            text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", self.time, self.scope, previous, EMPTY, digest])
            previous = hmac.digest(self.key, text.encode(), "sha256").hex()
            assert signature.decode() == previous
        return previous

    def _check_trailer(self, trailer: bytes, previous: str) -> None:
        lines, _, signature = trailer.rstrip(b"\r\n").rpartition(b"x-amz-trailer-signature:")
        digest = hashlib.sha256(lines.replace(b"\r\n", b"\n")).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256-TRAILER", self.time, self.scope, previous, digest])
        assert signature.decode() == hmac.digest(self.key, text.encode(), "sha256").hex()
