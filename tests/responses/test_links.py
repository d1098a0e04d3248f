"""Base-URL mode: the provider's own URLs point back to the proxy, and nobody else's do."""

from __future__ import annotations

import pytest

from proxy.model import Call, Destination, HeaderSection, Place, Presented
from proxy.responses.links import pointing_back


def call_to(destination: Destination, front: bytes) -> Call:
    place = Place(destination, b"/", "/", segment="x", front=front)
    return Call("id", "base-url", "GET", destination, place, HeaderSection(), 0.0, 1, Presented())


def rebased(
    name: bytes, value: bytes, destination: Destination = Destination("https", "api.x", 443), front: bytes = b"http://p"
) -> bytes:
    ((_, found),) = pointing_back([(name, value)], call_to(destination, front))
    return found


@pytest.mark.parametrize("name", [b"Location", b"content-location"])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"https://api.x/a?b#c", b"http://p/x/a?b#c"),
        (b"https://API.x/a", b"http://p/x/a"),
        (b"https://api.x", b"http://p/x"),
        (b"https://api.x?a", b"http://p/x?a"),
        (b"https://api.x:443/a", b"http://p/x/a"),
        (b"https://api.x:443", b"http://p/x"),
        (b"/a", b"http://p/x/a"),
        (b"a/b", b"a/b"),
        (b"?page=2", b"?page=2"),
        (b"//cdn.x/a", b"//cdn.x/a"),
        (b"https://api.x.evil/a", b"https://api.x.evil/a"),
        (b"https://api.xy/a", b"https://api.xy/a"),
        (b"https://api.x:8443/a", b"https://api.x:8443/a"),
        (b"https://api.x@evil/a", b"https://api.x@evil/a"),
        (b"http://api.x/a", b"http://api.x/a"),
        (b"https://evil/?to=https://api.x/a", b"https://evil/?to=https://api.x/a"),
        (b"https://api.x/go?to=https://api.x/a", b"http://p/x/go?to=https://api.x/a"),
        (b"", b""),
    ],
)
def test_a_url_of_the_provider_goes_under_the_base_url(name: bytes, value: bytes, found: bytes) -> None:
    assert rebased(name, value) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b'<https://api.x/a?page=2>; rel="next"', b'<http://p/x/a?page=2>; rel="next"'),
        (b"<https://api.x:443>; rel=a, </b>; rel=c", b"<http://p/x>; rel=a, <http://p/x/b>; rel=c"),
        (b"<//cdn.x/a>; rel=preload", b"<//cdn.x/a>; rel=preload"),
        (b"<https://api.x.evil/a>; rel=next", b"<https://api.x.evil/a>; rel=next"),
        (b"<?page=2>; rel=next", b"<?page=2>; rel=next"),
    ],
)
def test_every_target_of_a_link_header_is_looked_at(value: bytes, found: bytes) -> None:
    assert rebased(b"Link", value) == found


def test_the_default_port_is_the_schemes_own() -> None:
    plain = Destination("http", "api.x", 80)
    assert rebased(b"Location", b"http://api.x:80/a", plain) == b"http://p/x/a"
    assert rebased(b"Location", b"http://api.x:443/a", plain) == b"http://api.x:443/a"


def test_a_destination_with_a_port_of_its_own() -> None:
    odd = Destination("https", "api.x", 8443)
    assert rebased(b"Location", b"https://api.x:8443/a", odd) == b"http://p/x/a"
    assert rebased(b"Location", b"https://api.x/a", odd) == b"https://api.x/a"


def test_without_a_known_front_the_path_alone_is_rebased_once() -> None:
    assert rebased(b"Location", b"https://api.x/a", front=b"") == b"/x/a"
    assert rebased(b"Link", b"<https://api.x/a>, </b>", front=b"") == b"</x/a>, </x/b>"


def test_other_headers_are_left_alone_and_hsts_is_dropped() -> None:
    call = call_to(Destination("https", "api.x", 443), b"")
    lines = [(b"X-Url", b"https://api.x/a"), (b"STRICT-Transport-Security", b"max-age=1"), (b"Set-Cookie", b"a=/")]
    assert pointing_back(lines, call) == [lines[0], lines[2]]
