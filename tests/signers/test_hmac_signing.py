"""Signatures by template, against the examples that providers publish, by the provider files that come with us."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from proxy.catalog import Catalog
from signers.hmac_signing import FORM, HmacSigning, prepare_hmac
from signers.hmac_template import Digest, HmacTemplate, moment
from signers.secret import Secret
from signers.signing import Need, Outgoing, Signed, Unsignable

CATALOG = Catalog.load(Catalog.builtin_dir())

# https://developers.binance.com/docs/binance-spot-api-docs/rest-api/request-security, "SIGNED request example (HMAC)"
BINANCE_KEY = "vmPUZE6mv9SD5VNHk4HlWFsOr6aKE2zvsw0MuIgwCIPy6utIco14y7Ju91duEh8A"
BINANCE_SECRET = "NhqPtmdSJYdKjVHjA7PZj4Mge3R5YNiP1e3UZjInClVN65XAbvqqM6A7H5fATj0j"
# https://www.bitmex.com/app/apiKeysUsage, "Full sample calculation"
BITMEX_KEY = "LAqUlngMIQkIUjXMUreyu3qn"
BITMEX_SECRET = "chNOOS4KvNXR_Xq4k4c9qsfoKWvnDecLATCRlcBwyKDYnWgO"
# https://docs.kraken.com/api/docs/guides/spot-rest-auth, "Examples"
KRAKEN_SECRET = "kQH5HW/8p1uGOVjbgWA7FunAmGO8lsSUXNsu3eow76sz84Q18fWxnyRzBHCd3pd5nE9qa99HAZtuZuj6F1huXg=="
# https://duo.com/docs/authapi, "Authentication"
DUO = HmacTemplate(
    "sha1",
    "{timestamp}\n{method}\n{host}\n{path}\n{sorted_query}",
    headers=(("Date", "{timestamp}"), ("Authorization", "Basic {key_id}:{signature}")),
    timestamp="rfc2822",
)


def of(provider: str, key_id: str, secret: str) -> HmacSigning:
    found = CATALOG.by_name(provider)
    assert found is not None
    return prepare_hmac({"key_id": Secret(key_id), "secret": Secret(secret)}, found.placement_for("hmac"))


def by(template: HmacTemplate, secret: str = "a-secret-of-twelve") -> HmacSigning:
    return prepare_hmac({"key_id": Secret("the-key-id"), "secret": Secret(secret)}, template)


def request(method: str, target: bytes, body: bytes = b"", kind: bytes = b"", host: str = "api.example") -> Outgoing:
    lines = [(b"host", host.encode())] + ([(b"content-type", kind)] if kind else [])
    return Outgoing(method, True, host, target, tuple(lines), len(body))


def lines(signed: Signed) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in signed.lines.decode().split("\r\n") if line)


def test_binance_signs_the_query_that_it_gets() -> None:
    query = b"symbol=LTCBTC&side=BUY&type=LIMIT&timeInForce=GTC&quantity=1&price=0.1&recvWindow=5000"
    signing = of("binance", BINANCE_KEY, BINANCE_SECRET)
    signed = signing.sign(request("POST", b"/api/v3/order?" + query), b"", 1499827319.559)
    assert signed.target == (
        b"/api/v3/order?" + query + b"&timestamp=1499827319559"
        b"&signature=c8db56825ae71d6d79447849e617115f4a920fa2acdcab2b053c4b2838bd6b71"
    )
    assert lines(signed) == {"X-MBX-APIKEY": BINANCE_KEY}


def test_binance_with_a_body_signs_both() -> None:
    query, body = b"symbol=LTCBTC&side=BUY", b"quantity=1&price=0.1"
    signed = of("binance", BINANCE_KEY, BINANCE_SECRET).sign(
        request("POST", b"/api/v3/order?" + query, body, FORM), body, 1499827319.559
    )
    covered = query + b"&timestamp=1499827319559" + body
    expected = hmac.new(BINANCE_SECRET.encode(), covered, "sha256").hexdigest()
    assert signed.target.endswith(b"&signature=" + expected.encode())


@pytest.mark.parametrize(
    ("method", "target", "body", "expires", "signature"),
    [
        (
            "GET", b"/api/v1/instrument", b"", 1518064236,
            "c7682d435d0cfe87c16098df34ef2eb5a549d4c5a3c2b1f0f77b8af73423bf00",
        ),
        (
            "GET", b"/api/v1/instrument?filter=%7B%22symbol%22%3A+%22XBTM15%22%7D", b"", 1518064237,
            "e2f422547eecb5b3cb29ade2127e21b858b235b386bfa45e1c1756eb3383919f",
        ),
        (
            "POST", b"/api/v1/order",
            b'{"symbol":"XBTM15","price":219.0,"clOrdID":"mm_bitmex_1a/oemUeQ4CAJZgP3fjHsA","orderQty":98}', 1518064238,
            "1749cd2ccae4aa49048ae09f0b95110cee706e0944e6a14ad0b3a8cb45bd336b",
        ),
    ],
)  # fmt: skip
def test_bitmex(method: str, target: bytes, body: bytes, expires: int, signature: str) -> None:
    signed = of("bitmex", BITMEX_KEY, BITMEX_SECRET).sign(request(method, target, body), body, expires - 60)
    assert lines(signed) == {"api-expires": str(expires), "api-key": BITMEX_KEY, "api-signature": signature}
    assert (signed.target, signed.body) == (target, None)


def test_kraken_puts_its_nonce_into_the_form_and_signs_that() -> None:
    body = b"ordertype=limit&pair=XBTUSD&price=37500&type=buy&volume=1.25"
    signing = of("kraken", "the-key", KRAKEN_SECRET)
    signed = signing.sign(request("POST", b"/0/private/AddOrder", body, FORM), body, 1616492376594 / 1e6)
    assert signed.body == b"nonce=1616492376594&" + body
    assert lines(signed)["API-Sign"] == (
        "4/dpxb3iT4tp/ZCVEwSnEsLxx0bqyhLpdfOpc6fn7OR8+UClSV5n9E6aSS8MPtnRfp32bAb0nmbRn6H8ndwLUQ=="
    )


def test_duo_signs_sorted_parameters_and_writes_basic() -> None:
    signing = prepare_hmac(
        {"key_id": Secret("DIWJ8X6AEYOR5OMC6TQ1"), "secret": Secret("Zh5eGmUq9zpfQnyUIu5OL9iWoMMv5ZNmk3zLJ4Ep")}, DUO
    )
    target = b"/accounts/v1/account/list?username=root&realname=First%20Last"
    signed = signing.sign(request("POST", target, host="api-xxxxxxxx.duosecurity.com"), b"", 1345570158.0)
    assert lines(signed)["Date"] == "Tue, 21 Aug 2012 17:29:18 -0000"
    assert base64.b64decode(lines(signed)["Authorization"].removeprefix("Basic ")) == (
        b"DIWJ8X6AEYOR5OMC6TQ1:2d97d6166319781b5a3a07af39d366f491234edc"
    )


def test_what_the_client_sent_in_the_place_of_what_is_added_makes_way() -> None:
    signing = of("binance", BINANCE_KEY, BINANCE_SECRET)
    target = b"/api/v3/account?%73ignature=forged&recvWindow=1&timestamp=0&signature=x"
    signed = signing.sign(request("GET", target), b"", 1.0)
    assert signed.target.startswith(b"/api/v3/account?recvWindow=1&timestamp=1000&signature=")
    assert signed.target.count(b"ignature=") == 1
    assert signing.clears == {b"x-mbx-apikey"}
    body = b"nonce=1&a=b&%6Eonce=2"
    kraken = of("kraken", "the-key", KRAKEN_SECRET)
    assert kraken.sign(request("POST", b"/0/private/Balance", body, FORM), body, 2.0).body == b"nonce=2000000&a=b"


def test_a_call_without_a_body_gets_the_form_that_the_provider_wants() -> None:
    signing = of("kraken", "the-key", KRAKEN_SECRET)
    asked = request("POST", b"/0/private/Balance")
    assert signing.need(asked).hold > 0
    signed = signing.sign(asked, b"", 2.0)
    assert signed.body == b"nonce=2000000"
    assert lines(signed)["Content-Type"] == FORM.decode()


@pytest.mark.parametrize("kind", [b"application/json", b"multipart/form-data; boundary=x", b""])
def test_what_is_no_form_is_refused_where_the_provider_signs_forms(kind: bytes) -> None:
    with pytest.raises(Unsignable, match="form body"):
        of("kraken", "k", KRAKEN_SECRET).need(request("POST", b"/0/private/Balance", b"{}", kind))
    compressed = request("POST", b"/0/private/Balance", b"a=b", FORM)
    with pytest.raises(Unsignable, match="Content-Encoding"):
        of("kraken", "k", KRAKEN_SECRET).need(
            compressed._replace(lines=(*compressed.lines, (b"content-encoding", b"gzip")))
        )
    with pytest.raises(Unsignable, match="GET has none"):
        of("kraken", "k", KRAKEN_SECRET).need(request("GET", b"/0/private/Balance"))


def test_each_attempt_has_a_time_and_a_nonce_of_its_own() -> None:
    signing = by(HmacTemplate("sha256", "{nonce}{timestamp}", headers=(("N", "{nonce}"), ("S", "{signature}"))))
    first, second = (lines(signing.sign(request("GET", b"/"), b"", now)) for now in (1_700_000_000.0, 1_700_000_000.01))
    assert first["N"] != second["N"]
    assert first["S"] != second["S"]
    assert lines(signing.sign(request("GET", b"/"), b"", 1_700_000_000.0)) == first


def test_parts_are_the_bytes_on_the_wire() -> None:
    template = HmacTemplate(
        "sha384",
        "{method} {host} {path} {query} {header:content-type} {header:x-absent} {digest}",
        headers=(("S", "{signature}"),),
        key="hex",
        encoding="base64",
        digest=Digest("sha512", "{body}", "base64"),
    )
    signing = by(template, "00ff10")
    signed = signing.sign(request("PUT", b"/a%2Fb//c?x=%20&y", b"hello", b"text/plain"), b"hello", 1.0)
    digest = base64.b64encode(hashlib.sha512(b"hello").digest())
    covered = b"PUT api.example /a%2Fb//c x=%20&y text/plain  " + digest
    assert lines(signed)["S"] == base64.b64encode(hmac.digest(b"\x00\xff\x10", covered, "sha384")).decode()


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("seconds", b"1700000000"), ("milliseconds", b"1700000000250"), ("microseconds", b"1700000000250000"),
        ("nanoseconds", b"1700000000250000000"), ("iso8601", b"2023-11-14T22:13:20.250Z"),
        ("http_date", b"Tue, 14 Nov 2023 22:13:20 GMT"), ("rfc2822", b"Tue, 14 Nov 2023 22:13:20 -0000"),
    ],
)  # fmt: skip
def test_times_are_written_in_the_units_that_providers_want(form: Any, written: bytes) -> None:
    assert moment(1_700_000_000.25, form) == written


def test_the_body_is_held_only_where_it_is_signed_and_only_up_to_the_limit() -> None:
    headers = (("S", "{signature}"),)
    covering = by(HmacTemplate("sha256", "{body}", headers=headers, body_limit=10))
    ignoring = by(HmacTemplate("sha256", "{path}", headers=headers))
    large = request("POST", b"/", b"x" * 11)
    assert ignoring.need(large) == Need()
    assert covering.need(request("POST", b"/")) == Need()
    assert covering.need(request("POST", b"/")._replace(length=None)) == Need(10)
    with pytest.raises(Unsignable, match="limit is 10") as refused:
        covering.need(large)
    assert refused.value.too_large


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (HmacTemplate("sha256", "{bodi}", headers=(("S", "{signature}"),)), "bodi"),
        (HmacTemplate("sha256", "{signature}", headers=(("S", "{signature}"),)), "signature"),
        (HmacTemplate("sha256", "{digest}", headers=(("S", "{signature}"),)), "digest"),
        (HmacTemplate("sha256", "{path}{", headers=(("S", "{signature}"),)), "braces"),
        (HmacTemplate("sha256", "{path}", headers=(("S", "{body}"),)), "body"),
        (HmacTemplate("sha256", "{path}", headers=(("S", "{key_id}"),)), "no header"),
        (HmacTemplate("sha256", "{path}", headers=(("S", "{signature}"),), form=(("s", "{signature}"),)), "signature"),
    ],
)
def test_a_template_that_cannot_work_is_refused_when_it_is_read(template: HmacTemplate, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        template.check()


@pytest.mark.parametrize(("key", "secret"), [("base64", "not-base64!-secret"), ("hex", "zz-secret")])
def test_a_secret_that_is_no_key_is_refused_without_being_shown(key: Any, secret: str) -> None:
    with pytest.raises(ValueError, match="'secret' is not") as refused:
        by(HmacTemplate("sha256", "{path}", headers=(("S", "{signature}"),), key=key), secret)
    assert secret not in str(refused.value)


def test_a_rule_cannot_place_it() -> None:
    with pytest.raises(ValueError, match="a rule cannot place it"):
        prepare_hmac({"key_id": Secret("k"), "secret": Secret("s")}, None)
