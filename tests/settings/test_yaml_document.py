"""YAML with line numbers."""

from __future__ import annotations

import pytest

from proxy.errors import ConfigurationError
from proxy.settings.yaml_document import parse

TEXT = """\
a:
  - x: 1
    y: 2
  - {x: 3,
     y: 4}
b: &anchor {c: 1}
d: *anchor
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("a",), 1),
        (("a", 0, "y"), 3),
        (("a", 1), 4),
        (("a", 1, "y"), 5),
        (("a", 1, "tag of a union", "y"), 5),
        (("a", 9), 1),
        (("a", 0, "absent"), 2),
        (("d", "c"), 6),
        ((), 1),
    ],
)
def test_a_place_has_the_line_of_its_key(place: tuple[str | int, ...], line: int):
    assert parse(TEXT, "f").line(place) == line


def test_every_repeated_key_is_named():
    with pytest.raises(ConfigurationError) as caught:
        parse("a: 1\na: 2\nb:\n  - {c: 1, c: 2}\n", "f")
    assert [fault.line for fault in caught.value.faults] == [2, 4]


def test_a_document_that_leads_into_itself_is_read_once():
    assert parse("a: &x [1, *x]", "f").line(("a", 0)) == 1


def test_an_empty_document_has_no_value():
    assert parse("# nothing\n", "f").value is None
