"""ConfigMaps that hold policies, judged before any pod sees them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from policies.facts import ProviderFacts
from policies.load import PolicyError, load
from proxy.webhook.names import Json

_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.ya?ml")
MOST_FAULTS: Final = 20


def faults(config_map: Json, floor: Mapping[str, str], providers: Mapping[str, ProviderFacts]) -> list[str]:
    """What is wrong with the policies of a ConfigMap, beside the operator's floor; `KEY:LINE: message` each."""
    texts = config_map.get("data") or {}
    found = [f"{name}: must be text, not binary" for name in config_map.get("binaryData") or {}]
    found += [f"{name}: a policy file is named NAME.yaml" for name in texts if not _FILE.fullmatch(name)]
    if found:
        return found
    with tempfile.TemporaryDirectory(prefix="sluicegate-policies-") as folder:
        own, operators = Path(folder, "own"), Path(folder, "floor")
        _write(own, texts)
        _write(operators, floor)
        try:
            load([own], operators if floor else None, providers)
        except PolicyError as error:
            return [f"{Path(fault.file).name}:{fault.line}: {fault.message}" for fault in error.faults[:MOST_FAULTS]]
    return []


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(str(text), "utf-8")
