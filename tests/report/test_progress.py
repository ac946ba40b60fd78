"""Progress: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest

from steelyard.report.progress import ERASE, Progress
from tests.report.made import figures, record

CASE = "op/softmax[m=4096,n=1024,dtype=bf16]@torch/eager:eval"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def drawn(self) -> list[str]:
        return self.getvalue().split(ERASE)[1:]


@dataclass
class Hands:
    """A clock that is moved by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


def test_the_live_line_tells_case_phase_and_time_left() -> None:
    terminal, clock = Terminal(), Hands()
    progress = Progress(12, terminal, clock=clock)
    for _ in range(2):
        progress.started(CASE)
        clock.now += 2.0
        progress.finished(record(CASE, figures(1e-3, 1e-5)))
    progress.started(CASE)
    progress.phase("sampling", 0.4)
    assert terminal.drawn[-1] == "[3/12] op/softmax m=4096 n=1024 bf16 eager · sampling 40 % · about 20 s left"
    progress.close()
    assert terminal.drawn[-1] == "" and "\n" not in terminal.getvalue()


def test_the_line_is_cut_at_the_case_and_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    terminal = Terminal()
    progress = Progress(12, terminal, clock=Hands())
    progress.started(f"op/{'x' * 90}@torch/eager:eval")
    progress.phase("sampling", 0.5)
    assert all(len(line) < 50 for line in terminal.drawn)
    assert terminal.drawn[-1].endswith("… · sampling 50 %")


def test_drawing_is_rare_within_a_phase() -> None:
    terminal, clock = Terminal(), Hands()
    progress = Progress(1, terminal, clock=clock)
    for step in range(100):
        progress.phase("sampling", step / 100)
    assert len(terminal.drawn) == 1
    clock.now = 1.0
    progress.phase("sampling", 1.0)
    assert len(terminal.drawn) == 2


@pytest.mark.parametrize("variable", ["pipe", "CI", "TERM"])
def test_anywhere_else_one_line_per_finished_case(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO() if variable == "pipe" else Terminal()
    monkeypatch.setenv(variable, "dumb" if variable == "TERM" else "true")
    progress = Progress(1, stream)
    progress.waiting("another run holds the CPU")
    progress.started(CASE)
    progress.phase("sampling", 0.4)
    progress.finished(record(CASE, figures(1e-3, 1e-5), device="cpu"))
    progress.close()
    first, second = stream.getvalue().splitlines()
    assert first == "another run holds the CPU"
    assert second.startswith("[1/1] ✓ ok  op/softmax[") and "1.000 ± 0.010 ms" in second


def test_a_note_stays_above_the_live_line() -> None:
    terminal = Terminal()
    progress = Progress(1, terminal, clock=Hands())
    progress.started(CASE)
    progress.note("warning: clocks moved")
    assert terminal.getvalue().endswith(f"{ERASE}warning: clocks moved\n")


def test_a_phase_cannot_steer_the_terminal() -> None:
    terminal = Terminal()
    progress = Progress(1, terminal, clock=Hands())
    progress.started(CASE)
    progress.phase("warm\x1b[2J\rup\x9b", 0.5)
    assert terminal.drawn[-1].endswith("· warm up 50 %")


def test_a_stream_that_fails_is_left_alone() -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    progress = Progress(1, Full())
    progress.started(CASE)
    progress.finished(record(CASE, figures(1e-3, 1e-5)))
    assert progress.done == 1
