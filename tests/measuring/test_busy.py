"""How long a device works during a call: kernels that run at once count once, and what is no kernel not at all."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from steelyard.measuring.busy import covered, figures, work_in


def test_the_time_of_kernels_and_of_gaps_is_that_of_one_call(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    events = [
        {"cat": "kernel", "ts": 0, "dur": 10}, {"cat": "kernel", "ts": 5, "dur": 10}, {"cat": "gpu_memcpy", "ts": 30, "dur": 5},
        {"cat": "gpu_user_annotation", "ts": 0, "dur": 500}, {"cat": "cpu_op", "ts": 0, "dur": 500}, {"cat": "kernel", "ts": 3},
    ]  # fmt: skip
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    work = work_in(path)
    assert work is not None
    assert (work.kernels, work.busy) == (pytest.approx(25e-6), pytest.approx(20e-6))
    found = figures(work, 2, 40e-6)
    assert found["kernel_time"].value == pytest.approx(12.5e-6) and found["gap"].value == pytest.approx(0.75)
    assert figures(work, 2, 5e-6)["gap"].value == 0


def test_a_trace_without_a_device_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{"cat": "cpu_op", "ts": 0, "dur": 5}]}))
    assert work_in(path) is None


def test_spans_that_hold_others_count_once() -> None:
    assert covered([(0, 10), (2, 3), (9, 12), (20, 21)]) == 13
