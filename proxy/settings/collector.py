"""An OpenTelemetry collector, as audit lines and spans are sent to one."""

from __future__ import annotations

import ipaddress
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from proxy.settings.base import FilePath, Section


class Collector(Section):
    """Where it is and what it wants to be shown. Nothing of it is taken from environment variables."""

    endpoint: str = Field(
        pattern=r"^https?://[^\s/@]+/\S*$", description="The whole URL, such as https://collector:4318/v1/traces."
    )
    token_file: FilePath | None = Field(
        None, description="A bearer token for the collector, 0600, read at start; over https or to this machine only."
    )
    ca_file: FilePath | None = Field(None, description="Roots for the collector's certificate; default: the usual.")

    @model_validator(mode="after")
    def _token_over_tls(self) -> Self:
        if self.token_file is not None and not self.endpoint.startswith("https://") and not _local(self.endpoint):
            raise ValueError("token_file needs an https endpoint: the token would be sent in clear text")
        return self


def _local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
