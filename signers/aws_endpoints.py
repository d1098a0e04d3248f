"""Service and region of an AWS host name (pure).

AWS names its endpoints `{service}.{region}.{suffix}`, with resources in front (`{bucket}.s3.…`, `{id}.execute-api.…`),
markers between (`dualstack`, `-fips`) and, in some older services, the region in front of the service. Whatever this
cannot tell, a rule or record can say.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from signers.aws_names import SIGNING_NAMES, SUFFIXES

_REGION: Final = re.compile(r"(?:[a-z]{2}|eusc)(?:-[a-z]+)+-[0-9]{1,2}")
_LEGACY_S3: Final = re.compile(r"s3-(?:fips-)?(.+)")
# Endpoints outside the service models: resources that have a host of their own, and names that were changed.
_ALSO: Final = {
    "ddb": "dynamodb",
    "queue": "sqs",
    "lambda-url": "lambda",
    "s3-accesspoint": "s3",
    "s3-accelerate": "s3",
    "s3express-control": "s3express",
}
_S3_EXPRESS: Final = re.compile(r"s3express-[a-z0-9-]+")
# Hosts without a region belong to services that have one endpoint for a partition.
_GLOBAL: Final = {"amazonaws.com": "us-east-1", "amazonaws.com.cn": "cn-northwest-1"}


class Endpoint(NamedTuple):
    """Empty where the name does not tell."""

    service: str
    region: str


UNKNOWN: Final = Endpoint("", "")


@lru_cache(maxsize=1_024)
def endpoint(host: str) -> Endpoint:
    """What requests to a canonical host name are signed for; UNKNOWN outside AWS."""
    suffix = next((one for one in SUFFIXES if host.endswith("." + one)), None)
    if suffix is None:
        return UNKNOWN
    labels = [label for label in _unmarked(host[: -len(suffix) - 1].split(".")) if label]
    at = next((index for index in range(len(labels) - 1, -1, -1) if _REGION.fullmatch(labels[index])), None)
    if at is not None:
        return _regional(labels[:at], labels[at], labels[at + 1 :])
    return _without_region(labels, suffix)


def _unmarked(labels: list[str]) -> list[str]:
    kept = [label for label in labels if label not in ("dualstack", "fips", "global")]
    return [label.removesuffix("-fips").removeprefix("fips-") for label in kept]


def _regional(before: list[str], region: str, behind: list[str]) -> Endpoint:
    """`behind` the region stands the service in older names, or the mark of a VPC endpoint."""
    name = behind if behind and behind != ["vpce"] else before
    return Endpoint(_service(name), region) if name else UNKNOWN


def _without_region(labels: list[str], suffix: str) -> Endpoint:
    legacy = _LEGACY_S3.fullmatch(labels[-1]) if labels else None
    if legacy is not None and _REGION.fullmatch(legacy[1]):
        return Endpoint("s3", legacy[1])
    if "us-gov" in labels:
        return Endpoint(_service([label for label in labels if label != "us-gov"]), "us-gov-west-1")
    # Buckets anywhere are reached through the accelerated name.
    region = "" if "s3-accelerate" in labels else _GLOBAL.get(suffix, "")
    return Endpoint(_service(labels), region) if labels else UNKNOWN


def _service(labels: list[str]) -> str:
    """The signing name of the longest known endpoint prefix at the end; a last label that is not known is a service."""
    for at in range(len(labels)):
        known = SIGNING_NAMES.get(".".join(labels[at:])) or _ALSO.get(".".join(labels[at:]))
        if known is not None:
            return known
    if not labels:
        return ""
    if labels[-1] == "iot" and len(labels) > 1:
        return "iotdata"
    return "s3express" if _S3_EXPRESS.fullmatch(labels[-1]) else labels[-1]
