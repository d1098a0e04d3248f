"""`sluicegate prepare`: what a pod's init container does before the proxy starts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
import msgspec

from proxy.errors import ConfigurationError, Fault
from proxy.webhook.names import CONFIG_DIR, FILES_VARIABLE, TRUST_DIR


@click.command()
@click.option("--to", "folder", type=click.Path(path_type=Path), default=CONFIG_DIR, show_default=True, help="Files.")
@click.option("--trust", type=click.Path(path_type=Path), default=TRUST_DIR, show_default=True, help="Certificates.")
def prepare(folder: Path, trust: Path) -> None:
    """Write the configuration that came in $SLUICEGATE_FILES, make the pod's certificate authority, and lay out what
    its clients have to trust: never the key."""
    from proxy.listeners.authority_files import certificate_pem, open_authority
    from proxy.listeners.trust import combined_bundle, pkcs12_truststore, system_roots
    from proxy.settings import load

    place(os.environ.get(FILES_VARIABLE, ""), folder)
    settings = load(folder / "sluicegate.yaml")
    authority = open_authority(settings.ca.dir, required=settings.ca.required, now=time.time())
    extra = settings.upstream.extra_ca_file
    own = combined_bundle(certificate_pem(authority), extra.read_text() if extra is not None else "")
    bundle = combined_bundle(own, system_roots())
    trust.mkdir(parents=True, exist_ok=True)
    (trust / "ca.pem").write_text(own)
    (trust / "bundle.pem").write_text(bundle)
    (trust / "truststore.p12").write_bytes(pkcs12_truststore(bundle))


def place(files: str, folder: Path) -> None:
    """Writes the files of the variable, `{relative path: text}` as JSON.

    Raises ConfigurationError for anything else.
    """
    try:
        wanted = msgspec.json.decode(files, type=dict[str, str])
    except msgspec.MsgspecError:
        raise ConfigurationError([Fault(f"${FILES_VARIABLE}", 0, "holds no files; the webhook writes it")]) from None
    for name, text in wanted.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ConfigurationError([Fault(f"${FILES_VARIABLE}", 0, "names a file outside the folder")])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
