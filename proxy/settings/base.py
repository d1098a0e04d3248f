"""What every section of the configuration shares: strictness, names, paths and addresses."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Section(BaseModel):
    """A mapping of the file. Unknown keys are refused, values are never repeated in an error, nothing changes later."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True, defer_build=True
    )


def as_written(value: object) -> Any:
    """A default in the form it would have in the file: it is checked, and its paths resolved, like the file's own."""
    return value


class Bind(NamedTuple):
    """Where a listener listens: an IP literal or `localhost`, and a TCP port (0 lets the system choose one)."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine (in a pod: only this pod) can connect."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    @property
    def version(self) -> int:
        """The IP version, 4 for `localhost`."""
        return 6 if ":" in self.host else 4

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _beside_the_file(path: Path, info: ValidationInfo) -> Path:
    """A relative path means: relative to the configuration file's folder, wherever the process was started."""
    folder = (info.context or {}).get("folder", Path())
    return Path(folder) / path.expanduser()


def _name(value: str) -> str:
    if value in {".", ".."} or not NAME.fullmatch(value):
        raise ValueError("must be 1 to 128 letters, digits, '.', '_' or '-', and not '.' or '..'")
    return value


def _name_or_star(value: str) -> str:
    return value if value == "*" else _name(value)


def _bind(value: object) -> object:
    if isinstance(value, Bind):
        return value
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):(\d{1,5})", value) if isinstance(value, str) else None
    if match is None or int(match[3]) > 65535:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:18400 or [::1]:18400")
    host = match[1] or match[2]
    if host != "localhost":
        try:
            host = str(ipaddress.ip_address(host))
        except ValueError:
            raise ValueError("the host of an address to listen on must be an IP literal or localhost") from None
    return Bind(host, int(match[3]))


def one_or_more(value: object) -> object:
    """Lets a list of one be written without brackets."""
    return [value] if isinstance(value, str) else value


def _network(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("must be an IP network or address, such as 10.2.0.0/16, without host bits") from None


FilePath = Annotated[Path, AfterValidator(_beside_the_file)]
Name = Annotated[str, AfterValidator(_name)]
NameOrStar = Annotated[str, AfterValidator(_name_or_star)]
BindAddress = Annotated[Bind, BeforeValidator(_bind)]
IpNetwork = Annotated[ipaddress.IPv4Network | ipaddress.IPv6Network, BeforeValidator(_network)]
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
OneOrMore = Annotated[tuple[str, ...], BeforeValidator(one_or_more)]
