"""Every mistake in a config is found in one pass, named by its place, and costs itself alone; hostile text costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.param import reading
from steelyard.dialects.param.expand import Mistake, Sheet, recognise
from steelyard.dialects.param.expand import sheet as expand
from steelyard.errors import UsageError
from steelyard.model.dtypes import canonical
from tests.dialects.param.sheets import DEFAULT, EMBEDDING, ONE, RANGED, TENSOR, called, ids, info, inputs, ranged, tensor


def parse(text: str, where: str) -> Sheet:
    return expand(reading.parse(text, where))


def nearest(dtype: str) -> str:
    with pytest.raises(UsageError) as caught:
        canonical(dtype)
    return caught.value.do


def test_five_kinds_of_mistakes_among_good_operators() -> None:
    text = """{
  "torch.add": {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": [
    {"args": [{"type": "tensor", "dtype": "float", "shape": [2]}]},
    {"args": [{"type": "tensor", "dtype": "flaot", "shape": [2]}]},
    {"args": [{"type": "tensor",
               "shape": [2, -3]}]},
    {"args": [{"type": "tensr"}]},
    {"args": []}
  ]}]},
  "torch.mm": {"input_data_generator": "PyTorch:DefaultDatGenerator", "config": [{"input": [{"args": []}]}]},
  "torch.mul": {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [
    {"input": []},
    {"input": [{"args": [{"type": "int", "value": 1, "value": 2}]}, {"args": []}]}
  ]}
}
"""
    sheet = parse(text, "five.json")
    assert [str(mistake) for mistake in sheet.mistakes] == [
        f"five.json:4  [\"torch.add\"].config[0].input[1].args[0].dtype  torch.add 0|0|1: no dtype named 'flaot'; {nearest('flaot')}",
        "five.json:5  [\"torch.add\"].config[0].input[2].args[0]  torch.add 0|0|2: missing key 'dtype'",
        'five.json:6  ["torch.add"].config[0].input[2].args[0].shape[1]  torch.add 0|0|2: a size is negative: -3',
        "five.json:7  [\"torch.add\"].config[0].input[3].args[0].type  torch.add 0|0|3: no type named 'tensr'; did you mean tensor or str?",
        'five.json:10  ["torch.mm"].input_data_generator  torch.mm: '
        "no data generator named 'PyTorch:DefaultDatGenerator'; did you mean PyTorch:DefaultDataGenerator?",
        'five.json:12  ["torch.mul"].config[0].input  torch.mul 0: expected a list of one or more specs, not []',
        "five.json:13  [\"torch.mul\"].config[1].input[0].args[0].value  torch.mul 1|0|0: key 'value' is given twice; "
        "remove one, or merge the two",
    ]
    assert [config.full_id for config in sheet.configs] == ["torch.add|0|0|0", "torch.add|0|0|4", "torch.mul|1|0|1"]


OPERATORS: list[tuple[Any, str, str]] = [
    (3, "op", "expected an object with input_data_generator and config, not 3"),
    ({"config": [inputs(called())]}, "op", "missing key 'input_data_generator'"),
    (info(inputs(called()), input_iterator="RangeConfigIteratr"), "op.input_iterator", "no iterator named 'RangeConfigIteratr'"),
    (info(inputs(called()), input_iterator=3), "op.input_iterator", "no iterator named 3"),
    (info(inputs(called()), build_data_generator=["x"]), "op.build_data_generator", "no data generator named ['x']"),
    (info(inputs(called()), sede=3), "op.sede", "unknown key 'sede'"),
    (info(inputs(called()), seed=-1), "op.seed", "expected a whole number from 0, not -1"),
    (info(inputs(called()), seed=True), "op.seed", "expected a whole number from 0, not true"),
    ({"input_data_generator": DEFAULT}, "op", "missing key 'config'"),
    (info(), "op.config", "expected a list of one or more entries, not []"),
    ({"input_data_generator": DEFAULT, "config": {}}, "op.config", "expected a list of one or more entries, not an object"),
    (info(3), "op.config[0]", "expected an object with input, and build if there is one, not 3"),
    (info({}), "op.config[0]", "missing key 'input'"),
    (info({"input": {}}), "op.config[0].input", "expected a list of one or more specs, not an object"),
    (info({**inputs(called()), "inputs": []}), "op.config[0].inputs", "unknown key 'inputs'"),
    (
        info({**inputs(called()), "build": {}}, build_data_generator=DEFAULT),
        "op.config[0].build",
        "expected a list of specs, not an object",
    ),
    (info({**inputs(called()), "build": []}), "op", "missing key 'build_data_generator'"),
    (info(inputs(None)), "op.config[0].input[0]", "expected an object with args and kwargs, not null"),
    (info(inputs(called(None))), "op.config[0].input[0].args[0]", 'expected an argument such as {"type": "int", "value": 1}, not null'),
    (info(inputs({"args": [], "__zip__": True})), "op.config[0].input[0].__zip__", "only RangeConfigIterator reads '__zip__'"),
    (
        info(inputs(called(tensor([1, 2], __range__=["shape"])))),
        "op.config[0].input[0].args[0].__range__",
        "only RangeConfigIterator reads '__range__'",
    ),
]


@pytest.mark.parametrize(("op", "path", "what"), OPERATORS, ids=[f"{path}: {what}" for _, path, what in OPERATORS])
def test_mistakes_outside_of_arguments(op: Any, path: str, what: str) -> None:
    sheet = expand({"op": op, "good": info(inputs(called()))}, "x.json")
    assert (sheet.mistakes[0].path, sheet.mistakes[0].what) == (path, what)
    assert {mistake.op for mistake in sheet.mistakes} == {"op"}
    assert [config.full_id for config in sheet.configs] == ["good|0|0|0"]


def test_a_bad_build_costs_its_own_configs_and_the_others_keep_their_ids() -> None:
    entry = {"build": [called(), called(3), called()], "input": [called(), called({"type": "int"}), called()]}
    sheet = expand({"op": info(entry, build_data_generator=DEFAULT)}, "x")
    assert ids(sheet) == ["0|0|0", "0|0|2", "0|2|0", "0|2|2"]
    assert [mistake.id for mistake in sheet.mistakes] == ["0|1|*", "0|*|1"]


def test_every_mistake_of_a_ranged_spec_is_found_at_once() -> None:
    spec = called(tensor([5, 1], __range__=["shape"]), {"type": "int"}, tensor(-1, __copy__=[{"shape": [0, [0, 0]]}], strdes=[1]), TENSOR)
    sheet = ranged({**spec, "__where__": ["1 +"]})
    assert [mistake.path.removeprefix("op.config[0].input[0].") for mistake in sheet.mistakes] == [
        "args[0].shape[0]", "__where__[0]", "args[1]", "args[2].strdes",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "path", "rest"),
    [
        ('{"op": {"input_data_generator": 1},\n"op": {"config": []}, "b": B}', 2, "op", ["b|0|0|0"]),
        ('{"op": {"config": [{"input": [{"args": []}]}],\n"config": []}, "b": B}', 2, "op.config", ["b|0|0|0"]),
        ('{"b": {G, "config": [{"input": [],\n"input": [{"args": []}]}, E]}}', 2, "b.config[0].input", ["b|1|0|0"]),
        ('{"b": {G, "config": [{"input": [\n{"args": [], "args": []}, {"args": []}]}]}}', 2, "b.config[0].input[0].args", ["b|0|0|1"]),
    ],
)
def test_keys_given_twice(text: str, line: int, path: str, rest: list[str]) -> None:
    whole = text.replace("B}", json.dumps(info(inputs(called()))) + "}").replace("E]", json.dumps(inputs(called())) + "]")
    sheet = parse(whole.replace("G,", '"input_data_generator": "DefaultDataGenerator",'), "x.json")
    assert [(m.where, m.path) for m in sheet.mistakes if "given twice" in m.what] == [(f"x.json:{line}", path)]
    assert [config.full_id for config in sheet.configs] == rest


@pytest.mark.parametrize(
    "spec",
    [
        called(tensor([1, 2**62], __range__=["shape"])),
        called(tensor(*[[0, 99]] * 30, __range__=["shape"])),
        called(*[{"type": "int", "value": [-(2**63), 2**63 - 1], "__range__": ["value"]}] * 500),
        called({"type": "float", "value": [0, 1e300, 1e-300], "__range__": ["value"]}),
        {**called(tensor([1, 2**62], __range__=["shape"])), "__zip__": True},
        called({"type": "tuple", "value": [{"type": "int", "value": [1, 10**9], "__range__": ["value"]}] * 3, "__range__": ["value"]}),
    ],
)
def test_too_many_are_refused_before_they_are_made(spec: dict[str, Any]) -> None:
    sheet = ranged(spec, called(TENSOR))
    what = "more combinations than fit: a file has at most 100,000 configs"
    assert [(mistake.what, mistake.id) for mistake in sheet.mistakes] == [(what, "0|0|0_*")]
    assert ids(sheet) == ["0|0|1_0"]


def test_builds_count_towards_the_most() -> None:
    entry = {"build": [called()] * 30, "input": [called()] * 30}
    sheet = expand({"op": info(entry, build_data_generator=DEFAULT)}, "x", most=100)
    assert len(sheet.mistakes) == 1
    assert len(sheet.configs) == 90
    wide = called({"type": "int", "value": [1, 50], "__range__": ["value"]})
    sheet = expand({"op": info({**entry, "input": [wide]}, build_data_generator=DEFAULT, input_iterator=RANGED)}, "x", most=100)
    assert (len(sheet.mistakes), len(sheet.configs)) == (1, 0)


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("", "not valid JSON: Expecting value", "x.json:1"),
        ('{\n"a": }', "not valid JSON: Expecting value", "x.json:2"),
        ("[" * 100_000, "nested too deeply to be read", "x.json"),
        ("[]", "not a PARAM config", "x.json"),
        ("{}", "not a PARAM config", "x.json"),
        ('{"a": {"b": 1}}', "not a PARAM config", "x.json"),
        ("NaN", "not a PARAM config", "x.json"),
    ],
)
def test_text_that_is_no_config(text: str, what: str, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, "x.json")
    assert (caught.value.what, caught.value.where) == (what, where)


def test_numbers_that_no_machine_has() -> None:
    def spec(value: str) -> str:
        return json.dumps({"op": info(inputs(called(tensor("SIZE")), called()))}).replace('"SIZE"', value)

    for value in ("9" * 5000, "9" * 90, "NaN", "Infinity", "-Infinity", "1e999", "true", "null", "{}"):
        sheet = parse(spec(value), "x")
        assert [mistake.path for mistake in sheet.mistakes] == ["op.config[0].input[0].args[0].shape[0]"]
        assert ids(sheet) == ["0|0|1"]


def test_control_characters_never_reach_the_terminal() -> None:
    dark = "a\x1b[31m\u202e\ud800\n"
    data = {dark: info(inputs(called())), "op": info(inputs(called({"type": dark, dark: dark}), called(**{dark: ONE})), **{dark: 1})}
    sheet = expand(data, "x.json")
    assert sheet.configs == ()
    assert len(sheet.mistakes) == 4
    for mistake in sheet.mistakes:
        assert str(mistake).isprintable()
        assert len(str(mistake)) < 1500


def test_mistakes_have_an_end() -> None:
    sheet = expand({"op": info(inputs(*[None] * 5000))}, "x")
    assert 1000 <= len(sheet.mistakes) <= 1002
    assert sheet.mistakes[-1].what == "more than 1000 mistakes; the rest was not read"


WORDS_OF_SPECS = ["type", "value", "shape", "dtype", "args", "kwargs", "__range__", "__copy__", "__list__", "__where__", "__zip__"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["tensor", "float", "int", RANGED, DEFAULT, "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS_OF_SPECS), inner),
    max_leaves=20,
)


@given(JSON, JSON, st.sampled_from([RANGED, EMBEDDING, "DefaultConfigIterator"]))
def test_any_data_is_expanded_or_refused(build: Any, input: Any, iterator: str) -> None:
    op = info({"build": [build], "input": [input]}, input_iterator=iterator, build_iterator=iterator, build_data_generator=DEFAULT)
    sheet = expand({"op": op, "good": info(inputs(called()))}, "x", most=1000)
    assert all(str(mistake).isprintable() for mistake in sheet.mistakes)
    assert sheet.configs[-1:] or sheet.mistakes
    assert not any("__" in json.dumps([config.build, config.input]) for config in sheet.configs)


def test_recognition() -> None:
    assert recognise({"op": info()})
    assert recognise({"op": {"input_data_generator": "x"}, "odd": 3})
    assert not any(recognise(data) for data in ([], {}, None, 3, "x", {"op": 3}, {"op": {"config": 3}}, {"workload": {"axes": {}}}))


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"torch.add": info(inputs(called(TENSOR, TENSOR)))}), encoding="utf-8")
    sheet = expand(path)
    assert sheet.source == str(path)
    assert [config.full_id for config in sheet.configs] == ["torch.add|0|0|0"]
    with pytest.raises(UsageError, match="no such file") as caught:
        expand(tmp_path / "confg.json")
    assert caught.value.do == "did you mean config.json?"
    with pytest.raises(UsageError, match="it is a folder"):
        expand(tmp_path)
    path.write_bytes(b"\xff{}")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        expand(path)


def test_the_grammar_needs_the_standard_library_alone(tmp_path: Path) -> None:
    """A worker runs in any environment, so it has nothing else."""
    path = tmp_path / "config.json"
    path.write_text("{}", encoding="utf-8")
    names = ["msgspec", "numpy", "yaml", "click", "rich", "torch"]
    taken = "from steelyard.dialects.param.reading import read; read(Path(sys.argv[1]))"
    code = f"import sys, steelyard.dialects.param.expand; from pathlib import Path; {taken}; "
    code += f"print([name for name in {names} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_mistake_reads_as_one_line() -> None:
    assert str(Mistake("f.json:3", "op.config", "op", "0|0|0", "wrong", "mend it")) == "f.json:3  op.config  op 0|0|0: wrong; mend it"
    assert str(Mistake("f.json", "", "", "", "wrong")) == "f.json  wrong"


def test_lines_point_at_the_key_or_at_what_is_around_it() -> None:
    """The text is written one token to a line, so that every line number is told apart."""
    data = {"a": {"x": [1, {'y"]{': []}]}, "op": info(inputs(called(TENSOR, {"type": "int"})))}
    data["a"]["input_data_generator"] = "odd"
    text = json.dumps(data, indent=1)
    sheet = parse(text, "x")
    rows = text.splitlines()
    got = {mistake.path: rows[int(mistake.where.split(":")[1]) - 1].strip() for mistake in sheet.mistakes}
    assert got["a.x"] == '"x": ['
    assert got["a.input_data_generator"] == '"input_data_generator": "odd"'
    assert got["a"] == '"a": {'
    assert got["op.config[0].input[0].args[1]"] == "{"
    assert rows[int(sheet.mistakes[-1].where.split(":")[1])].strip() == '"type": "int"'
