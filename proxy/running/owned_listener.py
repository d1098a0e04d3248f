"""A proxy listener without a token: it takes connections of the run's own processes only."""

from __future__ import annotations

import logging

from proxy.listeners.forward import ForwardListener
from proxy.running.peers import holder_has
from proxy.wire.server_connection import ServerConnection

log = logging.getLogger("sluicegate.run")


class OwnedListener(ForwardListener):
    """For clients that send no proxy credentials (the JDK's). Set `secret` before it listens."""

    secret: bytes = b""

    def opened(self, connection: ServerConnection) -> bool:
        """Turns away every connection whose process was not started by this run."""
        transport = connection.transport
        assert transport is not None
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not self.secret or not holder_has(self.secret, client[:2], server[:2]):
            log.warning("a connection that is not of this run was turned away")
            return False
        return super().opened(connection)
