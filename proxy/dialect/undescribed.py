"""How a host answers that no file describes: by status, and by what servers say in front of any application.

nginx completes the TLS handshake whatever certificate it is shown, and answers 400 in HTML where a 400 would blame the
caller (ngx_http_ssl_module, ngx_http_special_response_handler: its own statuses 495 and 496).
"""

from __future__ import annotations

from typing import Final

from proxy.dialect.facts import Dialect, ErrorRow

_BAD_REQUEST: Final = frozenset({400, 495, 496})

UNDESCRIBED: Final = Dialect(
    rows=(
        ErrorRow(
            "auth",
            statuses=_BAD_REQUEST,
            texts=("no required ssl certificate was sent",),
            name="client_certificate_required",
            refresh=False,
            say="The host requires a client certificate, and none that it asks for was shown.",
            then="Do not repeat it. Ask the operator to let the rule use a credential of the kind mtls.",
        ),
        ErrorRow(
            "auth",
            statuses=_BAD_REQUEST,
            texts=("the ssl certificate error",),
            name="client_certificate_refused",
            refresh=False,
            say="The host refused the client certificate: it has expired, was revoked, or is of an authority that the "
            "host does not know.",
            then="Do not repeat it. Ask the operator to store another certificate in the credential's record.",
        ),
    )
)
