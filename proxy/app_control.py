"""What the operator's socket asks of an instance."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from proxy import __version__
from proxy.blocks import block_of, refusal
from proxy.control import Controls
from proxy.opening import store_status

if TYPE_CHECKING:
    from proxy.app import Instance


class Operator:
    """Answers with plain JSON values."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def controls(self) -> Controls:
        return Controls(self.status, self.reload, self.drain, self.explain, self.block, self.unblock)

    def status(self) -> dict[str, Any]:
        """Everything an operator looks at first. Credentials by name and version, never a value."""
        instance = self._instance
        documents, rules = instance.rules.policies.size
        return {
            "version": __version__,
            "ready": instance.readiness.ready,
            "waiting_for": list(instance.readiness.waiting_for),
            "listeners": list(self._listeners()),
            "policies": {"hash": instance.rules.policies.hash, "documents": documents, "rules": rules},
            "reload_failures": self._failures(),
            "store": store_status(instance.settings.store, instance.store),
            "credentials": [
                {**row, "expires": _stamp(row["expires"])} for row in instance.credentials.known(time.time())
            ],
            "breakers": list(self._breakers()),
            "blocks": instance.pipeline.blocks.shown(),
            "fleet_blocks": instance.pipeline.blocks.shown_fleet(),
            "calls_in_flight": len(instance.pipeline.running),
            "connections": [
                {"side": side, "state": state, "count": count} for side, state, count in instance.connection_counts()
            ],
            "authority_expires": _stamp(instance.authority.expires),
        }

    def _breakers(self) -> Iterator[dict[str, Any]]:
        """Where nothing is sent to for now, and for how long."""
        for (tenant, destination), left in self._instance.pipeline.trouble.shut_for(time.monotonic()):
            yield {"tenant": tenant, "destination": destination.origin, "seconds": math.ceil(left)}

    async def reload(self) -> dict[str, Any]:
        """Reads policies, providers, roots and the authority now. Raises ConfigurationError; what was there stays."""
        for reload in self._instance.upkeep.reloads:
            await reload.reload()
        self._instance.upkeep.renew_authority()
        return {"policies": self._instance.rules.policies.hash}

    def drain(self) -> dict[str, Any]:
        self._instance.stopping.set()
        return {"draining": True}

    def explain(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        from proxy.explanation import explain, question

        return explain(self._instance.rules, question(asked))

    def block(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Refuses such calls from now on and ends those in progress."""
        block, blocks = block_of(asked), self._instance.pipeline.blocks
        blocks.add(block)
        return {"blocks": blocks.shown(), "ended": self._instance.cut(block.stops, refusal(block))}

    def unblock(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Lets go what exactly such a block has stopped. Raises ValueError when there is none."""
        block, blocks = block_of(asked), self._instance.pipeline.blocks
        if not blocks.remove(block):
            raise ValueError("there is no block of exactly these names")
        return {"blocks": blocks.shown()}

    def _listeners(self) -> Iterator[dict[str, Any]]:
        instance = self._instance
        for (listener, service), (host, port) in zip(instance.services, instance.bound, strict=True):
            identity = [member.kind for member in instance.settings.identity_of(listener).chain]
            yield {"kind": service.kind, "host": host, "port": port, "tls": bool(listener.tls), "identity": identity}

    def _failures(self) -> dict[str, Any]:
        instance = self._instance
        failures: dict[str, Any] = {
            reload.name: {"at": _stamp(reload.failure["at"]), "faults": reload.failure["faults"]}
            for reload in instance.upkeep.reloads
            if reload.failure is not None
        }
        if instance.upkeep.authority_fault:
            failures["authority"] = {"faults": [instance.upkeep.authority_fault]}
        for document in instance.identities.documents:
            if document.failure is not None:
                failures[document.source.name] = {"faults": [document.failure]}
        return failures


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
