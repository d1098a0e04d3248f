"""Fixtures of the webhook's tests."""

from __future__ import annotations

from tests.flows.conftest import vectors

__all__ = ["vectors"]
