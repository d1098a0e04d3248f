"""One call under an Idempotency-Key, from before it is sent until its end is written down."""

from __future__ import annotations

import asyncio
import logging
import time

from proxy.errors import GatewayError, Kind, StoreError
from proxy.upstream.ledger.rows import RETENTION, Reply, Row, Scope, after_failure, fingerprint, row_id, verdict
from proxy.upstream.ledger.storage import Ledger

log = logging.getLogger("sluicegate.ledger")


class Entry:
    """The entry of one call. `begun` once its row is committed."""

    __slots__ = ("_call_id", "_chosen", "_id", "_instance", "_ledger", "_tenant", "begun", "settled")

    def __init__(
        self,
        ledger: Ledger,
        secret: bytes,
        instance: str,
        scope: Scope,
        key: bytes,
        call_id: str,
        chosen: tuple[bytes, ...] = (),
    ) -> None:
        self._ledger = ledger
        self._id = row_id(secret, scope, key)
        self._tenant = scope.tenant
        self._instance = instance
        self._call_id = call_id
        self._chosen = chosen
        self.begun = False
        self.settled = False

    async def begin(self, method: str, origin: str, target: bytes, body: bytes) -> Reply | None:
        """Commits that the call is about to be sent; or the reply of the same call, done before.

        Raises GatewayError: idempotency_mismatch, idempotency_in_flight, outcome_unknown, or overloaded when the
        ledger cannot be written (nothing is sent then).
        """
        now, print_ = time.time(), fingerprint(method, origin, target, body, *self._chosen)
        row = Row(self._id, self._tenant, print_, "pending", self._instance, self._call_id, now, now + RETENTION)
        try:
            earlier = await self._entered(row)
        except (OSError, StoreError) as error:
            log.error("the ledger cannot be written: %s", error)
            raise GatewayError("overloaded", "The ledger of idempotency keys cannot be written.") from None
        if earlier is not None:
            self.settled = True
            return verdict(earlier, print_, self._instance, now)
        self.begun = True
        return None

    async def _entered(self, row: Row) -> Row | None:
        """A client that leaves while the row is being written leaves none behind."""
        step = asyncio.ensure_future(self._ledger.enter(row))
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            if await step is None:
                await self._ledger.remove(self._id, self._call_id)
            raise

    async def done(self, reply: Reply) -> None:
        """The call succeeded. Written before the client learns of it."""
        self.settled = True
        await self._written(self._ledger.settle(self._id, "done", reply, self._call_id))

    async def failed(self, kind: Kind, sent: bool) -> None:
        """The call failed, or was left by its client."""
        if self.settled or not self.begun:
            return
        self.settled = True
        state = after_failure(kind, sent)
        if state is None:
            await self._written(self._ledger.remove(self._id, self._call_id))
        else:
            await self._written(self._ledger.settle(self._id, state, None, self._call_id))

    async def _written(self, step: object) -> None:
        try:
            await step  # type: ignore[misc]
        except (OSError, StoreError) as error:
            # The row stays pending, until a later connection brings what is owed; after a restart its outcome counts as
            # unknown, which is the truth.
            log.error("the ledger cannot be written: %s", error)
