"""The request's path: who is calling, may it leave, with which credential; then it is signed, sent and accounted for.

    Call → Caller → Route → Allowed → Material → request bytes → reply → AuditRecord

Each stage takes the value of the one before, so none can be left out. A stage that may have to wait (identity,
credential) returns its value or an awaitable of it, and only then is a task made: a call whose caller is known and
whose credential is cached runs to the write upstream without one.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Container
from functools import partial
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from policies.decide import Allowed, Denied, Plan
from policies.terms import Terms
from proxy.accounting import Accounting
from proxy.audit.metrics import Metrics
from proxy.audit.sink import AuditSink
from proxy.blocks import Blocks
from proxy.contents import as_one, awaited, decided, first_page, found_in, operations_of, reason_of, writes
from proxy.credentials.resolve import Resolver
from proxy.dialect import Answer
from proxy.dialect.undescribed import UNDESCRIBED
from proxy.errors import GatewayError
from proxy.identity.chain import Chain
from proxy.model import Call, Caller, Destination, ListenerKind, Material, Route
from proxy.narrowing import Operations, narrowed
from proxy.paging import Page, Paging, reads_body, with_body_of
from proxy.quotas import Quotas
from proxy.responses.delivery import Delivery
from proxy.responses.judging import Judging, event_stream, streams, to_be_held
from proxy.responses.problem import render
from proxy.routing import Snapshot
from proxy.served import CallIds, Served
from proxy.terms import Unlisted, asking_for_identity, listed, positions, refuse_credentials
from proxy.upstream.ledger.keeping import Keeping
from proxy.upstream.lifecycle import Lifecycle
from proxy.upstream.means import Means
from proxy.upstream.rendering import NOTHING, UNCODED, request_bytes, uncoded
from proxy.upstream.resolver import Resolver as AddressResolver
from proxy.upstream.sealing import Seal, Skews
from proxy.upstream.trouble import Trouble
from proxy.upstream.way import Way
from proxy.ways import RouteOptions, Ways
from proxy.wire.hop import Buffered
from proxy.wire.pool import Pool
from proxy.wire.reply_head import ReplyHead
from proxy.wire.server_connection import ServerConnection
from proxy.wire.sweep import Sweep
from proxy.wire.tunnel import OpaqueRelay
from proxy.wishes import key_in_body, use_key
from signers.edit import presigned
from signers.placement import Injection
from signers.signing import Signing

log = logging.getLogger("sluicegate.pipeline")
T = TypeVar("T")


class Pipeline:
    """Runs calls. `snapshot` may be assigned at any time; a call uses the one that it finds when it is decided."""

    def __init__(
        self,
        snapshot: Snapshot,
        credentials: Resolver,
        addresses: AddressResolver,
        pool: Pool,
        routes: RouteOptions,
        audit: AuditSink,
        metrics: Metrics,
        in_flight: int,
        sweep: Sweep,
        buffered: Buffered | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.call_ids = CallIds()
        self.blocks = Blocks()
        self.running: set[Served] = set()
        self.served: Callable[..., Served] = Served
        """What calls are made of."""
        self.relays: set[OpaqueRelay] = set()
        self.addresses = addresses
        self._credentials = credentials
        self.accounting = Accounting(audit, metrics)
        self._recorded_or_refused = audit.blocks
        self._metrics = metrics
        self._in_flight = in_flight
        self.buffered = buffered or Buffered()
        self._ways = Ways(addresses, routes)
        self.watched = sweep.members
        self._skews: Skews = {}
        self.keeping: Keeping | None = None
        self.quotas = Quotas()
        self.paging = Paging(lambda: os.urandom(32))
        self.trouble = Trouble()
        self._means = Means(pool, self.relays, self._finished, self._broken, self._judge, self._resign, self.trouble)

    # The path, from top to bottom.

    def begin(self, call: Call, connection: ServerConnection, chain: Chain) -> Served:
        """Takes a call from a listener. Its reply, or our refusal, goes to the connection."""
        exchange = self.served(call, connection, Delivery(connection, call), self._means, chain=chain)
        self.running.add(exchange)
        self._run(exchange, self._identify, call)
        return exchange

    def _identify(self, exchange: Served, call: Call) -> None:
        exchange.stage = "identity"
        if len(self.running) > self._in_flight:
            raise GatewayError("overloaded", "Too many calls are in progress.", retry_after=1)
        if self.buffered.used >= self.buffered.most:
            raise GatewayError("overloaded", "Too many bytes of request bodies are waiting.", retry_after=1)
        if self._recorded_or_refused:
            self.accounting.admit()
        caller = exchange.chain.identify(call.presented, time.time())
        if isinstance(caller, Caller):
            self._decide(exchange, caller)
        else:
            exchange.later(self._waited(exchange, caller, self._decide), caller)

    def _decide(self, exchange: Served, caller: Caller) -> None:
        exchange.stage = "policy"
        exchange.caller = caller
        exchange.tenant = caller.tenant
        call = exchange.call
        path = call.place.path
        if call.place.suspect and _holds_session(call.place.target, exchange.chain.is_session):
            raise GatewayError("malformed_request", "A session token stands in the URL; it belongs into a header.")
        snapshot = self.snapshot
        exchange.policy_hash = snapshot.policies.hash
        lead = snapshot.lead(caller, call.place)
        call.destination = lead.destination
        provider = lead.provider
        operation = provider.operation(call.method, path) if provider is not None else None
        found = None
        if operation is not None and operation.inside is not None:
            again = partial(self._run, exchange, self._decide, caller)
            if operation.inside.reads_body and awaited(exchange.connection, again):
                return
            found = exchange.found = found_in(operation.inside, call, exchange.connection)
            operation = as_one(found, operation)
        route = exchange.route = Route(provider, operation, path)
        name, write = operation.name if operation is not None else None, writes(route, call.method)
        plan: Plan | None = lead.plan
        if lead.plan.conditions:
            operations = operations_of(found) if found is not None else [(name, write)]
            plan = self._narrowed(exchange, lead.plan, caller, operations)
        if plan is None:
            return
        verdict = (
            plan.decide(call.method, path, name, write=write) if found is None else decided(plan, call, path, found)
        )
        if isinstance(verdict, Denied):
            exchange.denied = verdict
            self._metrics.denied += 1
            raise GatewayError("policy_denied", reason_of(verdict, found), rule=verdict.rule)
        if lead.token_paths is not None and (path is None or lead.token_paths.fullmatch(path)):
            self._ask_for_tokens(exchange, verdict)
        if verdict.would_deny:
            self._metrics.would_deny += 1
        else:
            self._metrics.allowed += 1
        exchange.allowed = verdict
        if verdict.terms is not None or self.quotas.general:
            self._admit(exchange, caller, route, verdict)
        self._resolve(exchange, caller, route, verdict)

    def _narrowed(self, exchange: Served, plan: Plan, caller: Caller, operations: Operations) -> Plan | None:
        """The plan without the rules whose conditions do not hold; None while the body is waited for."""
        again = partial(self._run, exchange, self._decide, caller)
        return narrowed(plan, exchange.call, caller, operations, exchange.connection, again)

    def _admit(self, exchange: Served, caller: Caller, route: Route, allowed: Allowed) -> None:
        """Counts the call where limits hold for it. Raises `limit_exceeded`."""
        limits = allowed.terms.limits if allowed.terms is not None else ()
        if limits or self.quotas.general:
            provider = route.provider.name if route.provider is not None else exchange.call.destination.host
            exchange.held = self.quotas.admit(limits, caller, provider, time.monotonic())

    def _ask_for_tokens(self, exchange: Served, allowed: Allowed) -> None:
        """Only for a rule that says so; nothing of the reply is then passed on unread."""
        if not allowed.token_endpoint or exchange.call.section.websocket:
            self._metrics.denied += 1
            raise GatewayError(
                "policy_denied", "That is a token endpoint: tokens are fetched by the proxy alone.", rule=allowed.rule
            )
        exchange.tokens = True

    def _resolve(self, exchange: Served, caller: Caller, route: Route, allowed: Allowed) -> None:
        call, use = exchange.call, allowed.credential
        if self.blocks:
            self.blocks.check(caller, route.provider.name if route.provider else "", use.name if use else "")
        exchange.stage = "credential"
        if use is not None and presigned(call.place.target):
            if not allowed.presigned:
                raise GatewayError("presigned_refused", "The URL's query already holds a signature.", rule=allowed.rule)
            use = None
        if use is None:
            self._sign(exchange, None)
            return
        material = self._credentials.resolve(caller, use, route.provider, call.destination, time.time(), call.call_id)
        if isinstance(material, Material):
            self._sign(exchange, material)
        else:
            exchange.later(self._waited(exchange, material, self._sign), material)

    def _sign(self, exchange: Served, material: Material | None) -> None:
        exchange.stage = "sign"
        call, route, allowed = exchange.call, exchange.route, exchange.allowed
        assert route is not None
        assert allowed is not None
        paged = reads_body(call, route)
        keyed = call.section.wishes is not None and key_in_body(call, route)
        if (paged or keyed) and awaited(exchange.connection, partial(self._run, exchange, self._sign, material)):
            return
        if paged:
            exchange.page = first_page(call, exchange.connection, exchange.found)
        if allowed.terms is not None:
            self._put_terms(exchange, allowed, allowed.terms)
        if call.section.wishes is not None and not exchange.tokens:
            self._grant(exchange, route, allowed)
        way = self._ways.of(call.destination, route.provider, allowed)
        if allowed.tls is not None or (material is not None and material.certificate is not None):
            way = self._ways.identified(way, allowed, material)
        head = self._head(exchange, way, material)
        if material is not None and (route.provider is None or route.provider.renews_on_401):
            exchange.renew = self._renew
        if allowed.errors != "problem" and not exchange.tokens and not call.tool:
            exchange.reply_to.mode = allowed.errors
        if call.section.websocket or writes(route, call.method):
            self.accounting.opened(exchange)
        dropped: Container[bytes] = material.injection.clears if material is not None else frozenset()
        if allowed.terms is not None and allowed.terms.headers is not None:
            dropped = Unlisted(allowed.terms, dropped)
        exchange.send(head, way, route.operation is not None and route.operation.idempotent, dropped)

    def _put_terms(self, exchange: Served, allowed: Allowed, terms: Terms) -> None:
        """What the rule says of the caller's headers and credentials, and of the reply."""
        call, provider = exchange.call, exchange.route.provider if exchange.route is not None else None
        if terms.credentials == "refuse":
            refuse_credentials(call, positions(allowed, provider), exchange.chain.is_session, allowed.rule)
        if terms.headers is not None:
            call.section = listed(call.section, terms)
        if terms.uncoded:
            call.section = asking_for_identity(call.section)
        exchange.reply_to.restrict(terms.max_response, terms.drop_cookies)

    def _grant(self, exchange: Served, route: Route, allowed: Allowed) -> None:
        """What the caller asks of us besides the call."""
        caller = exchange.caller
        assert caller is not None
        page = exchange.page or Page(exchange.call.place.target)
        exchange.page, body = self.paging.turned(exchange.call, caller, route, allowed.rule or "", page)
        if body is not None:
            with_body_of(exchange.call, len(body))
            exchange.connection.replace_body(body)
        use = use_key(exchange.call, caller, route, allowed.rule or "", self.keeping, exchange.connection)
        exchange.entry, exchange.keyed = use

    def cut(self, caught: Callable[[Caller, str, str], bool], error: GatewayError) -> int:
        """Ends the calls and relays in progress of whoever is caught by (caller, provider, credential); how many."""
        found = [exchange for exchange in self.running if exchange.caught(caught)]
        for exchange in found:
            exchange.cut(error)
        return len(found)

    def count_denied(self) -> None:
        """A tunnel was refused by policy."""
        self._metrics.denied += 1

    # What the stages need.

    def _run(self, exchange: Served, stage: Callable[[Served, T], None], value: T) -> None:
        """Runs a stage, and those behind it that need not wait; whatever is raised ends the call."""
        try:
            stage(exchange, value)
        except GatewayError as error:
            exchange.fail(error)
        except Exception as error:
            self._broken(exchange, error)
            exchange.fail(GatewayError("internal", "The proxy met an error of its own."))

    async def _waited(self, exchange: Served, value: Awaitable[T], stage: Callable[[Served, T], None]) -> None:
        try:
            found = await value
        except GatewayError as error:
            exchange.fail(error)
            return
        self._run(exchange, stage, found)

    def _head(self, exchange: Served, way: Way, material: Material | None) -> bytes:
        """The request as it leaves, and what its reply is searched for."""
        exchange.material = material
        if material is None:
            nothing = UNCODED if exchange.tokens else self._nothing(exchange)
            return request_bytes(exchange.call, nothing, way.authority, way.pins, exchange.chain.is_session)
        if exchange.allowed is not None and exchange.allowed.mask:
            exchange.reply_to.mask(material.masks)
        if material.signing is not None:
            return self._seal(exchange, way, material.signing)
        injection = uncoded(material.injection) if exchange.tokens else material.injection
        return request_bytes(exchange.call, injection, way.authority, way.pins, exchange.chain.is_session)

    def _nothing(self, exchange: Served) -> Injection:
        """What is changed of a request without a credential of ours: nothing, or the caller's own taken out."""
        allowed = exchange.allowed
        if allowed is None or allowed.terms is None or allowed.terms.credentials is None:
            return NOTHING
        return positions(allowed, exchange.route.provider if exchange.route is not None else None)

    def _seal(self, exchange: Served, way: Way, signing: Signing) -> bytes:
        """A credential that signs makes the head itself, for each attempt."""
        use = exchange.allowed.credential if exchange.allowed is not None else None
        assert use is not None
        exchange.seal = Seal(
            exchange.call, signing, way.pins, exchange.chain.is_session, self._skews, use.region, use.service
        )
        return b""

    async def _renew(self, exchange: Lifecycle) -> bytes | None:
        """After a provider's 401: the head with the record as it is now, if that is another one."""
        assert isinstance(exchange, Served)
        caller, allowed, used = exchange.caller, exchange.allowed, exchange.material
        assert caller is not None
        assert allowed is not None
        assert allowed.credential is not None
        assert used is not None
        if not await self._credentials.reread(caller, allowed.credential, used, exchange.call.call_id):
            return None
        return await self._resign(exchange)

    async def _resign(self, exchange: Lifecycle) -> bytes:
        """Before a call is repeated: its head, with the credential resolved and the request signed anew, for a
        connection of the identity that the material has by now."""
        assert isinstance(exchange, Served)
        caller, route, allowed, material = exchange.caller, exchange.route, exchange.allowed, exchange.material
        assert caller is not None
        assert route is not None
        assert allowed is not None
        call, destination, use = exchange.call, exchange.call.destination, allowed.credential
        if material is not None and use is not None:
            found = self._credentials.resolve(caller, use, route.provider, destination, time.time(), call.call_id)
            material = found if isinstance(found, Material) else await found
        way = self._ways.of(destination, route.provider, allowed)
        exchange.way = self._ways.identified(way, allowed, material)
        return self._head(exchange, exchange.way, material)

    def _judge(self, exchange: Lifecycle, head: ReplyHead, bodiless: bool) -> Judging | None:
        """What judges a reply before it is passed on; None for one that needs no judge."""
        assert isinstance(exchange, Served)
        route = exchange.route
        if exchange.tokens:
            return Judging(head, bodiless, UNDESCRIBED, None, exchange.repeatable, time.time, tokens=True)
        if route is None or exchange.call.section.websocket:
            return None
        dialect = route.provider.dialect if route.provider is not None else UNDESCRIBED
        operation = route.operation.name if route.operation is not None else None
        kept = exchange.entry is not None and not streams(head)
        if head.status < 400 and not kept and not to_be_held(head, bodiless, dialect, operation):
            if dialect.streams_errors and event_stream(head):
                exchange.look_at_events(dialect)
            return None
        paged = partial(self._next_page, exchange) if head.status < 300 and operation is not None else None
        return Judging(head, bodiless, dialect, operation, exchange.repeatable, time.time, paged)

    def _next_page(self, exchange: Served, answer: Answer) -> bytes:
        caller, route, allowed, call = exchange.caller, exchange.route, exchange.allowed, exchange.call
        assert caller is not None
        assert route is not None
        rule = (allowed.rule or "") if allowed is not None else ""
        return self.paging.line(answer, call, caller, route, rule, exchange.page or Page(call.place.target))

    def tunnel(
        self, call: Call, connection: ServerConnection, chain: Chain, caller: Caller, allowed: Allowed
    ) -> Served:
        """Takes an uninspected tunnel that policy has allowed: no credential, no stage but the exchange."""
        exchange = self.served(call, connection, Delivery(connection, call), self._means, chain=chain)
        exchange.caller, exchange.allowed = caller, allowed
        self.running.add(exchange)
        self._metrics.allowed += 1
        return exchange

    # Ends.

    def _broken(self, exchange: Lifecycle, error: Exception) -> None:
        log.error("internal error", exc_info=error, extra={"call_id": exchange.call.call_id, "stage": exchange.stage})

    def _finished(self, exchange: Lifecycle) -> None:
        assert isinstance(exchange, Served)
        self.running.discard(exchange)
        if exchange.held is not None:
            self.quotas.release(exchange.held, exchange.bytes_in + exchange.reply_to.bytes_out, time.monotonic())
        self.accounting.closed(exchange)

    def reject(
        self,
        error: GatewayError,
        connection: ServerConnection,
        listener: ListenerKind,
        destination: Destination | None,
        method: str = "",
        caller: Caller | None = None,
    ) -> None:
        """Answers what no call could be made of, and accounts for it.

        The connection stays if it can, but not behind a request that two readers might take for different ones.
        """
        call_id = self.call_ids.next()
        keep = connection.keeps and error.code.name != "malformed_request"
        reply = render(error, call_id, method, keep)
        self.accounting.refused(error, call_id, listener, destination, len(reply), method, caller)
        connection.write(reply)
        connection.end_reply(keep)


def _holds_session(target: bytes, is_session: Callable[[bytes], bool]) -> bool:
    """Whether a path segment or query value is a session token of ours, in whatever encoding a URL allows."""
    return any(is_session(part) for part in re.split(rb"[/?&=;]", unquote_to_bytes(target)))
