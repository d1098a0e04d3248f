"""Conditions in CEL: compiled and checked when they are loaded, evaluated over what a call holds.

https://github.com/google/cel-spec. The evaluating library is loaded by the first expression: most policies have none.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from typing import Any, Final

from policies.expression_types import ExpressionFault, Names, check

MAX_TEXT: Final = 2_000
HEADERS: Final = frozenset(
    {
        "accept", "accept-language", "content-encoding", "content-language", "content-type", "if-match",
        "if-none-match", "origin", "prefer", "range", "referer", "user-agent", "x-requested-with",
        "anthropic-beta", "anthropic-version", "dropbox-api-arg", "notion-version", "openai-beta", "stripe-account",
        "stripe-version", "x-amz-acl", "x-amz-copy-source", "x-amz-storage-class", "x-amz-target",
        "x-github-api-version", "x-goog-user-project",
    }
)  # fmt: skip
"""The headers that a condition may look at: none that carries a credential."""
_VARIABLES: Final = {
    "method": "string",
    "path": "string",
    "segments": "list string",
    "params": "map string",
    "query": "map list string",
    "headers": "map string",
    "content_type": "string",
    "body": "dyn",
    "body_size": "int",
    "tenant": "string",
    "agent": "string",
    "actor": "string",
}


class Unjudgeable(Exception):
    """It cannot be told whether a condition holds; `args[0]` says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A condition ready to be asked. `variables` are those that it speaks of."""

    text: str
    variables: frozenset[str]
    _execute: Callable[[Mapping[str, Any]], Any] = field(repr=False)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true of a call. Raises Unjudgeable: something it asks for is missing or of another type."""
        try:
            found = self._execute({name: values[name] for name in self.variables})
        except (KeyboardInterrupt, SystemExit, Unjudgeable):
            raise
        except BaseException as error:  # a panic of the extension is no Exception, and must not end more than this
            missing = f"{error} is not there" if isinstance(error, KeyError) else "what it asks for is of another type"
            raise Unjudgeable(missing) from None
        if not isinstance(found, bool):
            raise Unjudgeable("it gave neither true nor false")
        return found


@lru_cache(maxsize=8192)
def expression(text: str, params: frozenset[str] = frozenset()) -> Expression:
    """A `when:`, checked and compiled; `params` are the named segments of its rule's paths.

    Raises ExpressionFault: too long, not CEL, an unknown name, types that do not fit, a result that is not bool.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionFault(f"an expression may have {MAX_TEXT} characters")
    found = check(text, Names(_VARIABLES, {"params": params, "headers": HEADERS}))
    if found.type not in ("bool", "dyn"):
        raise ExpressionFault(f"it gives {found.type}, and must give bool")
    for pattern in found.patterns:
        _check_pattern(pattern)
    return Expression(text, found.variables, _compiled(text))


def _check_pattern(literal: str) -> None:
    try:
        _compiled(f'"".matches({literal})')({})
    except ExpressionFault:
        raise
    except Exception:
        raise ExpressionFault(f"{literal} is no regular expression (RE2 syntax)") from None


def _compiled(text: str) -> Callable[[Mapping[str, Any]], Any]:
    try:
        execute: Callable[[Mapping[str, Any]], Any] = _library().compile(text).execute
    except ValueError as error:
        raise ExpressionFault(f"not CEL: {str(error).splitlines()[0]}") from None
    return execute


_EXTENSION: Final = "cel.cel"


@cache
def _library() -> Any:
    """The extension alone: importing its package would load its command line, with an editor and a colour scheme.

    It can be loaded once in a process, so it stands where the package would put it, and is taken from there.
    """
    if _EXTENSION in sys.modules:
        return sys.modules[_EXTENSION]
    package = importlib.util.find_spec("cel")
    spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        raise ExpressionFault("`when` needs the library common-expression-language, which is not installed")
    module = sys.modules[_EXTENSION] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
