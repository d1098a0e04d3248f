"""The operator's application on a unix socket: status with detail, reload, drain, explain, block, unblock.

Whoever can open the socket is the operator: it is 0600 in a folder of 0700. JSON in, JSON out.
"""

from __future__ import annotations

import fcntl
import inspect
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proxy.errors import ConfigurationError, Fault, GatewayError

if TYPE_CHECKING:
    from aiohttp import web

Answer = Mapping[str, Any]
Ask = Callable[[], Answer | Awaitable[Answer]]
AskAbout = Callable[[Mapping[str, Any]], Answer | Awaitable[Answer]]
LONGEST_PATH: Final = 107  # sun_path of unix(7) holds 108 bytes with its closing zero


@dataclass(frozen=True, slots=True)
class Controls:
    """What the socket can ask of the process. Each may answer at once or later.

    All but status and drain raise ConfigurationError or ValueError for what they cannot do; the caller is told why.
    """

    status: Ask
    reload: Ask
    drain: Ask
    explain: AskAbout
    block: AskAbout
    unblock: AskAbout


class ControlServer:
    """The application on its socket, and the lock that says whose socket it is."""

    def __init__(self, runner: web.AppRunner, path: Path, lock: int) -> None:
        self._runner = runner
        self._lock = lock
        self.path = path

    async def close(self) -> None:
        """Stop, remove the socket, let go of the lock."""
        await self._runner.cleanup()
        self.path.unlink(missing_ok=True)
        os.close(self._lock)


async def serve_control(path: Path, controls: Controls) -> ControlServer:
    """Listen on `path`, whose folder is made (0700) if missing. A socket left behind by a dead process is replaced.

    Raises ConfigurationError when another live instance owns the socket, or the folder or the path will not do.
    """
    from aiohttp import web

    lock = _claim(path)
    runner = web.AppRunner(application(controls), access_log=None, shutdown_timeout=1)
    try:
        await runner.setup()
        await web.UnixSite(runner, str(path)).start()
        os.chmod(path, 0o600)
    except BaseException:
        await runner.cleanup()
        os.close(lock)
        raise
    return ControlServer(runner, path, lock)


def application(controls: Controls) -> web.Application:
    """GET /status, POST /reload and /drain; /explain, /block and /unblock take a JSON object in the body."""
    from aiohttp import web

    async def status(_: web.Request) -> web.Response:
        return await _answer(controls.status())

    async def reload(_: web.Request) -> web.Response:
        return await _answer_or_fault(controls.reload)

    async def drain(_: web.Request) -> web.Response:
        return await _answer(controls.drain())

    def about(ask: AskAbout) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def respond(request: web.Request) -> web.Response:
            try:
                asked = msgspec.json.decode(await request.read(), type=dict[str, Any])
            except msgspec.MsgspecError:
                return _json({"error": "the body must be a JSON object"}, 400)
            return await _answer_or_fault(lambda: ask(asked))

        return respond

    app = web.Application(client_max_size=64 * 1024)
    app.add_routes([web.get("/status", status), web.post("/reload", reload)])
    app.add_routes([web.post("/drain", drain), web.post("/explain", about(controls.explain))])
    app.add_routes([web.post("/block", about(controls.block)), web.post("/unblock", about(controls.unblock))])
    return app


async def _answer_or_fault(ask: Ask) -> web.Response:
    try:
        return await _answer(ask())
    except ConfigurationError as error:
        return _json({"error": "not valid", "faults": [str(fault) for fault in error.faults]}, 422)
    except GatewayError as error:  # a URL to explain that the proxy would not accept either
        return _json({"error": error.detail}, 422)
    except ValueError as error:
        return _json({"error": str(error)}, 422)


async def _answer(answer: Answer | Awaitable[Answer]) -> web.Response:
    return _json(await answer if inspect.isawaitable(answer) else answer, 200)


def _json(body: Answer, status: int) -> web.Response:
    from aiohttp import web

    return web.Response(body=msgspec.json.encode(body) + b"\n", status=status, content_type="application/json")


def _claim(path: Path) -> int:
    """Become the only owner of the socket's path; the lock ends with the process, however that ends.

    Connecting to see who answers would leave a gap in which two processes both find nobody.
    """
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise _fault(path, f"is too long for a unix socket ({LONGEST_PATH} bytes at most)")
    try:
        _private_folder(path.parent)
        lock = os.open(
            path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
    except OSError as error:
        raise _fault(path, f"cannot be made: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_stale(path)
    except BlockingIOError:
        os.close(lock)
        raise _fault(path, "belongs to another instance that is running; give this one its own control path") from None
    except ConfigurationError:
        os.close(lock)
        raise
    return lock


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise _fault(folder, "can be written by others, who could put their own socket there; run chmod 700 on it")


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise _fault(path, "is there already and is no socket; remove it or name another path")
        path.unlink()
    except FileNotFoundError:
        return


def _fault(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError([Fault(str(path), 0, message)])
