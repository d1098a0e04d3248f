"""The image's list of software, CycloneDX 1.6: `python -m proxy.sbom`.

Names, versions and licences of the installed distributions, as their metadata say them; sorted and without a time, so
that the same image has the same list. https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import Distribution, distributions
from typing import Any


def document() -> dict[str, Any]:
    """The list as a JSON value."""
    components = sorted(map(_component, distributions()), key=lambda one: str(one["name"]).lower())
    python = {"type": "platform", "name": "python", "version": platform.python_version()}
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": [python, *components]}


def _component(distribution: Distribution) -> dict[str, Any]:
    name, version = distribution.metadata["Name"], distribution.version
    found: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
    }
    if "License-Expression" not in distribution.metadata:
        return found
    return {**found, "licenses": [{"expression": distribution.metadata["License-Expression"]}]}


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1)
