"""What the person's browser shows at the end. No script, nothing loaded, nothing kept."""

from __future__ import annotations

from html import escape
from typing import Final

HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto 0; padding: 0 1.5rem; }}
h1 {{ font-size: 1.5rem; border-left: .4rem solid {color}; padding-left: .8rem; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14171a; color: #e6e8ea; }} }}
</style></head>
<body><main><h1>{title}</h1><p>{text}</p><p>{advice}</p></main></body></html>
"""


def success_page(what: str, account: str) -> str:
    """The grant is stored."""
    of = f" as {escape(account)}" if account else ""
    return _PAGE.format(
        title="Connected",
        color="#1a7f37",
        text=f"{escape(what)} is connected{of}.",
        advice="You can close this window.",
    )


def failure_page(reason: str) -> str:
    """Nothing was stored. `reason` is a sentence."""
    return _PAGE.format(
        title="Not connected",
        color="#cf222e",
        text=escape(reason),
        advice="Nothing was stored. Go back to the terminal, run the command again, and use the link that it shows.",
    )
