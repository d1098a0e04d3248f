"""What the process does to itself before it holds a secret."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from proxy.errors import ConfigurationError, Fault

_PR_GET_DUMPABLE: Final = 3  # prctl(2)
_PR_SET_DUMPABLE: Final = 4
_SECRET_WORDS: Final = frozenset(
    {"apikey", "auth", "credential", "credentials", "key", "keys", "pass", "passphrase", "passwd", "password", "pat"}
    | {"pwd", "secret", "secrets", "token", "tokens"}
)
_NOT_SECRET: Final = frozenset({"SSH_AUTH_SOCK", "XAUTHORITY", "KEY_FILE", "PWD"})
_USER_IN_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@]*:[^/\s@]+@", re.IGNORECASE)
SECRET_FILE_BYTES: Final = 1024 * 1024


def harden(environment: MutableMapping[str, str] | None = None, *, parent: bool = False) -> None:
    """Make the process unreadable for others of the same user, without core files, with private files by default.

    An agent in the same pod may run as the same user: a process that is not dumpable cannot be traced, nor its memory
    or its environment read through /proc. Secret-looking variables are taken out of `environment` as well, so that no
    child inherits them. A `parent` lowers only its soft limit on core files, so that a child may have its own back: a
    process that is not dumpable leaves none anyway.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1] if parent else 0))
    _prctl(_PR_SET_DUMPABLE, 0)
    if environment is not None:
        for name in secret_variables(environment):
            del environment[name]


def dumpable() -> bool:
    """Whether the kernel lets other processes of the user read this one's memory."""
    return _prctl(_PR_GET_DUMPABLE, 0) != 0


def secret_variables(environment: Mapping[str, str]) -> list[str]:
    """Names of variables that look as if they held a secret, by a word of their name or by a password in a URL."""
    return sorted(name for name, value in environment.items() if _looks_secret(name, value))


def check_private(path: Path) -> None:
    """Refuse a secret file that others can read.

    Group-readable is accepted for a file of root's in a group of ours: a secret mounted into a pod looks like that.
    Raises ConfigurationError naming the file and the remedy, also when it does not exist.
    """
    try:
        _refuse_shared(path, path.stat())
    except OSError as error:
        raise ConfigurationError([Fault(str(path), 0, f"cannot be read: {error.strerror}")]) from None


def read_private(path: Path) -> bytes:
    """The bytes of a secret file, checked as in `check_private` on the file that was opened.

    Raises ConfigurationError when it is missing, shared, not a regular file or over 1 MiB.
    """
    try:
        with path.open("rb") as file:
            _refuse_shared(path, os.fstat(file.fileno()))
            content = file.read(SECRET_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError([Fault(str(path), 0, f"cannot be read: {error.strerror}")]) from None
    if len(content) > SECRET_FILE_BYTES:
        raise ConfigurationError([Fault(str(path), 0, "is over 1 MiB, so it is no secret file")])
    return content


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError([Fault(str(path), 0, "must be a regular file")])
    shared = stat.S_IRWXO | stat.S_IRWXG
    if status.st_uid == 0 and os.getuid() != 0:
        shared = stat.S_IRWXO | stat.S_IWGRP
    if status.st_mode & shared:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigurationError([Fault(str(path), 0, f"can be read by others (mode {mode:04o}); run chmod 600 on it")])
    if status.st_uid not in {0, os.getuid()}:
        raise ConfigurationError([Fault(str(path), 0, "belongs to another user, who could change it")])


def _looks_secret(name: str, value: str) -> bool:
    if name.upper() in _NOT_SECRET or name.upper().endswith(("_FILE", "_PATH", "_DIR")):
        return False
    words = re.split(r"[^a-z0-9]+", name.lower())
    named = not _SECRET_WORDS.isdisjoint(words) or any(word.endswith(("password", "secret", "token")) for word in words)
    return named or bool(_USER_IN_URL.match(value))


def _prctl(option: int, value: int) -> int:
    """prctl(2) of the C library. Raises OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.prctl(option, value, 0, 0, 0))
    if result < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return result
