"""Diagnostics show names, numbers and types; never what a peer or a library put into a message."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy import logs
from proxy.errors import StoreError
from signers.secret import Secret

CANARY = "cnry-5ecret"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, hooks, raising = logging.getLogger(), (sys.excepthook, threading.excepthook), logging.raiseExceptions
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], (sys.excepthook, threading.excepthook), logging.raiseExceptions = handlers, hooks, raising
    root.setLevel(level)


def entries(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_our_message_carries_its_arguments_and_listed_fields_only(stream: io.StringIO):
    logs.configure("info", "json", stream)
    fields = {"file": "policies/a.yaml", "count": 2, "authorization": CANARY}
    logging.getLogger("proxy.policies").info("kept %d rules of %s", 2, "floor", extra=fields)
    (entry,) = entries(stream)
    assert entry.pop("time")
    assert entry == {
        "level": "info",
        "logger": "proxy.policies",
        "message": "kept 2 rules of floor",
        "file": "policies/a.yaml",
        "count": 2,
    }


def test_the_level_is_ours_and_other_libraries_start_at_warning(stream: io.StringIO):
    logs.configure("debug", "json", stream)
    logging.getLogger("proxy.x").debug("seen")
    logging.getLogger("aiohttp.client").info("hidden")
    logging.getLogger("hvac").warning("shown %s", CANARY)
    assert [(entry["logger"], entry["level"]) for entry in entries(stream)] == [
        ("proxy.x", "debug"),
        ("hvac", "warning"),
    ]
    logs.configure("warning", "json", stream)
    logging.getLogger("proxy.x").info("hidden now")
    assert len(entries(stream)) == 2


@pytest.mark.parametrize("form", ["json", "human"])
def test_a_library_at_debug_shows_templates_and_types_but_no_values(stream: io.StringIO, form: logs.Format):
    logs.configure("debug", form, stream)
    library = logging.getLogger("urllib3.connectionpool")
    library.setLevel(logging.DEBUG)
    library.debug('%s "%s %s" %s', "https://vault", "GET", f"/v1/secret?token={CANARY}", 200)
    library.debug(f"header: Authorization: Bearer {CANARY}")
    try:
        raise ConnectionError(f"http://user:{CANARY}@host/?q={CANARY}")
    except ConnectionError:
        library.exception("request to %s failed", CANARY)
    library.setLevel(logging.NOTSET)
    assert CANARY not in stream.getvalue()
    assert "request to %s failed" in stream.getvalue()
    assert "ConnectionError" in stream.getvalue()
    assert "message of urllib3.connectionpool withheld" in stream.getvalue()


def failing() -> None:
    password = CANARY
    try:
        raise KeyError(password)
    except KeyError as error:
        raise StoreError("the store did not answer") from error


def test_an_exception_is_shown_by_types_and_our_frames_without_values(stream: io.StringIO):
    logs.configure("info", "json", stream)
    try:
        failing()
    except StoreError as error:
        logging.getLogger("proxy.credentials").exception("read failed: %s / %s", error, KeyError(CANARY))
    (entry,) = entries(stream)
    assert entry["message"] == "read failed: the store did not answer / KeyError"
    assert entry["error"] == "StoreError: the store did not answer < KeyError"
    assert entry["frames"] == []
    assert CANARY not in stream.getvalue()


def test_frames_of_our_own_code_are_named(stream: io.StringIO):
    logs.configure("info", "json", stream)
    try:
        format(Secret(CANARY), ">10")
    except TypeError:
        logging.getLogger("proxy.x").exception("formatted")
    (entry,) = entries(stream)
    assert [frame.split(":")[0] for frame in entry["frames"]] == ["signers/secret.py"]
    assert entry["error"] == "TypeError"


def test_a_message_stays_on_its_line_and_in_bounds(stream: io.StringIO):
    logs.configure("info", "human", stream)
    logging.getLogger("proxy.x").info("bind %s", "a\nforged \x1b[31m line \ud800" + "x" * 5000)
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert len(stream.getvalue()) < 2100


def test_a_message_that_cannot_be_formatted_is_shown_as_written(stream: io.StringIO):
    logs.configure("info", "json", stream)
    logging.getLogger("proxy.x").info("%d things", CANARY)
    assert entries(stream)[0]["message"] == "%d things"


def test_a_person_reads_one_short_line(stream: io.StringIO):
    logs.configure("info", "human", stream)
    logging.getLogger("proxy.app").warning("listening", extra={"bind": "127.0.0.1:18400"})
    assert stream.getvalue()[8:] == " warning  listening  bind=127.0.0.1:18400\n"


def test_auto_is_json_unless_on_a_terminal(stream: io.StringIO):
    logs.configure("info", "auto", stream)
    logging.getLogger("proxy.x").info("one")
    stream.isatty = lambda: True
    logs.configure("info", "auto", stream)
    logging.getLogger("proxy.x").info("two")
    first, second = stream.getvalue().splitlines()
    assert first.startswith("{")
    assert second.endswith("two")


async def test_what_nobody_caught_in_the_loop_is_reported_without_objects(stream: io.StringIO):
    logs.configure("info", "json", stream)
    loop = asyncio.get_running_loop()
    logs.watch(loop)
    loop.call_exception_handler({"message": CANARY, "exception": ValueError(CANARY), "protocol": CANARY})
    loop.set_exception_handler(None)
    (entry,) = entries(stream)
    assert (entry["message"], entry["error"]) == ("an error reached the event loop", "ValueError")
    assert CANARY not in stream.getvalue()


def test_what_nobody_caught_anywhere_is_reported_by_type(stream: io.StringIO):
    logs.configure("info", "json", stream)

    def fail() -> None:
        raise ValueError(CANARY)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError(CANARY), None)
    assert [entry["error"] for entry in entries(stream)] == ["ValueError", "ValueError"]
    assert CANARY not in stream.getvalue()


def test_every_field_that_our_own_messages_carry_is_shown() -> None:
    given = set()
    for file in (Path(__file__).parents[1] / "proxy").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict):
                given |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    assert {"bind", "call_id"} <= given <= {*logs.FIELDS}
