"""Audit lines as OpenTelemetry log records: OTLP over HTTP in its JSON form (opentelemetry.io/docs/specs/otlp).

Not by the SDK, as spans are: its logging modules are private still, and its queue loses records without a word.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proxy.audit.outbox import Outbox

if TYPE_CHECKING:
    import requests

log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 5.0
_INFO: Final = 9  # SeverityNumber


class OtlpOutput:
    """Posts lines to a collector's logs endpoint, from the writer's thread. What it does not take is sent again."""

    immediate: bool = False

    def __init__(self, endpoint: str, headers: Mapping[str, str], ca_file: str | None = None) -> None:
        """`endpoint` is the whole URL, such as https://collector:4318/v1/logs; `headers` are sent with each request."""
        self.outbox = Outbox()
        self._endpoint = endpoint
        self._headers = {**headers, "Content-Type": "application/json"}
        self._verify = ca_file or True
        self._session: requests.Session | None = None
        self._lock = threading.Lock()
        self._failing = False

    def drain(self, *, opened: bool = False) -> bool:
        """Post all that waits. False when the collector did not take it."""
        with self._lock:
            while (lines := self.outbox.head) is not None:
                if not self._posted(lines):
                    return False
                self.outbox.written += lines.count(b"\n")
                self.outbox.done()
            return True

    def settle(self, seconds: float) -> None:
        """Waits `seconds`: a collector does not say when it is back."""
        time.sleep(seconds)

    def close(self) -> None:
        """Count what was not taken as dropped; close the connection."""
        with self._lock:
            self.outbox.give_up()
            if self._session is not None:
                self._session.close()

    def _posted(self, lines: bytes) -> bool:
        import requests  # loaded by whoever sends audit lines over HTTP

        if self._session is None:
            self._session = requests.Session()
            self._session.trust_env = False  # neither proxies nor .netrc of the environment
        try:
            answer = self._session.post(
                self._endpoint, data=export_request(lines), headers=self._headers, timeout=TIMEOUT_SECONDS,
                verify=self._verify, allow_redirects=False,
            )  # fmt: skip
            fault = "" if answer.status_code == 200 else f"status {answer.status_code}"
        except requests.RequestException as error:
            fault = type(error).__name__
        if bool(fault) != self._failing:
            self._failing = bool(fault)
            log.log(*(logging.WARNING, "the audit collector takes no lines: %s", fault) if fault else _BACK)
        return not fault


_BACK: Final = (logging.INFO, "the audit collector takes lines again")


def export_request(lines: bytes) -> bytes:
    """An ExportLogsServiceRequest of whole audit lines, as JSON."""
    records = [_record(line) for line in lines.splitlines()]
    resource = {"attributes": [_attribute("service.name", "sluicegate")]}
    scope = {"scope": {"name": "sluicegate.audit"}, "logRecords": records}
    return msgspec.json.encode({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]})


def _record(line: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(line)
    return {
        "timeUnixNano": str(_nanoseconds(fields.pop("time"))),
        "severityNumber": _INFO,
        "severityText": "INFO",
        "body": {"stringValue": line.decode()},
        "attributes": [_attribute(f"sluicegate.{name}", value) for name, value in fields.items() if value != ""],
    }


def _nanoseconds(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp() * 1000) * 1_000_000


def _attribute(name: str, value: str | float) -> dict[str, Any]:
    if isinstance(value, str):
        return {"key": name, "value": {"stringValue": value}}
    if isinstance(value, int):
        return {"key": name, "value": {"intValue": str(value)}}
    return {"key": name, "value": {"doubleValue": value}}
