"""A Kubernetes API server that answers TokenReviews only, for projected tokens it has made itself.

https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass
class Cluster:
    """`address` is the API server, `ca` its roots, PEM; `reviews` what it was asked."""

    address: str = ""
    ca: str = ""
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    reviews: list[dict[str, Any]] = field(default_factory=list)

    def projected(self, name: str, audience: str = "vault", life: int = 600) -> str:
        """A service account's projected token."""
        now = int(time.time())
        claims = {
            "iss": "https://kubernetes.default.svc",
            "aud": [audience],
            "sub": f"system:serviceaccount:agents:{name}",
            "iat": now - 5,
            "nbf": now - 5,
            "exp": now + life,
            "kubernetes.io": {"namespace": "agents", "serviceaccount": {"name": name, "uid": f"uid-{name}"}},
        }
        return jwt.encode(claims, self.key, algorithm="ES256")

    def review(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.reviews.append(asked)
        try:
            claims = jwt.decode(
                asked["spec"]["token"],
                self.key.public_key(),
                algorithms=["ES256"],
                audience=asked["spec"].get("audiences") or ["https://kubernetes.default.svc", "vault"],
            )
        except jwt.PyJWTError as error:
            return {"authenticated": False, "error": type(error).__name__}
        uid = claims["kubernetes.io"]["serviceaccount"]["uid"]
        user = {"username": claims["sub"], "uid": uid, "groups": ["system:serviceaccounts"]}
        return {"authenticated": True, "user": user, "audiences": claims["aud"]}


@contextmanager
def cluster() -> Iterator[Cluster]:
    made = Cluster()

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = made.review(asked)
            body = json.dumps(
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}
            ).encode()
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    authority = trustme.CA()
    made.ca = authority.cert_pem.bytes().decode()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        made.address = f"https://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield made
        server.shutdown()
