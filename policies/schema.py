"""The JSON Schema of a policy document, for editors and for review tools.

It says what each key may hold. That keys fit each other, and that names exist, only `policies.load` can say.
"""

from __future__ import annotations

from typing import Any

from policies.document import EgressPolicy


def policy_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one EgressPolicy document."""
    schema = EgressPolicy.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "EgressPolicy"}
