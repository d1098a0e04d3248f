"""A value that must not be shown."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """Holds one secret string. It prints as bullets and cannot be formatted into text or pickled.

    `.reveal()` is the only way out; a test counts its call sites.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """The value itself: call it where the bytes for the wire or for a cipher are made, nowhere else."""
        return self.__value

    def __repr__(self) -> str:
        return "•••"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        raise TypeError("a Secret cannot be formatted into text")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.__value == self.__value

    def __hash__(self) -> int:
        return hash(self.__value)

    def __bool__(self) -> bool:
        return bool(self.__value)
