"""The life of a Vault token by a steered clock: when it is renewed, when replaced, how often Vault is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.credentials.stores.vault_errors import VaultRefusal
from proxy.credentials.stores.vault_login import Grant
from proxy.credentials.stores.vault_token import VaultToken, backoff
from proxy.errors import StoreError
from signers.secret import Secret
from tests.credentials.stubs import Clock


class Vault:
    """Logins and renewals, counted. `granted` is what both give; `down` makes them fail."""

    def __init__(self, ttl: float = 60.0, renewable: bool = True) -> None:
        self.clock = Clock()
        self.ttl = ttl
        self.renewable = renewable
        self.fault: StoreError | None = None
        self.renew_fault: StoreError | None = None
        self.renewed_ttl: Callable[[], float] = lambda: self.ttl
        self.logins = 0
        self.renewals = 0
        self.token = VaultToken(self.login, self.renew, self.clock, lambda: 0.0)

    def login(self) -> Grant:
        self.logins += 1
        if self.fault is not None:
            raise self.fault
        return Grant(Secret(f"token-{self.logins}"), self.ttl, self.renewable)

    def renew(self, token: Secret) -> Grant:
        self.renewals += 1
        if self.renew_fault is not None:
            raise self.renew_fault
        return Grant(token, self.renewed_ttl(), self.renewable)

    def run(self, seconds: float) -> None:
        """Do upkeep as the store's task would, for so many seconds."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += self.token.upkeep()


def refusal(status: int) -> VaultRefusal:
    return VaultRefusal("http://vault", "POST renew-self", status, {})


def test_one_login_serves_until_two_thirds_then_a_renewal() -> None:
    vault = Vault()
    first = vault.token.current()
    assert vault.token.upkeep() == pytest.approx(40)
    vault.clock.now += 40
    vault.token.upkeep()
    assert (vault.logins, vault.renewals) == (1, 1)
    assert vault.token.current() == first


def test_an_hour_of_upkeep_costs_a_renewal_each_two_thirds_of_life() -> None:
    vault = Vault()
    vault.run(3600)
    assert vault.logins == 1
    assert vault.renewals == pytest.approx(90, abs=2)


def test_a_token_without_end_is_left_alone() -> None:
    vault = Vault(ttl=0)
    vault.run(86400)
    assert (vault.logins, vault.renewals) == (1, 0)


def test_a_token_that_cannot_be_renewed_is_replaced_before_it_ends() -> None:
    vault = Vault(renewable=False)
    vault.token.current()
    vault.clock.now += 41
    vault.token.upkeep()
    assert (vault.logins, vault.renewals) == (2, 0)


def test_near_its_maximum_life_a_token_is_replaced_not_renewed_ever_faster() -> None:
    vault = Vault(ttl=5)
    ends = vault.clock.now + 10
    vault.renewed_ttl = lambda: max(0.01, min(5, ends - vault.clock.now))
    vault.run(9.5)
    assert vault.logins == 2
    assert vault.renewals <= 3


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_renewal_that_is_refused_becomes_one_login(status: int) -> None:
    vault = Vault()
    vault.token.current()
    vault.renew_fault = refusal(status)
    vault.clock.now += 41
    vault.token.upkeep()
    assert (vault.logins, vault.renewals) == (2, 1)


def test_while_vault_is_down_the_token_is_kept_and_renewal_backs_off() -> None:
    vault = Vault(ttl=600)
    first = vault.token.current()
    vault.renew_fault = vault.fault = StoreError("down")
    vault.clock.now += 401
    vault.run(60)
    assert vault.token.current() == first
    assert vault.logins + vault.renewals < 10


def test_logins_that_fail_back_off_and_calls_fail_at_once_meanwhile() -> None:
    vault = Vault()
    vault.fault = StoreError("http://vault: cannot connect")
    asked = 0
    for _ in range(600):
        with pytest.raises(StoreError, match="cannot connect"):
            vault.token.current()
        asked += 1
        vault.token.upkeep()
        vault.clock.now += 0.1
    assert asked == 600
    assert vault.logins < 10
    assert not vault.token.status.logged_in
    assert vault.token.status.failures == vault.logins


def test_after_an_outage_the_next_due_login_succeeds_and_the_state_is_clean() -> None:
    vault = Vault()
    vault.fault = StoreError("down")
    vault.run(30)
    vault.fault = None
    vault.run(60)
    assert vault.token.status.logged_in
    assert vault.token.status.failures == 0


def test_a_rejected_token_is_replaced_once_for_all_who_used_it() -> None:
    vault = Vault()
    dead = vault.token.current()
    fresh = vault.token.after_rejection(dead)
    assert fresh == Secret("token-2")
    assert vault.token.after_rejection(dead) == fresh
    assert vault.logins == 2


def test_a_path_that_is_always_denied_does_not_make_a_login_each_time() -> None:
    vault = Vault(ttl=3600)
    logins_before = vault.logins
    for _ in range(600):
        vault.token.after_rejection(vault.token.current())
        vault.clock.now += 0.1
    assert vault.logins - logins_before < 10


def test_a_dead_token_with_vault_down_is_tried_again_when_vault_returns() -> None:
    vault = Vault()
    dead = vault.token.current()
    vault.fault = StoreError("down")
    with pytest.raises(StoreError, match="down"):
        vault.token.after_rejection(dead)
    vault.fault = None
    vault.clock.now += 10
    assert vault.token.after_rejection(dead) == Secret("token-3")


def test_threads_that_need_a_token_at_once_share_one_login() -> None:
    vault = Vault()
    barrier = threading.Barrier(8)

    def ask(_: int) -> Secret:
        barrier.wait()
        return vault.token.current()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {Secret("token-1")}
    assert vault.logins == 1


def test_backoff_doubles_to_its_bound_and_is_spread() -> None:
    assert [backoff(failures, 60, 1.0) for failures in (1, 2, 3, 7, 1000)] == [1, 2, 4, 60, 60]
    assert backoff(3, 60, 0.0) == 2
