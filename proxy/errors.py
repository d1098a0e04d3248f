"""The errors a caller can see, and the tree of our own exceptions.

    SluicegateError
    ├── ConfigurationError      an operator's file is wrong: all faults at once, each with file and line
    ├── GatewayError            one call is refused by us: a row of CODES, a sentence for the agent
    └── StoreError              a credential store did not answer (never shown to an agent as it is)

An agent meets six kinds. A refusal of our own carries one of the codes below; `docs/errors.md` is generated from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["bad_input", "auth", "permission", "not_found", "rate_limit", "unavailable"]
KINDS: Final[tuple[Kind, ...]] = ("bad_input", "auth", "permission", "not_found", "rate_limit", "unavailable")

Blame = Literal["none", "caller", "policy", "credential", "provider", "network", "gateway"]
Retry = Literal["no", "yes", "if safe"]


@dataclass(frozen=True, slots=True)
class Code:
    """One row of the refusal table: what the agent is told and how SREs see it.

    `statuses[0]` is the default; the others may be chosen where the refusal is raised.
    """

    name: str
    kind: Kind
    statuses: tuple[int, ...]
    retry: Retry
    blame: Blame
    title: str
    advice: str
    """The sentence that ends the detail: what to do next, written for a language model."""


def _table(*rows: Code) -> dict[str, Code]:
    return {row.name: row for row in rows}


CODES: Final[dict[str, Code]] = _table(
    Code(
        "malformed_request",
        "bad_input",
        (400, 413, 414, 431),
        "no",
        "caller",
        "Malformed request",
        "Correct the request before sending it again; repeating it unchanged will fail the same way.",
    ),
    Code(
        "destination_mismatch",
        "bad_input",
        (421,),
        "no",
        "caller",
        "Destination mismatch",
        "Send the call with a Host header that names the host of the URL or of the tunnel.",
    ),
    Code(
        "identity_missing",
        "auth",
        (403, 401, 407),
        "no",
        "caller",
        "Caller unknown",
        "Present this sandbox's session token; ask the operator for one if there is none.",
    ),
    Code(
        "identity_invalid",
        "auth",
        (403, 401, 407),
        "no",
        "caller",
        "Caller not accepted",
        "Get a new session token; the one presented cannot be used.",
    ),
    Code(
        "policy_denied",
        "permission",
        (403,),
        "no",
        "policy",
        "Denied by policy",
        "Do not repeat it. Use an allowed call instead, or ask the operator to allow this one in a policy file.",
    ),
    Code(
        "tool_unknown",
        "not_found",
        (404,),
        "no",
        "caller",
        "Tool unknown",
        "List the tools with GET /v1/tools and call one of those.",
    ),
    Code(
        "destination_refused",
        "permission",
        (403,),
        "no",
        "policy",
        "Destination refused",
        "Do not repeat it. That address can only be reached if the operator lists its network in a rule.",
    ),
    Code(
        "presigned_refused",
        "permission",
        (403,),
        "no",
        "policy",
        "Signed URL refused",
        "Send the call without a signature in its query; the proxy signs it.",
    ),
    Code(
        "protocol_unsupported",
        "bad_input",
        (400,),
        "no",
        "caller",
        "Protocol not supported",
        "Use HTTP/1.1; this proxy does not speak HTTP/2 or gRPC.",
    ),
    Code(
        "credential_unbound",
        "permission",
        (403,),
        "no",
        "credential",
        "Credential not for this host",
        "Do not repeat it. The credential may only go to the hosts its record names; ask the operator.",
    ),
    Code(
        "credential_missing",
        "auth",
        (403,),
        "no",
        "credential",
        "Credential missing",
        "Do not repeat it. Ask the operator to store that credential for this tenant.",
    ),
    Code(
        "credential_disabled",
        "auth",
        (403,),
        "no",
        "credential",
        "Credential disabled",
        "Do not repeat it. The credential was switched off on purpose; ask the operator.",
    ),
    Code(
        "refresh_rejected",
        "auth",
        (403,),
        "no",
        "credential",
        "Credential needs new consent",
        "Do not repeat it. Its owner must connect the account again.",
    ),
    Code(
        "credential_rejected",
        "auth",
        (401,),
        "no",
        "credential",
        "Credential rejected by the provider",
        "Do not repeat it. The provider does not accept this credential any more; ask the operator to replace it.",
    ),
    Code(
        "credential_unavailable",
        "unavailable",
        (503,),
        "yes",
        "credential",
        "Credential store unavailable",
        "Wait, then repeat the same call.",
    ),
    Code(
        "breaker_open", "unavailable", (503,), "yes", "provider", "Provider failing", "Wait, then repeat the same call."
    ),
    Code("overloaded", "unavailable", (503,), "yes", "gateway", "Proxy overloaded", "Wait, then repeat the same call."),
    Code(
        "limit_exceeded",
        "rate_limit",
        (429,),
        "yes",
        "policy",
        "Limit exceeded",
        "Wait as long as Retry-After says, then repeat the same call.",
    ),
    Code(
        "idempotency_in_flight",
        "unavailable",
        (409,),
        "yes",
        "caller",
        "Same key in flight",
        "Wait for the first call with this Idempotency-Key to end, then repeat.",
    ),
    Code(
        "idempotency_mismatch",
        "bad_input",
        (422,),
        "no",
        "caller",
        "Same key, other request",
        "Use a new Idempotency-Key for a request that differs.",
    ),
    Code(
        "outcome_unknown",
        "unavailable",
        (502,),
        "no",
        "network",
        "Outcome unknown",
        "Do not repeat it blindly: it may have been done. Read the resource first to see whether it took effect.",
    ),
    Code(
        "upstream_unreachable",
        "unavailable",
        (502,),
        "if safe",
        "network",
        "Provider unreachable",
        "If the call is safe to repeat, wait and repeat it.",
    ),
    Code(
        "upstream_protocol",
        "unavailable",
        (502,),
        "if safe",
        "provider",
        "Provider broke the protocol",
        "If the call is safe to repeat, repeat it once; otherwise read the resource first.",
    ),
    Code(
        "upstream_tls",
        "unavailable",
        (502,),
        "no",
        "provider",
        "Provider's TLS not accepted",
        "Do not repeat it. Tell the operator: the provider's certificate or TLS set-up has to be put right.",
    ),
    Code(
        "upstream_timeout",
        "unavailable",
        (504,),
        "if safe",
        "provider",
        "Provider timed out",
        "If the call is safe to repeat, wait and repeat it; otherwise read the resource first.",
    ),
    Code(
        "internal",
        "unavailable",
        (500,),
        "no",
        "gateway",
        "Internal error",
        "Do not repeat it. Report the call id to the operator.",
    ),
)

# RFC 9110 section 9.2.2: repeating these has the effect of sending them once.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class SluicegateError(Exception):
    """Root of everything this product raises on purpose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in an operator's file. `line` is 1-based, 0 when the whole file is meant."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class ConfigurationError(SluicegateError):
    """Every fault found in configuration, policies, providers or records' files, at once."""

    def __init__(self, faults: list[Fault] | tuple[Fault, ...]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class StoreError(SluicegateError):
    """A credential store could not be asked. `args[0]` names what failed, without secrets."""


class GatewayError(SluicegateError):
    """A call refused by us.

    `code` is a key of CODES; `detail` says what happened (the renderer appends the code's advice); `status` picks
    another of the code's statuses; `retry_after` is in seconds; `challenge` is a header line (name, value) sent with
    the refusal, as RFC 9110 section 11 wants for 401 and 407; `rule` is the policy rule that decided, if one did.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        retry_after: int | None = None,
        challenge: tuple[str, str] | None = None,
        rule: str | None = None,
        blame: Blame | None = None,
    ) -> None:
        self.code = CODES[code]
        self.detail = detail
        self.status = status or self.code.statuses[0]
        self.retry_after = retry_after
        self.challenge = challenge
        self.rule = rule
        self.blame: Blame = blame or self.code.blame
        super().__init__(f"{code}: {detail}")
