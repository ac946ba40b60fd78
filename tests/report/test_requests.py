"""Requests of text generation on the terminal, in files and in comparisons: every time has its figure and its verdict."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from steelyard.analyze.compare import RunsSide, own_pairs, usual_metrics
from steelyard.analyze.gate import gate
from steelyard.cli.main import main
from steelyard.codec.policy import Policy
from steelyard.model.pair import PairPart, told_from_chance, weigh, weigh_part
from steelyard.model.parts import is_secondary, is_time
from steelyard.model.record import Figure, Record
from steelyard.report.detail import record_detail
from steelyard.report.export import cases_csv, markdown_report
from steelyard.report.text import run_table
from steelyard.report.web.document import document
from steelyard.store.runs import Run, Store
from tests.report.made import figures, pair, record, run_of, softmax

PARTS = ("ttft", "itl", "tpot")
TABLE = """\
H200 · torch 2.13.0 · driver 580.159 · clocks not locked · 1 thread               4 cases · run k3f9
#                           E2E ± 95 %      TTFT ± 95 %         ITL ± 95 %   tok/s    n   noise
generate/llama  new=32 prompt=64
1  ├─ batch=1  eager     80.0 ± 1.0 ms   7.20 ± 0.10 ms   2.300 ± 0.020 ms     400   38   A
2  │           compile   62.0 ± 1.0 ms   7.20 ± 0.10 ms   1.700 ± 0.020 ms     516   38   A
3  └─ batch=4  eager     80.0 ± 1.0 ms   7.20 ± 0.10 ms   2.300 ± 0.020 ms   1\u202f600   38   A
4              compile   62.0 ± 1.0 ms   7.20 ± 0.10 ms   1.700 ± 0.020 ms   2\u202f065   38   A
vs eager, 99 %
    E2E                           TTFT                      ITL
  batch=1 compile
    ▲ 22.5 % faster [21.5, 23.5]  ≈ within 2 % [-0.4, 1.2]  ▲ 26.1 % faster [25.1, 27.1]
  batch=4 compile
    ▲ 22.5 % faster [21.5, 23.5]  ≈ within 2 % [-0.4, 1.2]  ▲ 26.1 % faster [25.1, 27.1]
4 ok · saved k3f9    next: steelyard show k3f9/2 (the largest change)"""


def ms(value: float, half: float) -> Figure:
    return Figure(value * 1e-3, "s", "lower", (value - half) * 1e-3, (value + half) * 1e-3, 38)


def request(batch: int, variant: str, whole: float, gap: float) -> Record:
    """One case with the figures that generation has."""
    tokens = 32 * batch / (whole * 1e-3)
    rates = {f"{part}_{kind}": Figure(1e9, "1", "higher") for part in ("ttft", "itl") for kind in ("compute", "bandwidth")}
    more = {
        "item_rate": Figure(tokens, "item/s", "higher", tokens * 0.99, tokens * 1.01, 38), "ttft": ms(7.2, 0.1), "itl": ms(gap, 0.02),
        "tpot": ms(gap, 0.02), "itl_p50": ms(gap, 0.02), "itl_p90": ms(gap, 0.02), "tail_p50": ms(0.1, 0.01), "ttft_last": ms(9, 0.1),
        "equal_tokens": Figure(1.0, "1", "higher"), **rates,
    }  # fmt: skip
    return record(f"generate/llama[batch={batch},new=32,prompt=64]@torch/{variant}:eval", figures(whole * 1e-3, 1e-3, n=38, **more))


def llama() -> Run:
    """Two batches by two variants: decoding is faster, reading the prompt is not."""
    rows = [request(batch, *how) for batch in (1, 4) for how in (("eager", 80.0, 2.3), ("compile", 62.0, 1.7))]
    parts = {
        "itl": PairPart(0.739, 0.729, 0.749, 1e-9, ms(2.3, 0.02), ms(1.7, 0.02)),
        "tpot": PairPart(0.739, 0.729, 0.749, 1e-9, ms(2.3, 0.02), ms(1.7, 0.02)),
        "ttft": PairPart(1.004, 0.996, 1.012, 0.3, ms(7.2, 0.1), ms(7.2, 0.1)),
    }
    pairs = [replace(pair(rows[at], rows[at + 1], 0.775, 0.01), parts=parts, p=1e-9) for at in (0, 2)]
    return run_of(rows, pairs)


def table(run: Run, width: int = 100) -> str:
    return run_table(run.header, run.records, run.pairs, width=width).plain


def test_a_table_of_requests_tells_every_time_and_a_verdict_on_each() -> None:
    assert table(llama()) == TABLE


def test_a_wide_table_has_the_verdict_on_the_whole_beside_it_and_those_on_the_parts_below() -> None:
    shown = table(llama(), 130).split("\n")
    assert "vs eager, 99 %" in shown[1] and "▲ 22.5 % faster" in shown[4] and "base" in shown[3]
    assert [line.split() for line in shown if line.startswith("vs eager")] == [["vs", "eager,", "99", "%", "TTFT", "ITL"]]
    assert "  batch=1 compile  ≈ within 2 % [-0.4, 1.2]  ▲ 26.1 % faster [25.1, 27.1]" in shown


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140, 240])
def test_no_line_is_longer_than_the_width_and_no_secondary_figure_has_a_column(width: int) -> None:
    shown = table(llama(), width)
    assert max(map(cell_len, shown.split("\n"))) <= width
    assert not any(name in shown for name in ("tpot", "_p", "itl_", "ttft_", "tail", "equal", "GB/s"))
    assert "E2E" in shown and shown.count("faster") >= 2


def test_a_run_of_other_cases_too_keeps_its_column_of_verdicts() -> None:
    other = softmax()
    shown = table(run_of([*llama().records, *other.records], [*llama().pairs, *other.pairs]))
    assert "median ± 95 %" in shown and "vs eager, 99 %" in shown.split("\n")[1] and "13.8 % faster" in shown
    assert "generate/llama batch=1 compile" in shown and "▲ 26.1 % faster [25.1, 27.1]" in shown


def test_requests_that_were_not_weighed_say_so_in_the_table() -> None:
    rows = list(llama().records)
    rows[3] = replace(rows[3], effective={**rows[3].effective, "unweighed": "it was too noisy"})
    assert "✗ not weighed" in table(run_of(rows, llama().pairs[:1]))


def test_many_comparisons_are_cut_and_the_rest_is_named() -> None:
    rows = [request(batch, *how) for batch in range(1, 21) for how in (("eager", 80.0, 2.3), ("compile", 62.0, 1.7))]
    parts = llama().pairs[0].parts
    pairs = [replace(pair(rows[at], rows[at + 1], 0.775, 0.01), parts=parts) for at in range(0, 40, 2)]
    assert "… and 8 more: steelyard compare k3f9" in table(run_of(rows, pairs))


def test_one_record_in_full_tells_its_parts_of_both_arms_and_what_was_done_otherwise() -> None:
    run = llama()
    head = replace(run.records[1], effective={"prompt": 64, "batch": 2}, requested={"seed": 0})
    shown = record_detail(head, run_of([run.records[0], head], run.pairs[:1])).plain
    weighed = shown[shown.index("weighed against") :]
    told = [line.strip() for line in weighed.split("\n") if line.strip().startswith(("TTFT", "ITL", "TPOT"))]
    assert told == [
        "TTFT ≈ within 2 % [-0.4, 1.2] · 7.20 ± 0.10 ms → 7.20 ± 0.10 ms",
        "ITL ▲ 26.1 % faster [25.1, 27.1] · 2.300 ± 0.020 ms → 1.700 ± 0.020 ms",
        "TPOT ▲ 26.1 % faster [25.1, 27.1] · 2.300 ± 0.020 ms → 1.700 ± 0.020 ms",
    ]
    assert "tokens per second" in shown and "tok/s" in shown and "item/s" not in shown
    settings = shown[shown.index("requested and effective") :]
    assert "1 → 2" in settings and "prompt  64\n" in settings


def test_what_is_a_time_and_what_only_adds_to_it() -> None:
    assert all(map(is_time, ("time", "host_time", "ttft", "itl", "tpot", "itl_p90", "ttft_last")))
    assert not any(map(is_time, ("itl_compute", "ttft_bandwidth", "itl_roof", "sqnr", "title")))
    assert not any(map(is_secondary, ("time", "ttft", "itl", "item_rate", "peak_memory", "title_page")))
    assert all(map(is_secondary, ("tpot", "itl_p90", "ttft_bandwidth", "equal_tokens", "tail_p50")))


def test_each_metric_of_a_suite_is_told_from_chance_by_itself() -> None:
    item = llama().pairs[0]
    doubtful = replace(item, p=0.008)
    many = [weigh(doubtful), *(replace(weigh_part(item, "itl"), p=0.5) for _ in range(9))]
    assert told_from_chance(many)[0].verdict == "faster"
    assert {delta.verdict for delta in told_from_chance(many)[1:]} == {"unclear"}


def test_the_pairs_of_a_run_are_compared_by_their_parts_and_by_those_alone_that_are_asked_for() -> None:
    side = RunsSide("k3f9", (llama(),))
    found = own_pairs(side)
    assert [(delta.metric, delta.verdict) for delta in found.deltas] == [
        ("time", "faster"), ("time", "faster"), ("ttft", "same"), ("ttft", "same"), ("itl", "faster"), ("itl", "faster"),
    ]  # fmt: skip
    assert found.figures["itl"][found.deltas[4].head] == (ms(2.3, 0.02), ms(1.7, 0.02)) and found.means["ttft"].n == 2
    assert {delta.metric for delta in own_pairs(side, metrics=("tpot",)).deltas} == {"tpot"}
    assert usual_metrics(side.runs) == ("time", "ttft", "itl") and usual_metrics([softmax()]) == ("time",)


def test_parts_of_a_broken_arm_have_no_verdict() -> None:
    run = llama()
    rows = [run.records[0], replace(run.records[1], status="wrong"), *run.records[2:]]
    found = own_pairs(RunsSide("k3f9", (run_of(rows, run.pairs),)))
    assert [(delta.metric, delta.verdict) for delta in found.deltas if delta.head == rows[1].id] == [("time", "failed")]


def test_a_gate_judges_the_parts_that_its_policy_names() -> None:
    run = llama()
    slower = {"ttft": PairPart(1.2, 1.15, 1.25, 1e-9, ms(7.2, 0.1), ms(8.6, 0.1))}
    side = RunsSide("k3f9", (run_of(run.records, [replace(item, parts=slower) for item in run.pairs]),))
    assert gate(side, side, Policy()).outcome == "pass"
    judged = gate(side, side, Policy(margins={"ttft": 0.05}))
    assert judged.outcome == "regression" and [item.metric for item in judged.of("regression")] == ["ttft", "ttft"]
    assert not any("only time" in note for note in judged.notes)


def test_files_of_a_run_hold_the_parts_and_their_verdicts(requests: Store) -> None:
    whole = document([requests.open("latest")])
    rows = list(csv.DictReader(io.StringIO(cases_csv(whole))))
    compiled = rows[1]
    assert (float(compiled["ttft (s)"]), float(compiled["itl (s)"])) == pytest.approx((0.12, 0.101))
    assert compiled["ttft verdict"] == "faster" and float(compiled["itl ratio"]) == pytest.approx(0.8) and rows[0]["against"] == ""
    assert float(compiled["item_rate (tok/s)"]) == pytest.approx(8 / 0.928, rel=1e-4)
    text = markdown_report(whole)
    assert "time: 4 faster · ttft: 4 faster · itl: 4 faster" in text and "| TTFT, 95 % | ITL, 95 % | tokens per second |" in text
    assert "TTFT: 4 faster" in whole["banner"]["text"]


def test_compare_shows_and_gives_the_parts_of_a_real_run(requests: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "latest", "--store", str(requests.root)]) == 0
    shown = capsys.readouterr().out.split("\n")
    assert [line for line in shown if line in ("time", "ttft", "itl")] == ["time", "ttft", "itl"]
    assert main(["compare", "latest", "--metric", "itl", "--json", "--store", str(requests.root)]) == 0
    deltas = json.loads(capsys.readouterr().out)["deltas"]
    assert {delta["metric"] for delta in deltas} == {"itl"} and deltas[0]["effect"].startswith("20.00")
    assert main(["compare", "latest", "--metric", "peak_memory", "--store", str(requests.root)]) == 2
    assert "itl, time, tpot, ttft" in capsys.readouterr().err


def test_two_runs_made_apart_are_compared_by_their_parts(requests: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = requests.open("latest")
    for hour, factor in enumerate((1.0, 3.0)):
        with store.create(replace(first.header, id="", created=f"2026-01-02T0{hour}:00:00Z")) as writer:
            for place, item in enumerate(first.records):
                slow = item.metrics["ttft"]
                figure = replace(slow, value=slow.value * (factor if place == 1 else 1), low=None, high=None)
                writer.append(replace(item, metrics={**item.metrics, "ttft": figure}, samples=[]))
            writer.seal()
    assert main(["compare", "latest~1", "latest", "--json", "--store", str(store.root)]) == 0
    deltas = json.loads(capsys.readouterr().out)["deltas"]
    found = {delta["metric"]: delta for delta in deltas if delta["head"] == first.records[1].id}
    assert set(found) == {"time", "ttft", "itl"} and found["ttft"]["ratio"] == pytest.approx(3.0) and found["itl"]["ratio"] == 1
    assert found["ttft"]["verdict"] == "slower" and "slower" in found["ttft"]["effect"] and found["itl"]["verdict"] != "slower"
