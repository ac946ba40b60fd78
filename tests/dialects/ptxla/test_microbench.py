"""The original's A/B micro-benchmark: its line, colours, folders and arguments, and the verdict beside them."""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard.dialects.ptxla.microbench import GREEN, RED, RESET, Result, Side, compare, do_bench, microbench
from steelyard.errors import UsageError
from steelyard.measuring.clock import HostTimer

QUICK: dict[str, Any] = {"warmup": 0, "rep": 1, "show": False}
FASTER = Result("mm", 1.234, 2.468, 2.0)


def short() -> int:
    return sum(range(2000))


def long() -> int:
    for _ in range(4):
        found = sum(range(2000))
    return found


def wrong() -> int:
    return sum(range(2001))


def fixed(milliseconds: float) -> Callable[[Callable[[], Any]], tuple[float, Any]]:
    """A benchmark that knows its answer."""
    return lambda fn: (milliseconds, fn())


class TestLine:
    def test_it_is_the_originals(self) -> None:
        assert FASTER.line() == "mm: speedup=1.23x; base=2.47ms; test=2.00ms"
        painted = f"{GREEN}mm{RESET}: speedup={GREEN}1.23x{RESET}; base={GREEN}2.47ms{RESET}; test={GREEN}2.00ms{RESET}"
        assert FASTER.line(coloured=True) == painted

    @pytest.mark.parametrize(
        ("speedup", "verdict", "colour"),
        [
            (1.05, "", ""), (1.051, "", GREEN), (0.95, "", ""), (0.949, "", RED),
            (2.0, "faster", GREEN), (0.5, "slower", RED),
            (2.0, "unclear", ""), (2.0, "slower", ""), (0.5, "same", ""), (0.5, "failed", ""), (1.0, "faster", ""),
        ],
    )  # fmt: skip
    def test_a_colour_needs_the_originals_bounds_and_a_verdict_that_agrees(self, speedup: float, verdict: str, colour: str) -> None:
        assert replace(FASTER, testing_speedup=speedup, verdict=verdict).colour == colour

    def test_what_we_add_stands_below(self) -> None:
        result = replace(FASTER, verdict="faster", said="test is faster\n  8 rebuilds", profiles=("out/mm/baseline",))
        assert str(result).splitlines() == [FASTER.line(), "  test is faster", "  8 rebuilds", "  profile: out/mm/baseline"]
        assert json.loads(json.dumps(result.plain()))["profiles"] == ["out/mm/baseline"]


WAITS: list[str] = []
"""Not held by the functions themselves, whose own things are copied for every rebuild."""


class TestBench:
    def test_it_answers_a_time_and_an_output_with_the_originals_order_of_arguments(self) -> None:
        milliseconds, output = do_bench(short, 0, 1, None, None, True, None, None, "median")
        assert milliseconds > 0
        assert output == short()

    def test_the_output_is_that_of_a_call_without_gradients_left_over(self) -> None:
        weight = SimpleNamespace(grad=5.0)

        def backward() -> float:
            weight.grad = (weight.grad or 0.0) + 1.0
            return weight.grad

        assert do_bench(backward, 0, 1, grad_to_none=[weight])[1] == 1.0

    def test_quantiles_come_alone(self) -> None:
        low, high = do_bench(short, 0, 1, quantiles=[0.1, 0.9])
        assert 0 < low <= high
        assert do_bench(short, 0, 1, quantiles=[0.5]) > 0


class TestCompare:
    def test_the_figures_come_from_each_sides_bench_and_the_verdict_from_the_pair(self) -> None:
        """Figures that say the opposite of the truth: the verdict does not believe them, and so nothing is green."""
        WAITS.clear()
        result = microbench("sums", short, long, fixed(3.0), fixed(2.0), lambda: WAITS.append("base"), lambda: WAITS.append("test"))
        assert result.line() == "sums: speedup=1.50x; base=3.00ms; test=2.00ms"
        assert (result.testing_speedup, result.baseline_wall_ms, result.testing_wall_ms) == (1.5, 3.0, 2.0)
        assert set(WAITS) == {"base", "test"}
        assert result.verdict != "faster"
        assert result.colour == ""

    def test_four_times_the_work_is_slower(self) -> None:
        result = compare(short, long, "sums", budget=0.15, **QUICK)
        assert result.testing_speedup < 0.5
        assert (result.verdict, result.colour) == ("slower", RED)
        assert result.delta is not None
        assert result.plain()["paired"]["ratio"] > 2

    def test_wrong_answers_are_no_speedup(self) -> None:
        assert compare(short, wrong, "sums", budget=0.05, **QUICK).verdict == "failed"
        assert compare(short, wrong, "sums", budget=0.05, verify=False, **QUICK).verdict != "failed"
        told = compare(short, short, "sums", budget=0.05, verify=lambda base, test: "by a hair", **QUICK)
        assert told.verdict == "failed"
        assert "the answers differ: by a hair" in told.said

    def test_it_prints_the_line_alone_where_no_verdict_is_wanted(self, capsys: pytest.CaptureFixture[str]) -> None:
        side = Side(short, bench=fixed(2.0))
        compare(side, side, "sums", weigh=False)
        assert capsys.readouterr().out == "sums: speedup=1.00x; base=2.00ms; test=2.00ms\n"

    def test_times_below_a_clocks_reach_are_no_division_by_zero(self) -> None:
        side = Side(short, bench=fixed(0.0))
        assert compare(side, side, "nothing", weigh=False, show=False).testing_speedup == 1.0

    @pytest.mark.parametrize("name", ["", "a\x1b[2Jb", "a\nb"])
    def test_a_name_cannot_steer_a_terminal(self, name: str) -> None:
        with pytest.raises(UsageError, match="not a name"):
            compare(short, short, name)

    @pytest.mark.parametrize("name", ["..", "../up", "a/b", "x" * 300])
    def test_a_name_is_one_folder(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="profiles cannot be saved"):
            compare(short, short, name, save_profile_to_dir=tmp_path)

    def test_one_figure_is_made_of_a_side(self) -> None:
        with pytest.raises(UsageError, match="one figure"):
            compare(short, short, "sums", return_mode="all")


class Runtime:
    """Work that another thread does while the caller waits for it."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.queue = seconds, queue.Queue[None]()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            self.queue.get()
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
            self.queue.task_done()


RUNTIMES = {name: Runtime(seconds) for name, seconds in (("short", 2e-4), ("long", 8e-4))}


def test_threads_that_are_waited_for_are_no_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime's threads push the one that waits off the CPU by design: blocks would all be disturbed, and there would be no verdict."""
    switches = itertools.count()
    monkeypatch.setattr(HostTimer, "disturbances", lambda timer: next(switches))
    base, test = (
        Side(lambda name=name: RUNTIMES[name].queue.put(None), sync_fn=lambda name=name: RUNTIMES[name].queue.join()) for name in RUNTIMES
    )
    delta: Any = compare(base, test, "threads", budget=0.15, verify=False, **QUICK).delta
    assert (delta.disturbed, delta.pair.discarded, delta.pair.clock) == (False, {"base": 0.0, "head": 0.0}, "wall")
    other: Any = compare(short, lambda: short(), "sums", budget=0.05, **QUICK).delta
    assert other.disturbed and other.verdict == "unclear", "the same count of switches does disturb what nobody waits for"


@pytest.mark.torch
class TestProfiles:
    def test_a_slowdown_leaves_both_sides_in_the_originals_folders(self, tmp_path: Path) -> None:
        import torch

        x = torch.ones(8, 8)
        base, test = Side(lambda: x @ x, bench=fixed(1.0)), Side(lambda: x @ x @ x, bench=fixed(2.0))
        result = compare(base, test, "mm", weigh=False, show=False, save_profile_to_dir=tmp_path)
        folders = [tmp_path / "mm" / side for side in ("baseline", "testing")]
        assert result.profiles == tuple(map(str, folders))
        for folder, calls in zip(folders, (3, 6), strict=True):
            assert {file.name for file in folder.iterdir()} == {"flame.txt", "trace.json", "kernel.txt"}
            assert (folder / "flame.txt").read_text()
            events = json.loads((folder / "trace.json").read_text())["traceEvents"]
            assert sum(event.get("name") == "aten::mm" for event in events) == calls
            assert "aten::mm" in (folder / "kernel.txt").read_text()

    def test_no_slowdown_leaves_nothing(self, tmp_path: Path) -> None:
        side = Side(short, bench=fixed(1.0))
        compare(side, replace(side, bench=fixed(1.05)), "sums", weigh=False, show=False, save_profile_to_dir=tmp_path)
        assert list(tmp_path.iterdir()) == []
