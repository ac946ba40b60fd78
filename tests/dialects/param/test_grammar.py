"""The argument grammar: everything it takes, and the exact words for everything it does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.param.grammar import KEYS, argument_faults, reference_faults, shown, spec_faults
from steelyard.dialects.param.macros import macro_faults

TENSOR: dict[str, Any] = {"type": "tensor", "dtype": "float", "shape": [4, 6]}
IMAGE: dict[str, Any] = {"type": "tensor", "dtype": "float", "shape": [1, 2, 3, 4]}
INDEX: dict[str, Any] = {"type": "tensor", "dtype": "long", "shape": [4], "index": {"arg": 0, "dim": 0}}


def found(arg: Any) -> list[tuple[str, str]]:
    return [(".".join(map(str, fault.place)), fault.what) for fault in argument_faults(arg, ())]


def distributed(dtype: str = "float", **distribution: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": dtype, "shape": [4], "distribution": distribution}


SEED_TYPES: list[dict[str, Any]] = [
    {"type": "int", "value": 237},
    {"type": "int", "value_range": [100, 1000]},
    {"type": "long", "value": 8328},
    {"type": "long", "value_range": [1000, 10000]},
    {"type": "float", "value": 1.2},
    {"type": "float", "value_range": [0.0, 2.0]},
    {"type": "double", "value": 3.4},
    {"type": "double", "value_range": [0.5, 5.5]},
    {"type": "bool", "value": False},
    {"type": "device", "value": "cpu"},
    {"type": "str", "value": "a string value"},
    {"type": "genericlist", "value": [{"type": "int", "value": 237}, {"type": "tensor", "dtype": "float", "shape": [16, 32]}]},
    {
        "type": "tuple",
        "value": [{"type": "tensor", "dtype": "float", "shape": [16, 32]}, {"type": "tensor", "dtype": "float", "shape": [16, 32]}],
    },
    {"type": "tensor", "dtype": "float", "shape": [128, 256]},
    {"type": "none"},
]
FURTHER: list[dict[str, Any]] = [
    {"type": "int", "value": 2.5},
    {"type": "int", "value": True},
    {"type": "int", "value": 1, "value_range": "not read, as the value wins"},
    {"type": "float", "value": -math.inf},
    {"type": "float", "value": math.nan},
    {"type": "bool", "value": 0},
    {"type": "str"},
    {"type": "str", "value": "line\nbreak"},
    {"type": "device", "value": "cuda:1"},
    {"type": "none", "value": None},
    {"type": "tuple", "value": []},
    {"type": "dtype", "value": "torch.bfloat16"},
    {"type": "memory_format", "value": "torch.channels_last"},
    {"type": "memory_format", "value": "preserve_format"},
    {"type": "layout", "value": "sparse_csr"},
    {"type": "complex", "value": [1, -0.5]},
    {"type": "tensor", "dtype": "float", "shape": []},
    {"type": "tensor", "dtype": "float", "shape": [0, 3], "requires_grad": False, "name": "x", "comment": "y", "description": "z"},
    {"type": "tensor", "dtype": "complex64", "shape": [2], "requires_grad": True},
    {**TENSOR, "strides": [1, 4]},
    {**IMAGE, "memory_format": "channels_last"},
    {**TENSOR, "memory_format": "contiguous"},
    {"type": "tensor", "dtype": "int64", "shape": [2, 2], "values": [[1, 2], [3, 4]]},
    {"type": "tensor", "dtype": "bool", "values": [True, False]},
    {"type": "tensor", "dtype": "float", "shape": [], "values": 1.5},
    INDEX,
    {**INDEX, "index": {"kwarg": "weight"}, "distribution": {"name": "zipf", "alpha": 0.9}},
    {**INDEX, "distribution": {"name": "permutation"}},
    distributed(name="uniform", low=-1, high=1),
    distributed(name="uniform"),
    distributed(name="normal", mean=0.0, std=0),
    distributed("int", name="integers", high=5),
    distributed("long", name="zipf", alpha=1.05),
    distributed(name="constant", value=3),
    distributed("long", name="arange"),
]


@pytest.mark.parametrize("arg", SEED_TYPES + FURTHER, ids=str)
def test_what_the_grammar_takes(arg: dict[str, Any]) -> None:
    assert found(arg) == []


def test_every_type_has_an_example_above() -> None:
    assert {arg["type"] for arg in SEED_TYPES + FURTHER} == set(KEYS)


SPELLINGS = ["float", "double", "float16", "bfloat16", "uint8", "int8", "int16", "int", "long", "bool"]
MORE_SPELLINGS = [
    "int64",
    "float32",
    "half",
    "fp32",
    "bf16",
    "torch.float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
    "short",
]


@pytest.mark.parametrize("dtype", SPELLINGS + MORE_SPELLINGS)
def test_dtype_spellings(dtype: str) -> None:
    assert found({"type": "tensor", "dtype": dtype, "shape": [2]}) == []


WRONG: list[tuple[Any, str, str]] = [
    (3, "", 'expected an argument such as {"type": "int", "value": 1}, not 3'),
    (None, "", 'expected an argument such as {"type": "int", "value": 1}, not null'),
    ({}, "", "missing key 'type'"),
    ({"type": "complexx"}, "type", "no type named 'complexx'"),
    ({"type": ["int"]}, "type", "no type named ['int']"),
    ({"type": "int"}, "", "missing key 'value'"),
    ({"type": "int", "value": "7"}, "value", "expected a number, not '7'"),
    ({"type": "int", "value": None}, "value", "expected a number, not null"),
    ({"type": "int", "value": [1, 2]}, "value", "expected a number, not [1, 2]"),
    ({"type": "int", "value": math.nan}, "value", "expected a number, not nan"),
    ({"type": "long", "value": 10**40}, "value", "expected a number, not a number of more than 30 digits"),
    ({"type": "int", "value": 1, "valeu": 2}, "valeu", "unknown key 'valeu'"),
    ({"type": "int", "value": 1, "comment": 5}, "comment", "expected a text, not 5"),
    ({"type": "int", "value_range": [1.5, 3]}, "value_range", "expected [min, max] of whole numbers, not [1.5, 3]"),
    ({"type": "float", "value_range": [0, math.inf]}, "value_range", "expected [min, max] of numbers, not [0, inf]"),
    ({"type": "float", "value_range": [1]}, "value_range", "expected [min, max] of numbers, not [1]"),
    ({"type": "int", "value_range": [3, 1]}, "value_range", "the range [3, 1] is empty"),
    ({"type": "bool", "value": 2}, "value", "expected true or false, not 2"),
    ({"type": "bool"}, "", "missing key 'value'"),
    ({"type": "str", "value": 3}, "value", "expected a text, not 3"),
    ({"type": "str", "value": "\ud800"}, "value", "expected a text that can be written as UTF-8, not '\\ud800'"),
    ({"type": "device", "value": "cuda:one"}, "value", "expected a device such as cpu or cuda:0, not 'cuda:one'"),
    ({"type": "dtype", "value": "flaot"}, "value", "no dtype named 'flaot'"),
    ({"type": "layout", "value": "sparse"}, "value", f"expected one of {', '.join(['strided', 'sparse_coo', 'sparse_csr', 'sparse_csc'])}"),
    ({"type": "complex", "value": 1}, "value", "expected [real, imaginary], not 1"),
    ({"type": "none", "value": 1}, "value", "expected nothing, because the type is none, not 1"),
    ({"type": "tuple"}, "", "missing key 'value'"),
    ({"type": "genericlist", "value": {"type": "int"}}, "value", "expected a list of arguments, not an object"),
    ({"type": "genericlist", "value": [{"type": "int", "value": 1}, {"type": "tensor", "shape": [1]}]}, "value.1", "missing key 'dtype'"),
    ({"type": "tensor", "dtype": "float"}, "", "missing key 'shape'"),
    ({**TENSOR, "dtype": "floaty"}, "dtype", "no dtype named 'floaty'"),
    ({**TENSOR, "dtype": ["float"]}, "dtype", "expected a dtype such as float, not ['float']"),
    ({**TENSOR, "shape": 4}, "shape", "expected a list of at most 64 sizes, not 4"),
    ({**TENSOR, "shape": [1] * 65}, "shape", "expected a list of at most 64 sizes, not [1, 1, 1, 1, …]"),
    ({**TENSOR, "shape": [4, 2.0]}, "shape.1", "expected a size, not 2.0"),
    ({**TENSOR, "shape": [True]}, "shape.0", "expected a size, not true"),
    ({**TENSOR, "shape": [[1, 4]]}, "shape.0", "expected a size, not [1, 4]"),
    ({**TENSOR, "shape": [2**63]}, "shape.0", "expected a size, not 9223372036854775808"),
    ({**TENSOR, "shape": [2**40, 2**40]}, "shape", "more elements than any tensor can have"),
    ({**TENSOR, "shape": [4, -3]}, "shape.1", "a size is negative: -3"),
    ({**TENSOR, "requires_grad": 1}, "requires_grad", "expected true or false, not 1"),
    ({**TENSOR, "dtype": "long", "requires_grad": True}, "requires_grad", "a tensor of long has no gradient"),
    ({**TENSOR, "strides": [1]}, "strides", "expected 2 whole numbers, one for each size, not [1]"),
    ({**TENSOR, "strides": [-1, 1]}, "strides", "expected 2 whole numbers, one for each size, not [-1, 1]"),
    ({**TENSOR, "memory_format": "channels_last"}, "memory_format", "channels_last needs 4 dimensions, the shape has 2"),
    ({**IMAGE, "memory_format": "nhwc"}, "memory_format", "expected one of contiguous, channels_last, channels_last_3d, not 'nhwc'"),
    ({**IMAGE, "memory_format": ["x"]}, "memory_format", "expected one of contiguous, channels_last, channels_last_3d, not ['x']"),
    ({**TENSOR, "strides": [6, 1], "memory_format": "contiguous"}, "memory_format", "strides and memory_format exclude each other"),
    ({**TENSOR, "values": [1, 2]}, "values", "expected numbers nested to the shape [4, 6]"),
    ({"type": "tensor", "dtype": "float", "values": [[1, 2], [3]]}, "values", "expected numbers nested to the shape [2, 2]"),
    ({"type": "tensor", "dtype": "float", "shape": [1], "values": ["a"]}, "values", "expected numbers nested to the shape [1]"),
    ({**distributed(name="uniform"), "values": [1, 2, 3, 4]}, "values", "values and distribution exclude each other"),
    ({**TENSOR, "index": {"arg": 0, "dim": 0}}, "index", "an index needs whole numbers, not float"),
    ({**INDEX, "index": {"dim": 0}}, "index", 'expected an object such as {"arg": 0, "dim": 0}, not an object'),
    ({**INDEX, "index": {"arg": -1}}, "index.arg", "expected the position of an argument, not -1"),
    ({**INDEX, "index": {"kwarg": 3}}, "index.kwarg", "expected the name of an argument, not 3"),
    ({**INDEX, "index": {"arg": 0, "dim": "x"}}, "index.dim", "expected a dimension, not 'x'"),
    ({**INDEX, "distribution": {"name": "integers", "high": 3}}, "distribution", "an index cannot be integers"),
    (distributed(name="gauss"), "distribution.name", "expected one of uniform, normal, integers, zipf, constant, arange, permutation"),
    ({**TENSOR, "distribution": "uniform"}, "distribution.name", "expected one of uniform, normal, integers, zipf, constant"),
    (distributed(name="uniform", low=2), "distribution", "the range from 2 to 1.0 is empty"),
    (distributed(name="normal", std=-1), "distribution.std", "a standard deviation is negative: -1"),
    (distributed(name="normal", std=math.nan), "distribution.std", "expected a number, not nan"),
    (distributed(name="normal", sd=1), "distribution.sd", "unknown key 'sd'"),
    (distributed("int", name="integers"), "distribution", "missing key 'high'"),
    (distributed("int", name="integers", high=2.5), "distribution.high", "expected a whole number, not 2.5"),
    (distributed("int", name="integers", high=0), "distribution", "the range from 0 to 0 is empty"),
    (distributed("int", name="normal"), "distribution", "normal does not give whole numbers, and the dtype is int"),
    (distributed("long", name="zipf", alpha=1), "distribution.alpha", "a Zipf distribution needs alpha above 1, not 1"),
    ({**TENSOR, "__range__": ["shape"]}, "__range__", "only RangeConfigIterator reads '__range__'"),
    ({"type": "tuple", "value": [{"type": "int", "value": [1, 2], "__list__": ["value"]}]}, "value.0.__list__", "'__list__' inside a list"),
]


@pytest.mark.parametrize(("arg", "place", "what"), WRONG, ids=[what for _, _, what in WRONG])
def test_what_the_grammar_refuses(arg: Any, place: str, what: str) -> None:
    got = found(arg)
    assert got
    assert got[0][0] == place
    assert got[0][1].startswith(what)


def test_all_mistakes_of_one_argument_are_found() -> None:
    arg = {"type": "tensor", "dtype": "flaot", "shape": [-1, "x"], "requires_grad": "no", "stride": [1]}
    assert [place for place, _ in found(arg)] == ["stride", "dtype", "shape.0", "shape.1", "requires_grad"]


RANGES: list[tuple[dict[str, Any], str]] = [
    ({**TENSOR, "shape": [[1]], "__range__": ["shape"]}, "expected [min, max] or [min, max, step] of whole numbers, not [1]"),
    ({**TENSOR, "shape": [[5, 1]], "__range__": ["shape"]}, "the range [5, 1] is empty"),
    ({**TENSOR, "shape": [[1, 5, 0]], "__range__": ["shape"]}, "the step of [1, 5, 0] is not above 0"),
    ({**TENSOR, "shape": [[-2, 5]], "__range__": ["shape"]}, "a range of sizes begins below 0: [-2, 5]"),
    (
        {**TENSOR, "shape": [[1, math.nan]], "__range__": ["shape"]},
        "expected [min, max] or [min, max, step] of whole numbers, not [1, nan]",
    ),
    ({**TENSOR, "shape": 3, "__range__": ["shape"]}, "expected a list of sizes and ranges, not 3"),
    ({**TENSOR, "__range__": ["dtype"]}, "expected a list of one or more alternatives, not 'float'"),
    ({**TENSOR, "__range__": ["value"]}, "the argument has no attribute 'value' to expand"),
    ({**TENSOR, "requires_grad": True, "__range__": ["requires_grad"]}, "'requires_grad' of a tensor has no range"),
    ({**TENSOR, "__range__": "shape"}, "expected a list of attributes such as [\"value\"], not 'shape'"),
    ({**TENSOR, "__range__": [["shape"]]}, "expected a list of attributes such as [\"value\"], not [['shape']]"),
    ({**TENSOR, "shape": [], "__list__": ["shape"]}, "expected a list of one or more alternatives, not []"),
    ({**TENSOR, "shape": [[1, 2]], "__range__": ["shape"], "__list__": ["shape"]}, "'shape' is in both __range__ and __list__"),
    ({"type": "int", "value": [1, 2.5], "__range__": ["value"]}, "expected [min, max] or [min, max, step] of whole numbers, not [1, 2.5]"),
    (
        {"type": "float", "value": [0.0, math.inf, 1], "__range__": ["value"]},
        "expected [min, max] or [min, max, step] of numbers, not [0.0, inf, 1]",
    ),
    ({"type": "bool", "value": True, "__range__": ["value"]}, "expected a list of one or more alternatives, not true"),
    ({"type": "complex", "value": [1, 2], "__range__": ["value"]}, "'value' of a complex has no range"),
    ({"type": "odd", "value": [1, 2], "__range__": ["value"]}, "a 'odd' has no range"),
    ({"type": "tuple", "value": 3, "__range__": ["value"]}, "expected a list of arguments, nested at most 20 deep, not 3"),
    ({"type": "tuple", "value": [3], "__range__": ["value"]}, 'expected an argument such as {"type": "int", "value": 1}, not 3'),
    ({"type": "tuple", "value": [{**TENSOR, "__copy__": []}], "__range__": ["value"]}, "an argument inside a list cannot copy"),
]


@pytest.mark.parametrize(("arg", "what"), RANGES, ids=[what for _, what in RANGES])
def test_macros_that_say_nothing_sensible(arg: dict[str, Any], what: str) -> None:
    assert next(fault.what for fault in macro_faults(arg, ())) == what


@pytest.mark.parametrize(
    ("spec", "place", "what"),
    [
        ([], (), "expected an object with args and kwargs, not []"),
        ({}, (), "missing key 'args'"),
        ({"args": {}}, ("args",), "expected a list of arguments, not an object"),
        ({"args": [], "kwargs": []}, ("kwargs",), "expected an object of named arguments, not []"),
        ({"args": [], "kwargs": {"a b": {}}}, ("kwargs", "a b"), "'a b' cannot name an argument"),
        ({"args": [], "kwarg": {}}, ("kwarg",), "unknown key 'kwarg'"),
        ({"args": [], "__zip__": 1}, ("__zip__",), "expected true or false, not 1"),
    ],
)
def test_the_frame_of_a_spec(spec: Any, place: tuple[str, ...], what: str) -> None:
    assert [(fault.place, fault.what) for fault in spec_faults(spec, (), macros=True, strict=True)] == [(place, what)]


@pytest.mark.parametrize(
    ("target", "index", "what"),
    [
        (TENSOR, {"arg": 0, "dim": 1}, None),
        (TENSOR, {"arg": 0, "dim": -2}, None),
        (TENSOR, {"arg": 0}, None),
        (TENSOR, {"arg": 2, "dim": 0}, "args[2] is not a tensor of this spec"),
        ({"type": "int", "value": 1}, {"arg": 0, "dim": 0}, "args[0] is not a tensor of this spec"),
        (TENSOR, {"kwarg": "w", "dim": 0}, "'w' is not a tensor of this spec"),
        (TENSOR, {"arg": 0, "dim": 2}, "args[0] has 2 dimensions, none is 2"),
        ({**TENSOR, "shape": [0, 2]}, {"arg": 0, "dim": 0}, "dimension 0 of args[0] is empty, so nothing can be looked up in it"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_an_index_points_at_a_dimension_that_is_there(
    target: dict[str, Any], index: dict[str, Any], what: str | None, nested: bool
) -> None:
    pointer = {**INDEX, "index": index}
    spec = {"args": [target, {"type": "tuple", "value": [pointer]} if nested else pointer]}
    assert [fault.what for fault in reference_faults(spec, ())] == ([what] if what else [])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from([*KEYS, "odd"]),
    st.dictionaries(st.sampled_from(sorted({key for keys in KEYS.values() for key in keys} | {"__range__"})), JSON),
)
def test_anything_at_all_is_judged_without_a_crash(kind: str, rest: dict[str, Any]) -> None:
    arg = {"type": kind, **rest}
    for fault in [*argument_faults(arg, ()), *macro_faults(arg, ()), *reference_faults({"args": [arg]}, ())]:
        assert fault.what
    assert shown(rest).isprintable()


def test_deep_nesting_is_refused_and_not_followed() -> None:
    arg: dict[str, Any] = {"type": "int", "value": 1}
    for _ in range(400):
        arg = {"type": "tuple", "value": [arg], "__range__": ["value"]}
    assert [fault.what for fault in macro_faults(arg, ())] == ["expected a list of arguments, nested at most 20 deep, not [an object]"]
    assert found(arg)[-1][1] == "lists are nested more than 20 deep"
