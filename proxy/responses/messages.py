"""What the caller is told of a provider's error: what happened and what to do next, in our words only. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from string import Formatter
from typing import Final

from proxy.errors import Kind
from proxy.responses.classify import Finding

TITLES: Final[dict[Kind, str]] = {
    "bad_input": "Request not accepted",
    "auth": "Credential not accepted",
    "permission": "Not permitted",
    "not_found": "Not found",
    "rate_limit": "Rate limited",
    "unavailable": "Unavailable",
}
_HAPPENED: Final[dict[Kind, str]] = {
    "bad_input": "{title} did not accept the request.",
    "auth": "{title} did not accept this tenant's credential.",
    "permission": "{title} refused the call: the credential may not do this.",
    "not_found": "{title} has nothing there, or nothing that this credential may see.",
    "rate_limit": "{title}'s limit was hit.",
    "unavailable": "{title} could not serve the call.",
}
_NEXT: Final[dict[Kind, str]] = {
    "bad_input": "Correct the request before sending it again; unchanged it fails the same way.",
    "auth": "Do not repeat it. Ask the operator to connect or renew the credential.",
    "permission": "Do not repeat it. Ask the operator for the missing permission, or use something that is allowed.",
    "not_found": "Check the name or id, for example by listing what there is, then call again with the right one.",
    "rate_limit": "Wait a while, then repeat the same call.",
    "unavailable": "Wait a while, then repeat the same call.",
}
_UNSAFE: Final = "It may have been done all the same: read the resource first, and repeat only what did not happen."


class _Known(Formatter):
    """Fills a template with the values that are there."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.missing = False

    def get_value(self, key: int | str, args: object, kwargs: object) -> str:
        value = self._values.get(str(key), "")
        self.missing = self.missing or not value
        return value


def _filled(template: str, values: Mapping[str, str]) -> str | None:
    """None when a value that the template names is not there."""
    known = _Known(values)
    text = known.format(template)
    return None if known.missing else text


def detail(finding: Finding, title: str, safe: bool) -> str:
    """Two or three sentences. `safe`: repeating the call cannot do it twice."""
    values = {**finding.values, "title": title, "code": finding.code, "wait": _seconds(finding.wait)}
    return f"{_happened(finding, values)} {_next(finding, values, safe)}"


def _happened(finding: Finding, values: Mapping[str, str]) -> str:
    row = finding.row
    own = _filled(row.say, values) if row is not None and row.say else None
    if own is not None:
        return own
    text = _HAPPENED[finding.kind].format(title=values["title"])
    return f"{text[:-1]} (code {finding.code})." if finding.code else text


def _next(finding: Finding, values: Mapping[str, str], safe: bool) -> str:
    row, kind = finding.row, finding.kind
    own = _filled(row.then, values) if row is not None and row.then else None
    if own is not None:
        return own
    if kind == "unavailable" and not safe:
        return _UNSAFE
    if kind in ("rate_limit", "unavailable"):
        if row is not None and not row.repeat:
            return "Do not repeat it soon. Ask the operator to raise the limit or the plan."
        if finding.wait is not None:
            return f"Wait {values['wait']} seconds, then repeat the same call."
    if kind == "bad_input" and "field" in values:
        return f"Correct {values['field']} before sending the call again; unchanged it fails the same way."
    if kind == "permission" and "scope" in values:
        return f"Do not repeat it. Ask the operator to grant {values['scope']} to the credential."
    return _NEXT[kind]


def _seconds(wait: float | None) -> str:
    return "" if wait is None else str(math.ceil(wait))
