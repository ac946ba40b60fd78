"""Programs behind `--`: names, preparations, and scans, as users of hyperfine know them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze.foreign import read_file
from steelyard.engine import commands
from steelyard.engine.selection import Request
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.programs import filled, preparation, words_of
from steelyard.report.cells import brief
from steelyard.store.runs import read_run
from tests.engine.drive import run_json, steelyard

TWO = (("./old", "{n}"), ("./new", "{n}", "--fast"))


def params(case: Case) -> dict[str, Any]:
    return dict(case.params)


class TestCases:
    def test_an_axis_is_filled_into_the_words_that_name_it(self) -> None:
        found = commands.cases(Request(commands=(("sleep", "{n}", "{m}", "{}"),), axes={"n": (1, 0.5)}))
        assert [words_of(params(case)) for case in found] == [["sleep", "1", "{m}", "{}"], ["sleep", "0.5", "{m}", "{}"]]
        assert [params(case)["n"] for case in found] == [1, 0.5]

    def test_a_program_that_does_not_mention_an_axis_is_one_case(self) -> None:
        found = commands.cases(Request(commands=(*TWO, ("true",)), axes={"n": (1, 2), "k": (1, 2, 3)}))
        assert [words_of(params(case)) for case in found[-1:]] == [["true"]]
        assert len(found) == 5

    def test_several_axes_are_multiplied_and_those_named_together_go_together(self) -> None:
        request = Request(commands=(("p", "{a}", "{b}", "{c}"),), axes={"a": (1, 2), "b,c": (3, 4)})
        assert [words_of(params(case))[1:] for case in commands.cases(request)] == [
            ["1", "3", "3"], ["1", "4", "4"], ["2", "3", "3"], ["2", "4", "4"],
        ]  # fmt: skip

    def test_a_preparation_has_the_values_too(self) -> None:
        (case,) = commands.cases(Request(commands=(("p", "{n}"),), axes={"n": (7,)}, prepare=("rm -f cache-{n} {x}",)))
        assert preparation(params(case)) == "rm -f cache-7 {x}"

    def test_one_preparation_is_for_all_and_several_for_each(self) -> None:
        shared = commands.cases(Request(commands=(("a",), ("b",)), prepare=("sync",)))
        each = commands.cases(Request(commands=(("a",), ("b",)), prepare=("sync", "")))
        assert [preparation(params(case)) for case in shared] == ["sync", "sync"]
        assert ["prepare" in params(case) for case in each] == [True, False]

    def test_a_name_is_part_of_the_case_and_shown_in_its_place(self) -> None:
        request = Request(commands=TWO, axes={"n": (1, 2)}, names=("old", "new {n}"))
        assert [brief(case.id) for case in commands.cases(request)] == ["old n=1", "old n=2", "new 1", "new 2"]
        assert brief(commands.cases(Request(commands=TWO[:1], axes={"n": (1,)}))[0].id) == "./old 1"

    def test_what_is_filled_in_is_not_filled_in_again(self) -> None:
        assert filled("{a}", {"a": "{b}", "b": 1}) == "{b}"


class TestBases:
    def test_several_programs_are_compared_at_the_same_values(self) -> None:
        found = commands.bases(Request(commands=TWO, axes={"n": (1, 2)}))
        old1, old2, new1, new2 = commands.cases(Request(commands=TWO, axes={"n": (1, 2)}))
        assert found == {old1: old1, old2: old2, new1: old1, new2: old2}

    def test_a_scan_of_one_program_is_compared_with_its_first_values(self) -> None:
        request = Request(commands=TWO[:1], axes={"n": (1, 2, 3)})
        first, *rest = commands.cases(request)
        assert commands.bases(request) == dict.fromkeys((first, *rest), first)

    def test_one_program_is_compared_with_nothing(self) -> None:
        assert commands.bases(Request(commands=TWO[:1], axes={"n": (1,)})) is None
        assert commands.bases(Request()) is None


class TestMistakes:
    @pytest.mark.parametrize(
        ("request_", "words"),
        [
            (Request(names=("a",)), "none is given"),
            (Request(prepare=("a",)), "none is given"),
            (Request(commands=TWO, names=("a",)), "does not fit the programs"),
            (Request(commands=(("a",),), prepare=("b", "c")), "does not fit the programs"),
        ],
    )
    def test_names_and_preparations_that_fit_no_program(self, request_: Request, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            commands.cases(request_)

    def test_an_axis_that_stands_nowhere_would_change_nothing(self) -> None:
        with pytest.raises(UsageError, match="no program uses axis m"):
            commands.check_axes(Request(commands=TWO, axes={"n": (1,), "m": (2,)}))

    def test_an_axis_cannot_have_a_name_of_our_own(self) -> None:
        with pytest.raises(UsageError, match="cannot be called name"):
            commands.check_axes(Request(commands=(("p", "{name}"),), axes={"name": (1,)}))


def test_a_scan_runs_prepared_before_every_run_and_is_written_for_hyperfine(tmp_path: Path) -> None:
    """Every run finds what its preparation made and takes it away: a run that was not prepared would fail."""
    made = run_json(
        "--runs", "3", "--warmup", "3", "-a", "n=1,2", "--prepare", "touch made-{n}", "-n", "takes {n}", "--settle", "0",
        "--budget", "50ms", "--", "sh", "-c", "rm made-{n}", cwd=tmp_path,
    )  # fmt: skip
    records = made["records"]
    assert [record["status"] for record in records] == ["ok", "ok"]
    assert [(record["effective"]["warmup_blocks"], record["effective"]["warmup"]) for record in records] == [(2, "runs")] * 2
    assert [pair["head"]["id"] for pair in made["pairs"]] == [records[1]["id"]]
    steelyard("export", made["run"], "--to", "hyperfine", "-o", "out.json", cwd=tmp_path)
    written = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [(item["command"], item["parameters"], set(item["exit_codes"])) for item in written] == [
        ("takes 1", {"n": "1"}, {0}), ("takes 2", {"n": "2"}, {0}),
    ]  # fmt: skip
    run = read_run(tmp_path / made["path"])
    for item, record in zip(written, run.records, strict=True):
        assert len(item["exit_codes"]) == len(item["times"]) == record.metrics["time"].n
        assert item["min"] <= item["median"] <= item["max"]
        assert item["median"] == pytest.approx(record.metrics["time"].value)
    (back,) = read_file(tmp_path / "out.json")
    assert [record.metrics["time"].value for record in back.records] == pytest.approx([item["median"] for item in written])


def test_a_preparation_that_fails_ends_the_case(tmp_path: Path) -> None:
    made = run_json("--runs", "2", "--prepare", "echo gone >&2; exit 4", "--", "true", cwd=tmp_path, check=3)
    (record,) = made["records"]
    assert record["status"] == "failed"
    assert "the preparation 'echo gone >&2; exit 4' exited with 4" in record["reason"]
    told = steelyard("export", made["run"], "--to", "hyperfine", cwd=tmp_path, check=2).stderr
    assert "nothing that hyperfine's format can hold" in told
