"""What an instance takes up while it runs: rules, roots and authority that were replaced on disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import ConfigurationError
from proxy.reloading import Reloadable, signature
from proxy.routing import Snapshot
from proxy.rules import Rules, load_rules, rule_files
from proxy.upstream.dial import checked_context

if TYPE_CHECKING:
    from proxy.app import Instance

log = logging.getLogger("sluicegate")

WATCH_SECONDS: Final = 1.0
"""How often files that may be replaced while we run are looked at."""


class Upkeep:
    """Looks at the files of one instance. Made before they are read: what is replaced meanwhile is then found."""

    def __init__(self, instance: Instance, frozen: bool) -> None:
        """With `frozen`, files are never looked at again."""
        settings = instance.settings
        self._instance = instance
        self._extra = settings.upstream.extra_ca_file
        self._seen_rules = signature(rule_files(settings))
        self._seen_roots = signature([self._extra] if self._extra else [])
        self.frozen = frozen
        self.authority_fault = ""
        """Why the authority on disk is not in use."""
        self.reloads = () if frozen else tuple(self._reloads())

    def load_rules(self) -> Rules:
        """The rules as they are on disk. Raises ConfigurationError."""
        settings = self._instance.settings
        wanted = settings.policies
        return load_rules(wanted.dirs, wanted.floor, settings.providers, wanted.default)

    async def watch(self) -> None:
        """Takes up what was replaced on disk, and an authority that is due for renewal, until it is cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                for reload in self.reloads:
                    await reload.look()
                self.renew_authority()
            except Exception as error:  # whatever it is, later changes still have to be seen
                log.error("looking for changed files failed", exc_info=error)

    def renew_authority(self) -> None:
        """Takes up an authority that was replaced on disk, or that is due for renewal; a fault keeps the one in use."""
        try:
            self._instance.authority.reload(time.time())
        except ConfigurationError as error:
            if str(error) != self.authority_fault:
                log.warning("the new certificate authority is not taken up: %s", error)
            self.authority_fault = str(error)
        else:
            self.authority_fault = ""

    def _reloads(self) -> Iterator[Reloadable[Any]]:
        """What is taken up when its files change. Key sets, revocations and the store see to theirs by themselves."""
        files, extra = rule_files(self._instance.settings), self._extra
        yield Reloadable(
            "policies", lambda: signature(files), self.load_rules, self._take_rules, self._seen_rules,
            lambda result: self._instance.metrics.policy_reload(result),
        )  # fmt: skip
        if extra is not None:
            yield Reloadable(
                "roots",
                lambda: signature([extra]),
                lambda: checked_context(extra),
                self._instance.take_roots,
                self._seen_roots,
            )

    def _take_rules(self, rules: Rules) -> None:
        instance = self._instance
        instance.rules = rules
        instance.metrics.providers = frozenset(rules.catalog.outlines)
        instance.metrics.policy_hash = instance.pipeline.accounting.policy_hash = rules.policies.hash
        instance.pipeline.snapshot = Snapshot(rules.policies, rules.catalog, instance.token_paths)
