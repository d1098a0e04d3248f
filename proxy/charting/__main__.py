"""`python -m proxy.charting`: writes the chart's schema and page."""

from __future__ import annotations

from pathlib import Path

from proxy.charting.schema import write

write(Path(__file__).resolve().parents[2] / "helm" / "sluicegate")
