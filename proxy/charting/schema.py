"""values.schema.json and the chart's README, made from the models: `python -m proxy.charting`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from proxy.charting.values import ChartValues
from proxy.documentation import sections
from proxy.settings import Settings

Json = dict[str, Any]
_NOTICE: Final = "<!-- Made by `python -m proxy.charting`; change proxy/charting/values.py. -->"
_ADDRESS: Final[Json] = {"type": "string", "pattern": r"^(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):[0-9]{1,5}$"}


def values_schema() -> Json:
    """The JSON Schema that Helm checks values against, `settings` included: those may leave out what a file may not."""
    schema = ChartValues.model_json_schema()
    inner = Settings.model_json_schema()
    definitions = {**inner.pop("$defs"), **schema.pop("$defs")}
    definitions["Settings"] = {key: value for key, value in inner.items() if key != "required"}
    for name in ("Profile", "GatewayValues"):
        definitions[name]["properties"]["settings"] = {"$ref": "#/$defs/Settings"}
    schema["properties"]["global"] = {"type": "object", "description": "Of a parent chart; not read."}
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "$defs": definitions}
    shaped: Json = _shaped(_as_in_the_file(found))
    return shaped


def _as_in_the_file(schema: Json) -> Json:
    """What validators of the models take beyond the types that they end in."""
    definitions = schema["$defs"]
    chain = {"anyOf": [{"$ref": "#/$defs/Identity"}, {"$ref": "#/$defs/Identity/properties/chain"}]}
    definitions["Settings"]["properties"]["identity"] = chain
    definitions["Listener"]["properties"]["identity"] = {"anyOf": [*chain["anyOf"], {"type": "null"}]}
    for name, field in (("Issuer", "audience"), ("ServiceAccountIdentity", "audience"), ("VaultStore", "address")):
        properties = definitions.get(name, {}).get("properties", {})
        if field in properties:
            properties[field] = {"anyOf": [{"type": "string", "minLength": 1}, properties[field]]}
    return schema


def _shaped(node: Any) -> Any:
    """Without defaults and titles, which say nothing to Helm, and with addresses as the text they are written in."""
    if isinstance(node, list):
        return [_shaped(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "prefixItems" in node:
        return dict(_ADDRESS)
    kept = {key: value for key, value in node.items() if key not in ("default", "title", "discriminator")}
    named = ("properties", "$defs")
    return {
        key: {name: _shaped(inner) for name, inner in value.items()} if key in named else _shaped(value)
        for key, value in (node.items() if not _is_schema(node) else kept.items())
    }


def _is_schema(node: Json) -> bool:
    return any(key in node for key in ("type", "$ref", "anyOf", "oneOf", "properties", "const", "enum", "description"))


def readme() -> str:
    """The chart's page: every value, its type, default and meaning."""
    return "\n".join([
        "# The chart",
        "",
        _NOTICE,
        "",
        "Installs the admission webhook that puts Sluicegate beside labelled pods (`webhook`), an egress tier that",
        "many pods share (`gateway`), and what observes them (`monitoring`).",
        "[docs/kubernetes.md](../../docs/kubernetes.md) goes from nothing to an injected pod; `ci/` holds scenarios,",
        "each rendered and validated by the tests.",
        "",
        "```sh",
        "helm install sluicegate helm/sluicegate --namespace sluicegate --create-namespace --values my-values.yaml",
        "```",
        "",
        "`settings` (of a profile, of the gateway) takes every key of [sluicegate.yaml](../../docs/configuration.md).",
        "Values that are mistyped are refused before anything is installed, by `values.schema.json`.",
        "",
        *sections(ChartValues, "Values"),
    ])  # fmt: skip


def write(chart: Path) -> None:
    """Writes both into the chart's folder."""
    (chart / "values.schema.json").write_text(json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    (chart / "README.md").write_text(readme(), "utf-8")
