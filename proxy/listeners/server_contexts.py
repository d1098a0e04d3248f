"""TLS server contexts from a certificate and key in memory, without leaving a file on disk."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the file in it is private and gone at once


def server_context(pem: bytes) -> ssl.SSLContext:
    """A context for HTTP/1.1 clients: TLS 1.2 or later, no session tickets. `pem` holds key and certificate chain."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # Each ticket costs a client that will not resume some 12 us of our CPU. TLS 1.2 keeps its stateless tickets:
    # without them OpenSSL would remember every session itself.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    load_chain(context, pem)
    return context


def load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Loads key and certificates into a context. The library reads files only, so it is shown memory as one."""
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
    descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _shared_memory_file(content: bytes) -> Iterator[str]:
    """A file of mode 0600 in memory, gone when the block ends."""
    with tempfile.NamedTemporaryFile(dir=SHARED_MEMORY, prefix="leaf-") as file:
        file.write(content)
        file.flush()
        yield file.name
