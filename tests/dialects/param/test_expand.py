"""Expansion: order, ids and recorded configs against expansions written by hand and a second opinion in nested loops."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.param.expand import Config, Sheet
from steelyard.dialects.param.expand import sheet as expand
from steelyard.errors import UsageError
from tests.dialects.param.sheets import DEFAULT, EMBEDDING, ONE, RANGED, TENSOR, called, ids, info, inputs, ranged, shapes, tensor, values


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
    ([{"shape": [2, [0, 0]]}], "shape of this argument has no element 2"),
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
        (["true", "1 +"], "__where__[1]", "'1 +': is not a condition"),
        (["args[4].shape == 1"], "__where__", "'args[4].shape == 1' has no result: args[4] does not exist"),
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


def test_an_iterator_of_ones_own_cannot_take_the_name_of_a_built_in() -> None:
    for name in (RANGED, f"PyTorch:{RANGED}", EMBEDDING):
        with pytest.raises(UsageError, match="is PARAM's own"):
            expand({"op": info(inputs(called()))}, "x", iterators={name: lambda entry, key, device: []})
