"""What is wrong with a stored record."""

from __future__ import annotations

from proxy.errors import SluicegateError


class RecordError(SluicegateError):
    """A record that cannot be used. `field` is the one at fault, "" for the whole record."""

    def __init__(self, name: str, field: str, fault: str) -> None:
        self.name = name
        self.field = field
        self.fault = fault
        self.reason = f"field {field!r} {fault}" if field else fault
        """What is wrong, without the record's name."""
        super().__init__(f"record {name}: {self.reason}")
