"""The pages of one record and of one workload."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.cells import cell_len

from steelyard.model.record import Attachment, Figure, Series, Verification
from steelyard.report.describe import workload_detail
from steelyard.report.detail import record_detail
from steelyard.report.text import run_table
from steelyard.store.runs import Run
from tests.report.made import HEADER, figures, mixed, pair, record, run_of


def full() -> Run:
    metrics = figures(9.87e-6, 0.05e-6, build_time=Figure(1.25, "s"), first_call_time=Figure(0.0316, "s"), overhead=Figure(3e-8, "s"))
    base = record("op/a[n=8]@torch/eager:eval", figures(11.42e-6, 0.06e-6))
    head = record(
        "op/a[n=8]@torch/compile:eval", metrics, source={"workload": "89159a5de646"}, requested={"threads": 4, "precision": 0.01},
        verification=Verification("passed", "torch eager", "", 8.1e-9, 2.9e-7, 1e-4, 1e-5),
        attachments=[Attachment("trace", "attachments/t.json", "ab" * 32)], samples=[Series("block_time", "s", "<f8", 480, 0)],
    )  # fmt: skip
    head.effective.update(
        calls_per_block=16, blocks=480, stopped_by="precision", warmup="flat", warmup_blocks=40, warmup_time=0.0046, threads=2
    )
    return run_of([base, head], [pair(base, head, 0.862, 0.007)])


def test_everything_of_a_record_is_on_its_page() -> None:
    run = full()
    shown = " ".join(record_detail(run.records[1], run).plain.split())
    for part in (
        "✓ ok", "k3f9/2", "9.87 ± 0.05 µs", "1.25 s", "31.6 ms", "40 blocks, 4.60 ms, until flat",
        "480 blocks of 16 calls, until precision, noise A", "▲ 13.8 % faster [13.1, 14.5]", "8 rebuilds", "✓ passed", "torch eager",
        "absolute 8.1e-09, relative 2.9e-07", "rtol 0.0001, atol 1e-05", "4 → 2", "89159a5de646", "2.13.0",
        "attachments/t.json sha256 abababababab", "480 × <f8 in s", "steelyard run 'op/a[n=8]@torch/compile:eval:device=cuda'",
    ):  # fmt: skip
        assert part in shown, part


def test_a_pair_is_judged_as_in_the_table_of_its_run() -> None:
    records = [record(f"op/a[n={n}]@torch/{variant}:eval", figures(1e-5, 1e-8)) for n in range(4) for variant in ("eager", "compile")]
    pairs = [replace(pair(*records[2 * n : 2 * n + 2], 1.03, 0.005), p=0.006 if n == 0 else 0.5) for n in range(4)]
    page = record_detail(records[1], run_of(records, pairs)).plain
    assert "? unclear" in page and "can be chance" in " ".join(page.split()) and "▼" not in page
    assert "? unclear" in run_table(HEADER, records, pairs).plain.splitlines()[4]
    assert "▼" in record_detail(records[1], run_of(records, pairs[:1])).plain


def test_an_unbounded_interval_is_called_so_and_a_broken_arm_has_no_speedup() -> None:
    run = full()
    wide = replace(run.pairs[0], low=math.exp(-50), high=math.exp(50))
    shown = record_detail(run.records[1], run_of(run.records, [wide])).plain
    assert "? unclear" in shown and "its interval is unbounded" in shown and "8 rebuilds" in shown and "e+21" not in shown
    assert "its interval is unbounded" in record_detail(run.records[1], run_of(run.records, [replace(wide, low=0.0, high=math.inf)])).plain
    wrong = [replace(run.records[0], status="wrong"), run.records[1]]
    assert "✗ failed" in record_detail(wrong[1], run_of(wrong, run.pairs)).plain


@pytest.mark.parametrize("width", [40, 60, 100])
def test_pages_fit_their_width(width: int) -> None:
    for run in (full(), mixed()):
        for item in run.records:
            assert max(map(cell_len, record_detail(item, run, width=width).plain.split("\n"))) <= width


def test_a_failure_shows_its_reason_and_traceback_with_indents() -> None:
    item = record("op/a@torch/eager:eval", None, "failed", "ValueError: no")
    item.effective["traceback"] = "Traceback:\n  File x\n    boom()"
    shown = record_detail(item, run_of([item])).plain
    assert "reason\n  ValueError: no" in shown and "  Traceback:\n    File x\n      boom()" in shown and "not verified" in shown


def test_a_workload_tells_axes_sizes_and_a_command() -> None:
    info = {
        "name": "op/a",
        "origin": "built-in",
        "doc": "Does a.",
        "axes": {"n": [8, 16], "dtype": ["fp32"]},
        "sizes": {"big": {"n": 4096}},
    }
    shown = workload_detail({**info, "backends": ["torch"], "variants": {"fused": {}}, "tags": ["smoke"]}, ["compile"]).plain
    for part in ("Does a.", "n      8 16", "big  n=4096", "eager, fused, compile", "steelyard run op/a -a n=16 -V eager,fused --vs eager"):
        assert part in shown
    assert "from" not in workload_detail({"name": "op/b", "origin": "package x", "doc": ""}).plain
