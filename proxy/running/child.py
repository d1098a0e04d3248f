"""The command as a child process: started as the shell would have, signals passed on, its end reported as its own."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, NoReturn

PASSED_ON: Final = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
)
FATAL: Final = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
_SI_KERNEL: Final = 0x80  # sigaction(2): sent by the kernel, as a terminal's are to its whole foreground group


class Unstartable(Exception):
    """The command cannot be started. `args[0]` is a line for the person; `code` is what a shell would exit with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Before(NamedTuple):
    """What this process was started with and changes for itself, but not for its child."""

    mask: set[signal.Signals | int]
    umask: int
    core: tuple[int, int]


def hold_signals() -> Before:
    """From here on signals wait to be passed on. Call it before the first thread is made: each inherits the mask."""
    umask = os.umask(0o077)
    os.umask(umask)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    return Before(set(mask), umask, resource.getrlimit(resource.RLIMIT_CORE))


def stop_wanted() -> int | None:
    """A signal that came before there was a child, which then is not started."""
    waiting = signal.sigpending() & FATAL
    return min(waiting) if waiting else None


def executable(command: str, path: str | None) -> str:
    """The file to execute. Raises Unstartable with 127 when there is none, 126 when it may not be executed."""
    found = shutil.which(command, path=path)
    if found is not None:
        return found
    if "/" in command and os.path.exists(command):
        raise Unstartable(f"{command}: is not an executable file", NOT_EXECUTABLE)
    raise Unstartable(f"{command}: command not found", NOT_FOUND)


def start(command: Sequence[str], environment: Mapping[str, str], before: Before) -> int:
    """Starts the command and returns its process id. Raises Unstartable.

    It stays in our process group, so that the terminal and its job control treat it like any command. Descriptors that
    we were given are its too; ours are all closed on exec.
    """
    file = executable(command[0], environment.get("PATH"))
    try:
        with _as_found(before):
            return os.posix_spawn(
                file,
                list(command),
                dict(environment),
                setsigmask=before.mask,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these
            )
    except OSError as error:
        raise Unstartable(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None


@contextmanager
def _as_found(before: Before) -> Iterator[None]:
    umask, core = os.umask(before.umask), resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (before.core[0], core[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, core)
        os.umask(umask)


def pass_signals_on(pid: int) -> None:
    """From now on, in a thread of its own, what is sent to us goes to the child.

    What the terminal sends it has sent to the child as well, and many programs take a second interrupt for impatience.
    """
    threading.Thread(target=_pass_on, args=(pid,), name="signals", daemon=True).start()


def _pass_on(pid: int) -> NoReturn:
    while True:
        found = signal.sigwaitinfo(PASSED_ON)
        if found.si_code != _SI_KERNEL:
            try:
                os.kill(pid, found.si_signo)
            except ProcessLookupError:
                continue


def ended(pid: int) -> asyncio.Future[int]:
    """The exit code to end with, once the child has ended: its own, or 128 and the signal that killed it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[int] = loop.create_future()

    def wait() -> None:
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        loop.call_soon_threadsafe(future.set_result, code if code >= 0 else 128 - code)

    threading.Thread(target=wait, name="child", daemon=True).start()
    return future
