"""Lines that are gone from a run's file are told by every command, and a gate does not pass over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.store.runs import Header, Run, Store, read_run
from tests.analyze.saved import case, pair, record

CASES = [case(f"x{number}") for number in range(12)]
Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*words: str) -> tuple[int, str]:
        code = main([*words, "--store", str(tmp_path / "store")])
        found = capsys.readouterr()
        return code, found.out + found.err

    return run


def made(folder: Path, pairs: bool = False) -> Run:
    with Store(folder / "store").create(Header(machine_key="m" * 12, cases=CASES)) as writer:
        for number, id in enumerate(CASES):
            writer.append(record(id, 1e-3 * (1 + number)))
        for id in CASES[1:] if pairs else ():
            writer.append_pair(pair(CASES[0], id, 1.0, 0.005))
        writer.seal()
    return read_run(writer.path)


def drop(run: Run, kind: str, count: int) -> None:
    """Delete the last lines of a kind."""
    file = run.path / "run.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    gone = [place for place, line in enumerate(lines) if line.startswith(f'{{"{kind}"'.encode())][-count:]
    file.write_bytes(b"".join(line for place, line in enumerate(lines) if place not in gone))


def test_every_command_tells_lost_records(tmp_path: Path, said: Said) -> None:
    base, head = made(tmp_path), made(tmp_path)
    drop(head, "record", 2)
    for words in (["show", head.id], ["list", "runs"], ["compare", base.id, head.id], ["gate", base.id, head.id]):
        told = " ".join(said(*words)[1].split())
        assert "2 of 12 records are missing from this file" in told, words


@pytest.mark.parametrize("side", [0, 1, None])
def test_a_gate_counts_lost_cases_as_missing_whichever_side_lost_them(tmp_path: Path, said: Said, side: int | None) -> None:
    runs = made(tmp_path), made(tmp_path)
    assert said("gate", runs[0].id, runs[1].id)[0] == 0
    for run in runs if side is None else (runs[side],):
        drop(run, "record", 2)
    code, told = said("gate", runs[0].id, runs[1].id)
    assert code == 3 and "2 missing" in told and CASES[-1] in told
    (tmp_path / "gate.toml").write_text('missing = "warn"\n', encoding="utf-8")
    assert said("gate", runs[0].id, runs[1].id, "--policy", str(tmp_path / "gate.toml"))[0] == 0


@pytest.mark.parametrize("kind", ["record", "pair"])
def test_a_gate_of_one_run_counts_its_lost_comparisons(tmp_path: Path, said: Said, kind: str) -> None:
    run = made(tmp_path, pairs=True)
    assert said("gate", run.id)[0] == 0
    drop(run, kind, 1)
    code, told = said("gate", run.id)
    assert code == 3 and "missing" in told and CASES[-1] in told
