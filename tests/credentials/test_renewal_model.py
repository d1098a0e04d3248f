"""Any interleaving of workers, crashes, lost replies, store failures and time: what must hold of a renewed grant."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Generator
from typing import Any
from urllib.parse import parse_qsl

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.credentials.app_record import parse_app
from proxy.credentials.grant_choice import fingerprint
from proxy.credentials.loading import Loaded
from proxy.credentials.record import parse_record
from proxy.credentials.renewal import NoToken, RenewalLimits, Renewer
from proxy.credentials.store import Conflict, Fields, Stored
from proxy.errors import StoreError
from signers.grants.model import Grant, Issued, TokenRefused, TokenReply, TokenRequest
from tests.token_server import RotatingProvider

PATH, APP = "tenants/acme/crm", "apps/crm"
START = 1_000_000.0
LIMITS = RenewalLimits(request=40, lease=75)
WORKERS = st.integers(0, 2)


class Point:
    """Where a worker waits for the outside world: the driver decides what comes, and when."""

    def __init__(self, what: str, *arguments: Any) -> None:
        self.what, self.arguments = what, arguments

    def __await__(self) -> Generator[Point, Any, Any]:
        return (yield self)


class World:
    """The store and the provider, changed only when the driver lets a worker's request through."""

    def __init__(self) -> None:
        self.now = START
        self.provider = RotatingProvider(lifetime=300)
        self.app = {"token_endpoint": "https://id.example.com/token", "client_id": "c", "client_secret": "s"}
        self.fields: dict[str, Any] = {
            "kind": "oauth2", "app": "crm", "refresh_token": self.provider.consent("g"), "access_token": "at-g-0",
            "issued_at": START - 300, "expires_at": START - 1,
        }  # fmt: skip
        self.version = 1
        self.newest_written = 0
        self.workers: list[Worker] = []
        self.uncertain: set[str] = set()
        """Refresh tokens whose use ended, or had not ended with its lease, without anybody knowing how."""

    def read(self, path: str) -> Stored:
        return Stored(dict(self.fields), self.version) if path == PATH else Stored(self.app, 1)

    def write(self, path: str, fields: Fields, expected: int | None) -> int:
        if expected != self.version:
            raise Conflict(path)
        number = int(str(fields["access_token"]).rpartition("-")[2])
        assert number >= self.newest_written, "an older token was written over a newer one"
        self.newest_written = number
        self.fields, self.version = dict(fields), self.version + 1
        return self.version

    def take_over(self, leader: Worker) -> None:
        """A lease was written over that of a worker that is still at it: what becomes of its request is not known."""
        late = (other for other in self.workers if other is not leader and other.run is not None)
        self.uncertain.update(other.used for other in late if other.used and self.now >= other.lease_until)


class Worker:
    """One process that renews, stopped at the Point it waits at."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.workers.append(self)
        self.renewer = Renewer(self, self.ask, lambda name: None, lambda: world.now, LIMITS, self.sleep)  # type: ignore[arg-type]
        self.run: Coroutine[Any, Any, Loaded] | None = None
        self.point: Point | None = None
        self.asked_at = 0.0
        self.lease_until = 0.0
        self.used = ""
        """The refresh token that the provider saw from this run."""

    async def read(self, path: str) -> Stored:
        return await Point("store", lambda: self.world.read(path))  # type: ignore[no-any-return]

    async def write(self, path: str, fields: Fields, expected: int | None) -> int:
        leads = bool((fields.get("refresh") or {}).get("holder"))
        if leads:
            self.lease_until = fields["refresh"]["until"]

        def write() -> int:
            version = self.world.write(path, fields, expected)
            if leads:
                self.world.take_over(self)
            return version

        return await Point("store", write)  # type: ignore[no-any-return]

    async def sleep(self, seconds: float) -> None:
        await Point("sleep", self.world.now + seconds)

    async def ask(self, grant: Grant, networks: Any, provider: str) -> Issued:
        request = next(grant)
        assert isinstance(request, TokenRequest)
        self.asked_at = self.world.now
        form = dict(parse_qsl(request.body.decode()))
        status, document = await Point("request", form["refresh_token"])
        await Point("reply")
        try:
            grant.send(TokenReply(status, {}, json.dumps(document).encode(), self.world.now))
        except StopIteration as done:
            return done.value
        raise AssertionError

    def start(self) -> None:
        self.used = ""
        self.run = self.renewer.renew(PATH)
        self.resume(None)

    def resume(self, value: Any, error: Exception | None = None) -> None:
        assert self.run is not None
        try:
            self.point = self.run.throw(error) if error is not None else self.run.send(value)
        except (StopIteration, NoToken):
            self.run = self.point = None

    def crash(self) -> None:
        assert self.run is not None
        self.run.close()
        self.run = self.point = None


@settings(max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
class Renewals(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.workers = [Worker(self.world) for _ in range(3)]
        self.uncertain = self.world.uncertain

    def step(self, worker: Worker, *, lose: bool = False, fail: str = "") -> None:
        point = worker.point
        if point is None:
            worker.start()
        elif point.what == "sleep":
            if self.world.now >= point.arguments[0]:
                worker.resume(None)
        elif point.what == "store":
            self.store(worker, point, fail)
        elif point.what == "request":
            self.request(worker, point, lost=lose, down=bool(fail))
        elif lose:
            self.uncertain.add(worker.used)
            worker.resume(None, TokenRefused("unknown", "no_reply"))
        else:
            worker.resume(None)

    def store(self, worker: Worker, point: Point, fail: str) -> None:
        if fail == "before":
            worker.resume(None, StoreError("away"))
            return
        try:
            value = point.arguments[0]()
        except Conflict as conflict:
            worker.resume(None, conflict)
            return
        if fail == "after":
            worker.resume(None, StoreError("the answer was lost"))
        else:
            worker.resume(value)

    def request(self, worker: Worker, point: Point, *, lost: bool, down: bool) -> None:
        if down or self.world.now - worker.asked_at > LIMITS.request:
            worker.resume(None, TokenRefused("down", "unreachable"))
            return
        token = point.arguments[0]
        assert token not in self.world.provider.requests or token in self.uncertain, "a refresh token was used twice"
        worker.used = token
        answer = self.world.provider.refresh(token)
        if lost:
            self.uncertain.add(token)
            worker.resume(None, TokenRefused("unknown", "no_reply"))
        else:
            worker.resume(answer)

    @rule(number=WORKERS)
    def goes_on(self, number: int) -> None:
        self.step(self.workers[number])

    @rule(number=WORKERS, steps=st.integers(2, 12))
    def goes_far(self, number: int, steps: int) -> None:
        for _ in range(steps):
            self.step(self.workers[number])

    @rule(number=WORKERS)
    def loses_the_reply(self, number: int) -> None:
        self.step(self.workers[number], lose=True)

    @rule(number=WORKERS, how=st.sampled_from(["before", "after"]))
    def meets_a_failure(self, number: int, how: str) -> None:
        self.step(self.workers[number], fail=how)

    @precondition(lambda self: any(worker.run for worker in self.workers))
    @rule(number=WORKERS)
    def crashes(self, number: int) -> None:
        worker = self.workers[number]
        if worker.run is not None:
            if worker.used:
                self.uncertain.add(worker.used)
            worker.crash()

    @rule(seconds=st.sampled_from([1.0, 10.0, 41.0, 80.0, 290.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @invariant()
    def nobody_is_rejected_without_reason(self) -> None:
        if not hasattr(self, "world"):
            return
        record = parse_record(PATH, self.world.fields)
        assert record.grant is not None
        rejection = record.grant.rejection
        if rejection is not None and rejection.of == fingerprint(record.grant, parse_app(APP, self.world.app)):
            provider = self.world.provider
            assert "g" in provider.ended or self.world.fields["refresh_token"] != provider.current["g"]

    def teardown(self) -> None:
        """Progress resumes: when faults end, a token comes, or there is a reason why none can."""
        if not hasattr(self, "world"):
            return
        for worker in self.workers:
            self.finish(worker)
        self.world.now += 1000
        last = Worker(self.world)
        self.workers.append(last)
        last.start()
        self.finish(last)
        good = "g" not in self.world.provider.ended
        expected = self.world.provider.current["g"] == self.world.fields["refresh_token"]
        if good and expected:
            assert self.world.fields["expires_at"] > self.world.now

    def finish(self, worker: Worker) -> None:
        for _ in range(400):
            if worker.run is None:
                return
            self.step(worker)
            self.world.now += 1
        raise AssertionError("a renewal does not end")


TestRenewals = Renewals.TestCase
