"""`steelyard as ptxla aggregate` and `analyze` as users type them: the original's flags, its output, its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.cli.main import main
from tests.dialects.ptxla.stored import DAYS, INDUCTOR, LAZY, OPENXLA, SECOND, steady, stored, write


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rows = [stored("m", INDUCTOR, steady(2.0)), stored("m", OPENXLA, steady(1.0)), stored("n", INDUCTOR, None), "\n"]
    write(tmp_path / "r.jsonl", [*rows, stored("m", LAZY, steady(4.0), when=SECOND), '{"model'])
    return "r.jsonl"


def aggregate(*words: str) -> int:
    return main(["as", "ptxla", "aggregate", *words])


def test_data_to_stdout_and_counts_to_stderr(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert aggregate(file) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[1:] == [f"{DAYS[0]},1.0,0.0,2.0,0.0"]
    assert err.splitlines() == [
        "warning: left out: metrics.total_time is null: 1 row, first r.jsonl:3",
        "warning: left out: a blank line: 1 row, first r.jsonl:4",
        "warning: left out: cut short, as a killed run leaves it: 1 row, first r.jsonl:6",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--backends", "openxla+lazytensor", "inductor", "--", "r.jsonl"),
        ("--backends", "openxla+lazytensor", "inductor", "r.jsonl"),
        ("--backends", "openxla+lazytensor", "inductor", "--report=speedup", "r.jsonl"),
        ("r.jsonl", "--backends", "openxla+lazytensor", "--backends", "inductor"),
        ("r.jsonl", "--backends=openxla+lazytensor", "--backends=inductor"),
    ],
)
def test_a_list_of_backends_ends_where_the_original_ends_it_or_at_a_file(
    file: str, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert aggregate(*words) == 0
    head = "# Datetime(UTC),Speedup(XLA+LazyTensor/Oldest XLA+LazyTensor),StdDev,Speedup(Inductor/Oldest XLA+LazyTensor),StdDev"
    assert capfd.readouterr().out.splitlines() == [head, f"{DAYS[0]},,,2.0,0.0", f"{DAYS[1]},1.0,0.0,,"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--accelerator=h200", "r.jsonl"), 1, "no results found"),
        (("--accelerator=h200", "--strict-exit", "r.jsonl"), 5, "no results found"),
        (("--baseline=latest", "r.jsonl"), 1, "no inductor results in the latest timestamp"),
        (("--report=latest", "--backends", "eager", "--", "r.jsonl"), 0, "cannot find data for accelerator v100"),
        (("--backends", "inductr", "--", "r.jsonl"), 2, "did you mean inductor"),
        (("--backends", "inductor", "r.jsnl"), 2, "no backend named 'r.jsnl'"),
        (("r.jsonl", "--backends"), 2, "--backends needs a name"),
        (("absent.jsonl",), 2, "no such file"),
        (("--filter-by-tier=7", "r.jsonl"), 2, "no tier named '7'"),
        (("-k", "(", "r.jsonl"), 2, "not a regular expression"),
        (("--format=pdf", "r.jsonl"), 2, "pdf"),
        ((), 2, "FILE"),
    ],
)
def test_exit_codes(file: str, words: tuple[str, ...], code: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert aggregate(*words) == code
    out, err = capfd.readouterr()
    assert out == "" and said in err


def test_charts_go_to_a_file_or_a_pipe(file: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert aggregate("--format=png", "--fig-width=3", "--fig-height=2", "--title=t", file) == 0
    assert capfdbinary.readouterr().out.startswith(b"\x89PNG")
    assert aggregate("--format=ascii", "-o", "chart.txt", file) == 0
    assert capfdbinary.readouterr().out == b"" and "A Inductor" in (tmp_path / "chart.txt").read_text()
    assert aggregate("-o", "no/where.csv", file) == 2


def test_analyze_makes_a_report_and_its_default_database(file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["as", "ptxla", "analyze", "--output-dirname=.", "--log-level=info"]) == 0
    out, err = capfd.readouterr()
    assert out == "" and "4 rows of 1 files · saved metric_report.csv" in err and "cut short" in err
    assert (tmp_path / "output" / "database.csv").read_text() == (tmp_path / "metric_report.csv").read_text()
    assert main(["as", "ptxla", "analyze", "--output-dirname=.", "--output-format=jsonl", "--hide-errors", "--timestamp=3"]) == 0
    assert capfd.readouterr().out == f"Saving report to: {tmp_path.resolve() / 'metric_report.jsonl'}\n"
    assert main(["as", "ptxla", "analyze"]) == 2, "./output has a database and no rows"


def test_a_wrong_program_is_told_the_right_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["as", "ptxla", "agregate"]) == 2
    assert "did you mean aggregate" in capfd.readouterr().err
    assert main(["as", "ptxla"]) == 2
    assert main(["as", "ptxla", "aggregate", "--help"]) == 0
