"""One command: set up, then measure all contenders in interleaved rounds, and print the table.

usage: make bench, or .venv/bin/python benchmarks/run.py [--seconds 3] [--rounds 5] [--only sluicegate,envoy] …
"""

from __future__ import annotations

import argparse
import os
import platform
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))  # so that the script runs by its path as well as with -m
os.environ["PYTHONPATH"] = str(REPOSITORY)

from benchmarks import contenders, loads, preparation, report, rivals  # noqa: E402
from benchmarks.contenders import REFERENCE, Contender  # noqa: E402
from benchmarks.ground import Ground, lay  # noqa: E402
from benchmarks.processes import LOAD_CORE, PROXY_CORE, NotReady, accepts, cpu_seconds, rss_mb, start, stop  # noqa: E402
from benchmarks.product import RULES, Product  # noqa: E402

SUBJECT = "sluicegate"
WORK = REPOSITORY / "benchmarks" / ".work"
PAGE = REPOSITORY / "docs" / "performance.md"
NAMES = ("nginx", REFERENCE, "mitmproxy", "bare-relay", SUBJECT)
SCENARIOS = ("plain", "tls", "tunnel", "sigv4")
WARM_UP_S = 1.0


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3, help="length of one measurement (default 3)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--only", type=_names(NAMES), default=NAMES, help=f"contenders, of {','.join(NAMES)}")
    parser.add_argument("--scenarios", type=_names(SCENARIOS), default=SCENARIOS, help=f"of {','.join(SCENARIOS)}")
    parser.add_argument("--connections", type=_numbers, default=(1, 16, 64), help="for base URLs (default 1,16,64)")
    parser.add_argument("--tunnels", type=_numbers, default=(16,), help="kept tunnels (default 16)")
    parser.add_argument("--store", choices=("file", "vault"), default="file", help="where Sluicegate's credential lies")
    parser.add_argument("--identity", choices=("session_token", "static"), default="session_token")
    parser.add_argument("--json", type=Path, default=WORK / "results.json", help="where every sample is written")
    parser.add_argument("--write-docs", action="store_true", help="replace the figures in docs/performance.md")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed or an answer was bad")
    return parser.parse_args(given)


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(name.strip() for name in text.split(","))
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
        return chosen

    return parse


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


@contextmanager
def upstream(ground: Ground) -> Iterator[None]:
    """The nginx that everybody calls, on the load's core."""
    configuration = ground.write("upstream.conf", rivals.nginx_upstream(ground))
    command = [str(preparation.program("nginx")), "-c", str(configuration)]
    running = start(command, LOAD_CORE, lambda: accepts(ground.tls_port), ground.file("upstream.out"))
    try:
        yield
    finally:
        stop(running.process)


def chosen(options: argparse.Namespace, ground: Ground, product: Product) -> list[Contender]:
    """The contenders asked for; one that cannot be had here is named and left out."""
    found = []
    if "nginx" in options.only:
        found.append(contenders.nginx(ground))
    if REFERENCE in options.only:
        found.append(contenders.envoy(ground, preparation.envoy(WORK)))
    if "mitmproxy" in options.only:
        if mitmdump := preparation.mitmproxy(WORK):
            found.append(contenders.mitmproxy(ground, mitmdump))
        else:
            print("mitmproxy is left out: it needs Python 3.12 or newer and PyPI", file=sys.stderr)
    if "bare-relay" in options.only:
        found.append(contenders.bare_relay(ground))
    if SUBJECT in options.only:
        product.prepare()
        found.append(contenders.sluicegate(product))
    return found


def measure_one(
    ground: Ground, contender: Contender, options: argparse.Namespace, number: int
) -> Iterator[report.Sample]:
    """Start one contender, measure each of its scenarios, stop it."""
    log = ground.file(f"{contender.name}.out")
    running = start(contender.command, PROXY_CORE, contender.ready, log, contender.environment)
    pid = running.process.pid
    try:
        for scenario in (name for name in options.scenarios if name in contender.targets):
            target = contender.targets[scenario]
            for connections in options.tunnels if scenario == "tunnel" else options.connections:
                loads.apply(ground, target, connections, WARM_UP_S)
                before = cpu_seconds(pid)
                served = loads.apply(ground, target, connections, options.seconds)
                used = cpu_seconds(pid) - before
                yield report.Sample(
                    round=number,
                    contender=contender.name,
                    scenario=scenario,
                    connections=connections,
                    requests=served.requests,
                    requests_per_s=served.requests / served.seconds,
                    cpu_us=1e6 * used / max(1, served.requests),
                    p50_ms=served.p50_ms,
                    p99_ms=served.p99_ms,
                    bad=served.bad,
                    rss_mb=rss_mb(pid),
                    ready_s=running.ready_s,
                )
    finally:
        stop(running.process)


def measure(ground: Ground, field: list[Contender], options: argparse.Namespace) -> list[report.Sample]:
    """All rounds; a contender that fails is named and stays out of that round."""
    samples: list[report.Sample] = []
    for number in range(1, options.rounds + 1):
        for contender in field:
            try:
                for sample in measure_one(ground, contender, options, number):
                    samples.append(sample)
                    print(_progress(sample), file=sys.stderr)
            except (NotReady, loads.LoadFailed) as error:
                print(f"round {number}: {contender.name}: {error}", file=sys.stderr)
    return samples


def _progress(sample: report.Sample) -> str:
    where = f"round {sample.round}: {sample.contender:11} {sample.scenario:7} c={sample.connections:<3}"
    return f"{where} {sample.cpu_us:7.0f} us/request {sample.requests_per_s:7.0f}/s bad {sample.bad}"


def machine() -> dict[str, object]:
    """What the figures were measured on, as far as a reader needs it."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "kernel": platform.release(),
        "uvloop": _version("uvloop"),
        "httptools": _version("httptools"),
        "envoy": preparation.ENVOY.partition("==")[2],
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def block(options: argparse.Namespace, facts: dict[str, object], table: str) -> str:
    """What goes into the page: how it was measured, then the table."""
    listed = ", ".join(f"{name} {value}" for name, value in facts.items())
    how = f"{options.rounds} rounds of {options.seconds:g} s; {RULES} rules"
    return f"{how}, {options.store} store, {options.identity} identity. Machine: {listed}.\n\n{table}"


def main(given: list[str]) -> int:
    options = arguments(given)
    if problem := preparation.missing_programs():
        print(problem, file=sys.stderr)
        return 2
    if (os.cpu_count() or 1) < 2:
        print("The benchmark needs two cores: one for the proxy, one for load and upstream", file=sys.stderr)
        return 2
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=WORK) as folder:
        samples = _measured(options, Path(folder))
    table = report.rows(samples, REFERENCE)
    facts, text = machine(), report.markdown(table, SUBJECT)
    report.write_json(options.json, facts, table, samples)
    print(block(options, facts, text))
    print(f"\nEvery sample: {options.json}", file=sys.stderr)
    if options.write_docs:
        report.write_docs(PAGE, block(options, facts, text))
    faults = report.missed_bars(table, SUBJECT) + [f"{r.contender}: {r.bad} bad answers" for r in table if r.bad]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if not samples or (options.strict and faults) else 0


def _measured(options: argparse.Namespace, folder: Path) -> list[report.Sample]:
    ground = lay(folder)
    product = Product(ground, options.store, options.identity)
    try:
        with upstream(ground):
            return measure(ground, chosen(options, ground, product), options)
    finally:
        if product.vault:
            stop(product.vault.process)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
