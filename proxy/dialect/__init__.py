"""How a provider answers, as the catalogue says it and the responses stage reads it: plain values, no I/O."""

from proxy.dialect.answer import Answer
from proxy.dialect.facts import (
    Condition,
    Dialect,
    ErrorRow,
    IdempotencyForm,
    Pagination,
    Partial,
    Sign,
    WaitHint,
)
from proxy.dialect.places import Place, place

__all__ = [
    "Answer",
    "Condition",
    "Dialect",
    "ErrorRow",
    "IdempotencyForm",
    "Pagination",
    "Partial",
    "Place",
    "Sign",
    "WaitHint",
    "place",
]
