"""TLS server contexts from a certificate and key in memory."""

from __future__ import annotations

import ssl

from proxy.wire.key_files import load_chain


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
