"""Cases kept beside the policies (`*_test.yaml`): calls, and what policy must say of each.

cases:
  - name: posts
    call: {agent: support-bot, method: POST, url: "https://slack.com/api/chat.postMessage"}
    expect: {decision: allow, rule: post, credential: slack}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from policies.conditions import Asked, Content
from policies.contents import content
from policies.decide import Allowed, Denied
from policies.load import TEST_SUFFIXES, PolicyError, type_faults
from policies.matchers import decode_path, host_pattern
from policies.policy_set import PolicySet
from policies.rules import Endpoint
from policies.source import Fault, read
from policies.traits import Traits

_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


class Classified(NamedTuple):
    """What the catalogue says of a call: provider and operation if it knows them, and whether the call writes."""

    provider: str | None
    operation: str | None
    write: bool


Classify = Callable[["CaseCall", Endpoint, str | None], Classified]
"""(call, where it goes, decoded path) to what the catalogue says of it."""


def _split_url(url: str) -> tuple[Endpoint, bytes]:
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "*" in parts.hostname:
        raise ValueError("write a whole URL, such as https://api.example.com/v1/orders")
    endpoint = (parts.scheme, host_pattern(parts.hostname).text, parts.port or _DEFAULT_PORTS[parts.scheme])
    return endpoint, (parts.path or "/").encode()


def _url(text: str) -> str:
    _split_url(text)
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True)


class CaseCall(_Strict):
    agent: str = ""
    tenant: str = ""
    actor: str = ""
    namespace: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    method: str = "GET"
    url: Annotated[str, AfterValidator(_url)]
    headers: dict[str, str] = Field(default_factory=dict)
    body: str = ""
    """The body as it would be sent; its type stands in `headers`."""

    @property
    def traits(self) -> Traits:
        return Traits(self.namespace, tuple(sorted(self.labels.items())))


class Expected(_Strict):
    """What is left out is not looked at."""

    decision: Literal["allow", "deny", "would_deny"]
    rule: str | None = None
    policy: str | None = None
    credential: str | None = None
    """The name of the credential; "none" for a call that leaves without one."""


class Case(_Strict):
    name: str
    call: CaseCall
    expect: Expected


class CaseFile(_Strict):
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Result:
    """One case as it went. `differences` are (key, expected, actual), empty where it passed."""

    file: str
    line: int
    name: str
    differences: tuple[tuple[str, str, str], ...]
    reason: str
    """Why the call was refused or only let through with a warning, for the reader of a failure."""

    @property
    def passed(self) -> bool:
        return not self.differences


@dataclass(frozen=True, slots=True)
class LocatedCase:
    file: str
    line: int
    case: Case


def case_files(directories: Iterable[Path]) -> list[Path]:
    """The case files that stand in the policy directories, by name; a file given by itself is taken as it is."""
    found: list[Path] = []
    for directory in directories:
        entries = [directory] if directory.is_file() else sorted(directory.iterdir())
        found += [path for path in entries if path.name.endswith(TEST_SUFFIXES)]
    return found


def load_cases(paths: Iterable[Path]) -> list[LocatedCase]:
    """The cases of all files. Raises PolicyError with every fault in them."""
    faults: list[Fault] = []
    found: list[LocatedCase] = []
    for path in paths:
        for source in read(path, faults):
            try:
                cases = CaseFile.model_validate(source.value).cases
            except ValidationError as error:
                faults.extend(type_faults(source, error))
                continue
            found += [LocatedCase(source.file, source.line(("cases", i)), case) for i, case in enumerate(cases)]
    if faults:
        raise PolicyError(faults)
    return found


def run_cases(policies: PolicySet, cases: Sequence[LocatedCase], classify: Classify) -> list[Result]:
    """Every case put to the policies, in their order."""
    return [_run(policies, located, classify) for located in cases]


def _run(policies: PolicySet, located: LocatedCase, classify: Classify) -> Result:
    case = located.case
    verdict = decide_call(policies, case.call, classify)
    actual = _outcome(verdict)
    wanted = case.expect.model_dump(exclude_none=True)
    differences = tuple((key, value, actual[key]) for key, value in wanted.items() if actual[key] != value)
    return Result(located.file, located.line, case.name, differences, _reason(verdict))


def decide_call(policies: PolicySet, call: CaseCall, classify: Classify) -> Allowed | Denied:
    """The verdict on a call given by its URL."""
    endpoint, raw_path = _split_url(call.url)
    path = decode_path(raw_path)
    filed = classify(call, endpoint, path)
    plan = policies.plan(call.tenant, call.agent, call.actor, endpoint, filed.provider, call.traits)
    if plan.conditions:
        rules = plan.asking(call.method, path, [(filed.operation, filed.write)])
        plan = plan.under(rules, content_of(call), Asked(call.method, path, call.tenant, call.agent, call.actor))
    return plan.decide(call.method, path, filed.operation, write=filed.write)


def content_of(call: CaseCall) -> Content:
    """What the call holds, as conditions see it."""
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in call.headers.items()]
    return content(urlsplit(call.url).query.encode(), lines, call.body.encode(), len(call.body.encode()))


def _outcome(verdict: Allowed | Denied) -> dict[str, Any]:
    decision, credential = "deny", "none"
    if isinstance(verdict, Allowed):
        decision = "would_deny" if verdict.would_deny else "allow"
        credential = verdict.credential.name if verdict.credential else "none"
    return {
        "decision": decision,
        "rule": verdict.rule or "none",
        "policy": verdict.policy or "none",
        "credential": credential,
    }


def _reason(verdict: Allowed | Denied) -> str:
    if isinstance(verdict, Denied):
        return verdict.reason
    return verdict.warning.reason if verdict.warning else ""
