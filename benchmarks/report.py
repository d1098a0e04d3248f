"""From samples to the table people read: medians over the rounds, and ratios paired within each round."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

BEGIN, END = "<!-- figures: begin (written by `make bench BENCH_ARGS=--write-docs`) -->", "<!-- figures: end -->"
BARS = {"plain": 1.2, "tls": 1.2, "tunnel": 1.0, "sigv4": 1.2}
"""Sluicegate's CPU per request may be at most this many times the reference's."""
MOST_RSS_MB, MOST_READY_S = 70.0, 1.0
TITLES = {
    "plain": "base URL, plain upstream",
    "tls": "base URL, TLS upstream",
    "tunnel": "kept intercepted tunnel",
    "sigv4": "base URL, signed for AWS",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: one contender, scenario, number of connections and round."""

    round: int
    contender: str
    scenario: str
    connections: int
    requests: int
    requests_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    bad: int
    rss_mb: float
    ready_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `ratio` is to the reference, None where there is nothing to compare with."""

    contender: str
    scenario: str
    connections: int
    cpu_us: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    bad: int
    rss_mb: float
    ready_s: float
    rounds: int


def rows(samples: list[Sample], reference: str) -> list[Row]:
    """One row for each contender, scenario and number of connections, contenders in the order of measurement."""
    groups: dict[tuple[str, int, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.scenario, sample.connections, sample.contender].append(sample)
    return [
        _row(group, groups.get((scenario, connections, reference), []))
        for (scenario, connections, _), group in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1]))
    ]


def _row(group: list[Sample], reference: list[Sample]) -> Row:
    base = {sample.round: sample.cpu_us for sample in reference if sample.cpu_us}
    ratios = [sample.cpu_us / base[sample.round] for sample in group if sample.round in base]
    first = group[0]
    return Row(
        first.contender,
        first.scenario,
        first.connections,
        median(sample.cpu_us for sample in group),
        median(ratios) if ratios else None,
        min(ratios, default=None),
        max(ratios, default=None),
        median(sample.requests_per_s for sample in group),
        median(sample.p50_ms for sample in group),
        median(sample.p99_ms for sample in group),
        sum(sample.bad for sample in group),
        max(sample.rss_mb for sample in group),
        median(sample.ready_s for sample in group),
        len(group),
    )


def markdown(table: list[Row], subject: str) -> str:
    """The table as Markdown, the bars beside the subject's figures."""
    lines = [
        "| scenario | conns | contender | CPU us/request | ratio to Envoy (spread) | bar "
        "| requests/s | p50 ms | p99 ms | bad | RSS MB | ready s |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in table:
        bar = f"≤ {BARS[row.scenario]:.2f}" if row.contender == subject and row.scenario in BARS else ""
        name = f"**{row.contender}**" if row.contender == subject else row.contender
        where = f"{TITLES.get(row.scenario, row.scenario)} | {row.connections}"
        lines.append(
            f"| {where} | {name} | {row.cpu_us:.0f} | {_ratio(row)} | {bar} "
            f"| {row.requests_per_s:.0f} | {row.p50_ms:.2f} | {row.p99_ms:.2f} | {row.bad} | {row.rss_mb:.0f} "
            f"| {row.ready_s:.2f} |"
        )
    return "\n".join(lines)


def _ratio(row: Row) -> str:
    if row.ratio is None or row.ratio_low is None or row.ratio_high is None:
        return "-"
    return f"{row.ratio:.2f} ({row.ratio_low:.2f}–{row.ratio_high:.2f})"


def missed_bars(table: list[Row], subject: str) -> list[str]:
    """A sentence for each bar that the subject missed."""
    own = [row for row in table if row.contender == subject]
    rss, ready = max((row.rss_mb for row in own), default=0.0), max((row.ready_s for row in own), default=0.0)
    process = [
        (rss > MOST_RSS_MB, f"memory: {rss:.0f} MB, allowed {MOST_RSS_MB:.0f} MB"),
        (ready > MOST_READY_S, f"start to ready: {ready:.2f} s, allowed {MOST_READY_S:.2f} s"),
    ]
    return _missed_ratios(own) + [sentence for missed, sentence in process if missed]


def _missed_ratios(own: list[Row]) -> list[str]:
    return [
        f"{TITLES[row.scenario]}, c={row.connections}: {row.ratio:.2f} × Envoy, allowed {BARS[row.scenario]:.2f}"
        for row in own
        if row.scenario in BARS and row.ratio is not None and row.ratio > BARS[row.scenario]
    ]


def write_json(path: Path, machine: dict[str, object], table: list[Row], samples: list[Sample]) -> None:
    """Everything that was measured, for whoever wants to compute something else from it."""
    content = {"machine": machine, "rows": [asdict(row) for row in table], "samples": [asdict(s) for s in samples]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_docs(path: Path, block: str) -> None:
    """Replace what stands between the two markers; raise ValueError when the page does not hold both, once each."""
    page = path.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"{path}: the markers of the figures are not there once each")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{block}\n{END}{after}")
