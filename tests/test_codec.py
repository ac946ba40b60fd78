"""Files are where mistakes enter: each must be found, named and placed, and nothing measured may be lost on the way out."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import codec
from steelyard.codec import parsing, toml
from steelyard.errors import StoreError, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, Rule, Settings
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import STATUSES, Attachment, Figure, Record, Series, Verification

numbers = st.floats(allow_nan=False, allow_infinity=False)
maybe = st.none() | numbers
texts = st.text(max_size=12)
plain = st.dictionaries(texts, st.none() | st.booleans() | numbers | texts | st.lists(st.integers(), max_size=2), max_size=2)
series = st.builds(Series, texts, texts, st.just("<f8"), st.integers(0, 2**40), st.integers(0, 2**40))
records = st.builds(
    Record,
    id=texts,
    case=plain,
    status=st.sampled_from(STATUSES),
    reason=texts,
    metrics=st.dictionaries(
        texts, st.builds(Figure, numbers, texts, st.just("lower"), maybe, maybe, st.none() | st.integers(0, 9)), max_size=2
    ),
    effective=plain,
    verification=st.none() | st.builds(Verification, st.just("passed"), texts, max_abs=maybe),
    samples=st.lists(series, max_size=2),
    attachments=st.lists(st.builds(Attachment, texts, texts, texts), max_size=1),
    wall_s=numbers,
)
pairs = st.builds(
    Pair,
    base=st.builds(Arm, texts),
    head=st.builds(Arm, texts, texts),
    ratio=numbers,
    low=numbers,
    high=numbers,
    confidence=numbers,
    rebuilds=st.integers(0, 99),
    quads=st.integers(0, 99),
    coin_seed=st.integers(0, 2**63),
    calls=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    centres=st.lists(numbers, max_size=3),
    discarded=st.dictionaries(texts, numbers, max_size=1),
)


def made(**changes: Any) -> Record:
    whole: dict[str, Any] = {"id": "op/a@torch/eager:eval", "case": {"workload": "op/a"}, "status": "ok", **changes}
    return Record(**whole)


@given(records | pairs)
def test_a_result_is_read_back_as_it_was(item: Record | Pair) -> None:
    line = codec.encode(item)
    assert b"\n" not in line
    assert codec.decode(type(item), line) == item
    assert codec.decode(type(item), json.loads(line)) == item


@given(records | pairs)
def test_every_line_is_valid_by_the_published_schema(item: Record | Pair) -> None:
    jsonschema.Draft202012Validator(codec.record_schema()).validate(json.loads(codec.encode(item)))


def test_the_schema_is_itself_valid_and_refuses_what_is_no_record() -> None:
    schema = codec.record_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": "a", "case": {}, "status": "splendid"}, schema)


def test_what_json_cannot_hold_comes_back_as_nan() -> None:
    figure = Figure(math.inf, "s", low=math.nan, high=math.inf)
    line = codec.encode(made(metrics={"time": figure, "rate": Figure(2.0, "1/s")}, wall_s=math.nan))
    jsonschema.validate(json.loads(line), codec.record_schema())
    again = codec.decode(Record, line)
    assert math.isnan(again.metrics["time"].value)
    assert math.isnan(again.wall_s)
    assert (again.metrics["time"].low, again.metrics["time"].high) == (None, None)
    assert again.metrics["rate"].value == 2.0
    pair = Pair(Arm("a"), Arm("b"), math.nan, math.nan, math.inf, 0.95, 1, 1, 0, (1, 1), [1.0, math.nan], {"base": math.nan})
    back = codec.decode(Pair, codec.encode(pair))
    assert all(math.isnan(value) for value in (back.ratio, back.low, back.high, back.centres[1], back.discarded["base"]))
    assert back.centres[0] == 1.0


def test_an_infinite_parameter_is_found_again_in_the_id() -> None:
    case = Case("op/clamp", (("low", -math.inf), ("shape", [[1], [2]])))
    record = codec.decode(Record, codec.encode(Record(case.id, case.plain(), "ok")))
    assert record.case["params"]["low"] is None
    assert codec.case_of(record) == case
    assert dict(codec.case_of(record).params)["shape"] == [[1], [2]]


def test_odd_values_in_the_environment_do_not_lose_the_record() -> None:
    odd = {"x": np.float32(0.5), "path": Path("a"), "bad": "\udc80", None: {1}, "array": np.arange(2)}
    again = codec.decode(Record, codec.encode(made(environment=odd)))
    assert again.environment == {"x": 0.5, "path": "a", "bad": "?", "None": [1], "array": [0, 1]}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b"\xff", b'{"id": 1}', b'{"id":"a","case":{},"status":"ok","metrics":{"t":3}}', b"[" * 9999]
)
def test_what_is_no_record_is_a_store_error(data: bytes) -> None:
    with pytest.raises(StoreError):
        codec.decode(Record, data)


@pytest.mark.parametrize(
    ("value", "words"), [("9" * 301, "whole number of more than 300 digits"), ("[" * 60 + "1" + "]" * 60, "nested more than 50 deep")]
)
def test_what_no_reader_could_show_is_refused(value: str, words: str) -> None:
    for line in (f'{{"value": 1, "unit": "s", "n": {value}}}', f'{{"value": 1, "unit": "s", "other": {{"a": [{value}]}}}}'):
        with pytest.raises(StoreError, match=words):
            codec.decode(Figure, line.encode())


def test_a_newer_schema_asks_for_an_upgrade() -> None:
    with pytest.raises(StoreError, match="upgrade steelyard"):
        codec.decode(Record, codec.encode(made(schema=2)))
    with pytest.raises(StoreError, match="not a schema version"):
        codec.upgrade({"schema": "one"})
    assert codec.upgrade({"schema": 1, "id": "a"}) == {"schema": 1, "id": "a"}


TOML = """
name = "softmax"
description = "Row softmax, both ways"
files = ["mine.py"]
include = ["op/a[n=2,m=1]@torch/eager:eval"]

[settings]
budget = "quick"
precision = "1%"
timeout = "2min"
warmup = "200ms"
memory = "8GiB"
sampling = "calls"
isolate = "case"
vs = "eager"
rtol = 1e-3
atol = 0
verify = false
reference = "fp64"
seed = 7
runs = 3

[[matrix]]
workload = ["op/softmax", "op/gelu"]
backend = "torch"
variant = ["eager", "eager+compile[mode=max-autotune]"]
mode = "fwd"
device = ["cpu", "cuda"]
threads = [1, 2]
flags = [{}, {opt = 3, fast = true}]
env = ["torch-nightly", "here"]
[matrix.axes]
m = 4096
dtype = ["float32", "bf16"]
shape = [[1, 2], [3, 4]]

[[exclude]]
workload = "op/g*"
threads = 2
axes = {dtype = "float32", m = 4096}
flags = {opt = 3}
reason = "too slow"

[[exclude]]
tag = "slow*"

[[deny]]
device = "cuda"
variant = "compile"
env = "here"
reason = "crashes the driver"
"""

WHOLE = Experiment(
    name="softmax",
    description="Row softmax, both ways",
    matrix=(
        Matrix(
            workload=("op/softmax", "op/gelu"),
            axes={"m": (4096,), "dtype": ("fp32", "bf16"), "shape": ([1, 2], [3, 4])},
            backend=("torch",),
            variant=("eager", "compile[mode=max-autotune]"),
            mode=("fwd",),
            device=("cpu", "cuda"),
            threads=(1, 2),
            flags=({}, {"opt": "3", "fast": "true"}),
            env=("torch-nightly", "here"),
        ),
    ),
    include=("op/a[m=1,n=2]@torch/eager:eval",),
    exclude=(
        Rule({"workload": "op/g*", "threads": 2, "axes.dtype": "fp32", "axes.m": 4096, "flags.opt": "3"}, "too slow"),
        Rule({"tag": "slow*"}),
    ),
    deny=(Rule({"variant": "compile", "device": "cuda", "env": "here"}, "crashes the driver"),),
    settings=Settings(0.3, 0.01, "calls", 0.2, 1e-3, 0.0, False, "fp64", 7, 120.0, 8 * 2**30, "case", "eager", 3),
)


def written(folder: Path, text: str | bytes, name: str = "exp.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(folder: Path, text: str | bytes, name: str = "exp.toml") -> str:
    path = written(folder, text, name)
    with pytest.raises(UsageError) as caught:
        codec.load_experiment(path)
    return str(caught.value).replace(f"{folder}/", "")


def test_toml_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    import tomllib

    import yaml

    (tmp_path / "mine.py").write_text("")
    data = tomllib.loads(TOML)
    expected = Experiment(**{**WHOLE.__dict__, "files": (str((tmp_path / "mine.py").resolve()),)})
    assert codec.load_experiment(written(tmp_path, TOML)) == expected
    assert codec.load_experiment(written(tmp_path, yaml.safe_dump(data), "exp.yaml")) == expected
    assert codec.load_experiment(written(tmp_path, "\ufeff" + json.dumps(data), "exp.json")) == expected


def test_the_page_shows_a_valid_file_and_every_setting(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "experiment-file.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "my_softmax.py").write_text("")
    experiment = codec.load_experiment(written(tmp_path, example))
    assert (len(experiment.matrix), len(experiment.exclude), len(experiment.deny), len(experiment.include)) == (2, 2, 1, 1)
    for item in fields(Settings):
        assert (f"| `{item.name}` |" in page) is (item.name != "allow")  # what a program may do, no file can say


def test_the_least_that_is_an_experiment(tmp_path: Path) -> None:
    path = written(tmp_path, '[[matrix]]\nworkload = "op/a"\n', "small.toml")
    assert codec.load_experiment(path) == Experiment("small", matrix=(Matrix(("op/a",)),))
    path = written(tmp_path, "matrix: {workload: op/a}\nsettings: {rtol: 1e-3, budget: 2}\n", "small.yml")
    assert codec.load_experiment(path).settings == Settings(budget=2.0, rtol=1e-3)


def test_an_unknown_key_has_its_line_path_and_nearest_name(tmp_path: Path) -> None:
    text = '# bakend = 1\n[[matrix]]\nworkload = "op/a"\nbakend = "torch"\n'
    allowed = "axes, backend, device, env, flags, mode, ranks, threads, variant, weight, workload"
    expected = f"exp.toml:4  matrix[0].bakend: unknown key (allowed: {allowed})\n  did you mean backend?"
    assert refusal(tmp_path, text) == expected


def test_a_line_is_not_guessed(tmp_path: Path) -> None:
    text = '[[matrix]]\nworkload = "a"\nbakend = "x"\n[[matrix]]\nworkload = "b"\nbakend = "x"\n'
    assert refusal(tmp_path, text).splitlines()[1].startswith("  exp.toml  matrix[0].bakend: unknown key")
    assert codec.line_of("axes = {m = 1}\n", "m") == 1
    assert codec.line_of("[a]\n[a.m]\n", "m") == 2
    assert codec.line_of("m = 1\nm = 2\n", "m") is None


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    text = """
naem = "x"
include = [
  "op/a@torch/eager:eval",
  "op/b@torch/eager",
]
[settings]
budget = "fast"
seed = "one"
[[matrix]]
workload = "op/a"
threads = 0
mode = "trian"
axes = {dtype = "fp33", n = [], day = 2024-01-01}
flags = []
env = [7, ""]
[[exclude]]
reason = "all"
[[deny]]
workload = "op/a"
env = []
"""
    lines = refusal(tmp_path, text).splitlines()
    assert lines[0] == "exp.toml  14 mistakes"
    told = "\n".join(lines[1:])
    for part in (
        "exp.toml:2  naem: unknown key (allowed: deny, description, exclude, files, include, matrix, name, pairs, recorded, settings)"
        "; did you mean name?",
        "exp.toml:5  include[1]: not a case id: expected ':mode' at \"the end\" in op/b@torch/eager",
        'exp.toml:8  settings.budget: expected one of quick, normal, thorough, a time such as 30s, not "fast"',
        'exp.toml:9  settings.seed: expected a whole number of at least 0, not "one"',
        "exp.toml:12  matrix[0].threads: expected a whole number of at least 1, not 0",
        'exp.toml:13  matrix[0].mode: expected one of eval, train, fwd, bwd, call, not "trian"; did you mean train?',
        "exp.toml:14  matrix[0].axes.dtype: no dtype named 'fp33'",
        "exp.toml:14  matrix[0].axes.n: an empty list leaves no cases",
        'exp.toml:14  matrix[0].axes.day: expected text, a number, true, false, null, a list or a table, not "2024-01-01"',
        "exp.toml:15  matrix[0].flags: an empty list",
        "exp.toml  matrix[0].env: expected text, not 7",
        "exp.toml:17  exclude[0]: has no key of a case",
        "exp.toml:19  deny[0]: reason is missing: it is recorded with every case that the rule skips",
        "exp.toml  deny[0].env: expected text",
    ):
        assert f"  {part}" in told
    assert len(lines) == 15


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("budget = true", "settings.budget: expected quick, normal, thorough, or a time such as 30s, not true"),
        ("budget = '0s'", "settings.budget: expected quick"),
        ("precision = 2", "settings.precision: expected a share"),
        ("precision = '300%'", "settings.precision: a share must be between"),
        ("timeout = 'soon'", "settings.timeout: not a time"),
        ("memory = '1e999GiB'", "settings.memory: not a size"),
        ("warmup = nan", "settings.warmup: expected a time"),
        ("rtol = -1", "settings.rtol: expected a finite number"),
        ("rtol = nan", "settings.rtol: expected a finite number"),
        ("atol = inf", "settings.atol: expected a finite number"),
        ("verify = 'yes'", "settings.verify: expected true or false"),
        ("isolate = 'cases'", "settings.isolate: expected one of shared, case, workload, none"),
        ("runs = 0", "settings.runs: expected a whole number of at least 1"),
        ("vs = ''", "settings.vs: expected text"),
    ],
)
def test_a_wrong_setting_says_what_was_expected(tmp_path: Path, text: str, expected: str) -> None:
    whole = f'[settings]\n{text}\n[[matrix]]\nworkload = "op/a"\n'
    assert refusal(tmp_path, whole).startswith(f"exp.toml:2  {expected}")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("exp.toml", "", "exp.toml  the file is empty"),
        ("exp.toml", "a = 1\nb = \n", "exp.toml:2  not valid TOML: Invalid value"),
        ("exp.toml", "a = [\n", "exp.toml:1  not valid TOML"),
        ("exp.yaml", "a: 1\nb: [\n", "exp.yaml:3  not valid YAML"),
        ("exp.yaml", "a: 1\nb: 1\na: 2\n", "exp.yaml:3  a: given twice"),
        ("exp.yaml", "!!python/object/apply:os.getcwd []\n", "exp.yaml:1  not valid YAML"),
        ("exp.yaml", "day: 2024-99-99\n", "exp.yaml:1  not valid YAML: no timestamp can be made of '2024-99-99'"),
        ("exp.yaml", "- 1\n", "exp.yaml  expected a table of keys, not [1]"),
        ("exp.json", '{"a": 1,\n "b"}', "exp.json:2  not valid JSON"),
        ("exp.json", '{"a": 1, "a": 2}', "exp.json  a: given twice"),
        ("exp.json", "[" * 100000, "exp.json  nested more than 20 deep"),
        ("exp.yaml", "a: " + "[" * 300 + "]" * 300, "exp.yaml  nested more than 20 deep"),
        ("exp.toml", "a = " + "[" * 30 + "]" * 30, "exp.toml  nested more than 20 deep"),
        (
            "exp.toml",
            "[[matrix]]\nworkload = 'a'\nflags = { A = \"\\u0000\" }\n",
            "exp.toml:3  matrix[0].flags.A: expected text without zero",
        ),
        ("exp.toml", b"name = '\xff'", "exp.toml  not a text file"),
        ("exp.json", b"\0\1\2", "exp.json  not a text file"),
        ("exp.ini", "a=1", "the format of '"),
        ("exp.toml", "name = 'x'\n", "exp.toml  matrix: missing: nothing to run"),
        ("exp.toml", "matrix = 3\n", "exp.toml:1  matrix: expected a table, not 3"),
        ("exp.toml", "[[matrix]]\n", "exp.toml:1  matrix[0]: workload is missing"),
        ("exp.toml", "include = 'op/a'\n", "exp.toml:1  include: expected a list of case ids"),
        ("exp.yaml", "matrix: {workload: op/a, axes: {on: 1}}\n", "exp.yaml  matrix.axes.True: not a name"),
        ("exp.toml", "files = ['../x.py']\n[[matrix]]\nworkload = 'a'\n", "exp.toml:1  files: no such file"),
        ("exp.toml", "files = ['x.so']\n[[matrix]]\nworkload = 'a'\n", "exp.toml:1  files: not a .py file"),
    ],
)
def test_a_broken_file_is_an_error_with_a_place(tmp_path: Path, name: str, text: str | bytes, expected: str) -> None:
    assert refusal(tmp_path, text, name).startswith(expected)


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_large_files_are_read_in_the_time_that_reading_takes(tmp_path: Path, ending: str) -> None:
    axes = {f"axis_{number}": number for number in range(20_000)}
    path = tmp_path / f"exp.{ending}"
    path.write_text(json.dumps({"matrix": [{"workload": "op/sum", "axes": axes}]}))
    assert codec.load_experiment(path).matrix[0].axes["axis_19999"] == (19_999,)


def test_of_thousands_of_mistakes_some_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    path = tmp_path / "exp.toml"
    path.write_text("\n".join(["[[matrix]]", 'workload = "op/sum"', *(f"nn{number} = 1" for number in range(5_000))]))
    with pytest.raises(UsageError, match="5000 mistakes") as error:
        codec.load_experiment(path)
    assert str(error.value).count("unknown key") == 50 and str(error.value).endswith("… and 4950 more")


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text("")
    with pytest.raises(UsageError, match=r"no such file(.|\n)*did you mean exp.toml"):
        codec.load_experiment(tmp_path / "epx.toml")
    with pytest.raises(UsageError, match="too long"):
        codec.load_experiment(tmp_path / f"{'x' * 300}.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match="cannot read"):
        codec.load_experiment(tmp_path / "folder.toml")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["workload", "axes", "flags", "dtype", "mode", "env", "tag", "n"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["name", "files", "settings", "matrix", "include", "exclude", "deny", "other"]), anything))
def test_any_data_is_an_experiment_or_a_usage_error(data: dict[str, Any]) -> None:
    try:
        assert isinstance(codec.parse_experiment(data, "exp.toml"), Experiment)
    except UsageError as error:
        assert "exp.toml" in str(error)


words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
toml_values = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@given(toml_values)
def test_whatever_is_written_as_toml_is_read_back(value: Any) -> None:
    assert tomllib.loads(f"key = {toml.value(value)}")["key"] == value


RANGES = """
[[matrix]]
workload = "op/matmul"
[matrix.axes]
n = {from = 256, to = 1024, step = "x2"}
m = {from = 1, to = 3, step = 1}
input = [{from = 0, to = 9, step = 1}]
"""


def test_an_axis_takes_a_range_and_in_a_list_a_table_is_a_value() -> None:
    found = codec.parse_experiment(parsing.parse(RANGES, "exp.toml", "toml"), "exp.toml").matrix[0].axes
    assert found == {"n": (256, 512, 1024), "m": (1, 2, 3), "input": ({"from": 0, "to": 9, "step": 1},)}


def test_axes_named_together_have_the_same_value() -> None:
    text = '[[matrix]]\nworkload = "op/matmul"\naxes = {"m, n,k" = {from = 8, to = 32, step = "x2"}, dtype = ["fp32", "float16"]}\n'
    found = codec.parse_experiment(parsing.parse(text, "exp.toml", "toml"), "exp.toml").matrix
    assert [matrix.axes for matrix in found] == [{"dtype": ("fp32", "fp16"), "m": (n,), "n": (n,), "k": (n,)} for n in (8, 16, 32)]


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        ("{n = {from = 256, to = 8192, step = 0}}", "exp.toml:3  matrix[0].axes.n: a range must grow"),
        ("{n = {from = 9, to = 8, step = 1}}", "exp.toml:3  matrix[0].axes.n: a range from 9 to 8 is empty"),
        ("{n = {from = 1, to = 20000, step = 1}}", "exp.toml:3  matrix[0].axes.n: a range of more than 10000 values"),
        ("{n = {from = 1, to = 2}}", "exp.toml:3  matrix[0].axes.n: a range needs step"),
        ('{"m,n" = 1, n = 2}', "exp.toml:3  matrix[0].axes.n: n is given twice"),
        ('{"m,,n" = 1}', "exp.toml:3  matrix[0].axes.m,,n: not a name"),
    ],
)
def test_a_range_that_is_none_is_told_with_its_place(axes: str, told: str) -> None:
    text = f'[[matrix]]\nworkload = "op/matmul"\naxes = {axes}\n'
    with pytest.raises(UsageError) as caught:
        codec.parse_experiment(parsing.parse(text, "exp.toml", "toml"), "exp.toml", text)
    assert told in str(caught.value)
