"""Expansion: order, ids and recorded configs against expansions written by hand and a second opinion in nested loops."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.param.expand import Config, Mistake, Sheet, expand, load, parse, recognise
from steelyard.errors import UsageError
from steelyard.model.dtypes import canonical

DEFAULT = "PyTorch:DefaultDataGenerator"
RANGED = "RangeConfigIterator"
EMBEDDING = "SplitTableBatchedEmbeddingBagsCodegenInputIterator"
TENSOR: dict[str, Any] = {"type": "tensor", "dtype": "float", "shape": [2, 3]}
ONE: dict[str, Any] = {"type": "int", "value": 1}


def info(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"input_data_generator": DEFAULT, **more, "config": list(entries)}


def inputs(*specs: Any) -> dict[str, Any]:
    return {"input": list(specs)}


def ranged(*specs: Any, **more: Any) -> Sheet:
    return expand({"op": info(inputs(*specs), input_iterator=RANGED)}, "x.json", **more)


def called(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs} if kwargs else {"args": list(args)}


def tensor(*shape: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": "float", "shape": list(shape), **more}


def shapes(sheet: Sheet) -> list[list[list[int]]]:
    assert sheet.mistakes == ()
    return [[arg["shape"] for arg in config.input["args"]] for config in sheet.configs]


def values(sheet: Sheet, key: Any = 0) -> list[Any]:
    assert sheet.mistakes == ()
    part = "args" if isinstance(key, int) else "kwargs"
    return [config.input[part][key]["value"] for config in sheet.configs]


def ids(sheet: Sheet) -> list[str]:
    return [config.id for config in sheet.configs]


def test_the_seeds_example_comes_out_as_it_is_written() -> None:
    spec = called(tensor(2, 1, 512), tensor(2, 512, 512), tensor(2, 512, 512), beta=ONE, alpha=ONE)
    sheet = expand({"torch.baddbmm": info(inputs(spec))}, "seed.json")
    where = '["torch.baddbmm"].config[0].input[0]'
    assert sheet == Sheet("seed.json", (Config("torch.baddbmm", "0|0|0", None, spec, where, ("", DEFAULT), None),), ())
    assert sheet.configs[0].full_id == "torch.baddbmm|0|0|0"


def test_the_default_iterator_counts_specs_and_keeps_them() -> None:
    first, second = {"args": [TENSOR], "kwargs": {}}, {"kwargs": {"dim": ONE}, "args": [TENSOR]}
    sheet = expand({"b": info(inputs(first, second), inputs(first)), "a": info(inputs(second))}, "x")
    assert [config.full_id for config in sheet.configs] == ["b|0|0|0", "b|0|0|1", "b|1|0|0", "a|0|0|0"]
    assert [config.input for config in sheet.configs] == [first, second, first, second]
    assert list(sheet.configs[1].input) == ["kwargs", "args"]


def test_ranges_are_inclusive_and_the_left_dimension_is_outside() -> None:
    sheet = ranged(called(tensor([3, 11, 3], 5, [1, 2], __range__=["shape"])))
    expected = [[3, 5, 1], [3, 5, 2], [6, 5, 1], [6, 5, 2], [9, 5, 1], [9, 5, 2]]
    assert shapes(sheet) == [[shape] for shape in expected]
    assert ids(sheet) == [f"0|0|0_{number}" for number in range(6)]
    assert sheet.configs[0].input == {"args": [tensor(3, 5, 1)]}


def test_earlier_arguments_are_outside_and_args_before_kwargs() -> None:
    spec = {
        "kwargs": {"beta": {"type": "int", "value": [5, 6], "__range__": ["value"]}},
        "args": [
            {"type": "int", "value": [1, 2], "__range__": ["value"]},
            {"type": "bool", "value": [True, False], "__range__": ["value"]},
        ],
    }
    got = [(*(arg["value"] for arg in config.input["args"]), config.input["kwargs"]["beta"]["value"]) for config in ranged(spec).configs]
    assert got == [(1, True, 5), (1, True, 6), (1, False, 5), (1, False, 6), (2, True, 5), (2, True, 6), (2, False, 5), (2, False, 6)]
    assert list(ranged(spec).configs[0].input) == ["args", "kwargs"]


@pytest.mark.parametrize("order", [("dtype", "shape"), ("shape", "dtype")])
def test_attributes_go_in_the_order_in_which_they_are_written(order: tuple[str, str]) -> None:
    written = {"dtype": ["float", "double"], "shape": [[1, 2]]}
    sheet = ranged(called({"type": "tensor", **{name: written[name] for name in order}, "__range__": ["shape", "dtype"]}))
    pairs = [(config.input["args"][0]["dtype"], config.input["args"][0]["shape"][0]) for config in sheet.configs]
    slow_dtype = [("float", 1), ("float", 2), ("double", 1), ("double", 2)]
    assert pairs == (slow_dtype if order[0] == "dtype" else sorted(slow_dtype, key=lambda pair: pair[1]))
    assert list(sheet.configs[0].input["args"][0]) == ["type", *order]


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        ({"type": "int", "value": [2, 6, 2]}, [2, 4, 6]),
        ({"type": "long", "value": [-1, 1]}, [-1, 0, 1]),
        ({"type": "bool", "value": [True, False]}, [True, False]),
        ({"type": "str", "value": ["none", "tanh"]}, ["none", "tanh"]),
        ({"type": "device", "value": ["cpu", "cuda"]}, ["cpu", "cuda"]),
        ({"type": "dtype", "value": ["float", "half"]}, ["float", "half"]),
        ({"type": "float", "value": [0.1, 0.3, 0.1]}, [0.1, 0.2, 0.3]),
        ({"type": "double", "value": [1, 2]}, [1.0, 2.0]),
        ({"type": "float", "value": [0.0, 1.0, 0.4]}, [0.0, 0.4, 0.8]),
    ],
)
@pytest.mark.parametrize("name", [0, "alpha"])
def test_ranges_of_values(arg: dict[str, Any], expected: list[Any], name: Any) -> None:
    macro = {**arg, "__range__": ["value"]}
    sheet = ranged(called(macro) if name == 0 else called(alpha=macro))
    assert values(sheet, name) == expected
    assert "__range__" not in json.dumps([config.input for config in sheet.configs])


@pytest.mark.parametrize(
    ("arg", "name"),
    [
        ({"type": "int", "value": [1, 8, 50], "__list__": ["value"]}, "value"),
        ({"type": "tensor", "dtype": ["half", "int64"], "shape": [2], "__list__": ["dtype"]}, "dtype"),
        ({"type": "tensor", "dtype": "float", "shape": [[1], [2, 3], []], "__list__": ["shape"]}, "shape"),
        ({"type": "complex", "value": [[1, 2], [0, 1]], "__list__": ["value"]}, "value"),
        ({"type": "tuple", "value": [[ONE], [ONE, ONE]], "__list__": ["value"]}, "value"),
        ({**TENSOR, "requires_grad": [True, False], "__list__": ["requires_grad"]}, "requires_grad"),
    ],
)
def test_alternatives_by_list(arg: dict[str, Any], name: str) -> None:
    sheet = ranged(called(arg))
    assert sheet.mistakes == ()
    assert [config.input["args"][0][name] for config in sheet.configs] == arg[name]


def test_lists_are_products_of_their_elements() -> None:
    first = {"type": "int", "value": [1, 2], "__range__": ["value"]}
    second = tensor([7, 8], __range__=["shape"])
    inner = {"type": "tuple", "value": [second], "__range__": ["value"]}
    sheet = ranged(called({"type": "genericlist", "value": [first, ONE, inner], "__range__": ["value"]}))
    got = [(value[0]["value"], value[1], value[2]["value"][0]["shape"]) for value in values(sheet)]
    assert got == [(1, ONE, [7]), (1, ONE, [8]), (2, ONE, [7]), (2, ONE, [8])]
    assert "__range__" not in json.dumps([config.input for config in sheet.configs])


def test_copies_by_hand() -> None:
    """The way PARAM's own batched product is swept: sizes that must agree follow one of them."""
    spec = called(
        tensor([1, 2], -1, -1, __range__=["shape"], __copy__=[{"shape": [1, [1, 1]]}, {"shape": [2, [2, 2]]}]),
        tensor(-1, [4, 6, 2], 5, __range__=["shape"], __copy__=[{"shape": [0, [0, 0]]}]),
        tensor(-1, -1, 9, __copy__=[{"shape": [0, [0, 0]]}, {"shape": [1, [1, 2]]}]),
    )
    assert shapes(ranged(spec)) == [
        [[1, 4, 9], [1, 4, 5], [1, 5, 9]],
        [[1, 6, 9], [1, 6, 5], [1, 5, 9]],
        [[2, 4, 9], [2, 4, 5], [2, 5, 9]],
        [[2, 6, 9], [2, 6, 5], [2, 5, 9]],
    ]
    assert spec["args"][2]["shape"] == [-1, -1, 9]
    assert "__copy__" not in json.dumps([config.input for config in ranged(spec).configs])


def test_copies_read_what_stands_there_at_that_moment() -> None:
    chain = called(
        tensor([3, 4], __range__=["shape"]), tensor(-1, __copy__=[{"shape": [0, [0, 0]]}]), tensor(-1, __copy__=[{"shape": [0, [1, 0]]}])
    )
    assert shapes(ranged(chain)) == [[[3], [3], [3]], [[4], [4], [4]]]
    early = called(tensor(-1, __copy__=[{"shape": [0, [1, 0]]}]), tensor(-1, __copy__=[{"shape": [0, [2, 0]]}]), tensor(5))
    sheet = ranged(early)
    assert sheet.configs == ()
    assert [mistake.what for mistake in sheet.mistakes] == ["a size is negative: -1"]
    assert sheet.mistakes[0].path == "op.config[0].input[0].args[0].shape[0]"


def test_copies_of_other_attributes_and_of_named_arguments() -> None:
    spec = called(
        {"type": "tensor", "dtype": ["float", "half"], "shape": [6, 8], "__range__": ["dtype"]},
        {"type": "tensor", "__copy__": [{"dtype": [None, [0]]}, {"shape": [None, [0, "shape"]]}, {"shape": [-1, ["k", "value"]]}]},
        k={"type": "int", "value": [2, 3], "__range__": ["value"]},
        n={"type": "int", "value": -1, "__copy__": [{"value": [None, [0, "shape", -1]]}]},
    )
    sheet = ranged(spec)
    assert sheet.mistakes == ()
    assert [(c.input["args"][1]["dtype"], c.input["args"][1]["shape"], c.input["kwargs"]["n"]["value"]) for c in sheet.configs] == [
        ("float", [6, 2], 8), ("float", [6, 3], 8), ("half", [6, 2], 8), ("half", [6, 3], 8),
    ]  # fmt: skip


COPIES: list[tuple[Any, str]] = [
    ({"shape": [0, [1, 0]]}, 'expected a list such as [{"shape": [0, [1, 2]]}], not an object'),
    ([{"shape": [0, 1]}], "expected [i, [j, k]]: element i from element k of argument j, not [0, 1]"),
    ([{"shape": [0.5, [0, 1]]}], "expected [i, [j, k]]: element i from element k of argument j, not [0.5, [0, 1]]"),
    ([{"shape": [0, [-1, 1]]}], "expected [i, [j, k]]: element i from element k of argument j, not [0, [-1, 1]]"),
    ([{"type": [None, [0]]}], "expected [i, [j, k]]: element i from element k of argument j, not [null, [0]]"),
    ([{"shape": [0, [7, 0]]}], "there is no argument 7 to copy from"),
    ([{"shape": [0, ["k", 0]]}], "there is no argument 'k' to copy from"),
    ([{"shape": [0, [0, 2]]}], "shape of argument 0 has no element 2"),
    ([{"shape": [2, [0, 0]]}], "its own shape has no element 2"),
    ([{"strides": [0, [0, 0]]}], "argument 0 has no attribute 'strides'"),
    ([{"shape": [0, [0, "dtype"]]}], "expected a size, not 'float'"),
]


@pytest.mark.parametrize(("listed", "what"), COPIES, ids=[what for _, what in COPIES])
def test_copies_that_cannot_be_made(listed: Any, what: str) -> None:
    sheet = ranged(called(TENSOR, tensor(1, 1, __copy__=listed)))
    assert [mistake.what for mistake in sheet.mistakes] == [what]
    assert sheet.configs == ()


def test_zip_advances_every_range_together() -> None:
    spec = called(
        tensor([128, 512, 128], [1, 4], __range__=["shape"]),
        {"type": "tuple", "value": [{"type": "int", "value": [0, 3], "__range__": ["value"]}, ONE], "__range__": ["value"]},
        TENSOR,
        mode={"type": "str", "value": ["a", "b", "c", "d"], "__list__": ["value"]},
    )
    sheet = ranged({**spec, "__zip__": True})
    assert sheet.mistakes == ()
    got = [(*config.input["args"][:2], config.input["kwargs"]["mode"]["value"]) for config in sheet.configs]
    assert [(first["shape"], second["value"][0]["value"], mode) for first, second, mode in got] == [
        ([128, 1], 0, "a"), ([256, 2], 1, "b"), ([384, 3], 2, "c"), ([512, 4], 3, "d"),
    ]  # fmt: skip
    assert [config.input["args"][2] for config in sheet.configs] == [TENSOR] * 4
    assert list(sheet.configs[0].input) == ["args", "kwargs"]
    assert len(ranged({**called(TENSOR), "__zip__": True}).configs) == 1


def test_a_zip_of_unequal_lengths_is_a_mistake() -> None:
    sheet = ranged({**called(tensor([1, 3], [1, 2], __range__=["shape"])), "__zip__": True})
    line = "x.json  op.config[0].input[0].__zip__  op 0|0|0_*: the ranges to zip have 3 and 2 values; make them equally long"
    assert [str(mistake) for mistake in sheet.mistakes] == [line]


def test_filters_drop_and_the_kept_are_counted() -> None:
    spec = called(tensor([1, 3], [1, 3], __range__=["shape"]), tensor(-1, __copy__=[{"shape": [0, [0, 1]]}]))
    sheet = ranged({**spec, "__where__": ["args[0].shape[0] <= args[0].shape[1]", "args[1].shape[0] != 2"]})
    assert shapes(sheet) == [[[1, 1], [1]], [[1, 3], [3]], [[2, 3], [3]], [[3, 3], [3]]]
    assert ids(sheet) == ["0|0|0_0", "0|0|0_1", "0|0|0_2", "0|0|0_3"]
    assert sheet.dropped == 5


@pytest.mark.parametrize(
    ("where", "path", "what"),
    [
        ("args", "__where__", "expected a list of conditions, not 'args'"),
        ([3], "__where__[0]", "expected a condition such as 'args[0].shape[0] % 8 == 0', not 3"),
        (["true", "1 +"], "__where__[1]", "'1 +': expected a value, but the condition ends"),
        (["args[4].shape == 1"], "__where__", "'args[4].shape == 1' has no answer: args[4] is not there"),
    ],
)
def test_filters_that_cannot_be_used(where: Any, path: str, what: str) -> None:
    sheet = ranged({**called(tensor([1, 9], __range__=["shape"])), "__where__": where})
    assert [(mistake.path, mistake.what) for mistake in sheet.mistakes] == [(f"op.config[0].input[0].{path}", what)]
    assert sheet.configs == ()


def test_an_alternative_that_is_wrong_costs_its_own_combinations() -> None:
    arg = {"type": "tensor", "dtype": ["float", "flaot", "long"], "shape": [[1, 2]], "requires_grad": True, "__range__": ["dtype", "shape"]}
    sheet = ranged(called(arg), called(TENSOR))
    assert ids(sheet) == ["0|0|0_0", "0|0|0_1", "0|0|1_0"]
    assert [mistake.what for mistake in sheet.mistakes] == ["no dtype named 'flaot'", "a tensor of long has no gradient"]


def test_a_combination_that_is_wrong_keeps_its_number() -> None:
    index = {"type": "tensor", "dtype": "long", "shape": [3], "index": {"arg": 0, "dim": 0}}
    sheet = ranged(called(tensor([0, 2], __range__=["shape"]), index))
    assert ids(sheet) == ["0|0|0_1", "0|0|0_2"]
    assert [mistake.what for mistake in sheet.mistakes] == ["dimension 0 of args[0] is empty, so nothing can be looked up in it"]


def test_builds_by_inputs_with_ids_that_do_not_pile_up() -> None:
    specs = [called({"type": "int", "value": number}) for number in (7, 8, 9)]
    entry = {"build": specs, "input": [called(TENSOR), called(TENSOR, TENSOR)]}
    sheet = expand({"op": info(entry, entry, build_data_generator="DefaultDataGenerator", seed=5)}, "x")
    assert ids(sheet) == [f"{entry}|{build}|{input}" for entry in (0, 1) for build in (0, 1, 2) for input in (0, 1)]
    assert [config.build for config in sheet.configs[:6]] == [specs[0], specs[0], specs[1], specs[1], specs[2], specs[2]]
    assert {config.generators for config in sheet.configs} == {(DEFAULT, DEFAULT)}
    assert {config.seed for config in sheet.configs} == {5}


def test_ranged_builds() -> None:
    build = called({"type": "int", "value": [1, 2], "__range__": ["value"]})
    entry = {"build": [build, called()], "input": [called(TENSOR)]}
    sheet = expand({"op": info(entry, build_iterator=RANGED, build_data_generator=DEFAULT)}, "x")
    assert ids(sheet) == ["0|0_0|0", "0|0_1|0", "0|1_0|0"]
    assert [config.build for config in sheet.configs] == [
        called({"type": "int", "value": 1}),
        called({"type": "int", "value": 2}),
        called(),
    ]


@pytest.mark.parametrize(("entry", "build"), [({}, None), ({"build": None}, None), ({"build": []}, [])])
def test_no_build_is_not_an_empty_build(entry: dict[str, Any], build: Any) -> None:
    sheet = expand({"op": info({**entry, **inputs(called())}, build_data_generator=DEFAULT)}, "x")
    assert [(config.id, config.build) for config in sheet.configs] == [("0|0|0", build)]


@pytest.mark.parametrize("prefix", ["", "PyTorch:", "PyTorch::"])
def test_names_with_and_without_their_prefix(prefix: str) -> None:
    op = {
        "input_iterator": f"{prefix}{RANGED}",
        "input_data_generator": f"{prefix}DefaultDataGenerator",
        "config": [inputs(called(TENSOR))],
    }
    sheet = expand({"op": op}, "x")
    assert ids(sheet) == ["0|0|0_0"]
    assert sheet.configs[0].generators == ("", DEFAULT)


def test_the_embedding_iterator_takes_the_tables_from_the_build() -> None:
    names = ("num_tables", "rows", "dim", "pooling", "weighted", "weights_precision")
    build = called(
        *({"type": "int", "name": name, "value": number} for number, name in enumerate(names)), optimizer={"type": "str", "value": "sgd"}
    )
    spec = called(
        {"type": "int", "name": "batch_size", "value": [2, 4, 2], "__range__": ["value"]},
        {"type": "int", "name": "pooling_factor", "value": [10, 30], "__list__": ["value"], "indices_tensor": "a.pt"},
    )
    generator = "SplitTableBatchedEmbeddingBagsCodegenInputDataGenerator"
    op = info({"build": [build, build], "input": [spec, spec]}, input_iterator=EMBEDDING, build_data_generator=DEFAULT)
    sheet = expand({"op": {**op, "input_data_generator": generator}}, "x")
    assert sheet.mistakes == ()
    assert ids(sheet) == [f"0|{b}|{s}_{number}" for b in (0, 1) for s in (0, 1) for number in range(4)]
    assert [[arg["value"] for arg in config.input["args"]] for config in sheet.configs[:4]] == [
        [0, 1, 2, 2, 10, 4, 5], [0, 1, 2, 2, 30, 4, 5], [0, 1, 2, 4, 10, 4, 5], [0, 1, 2, 4, 30, 4, 5],
    ]  # fmt: skip
    assert sheet.configs[0].input["args"][4] == {"type": "int", "name": "pooling_factor", "value": 10, "indices_tensor": "a.pt"}
    assert sheet.configs[0].input["kwargs"] == {}
    odd = expand(
        {"op": {**op, "input_data_generator": generator, "config": [{"build": [build], "input": [{**spec, "__zip__": True}]}]}}, "x"
    )
    assert [mistake.what for mistake in odd.mistakes] == ["unknown key '__zip__'"]
    alone = expand({"op": {**op, "input_data_generator": generator, "config": [inputs(spec)]}}, "x")
    assert [mistake.what for mistake in alone.mistakes] == [f"{EMBEDDING} needs a build of 6 arguments or more"]


def test_a_custom_iterator_sees_the_build_and_gives_ids_and_specs() -> None:
    def twice(configs: dict[str, Any], key: str, device: str) -> Iterator[tuple[Any, Any]]:
        for number, spec in enumerate(configs[key]):
            spec["args"].append(configs["build"]["args"][0])
            yield number, spec
            yield f"{device}_{number}", {"args": []}

    spec = called(TENSOR)
    entry = {"build": [called(ONE), called({"type": "int", "value": 2})], "input": [spec], "rows": 7}
    op = info(entry, input_iterator="Twice", build_data_generator=DEFAULT)
    sheet = expand({"op": op}, "x", device="cuda", iterators={"Twice": twice})
    assert sheet.mistakes == ()
    assert ids(sheet) == ["0|0|0", "0|0|cuda_0", "0|1|0", "0|1|cuda_0"]
    assert [config.input["args"][-1:] for config in sheet.configs] == [[ONE], [], [{"type": "int", "value": 2}], []]
    assert spec == called(TENSOR)


def raising(configs: dict[str, Any], key: str, device: str) -> Iterator[tuple[Any, Any]]:
    yield "first", called(TENSOR)
    raise ValueError("no\x1b[31m more")


@pytest.mark.parametrize(
    ("given", "what", "count"),
    [
        (raising, "iterator Mine raised ValueError: no\\x1b[31m more", 1),
        (lambda *_: 3, "iterator Mine raised TypeError: 'int' object is not iterable", 0),
        (lambda *_: [("a", called()), ("a", called())], "iterator Mine gave ['a', an object]", 1),
        (lambda *_: [("a|b", called())], "iterator Mine gave ['a|b', an object]", 0),
        (lambda *_: ["ab"], "iterator Mine gave 'ab'", 0),
        (lambda *_: [("a", 3), ("b", called())], "expected an object with args and kwargs, not 3", 1),
        (lambda *_: ((number, called()) for number in itertools.count()), "more combinations than fit: a file has at most 50 configs", 0),
    ],
)
def test_a_custom_iterator_may_do_anything(given: Any, what: str, count: int) -> None:
    sheet = expand(
        {"op": info(inputs({}), input_iterator="Mine"), "after": info(inputs(called()))}, "x", iterators={"Mine": given}, most=50
    )
    assert [mistake.what for mistake in sheet.mistakes if mistake.op == "op"] == [what]
    assert sum(config.op == "op" for config in sheet.configs) == count


def test_specs_of_another_data_generator_are_its_own_affair() -> None:
    spec = {"anything": 3, "args": [{"type": "jagged", "value": [1, 2]}]}
    ranged_spec = called({"type": "int", "value": [1, 2], "__range__": ["value"], "rows": 9})
    op = {"input_data_generator": "Mine", "config": [inputs(spec)]}
    more = {"input_data_generator": "Mine", "input_iterator": RANGED, "config": [inputs(ranged_spec)]}
    sheet = expand({"op": op, "more": more}, "x", generators=["Mine"])
    assert sheet.mistakes == ()
    assert sheet.configs[0].input == spec
    assert [config.input["args"][0] for config in sheet.configs[1:]] == [{"type": "int", "value": number, "rows": 9} for number in (1, 2)]


# A second opinion: loops that count odometer-wise, written without looking at the implementation.

SIZES = st.integers(0, 4) | st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 2)).map(lambda b: [b[0], b[0] + b[1], b[2]])
TENSORS = st.fixed_dictionaries(
    {
        "type": st.just("tensor"),
        "dtype": st.lists(st.sampled_from(["float", "half", "double"]), min_size=1, max_size=2),
        "shape": st.lists(SIZES, max_size=2),
    }
)
WHOLES = SIZES.filter(lambda size: isinstance(size, list)).map(lambda size: {"type": "int", "value": size})
WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=2).map(lambda words: {"type": "str", "value": words})
MACROED = (TENSORS | WHOLES | WORDS).flatmap(lambda arg: st.permutations(list(arg)).map(lambda keys: {key: arg[key] for key in keys}))
SPECS = st.tuples(st.lists(MACROED, max_size=2), st.dictionaries(st.sampled_from(["dim", "alpha"]), MACROED, max_size=1))


def wheels(arg: dict[str, Any], place: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], list[Any]]]:
    """Every place of an argument that turns, in order, with what it turns through."""
    found: list[tuple[tuple[Any, ...], list[Any]]] = []
    for key, value in arg.items():
        if key == "shape":
            for index, size in enumerate(value):
                if isinstance(size, list):
                    found.append(
                        ((*place, key, index), [n for n in range(100) if size[0] <= n <= size[1] and (n - size[0]) % size[2] == 0])
                    )
        elif key == "value" and arg["type"] == "int":
            found.append(((*place, key), [n for n in range(100) if value[0] <= n <= value[1] and (n - value[0]) % value[2] == 0]))
        elif key in ("dtype", "value"):
            found.append(((*place, key), value))
    return found


def oracle(args: list[Any], kwargs: dict[str, Any]) -> list[dict[str, Any]]:
    turning = [wheel for at, arg in enumerate(args) for wheel in wheels(arg, ("args", at))]
    turning += [wheel for name, arg in kwargs.items() for wheel in wheels(arg, ("kwargs", name))]
    total = 1
    for _, through in turning:
        total *= len(through)
    results = []
    for number in range(total):
        spec = json.loads(json.dumps({"args": args, **({"kwargs": kwargs} if kwargs else {})}))
        rest = number
        for place, through in reversed(turning):
            rest, turn = divmod(rest, len(through))
            target = spec
            for step in place[:-1]:
                target = target[step]
            target[place[-1]] = through[turn]
        results.append(spec)
    return results


def with_macros(arg: dict[str, Any]) -> dict[str, Any]:
    return {**arg, "__range__": ["dtype", "shape"] if arg["type"] == "tensor" else ["value"]}


@given(st.lists(SPECS, min_size=1, max_size=2), st.lists(SPECS, max_size=2))
def test_expansion_agrees_with_a_second_opinion(written: list[Any], built: list[Any]) -> None:
    def macros(specs: list[Any]) -> list[Any]:
        return [
            {"args": [with_macros(arg) for arg in args], "kwargs": {key: with_macros(arg) for key, arg in kwargs.items()}}
            for args, kwargs in specs
        ]

    def loops(specs: list[Any]) -> list[tuple[str, Any]]:
        return [(f"{at}_{number}", spec) for at, (args, kwargs) in enumerate(specs) for number, spec in enumerate(oracle(args, kwargs))]

    entry = {"build": macros(built), **inputs(*macros(written))}
    sheet = expand({"op": info(entry, input_iterator=RANGED, build_iterator=RANGED, build_data_generator=DEFAULT)}, "x")
    assert sheet.mistakes == ()
    expected = [(f"0|{b}|{i}", build, spec) for b, build in loops(built) or [("0", [])] for i, spec in loops(written)]
    got = [(config.id, config.build, config.input) for config in sheet.configs]
    assert json.dumps(got) == json.dumps(expected)
    assert len({config.full_id for config in sheet.configs}) == len(sheet.configs)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)), max_size=5), st.integers(1, 3))
def test_copies_agree_with_a_second_opinion(moves: list[tuple[int, int, int, int]], top: int) -> None:
    """Three tensors of two sizes, copied among each other in any way: argument by argument, in the order of the list."""
    args = [tensor([1, top], 10 + at, __range__=["shape"], __copy__=[]) for at in range(3)]
    for to, i, j, k in moves:
        args[to]["__copy__"].append({"shape": [i, [j, k]]})
    expected = []
    for sizes in itertools.product(range(1, top + 1), repeat=3):
        table = [[size, 10 + at] for at, size in enumerate(sizes)]
        for at in range(3):
            for to, i, j, k in moves:
                if to == at:
                    table[at][i] = table[j][k]
        expected.append(table)
    assert shapes(ranged(called(*args))) == expected


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
    (info(3), "op.config[0]", "expected an object with input, and build where there is one, not 3"),
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
    (info(inputs({"args": [], "__zip__": True})), "op.config[0].input[0].__zip__", "'__zip__' is read by RangeConfigIterator alone"),
    (
        info(inputs(called(tensor([1, 2], __range__=["shape"])))),
        "op.config[0].input[0].args[0].__range__",
        "'__range__' is read by RangeConfigIterator alone",
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
    sheet = load(path)
    assert sheet.source == str(path)
    assert [config.full_id for config in sheet.configs] == ["torch.add|0|0|0"]
    with pytest.raises(UsageError, match="no such file") as caught:
        load(tmp_path / "confg.json")
    assert caught.value.do == "did you mean config.json?"
    with pytest.raises(UsageError, match="it is a folder"):
        load(tmp_path)
    path.write_bytes(b"\xff{}")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        load(path)


def test_the_grammar_needs_the_standard_library_alone(tmp_path: Path) -> None:
    """A worker runs in any environment, so it has nothing else."""
    path = tmp_path / "config.json"
    path.write_text("{}", encoding="utf-8")
    names = ["msgspec", "numpy", "yaml", "click", "rich", "torch"]
    reading = "from steelyard.dialects.param.reading import read; read(Path(sys.argv[1]))"
    code = f"import sys, steelyard.dialects.param.expand; from pathlib import Path; {reading}; "
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
