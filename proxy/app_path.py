"""What the calls of an instance run through: where credentials come from, the pipeline, the ledger."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

from proxy.app_terms import ledger_of, quotas_of
from proxy.audit.sink import AuditSink
from proxy.credentials.resolve import Resolver
from proxy.credentials.store import Reader
from proxy.opening import open_certificates, open_issuing, paths_and_limits
from proxy.paging import Paging
from proxy.pipeline import Pipeline
from proxy.responses.masking import Masks
from proxy.routing import Snapshot
from proxy.settings import Settings
from proxy.state_key import derived_key
from proxy.upstream.ledger.keeping import Keeping
from proxy.upstream.ledger.storage import Ledger
from proxy.wire.hop import Buffered
from signers.placement import prepare
from signers.table import SIGNERS

if TYPE_CHECKING:
    from proxy.app import Instance
    from proxy.catalog.token import TokenFacts


def open_credentials(instance: Instance) -> Resolver:
    """Gives calls their credentials from the instance's store."""
    settings, metrics = instance.settings, instance.metrics
    paths, cache = paths_and_limits(settings.store)
    return Resolver(
        instance.store,
        prepare,
        clock=time.time,
        paths=paths,
        limits=cache,
        on_read=partial(_told, instance.audit),
        on_request=partial(metrics.store_request, settings.store.kind, "read"),
        masks_of=Masks,
        signers={kind: row.prepare for kind, row in SIGNERS.items()},
        issuing=partial(
            open_issuing,
            settings,
            instance.store,
            instance.addresses,
            partial(_token_facts, instance),
            metrics.refresh,
            instance.token_paths.add,
        ),
        certificates=open_certificates(settings, instance.store),
    )


def open_pipeline(instance: Instance) -> Pipeline:
    """The path of the instance's calls."""
    settings = instance.settings
    pipeline = Pipeline(
        Snapshot(instance.rules.policies, instance.rules.catalog, instance.token_paths),
        instance.credentials,
        instance.addresses,
        instance.pool,
        instance.routes,
        instance.audit,
        instance.metrics,
        settings.limits.in_flight,
        instance.sweep,
        Buffered(settings.limits.buffered_bytes),
    )
    if settings.state.key_file.exists():  # without one, cursors hold as long as the process
        pipeline.paging = Paging(lambda: derived_key(settings.state.key_file, "cursors"))
    pipeline.quotas = quotas_of(settings)
    return pipeline


def open_ledger(settings: Settings, pipeline: Pipeline) -> Ledger | None:
    """The ledger of idempotency keys, if one is wanted; calls are entered into it from now on."""
    process = uuid.uuid4().hex
    ledger = ledger_of(settings, process)
    if ledger is not None:
        pipeline.keeping = Keeping(ledger, lambda: derived_key(settings.state.key_file, "ledger rows"), process)
    return ledger


def _told(audit: AuditSink, path: str, result: str, reader: Reader) -> None:
    """Each read of the store is a line in the audit."""
    audit.credential_read(path, result, reader.caller, time.time(), reader.call_id)


def _token_facts(instance: Instance, provider: str) -> TokenFacts | None:
    found = instance.rules.catalog.by_name(provider)
    return found.token if found is not None else None
