"""How a call without an accepted identity is answered: by listener, since clients act on status and challenge."""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.errors import GatewayError
from proxy.model import ListenerKind


class Refusal(NamedTuple):
    """Status and challenge (RFC 9110 section 11.6.1, 11.7.1) of one listener, and how to do better."""

    status: int
    challenge: tuple[str, str] | None
    missing: str

    def absent(self) -> GatewayError:
        """Nothing was presented that any member could judge."""
        return GatewayError("identity_missing", self.missing, status=self.status, challenge=self.challenge)

    def invalid(self, detail: str) -> GatewayError:
        """Something was presented and is not accepted."""
        return GatewayError("identity_invalid", detail, status=self.status, challenge=self.challenge)

    def of(self, error: GatewayError) -> GatewayError:
        """A member's refusal as this listener tells it."""
        return GatewayError(
            error.code.name, error.detail, status=self.status, challenge=self.challenge, blame=error.blame
        )


# Basic is the one scheme that clients take from a proxy URL: git and curl do not answer a Bearer challenge of a proxy.
_PROXY: Final = ("Proxy-Authenticate", 'Basic realm="sluicegate"')
_BEARER: Final = ("WWW-Authenticate", 'Bearer realm="sluicegate"')

BY_LISTENER: Final[dict[ListenerKind, Refusal]] = {
    "proxy": Refusal(
        407, _PROXY, "No session token came with the call. Put it into the proxy URL: http://agent:TOKEN@HOST:PORT."
    ),
    "base-url": Refusal(401, _BEARER, "No session token came with the call. Send Authorization: Bearer TOKEN."),
    "tools": Refusal(401, _BEARER, "No session token came with the call. Send Authorization: Bearer TOKEN."),
    "transparent": Refusal(403, None, "This listener knows no caller for the connection."),
}

# A 401 or 407 here would make the client answer with the connection's credentials, which is not what is wrong.
PER_CALL: Final = Refusal(403, None, "Each call needs a token of its own. Send it in the header Sluicegate-Session.")
