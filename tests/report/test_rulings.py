"""Rulings in words, as Markdown, CSV and other systems' results, whatever candidates call themselves and raise."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import jsonschema
import pytest

from steelyard import codec
from steelyard.engine.referee.formats import FORMATS
from steelyard.errors import StoreError
from steelyard.model.judging import Ruling, Trick
from steelyard.model.pair import Arm, Pair, weigh
from steelyard.model.record import Figure, Verification
from steelyard.report.rulings import headline, row, ruling_page, ruling_table, rulings_csv, rulings_markdown, summary

PAIR = Pair(Arm("r", time=Figure(2e-5, "s", n=60)), Arm("c", time=Figure(1e-5, "s", n=60)), 0.5, 0.48, 0.52, 0.99, 3, 18, 0, (1, 1))
RIGHT = Ruling(
    "problem", "fast", "ok", "", Verification("passed", "fp64", figures={"error": 1e-7}), weigh(PAIR, 0.02), PAIR, roof=0.4,
    figures={"time": Figure(1e-5, "s"), "reference_time": Figure(2e-5, "s")},
    facts={"answers_checked": 12, "blocks": 24, "blocks_audited": 6, "calls_timed": 900, "kernels": {"triton_softmax": 1, "copy": 7}},
)  # fmt: skip
EVIL = "=cmd|' /C calc'!A0 \x1b[31m|`x`\n<script>"
CHEAT = Ruling("problem", EVIL, "wrong", EVIL, tricks=(Trick("replay", EVIL), Trick("weak", "zeros pass", voids=False)))
CRASH = Ruling("problem", "gone", "crashed", "the candidate exited", facts={"seated": False})
ODD = replace(RIGHT, candidate="odd", roof=math.nan, verification=Verification("passed", "fp64", figures={"error": math.inf}))


def test_the_answer_comes_first() -> None:
    assert headline(RIGHT).startswith("fast: correct, 2.0") and "x faster [1.92, 2.08]" in headline(RIGHT)
    assert headline(CRASH) == "gone: crashed: the candidate exited"
    assert summary([RIGHT, CHEAT, CRASH]) == "3 judged: 1 correct (1 faster), 1 wrong, 1 crashed · tricks: replay 1"


def test_a_page_says_all_that_was_found() -> None:
    page = ruling_page(RIGHT).plain
    for words in ("12 checked", "900 calls", "40 % of what the device's memory allows", "7 ×", "triton_softmax"):
        assert words in page.replace("\u202f", " ").replace("\xa0", " "), page
    told = ruling_page(CHEAT).plain
    assert "replay" in told and "zeros pass" in told and "\x1b" not in told


@pytest.mark.parametrize("ruling", [RIGHT, CHEAT, CRASH, ODD])
def test_nothing_that_a_candidate_says_steers_the_terminal(ruling: Ruling) -> None:
    for text in (row(ruling, width=60).plain, ruling_table([ruling], width=60).plain):
        assert "\x1b" not in text and max(map(len, text.splitlines())) <= 60


def test_csv_runs_no_formula_and_has_only_finite_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(rulings_csv([RIGHT, CHEAT, CRASH, ODD]))))
    assert [each["correct"] for each in rows] == ["true", "false", "false", "true"]
    assert rows[1]["candidate"].startswith("'=") and float(rows[0]["time_ratio"]) == 0.5 and rows[3]["roof"] == ""


def test_markdown_is_one_line_for_each_candidate() -> None:
    text = rulings_markdown([RIGHT, CHEAT])
    assert text.startswith("## ❌") and len([line for line in text.splitlines() if line.startswith("|")]) == 4
    assert "<script>" not in text.replace("`", "\0").split("\0")[0]


@pytest.mark.parametrize("ruling", [RIGHT, CHEAT, CRASH, ODD])
def test_every_ruling_is_valid_by_the_schema_and_read_back(ruling: Ruling) -> None:
    line = codec.encode(codec.ruling_document(ruling))
    found = json.loads(line, parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(codec.ruling_schema()).validate(found)
    again = codec.read_ruling(line)
    assert (again.candidate, again.status, again.tricks, again.delta) == (ruling.candidate, ruling.status, ruling.tricks, ruling.delta)


def test_the_schema_refuses_what_is_no_ruling() -> None:
    schema = codec.ruling_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**codec.ruling_document(RIGHT), "status": "splendid"}, schema)
    for bad in (b"{", b"[]", b'{"schema": 999}', b'{"problem": 1}'):
        with pytest.raises(StoreError):
            codec.read_ruling(bad)


@pytest.mark.parametrize(("code", "word"), [("shape", "SHAPE"), ("dtype", "DTYPE"), ("structure", "NUMERICAL"), ("", "NUMERICAL")])
def test_a_wrong_answer_is_named_by_its_code_and_not_by_its_words(code: str, word: str) -> None:
    wrong = replace(RIGHT, status="wrong", verification=Verification("failed", message="out: of no shape and dtype at all", code=code))
    assert json.loads(FORMATS["flashinfer"]([wrong], {}))["evaluation"]["status"] == f"INCORRECT_{word}"


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_holds_every_ruling(name: str) -> None:
    labels = {"gpumode": "benchmark.0 n: 4", "backendbench": "aten.add.Tensor/0 ((T([4], f32),), {})"}
    rulings = [replace(each, problem=labels.get(name, "problem")) for each in (RIGHT, CHEAT, CRASH, ODD)]
    made = FORMATS[name](rulings, {})
    text = made if isinstance(made, str) else codec.encode(made).decode()
    assert "NaN" not in text and "Infinity" not in text
    if name == "flashinfer":
        ends = [json.loads(line)["evaluation"]["status"] for line in text.splitlines()]
        assert ends == ["PASSED", "REWARD_HACK", "COMPILE_ERROR", "PASSED"]
    if name == "backendbench":
        kinds = [(each["test_type"], each.get("is_correct", each.get("successfully_ran"))) for each in made]
        assert len(kinds) == 8 and sum(passed for _, passed in kinds) == 4 and {each["op_name"] for each in made} == {"add.Tensor"}
    if name == "gpumode":
        assert text.count("check: pass") == 2 and text.count("check: fail") == 2
