"""Loads a ruleset into the kernel, by `nft`."""

from __future__ import annotations

import shutil
import subprocess

from proxy.errors import SluicegateError


class FirewallError(SluicegateError):
    """The ruleset is not in force."""


def apply(text: str) -> None:
    """Loads the ruleset in one transaction. Raises FirewallError, saying why; nothing has changed then."""
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if nft is None:
        raise FirewallError("there is no nft here: use the image's `firewall` target, or install nftables")
    done = subprocess.run([nft, "-f", "-"], input=text, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - fixed arguments
    if done.returncode:
        reason = done.stderr.strip().partition("\n")[0] or f"nft ended with {done.returncode}"
        raise FirewallError(f"the firewall is not in force: {reason} (it needs CAP_NET_ADMIN in the pod's network)")
