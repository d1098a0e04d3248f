"""Keys and certificates in memory, shown to the TLS library, which reads files only, without leaving one on disk."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the file in it is private and gone at once


def load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Loads key and certificates (PEM) into a context. Raises ssl.SSLError when they cannot be used."""
    try:
        with _anonymous_file(pem) as path:
            context.load_cert_chain(path)
    except ssl.SSLError:
        raise
    except OSError:  # no memfd or no /proc in this sandbox
        with _shared_memory_file(pem) as path:
            context.load_cert_chain(path)


@contextmanager
def _anonymous_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _shared_memory_file(content: bytes) -> Iterator[str]:
    """A file of mode 0600 in memory, gone when the block ends."""
    with tempfile.NamedTemporaryFile(dir=SHARED_MEMORY, prefix="key-") as file:
        file.write(content)
        file.flush()
        yield file.name
