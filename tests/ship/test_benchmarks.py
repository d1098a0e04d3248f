"""The benchmark's arithmetic and its parts that need no rival installed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import contenders, ground, loads, processes, product, report, rivals, run, tunnel_load

REPOSITORY = Path(__file__).resolve().parents[2]
WRK = """Running 2s test @ http://127.0.0.1:1/v1/data
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   512.21us  101.00us   8.20ms   90.00%
  Latency Distribution
     50%  470.00us
     75%  600.00us
     90%    1.10ms
     99%    8.20ms
  43380 requests in 2.00s, 51.00MB read
"""


def sample(number: int, contender: str, cpu_us: float, **other: object) -> report.Sample:
    usual = {"scenario": "plain", "connections": 16, "requests": 100, "requests_per_s": 10.0, "p50_ms": 1.0}
    last = {"p99_ms": 2.0, "bad": 0, "rss_mb": 50.0, "ready_s": 0.5}
    return report.Sample(**{"round": number, "contender": contender, "cpu_us": cpu_us, **usual, **last, **other})  # type: ignore[arg-type]


def test_ratios_are_paired_within_a_round() -> None:
    # Round 2 ran on a machine twice as slow: comparing medians over all rounds would hide that both ratios are 0.5.
    samples = [
        sample(1, "envoy", 40),
        sample(1, "sluicegate", 20),
        sample(2, "envoy", 80),
        sample(2, "sluicegate", 40),
        sample(3, "sluicegate", 500),
    ]
    (_, row) = report.rows(samples, "envoy")
    assert (row.ratio, row.ratio_low, row.ratio_high) == (0.5, 0.5, 0.5)
    assert row.rounds == 3


def test_without_the_reference_there_is_no_ratio() -> None:
    (row,) = report.rows([sample(1, "sluicegate", 20)], "envoy")
    assert row.ratio is None
    assert "| - |" in report.markdown([row], "sluicegate")


def test_bad_answers_are_added_up_and_memory_is_the_highest_seen() -> None:
    (row,) = report.rows([sample(1, "x", 1, bad=2, rss_mb=60.0), sample(2, "x", 1, bad=3)], "envoy")
    assert (row.bad, row.rss_mb) == (5, 60.0)


def test_a_missed_bar_is_named() -> None:
    samples = [sample(1, "envoy", 40), sample(1, "sluicegate", 60)]
    (sentence,) = report.missed_bars(report.rows(samples, "envoy"), "sluicegate")
    assert "1.50 × Envoy" in sentence


def test_too_much_memory_and_a_slow_start_are_named() -> None:
    table = report.rows([sample(1, "sluicegate", 1, rss_mb=71.0, ready_s=1.2)], "envoy")
    assert [sentence.partition(":")[0] for sentence in report.missed_bars(table, "sluicegate")] == [
        "memory",
        "start to ready",
    ]


def test_the_figures_of_the_page_are_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_docs(page, "new")
    assert page.read_text() == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="markers"):
        report.write_docs(page, "new")
    assert page.read_text() == "no markers"


def test_the_real_page_holds_the_markers() -> None:
    text = (REPOSITORY / "docs" / "performance.md").read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def test_wrks_report_is_read() -> None:
    served = loads.parse_wrk(WRK)
    assert (served.requests, served.seconds, served.bad) == (43380, 2.0, 0)
    assert (served.p50_ms, served.p99_ms) == (pytest.approx(0.47), pytest.approx(8.2))


def test_wrong_statuses_and_socket_errors_are_bad() -> None:
    more = "  Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 10\n"
    assert loads.parse_wrk(WRK + more).bad == 14


def test_a_load_that_did_not_run_is_no_figure() -> None:
    with pytest.raises(loads.LoadFailed):
        loads.parse_wrk("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_quantiles() -> None:
    assert tunnel_load.quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert tunnel_load.quantile([], 0.99) == 0.0


def test_the_product_is_measured_with_a_thousand_rules_that_load(tmp_path: Path) -> None:
    documents = product.rule_documents(ground.lay(tmp_path / "ground"))
    assert sum(len(document["allow"]) for document in documents) == 1000
    load = pytest.importorskip("policies.load")
    for document in documents:
        (tmp_path / f"{document['metadata']['name']}.json.yaml").write_text(json.dumps(document))
    rules = load.load([tmp_path], None, {}, "deny")
    assert rules.size.rules == 1000
    assert rules.base_url(product.TENANT, product.AGENT, "", "tls")[0] == "https"


@pytest.mark.parametrize(("store", "identity"), [("file", "session_token"), ("file", "static")])
def test_the_products_configuration_is_accepted(store: str, identity: str, tmp_path: Path) -> None:
    settings = pytest.importorskip("proxy.settings")
    measured = product.Product(ground.lay(tmp_path), store, identity)
    text = json.dumps(measured._settings())
    assert settings.settings_from(text, tmp_path / "sluicegate.yaml").audit.sink == "file"


def test_envoy_is_configured_for_all_scenarios(tmp_path: Path) -> None:
    laid = ground.lay(tmp_path)
    text = json.dumps(rivals.envoy(laid, 1, 2, 3, 4))
    assert text.count(laid.secret) == 1  # its injector reads the file, as in production; its signer cannot
    assert text.count("credential_injector") > 0
    assert set(contenders.envoy(laid, Path("envoy")).targets) == set(run.SCENARIOS)


def test_the_replys_body_is_one_kilobyte_of_json() -> None:
    assert len(ground.reply_body()) == ground.DATA_BYTES
    assert json.loads(ground.reply_body())["ok"] is True


def test_cpu_time_and_memory_of_a_process_tree_are_read() -> None:
    assert os.getpid() in processes.tree(os.getpid())
    assert processes.cpu_seconds(os.getpid()) > 0
    assert processes.rss_mb(os.getpid()) > 5


def test_a_program_that_ends_at_once_is_not_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with pytest.raises(processes.NotReady, match="no such luck"):
        processes.start(command, 0, lambda: False, tmp_path / "log")


@pytest.mark.parametrize("option", [["--only", "squid"], ["--scenarios", "cold"], ["--connections", "x"]])
def test_an_unknown_choice_is_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.arguments(option)
    assert stopped.value.code == 2
    assert capsys.readouterr().err


async def test_the_bare_relay_injects_the_credential(tmp_path: Path) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received.put(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    upstream_port = server.sockets[0].getsockname()[1]
    laid = ground.lay(tmp_path)
    port = ground.free_port()
    files = [str(laid.secret_file), str(laid.upstream_ca)]
    command = [sys.executable, "-m", "benchmarks.bare_relay", *files, f"{port}=http://127.0.0.1:{upstream_port}"]
    process = subprocess.Popen(command, cwd=REPOSITORY)
    try:
        reader, writer = await connected(port)
        writer.write(b"GET /v1/data HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer dummy\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        head = await received.get()
        assert f"Authorization: Bearer {laid.secret}\r\n".encode() in head
        assert b"dummy" not in head
        writer.close()
    finally:
        process.terminate()
        process.wait()
        server.close()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as somebody listens."""
    for _ in range(500):
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
    raise TimeoutError(f"nobody listens on port {port}")
