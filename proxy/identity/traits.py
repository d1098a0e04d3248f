"""Namespace and labels of a caller, from what its identity says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from policies.traits import NO_TRAITS, Traits

MAX_LABELS = 64
_TEXT = re.compile(r"[\x21-\x7e]{1,253}")
"""Labels of Kubernetes are of these characters; other issuers may use more of them."""


def traits_of(namespace: object, labels: object) -> Traits:
    """Traits of claims or settings, absent ones being None. Raises ValueError for what is no namespace or no labels."""
    if namespace is None and labels is None:
        return NO_TRAITS
    if namespace is not None and not _is_text(namespace):
        raise ValueError("namespace is not a name")
    if labels is not None and (not isinstance(labels, Mapping) or len(labels) > MAX_LABELS):
        raise ValueError(f"labels are no mapping of at most {MAX_LABELS} names to values")
    found = tuple(sorted((labels or {}).items()))
    if not all(_is_text(name) and (value == "" or _is_text(value)) for name, value in found):
        raise ValueError("labels are no mapping of names to texts")
    return Traits(str(namespace or ""), found)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None
