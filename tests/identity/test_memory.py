"""Remembering verified callers within bounds."""

from __future__ import annotations

from proxy.identity.memory import Memory
from proxy.model import Caller


def caller(number: int, expires: float | None = 100.0) -> Caller:
    return Caller(tenant="acme", agent=f"bot{number}", expires=expires)


def name(number: int) -> bytes:
    return b"%d" % number


def test_a_caller_is_remembered_until_it_expires() -> None:
    memory = Memory()
    memory.remember(b"a", caller(1))
    assert memory.recall(b"a", 99.9) == caller(1)
    assert memory.recall(b"a", 100.0) is None
    assert len(memory) == 0


def test_a_caller_without_expiry_stays() -> None:
    memory = Memory()
    memory.remember(b"a", caller(1, None))
    assert memory.recall(b"a", 1e12) == caller(1, None)


def test_memory_is_bounded() -> None:
    memory = Memory(100)
    for number in range(1000):
        memory.remember(name(number), caller(number))
        assert len(memory) <= 100


def test_who_is_asked_for_stays_and_who_is_not_goes() -> None:
    memory = Memory(100)
    for number in range(1000):
        memory.remember(name(number), caller(number))
        assert memory.recall(name(0), 0.0) == caller(0)
    assert memory.recall(name(1), 0.0) is None


def test_an_expired_caller_of_the_older_generation_goes_too() -> None:
    memory = Memory(4)
    for number in range(3):
        memory.remember(name(number), caller(number))
    assert memory.recall(name(0), 100.0) is None
    assert memory.recall(name(0), 0.0) is None


def test_everybody_is_forgotten_at_once() -> None:
    memory = Memory(4)
    for number in range(4):
        memory.remember(name(number), caller(number))
    memory.clear()
    assert len(memory) == 0
    assert memory.recall(name(3), 0.0) is None
