"""Diagnostics to standard error: JSON, or one readable line on a terminal.

One formatter decides what any logger may show. Our own messages may carry names and numbers, and the FIELDS given in
`extra`; an exception is shown by its type and by our own frames. Other libraries put URLs, headers and objects into
their messages, so of theirs only the constant template is shown, and of their exceptions the type.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import msgspec

from proxy.errors import SluicegateError

OURS: Final = ("proxy", "signers", "policies", "sluicegate")
FIELDS: Final = (
    "call_id", "listener", "bind", "tenant", "actor", "agent", "provider", "operation", "rule", "policy", "credential",
    "record", "store", "stage", "code", "host", "port", "file", "hash", "result", "count", "seconds", "attempt",
    "reason", "until",
)  # fmt: skip
_LONGEST: Final = 2000
_ROOT: Final = Path(__file__).resolve().parent.parent

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "human"]


def configure(level: Level = "info", form: Format = "auto", stream: TextIO | None = None) -> None:
    """Send every logger's records to `stream` (standard error); our loggers from `level` on, all others from WARNING.

    `form` "auto" is human on a terminal and JSON elsewhere.
    """
    stream = stream or sys.stderr
    human = form == "human" or (form == "auto" and stream.isatty())
    output = logging.StreamHandler(stream)
    output.setFormatter(HumanFormatter() if human else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(logging.WARNING)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    logging.raiseExceptions = False  # it would print the arguments of a record that cannot be formatted
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Report what nobody caught in `loop` through the same formatter, without the objects asyncio would print."""
    loop.set_exception_handler(_uncaught_in_loop)


def shown(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a record that may be seen, in the order in which they are printed."""
    entry: dict[str, Any] = {
        "time": _stamp(record.created),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": _message(record),
    }
    if _ours(record.name):
        entry.update((name, _value(record.__dict__[name])) for name in FIELDS if name in record.__dict__)
    if record.exc_info and record.exc_info[1] is not None:
        entry["error"] = " < ".join(_chain(record.exc_info[1]))
        entry["frames"] = _frames(record.exc_info[1])
    return entry


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(shown(record)).decode()


class HumanFormatter(logging.Formatter):
    """`08:15:30 warning  policies kept: the new ones are invalid  file=policies/a.yaml`"""

    def format(self, record: logging.LogRecord) -> str:
        entry = shown(record)
        clock, level, message = entry.pop("time")[11:19], entry.pop("level"), entry.pop("message")
        frames = entry.pop("frames", [])
        if _ours(record.name):
            del entry["logger"]
        words = "  ".join([f"{clock} {level:<7}  {message}", *(f"{name}={value}" for name, value in entry.items())])
        return "\n".join([words, *(f"    {frame}" for frame in frames)])


def _ours(logger: str) -> bool:
    return logger.partition(".")[0] in OURS


def _message(record: logging.LogRecord) -> str:
    """Our own message with its arguments; of a library's the template, and nothing of one without arguments.

    A message without arguments may have been put together from values already, and then it is no constant.
    """
    if not _ours(record.name):
        return _clean(record.msg) if record.args else f"(message of {record.name} withheld)"
    try:
        return _clean(str(record.msg) % _arguments(record.args) if record.args else record.msg)
    except (TypeError, ValueError):
        return _clean(record.msg)


def _arguments(args: object) -> Any:
    if isinstance(args, Mapping):
        return {name: _argument(value) for name, value in args.items()}
    return tuple(_argument(value) for value in args) if isinstance(args, tuple) else args


def _argument(value: object) -> object:
    """Numbers keep their type for %d; an exception that is not ours is only named, its text may quote a peer."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, BaseException) and not isinstance(value, SluicegateError):
        return type(value).__name__
    return str(value)


def _value(value: object) -> object:
    """A number as it is, anything else as clean text."""
    return value if isinstance(value, int | float) else _clean(value)


def _clean(value: object) -> str:
    """Text without control characters, lone surrogates or undue length."""
    text = str(value)[:_LONGEST]
    text = text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text.encode("utf-8", "replace").decode()


def _chain(error: BaseException) -> Iterator[str]:
    """Names of an exception and of what caused it, ours with their text."""
    current: BaseException | None = error
    for _ in range(5):
        if current is None:
            return
        name = type(current).__name__
        yield f"{name}: {_clean(current)}" if isinstance(current, SluicegateError) else name
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _frames(error: BaseException) -> list[str]:
    """Our own frames of a traceback, outermost first: file, line and function, no source text, no locals."""
    found = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in OURS:
            found.append(f"{path.relative_to(_ROOT)}:{line} in {frame.f_code.co_name}")
    return found


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("sluicegate").critical("stopped by an error of its own", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        exc_info = (args.exc_type, args.exc_value, args.exc_traceback)
        logging.getLogger("sluicegate").error("a thread ended with an error", exc_info=exc_info)


def _uncaught_in_loop(loop: asyncio.AbstractEventLoop, occurrence: dict[str, Any]) -> None:
    error = occurrence.get("exception")
    exc_info = (type(error), error, error.__traceback__) if isinstance(error, BaseException) else None
    logging.getLogger("sluicegate").error("an error reached the event loop", exc_info=exc_info)
