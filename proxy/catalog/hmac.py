"""`auth.hmac` of a provider file: how its requests are signed (signers/hmac_template.py)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from proxy.catalog.base import Strict
from signers.hmac_template import BODY_LIMIT, Clock, Digest, Encoding, Hash, HmacTemplate
from signers.placement import Placement, check_placement

Format = Annotated[str, Field(min_length=1, max_length=512)]
MAX_BODY = 16 << 20


class DigestDocument(Strict):
    """What {digest} stands for: a hash of parts."""

    hash: Hash
    of: Format
    encoding: Encoding = "hex"

    def compiled(self) -> Digest:
        return Digest(self.hash, self.of, self.encoding)


class HmacDocument(Strict):
    """A template over the parts of a request: {key_id} {timestamp} {nonce} {method} {host} {path} {query}
    {sorted_query} {target} {header:name} {body} {digest}, and in what is added {signature}."""

    algorithm: Hash
    message: Format = Field(description="what is signed")
    key: Literal["text", "base64", "hex"] = Field("text", description="how the record's secret is turned into the key")
    encoding: Literal["hex", "base64"] = Field("hex", description="how the signature is written")
    timestamp: Clock = "seconds"
    ahead: int = Field(0, ge=0, le=3600, description="seconds added to the timestamp, where it is an expiry")
    digest: DigestDocument | None = None
    headers: dict[str, Format] = Field({}, description="header lines added, by name")
    query: dict[str, Format] = Field({}, description="parameters added; those without {signature} are signed too")
    form: dict[str, Format] = Field({}, description="fields added in front of a form body, which are signed with it")
    body_limit: int = Field(BODY_LIMIT, ge=1, le=MAX_BODY, description="bytes of a body that are held to be signed")

    @model_validator(mode="after")
    def _usable(self) -> HmacDocument:
        for name in self.headers:
            check_placement(Placement("header", name))
        for name in (*self.query, *self.form):
            check_placement(Placement("query", name))
        self.compiled().check()
        return self

    def compiled(self) -> HmacTemplate:
        return HmacTemplate(
            self.algorithm,
            self.message,
            tuple(self.headers.items()),
            tuple(self.query.items()),
            tuple(self.form.items()),
            self.key,
            self.encoding,
            self.timestamp,
            self.ahead,
            self.digest.compiled() if self.digest is not None else None,
            self.body_limit,
        )
