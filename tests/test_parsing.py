"""Whatever stands in a file, it is plain data or an error that names the file: no parser's own exception, no bomb."""

from __future__ import annotations

import json
import tomllib
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.codec.parsing import DEEPEST, parse
from steelyard.errors import UsageError
from steelyard.model.values import deeper_than

REFUSED: list[tuple[str, str, str]] = [
    ("yaml", "a: !!timestamp x", "f:1  not valid YAML: no timestamp can be made of 'x'"),
    ("yaml", "\n- !!bool x", "f:2  not valid YAML: no bool can be made of 'x'"),
    ("yaml", 'a: !!int ""', "f:1  not valid YAML: no int can be made of ''"),
    ("yaml", "a: !!float x", "f:1  not valid YAML: no float can be made of 'x'"),
    ("yaml", "a: !!binary é", "f:1  not valid YAML"),
    ("yaml", "a: 1" + ":59" * 3000, "f:1  a number of more than 300 digits"),
    ("yaml", "a: 0x" + "f" * 3000, "f:1  a number of more than 300 digits"),
    ("yaml", "a: !!python/object/apply:os.system [x]", "f:1  not valid YAML: could not determine a constructor"),
    ("yaml", "a: &x [1]\nb: *x", "f:2  aliases are not supported"),
    ("yaml", "[" * 5000, f"f  nested more than {DEEPEST} deep"),
    ("yaml", "{a: " * 5000, f"f  nested more than {DEEPEST} deep"),
    ("yaml", "- " * 5000, f"f  nested more than {DEEPEST} deep"),
    ("toml", "a = 0x" + "f" * 5000, "f  a: a number of more than 300 digits"),
    ("toml", "[[a]]\nb = [1, 0b" + "1" * 5000 + "]", "f  a[0].b[1]: a number of more than 300 digits"),
    ("toml", "a = " + "9" * 5000, "f  cannot be read as TOML"),
    ("toml", "a" + ".a" * 5000 + " = 1", f"f:1  a key of more than {DEEPEST} parts"),
    ("toml", "x = 1\n[a" + ' . "b"' * 5000 + "]", f"f:2  a key of more than {DEEPEST} parts"),
    ("toml", "a = {b" + ".'c'" * 30 + " = 1}", f"f:1  a key of more than {DEEPEST} parts"),
    ("toml", "a = " + "[" * 5000, f"f  nested more than {DEEPEST} deep"),
    ("toml", "a = " + "{a=" * 5000, f"f  nested more than {DEEPEST} deep"),
    ("json", "[" * 100_000, f"f  nested more than {DEEPEST} deep"),
    ("json", "[" * 30 + "]" * 30, f"f  nested more than {DEEPEST} deep"),
    ("json", '{"a": ' + "9" * 5000 + "}", "f  cannot be read as JSON"),
    ("json", '{"a": ' + "9" * 500 + "}", "f  a: a number of more than 300 digits"),
    ("json", '{"a": 1, "a": 2}', "f  a: given twice"),
]


@pytest.mark.parametrize(("form", "text", "expected"), REFUSED, ids=[f"{form}-{text[:30]}" for form, text, _ in REFUSED])
def test_what_no_reader_can_use_is_told_with_its_place(form: str, text: str, expected: str) -> None:
    with pytest.raises(UsageError) as told:
        parse(text, "f", form)
    assert str(told.value).startswith(expected)


def test_dots_in_text_and_comments_are_no_key() -> None:
    dots = "a." * 100
    text = f'# {dots}\nx = "{dots}"\ny = \'{dots}\'\nz = """\n{dots}\n"""\nw = \'\'\'{dots}\'\'\'\n"{dots}" = [1.5, 2.5]\n'
    assert parse(text, "f", "toml") == tomllib.loads(text)


def test_a_key_of_many_dots_takes_no_memory_to_refuse() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UsageError):
            parse("a" + ".a" * 50_000 + "=1", "f", "toml")
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


class TestAliases:
    def test_they_are_read_where_another_tool_has_them(self) -> None:
        assert parse("a: &x [1, 2]\nb: {c: *x}", "f", "yaml", aliases=True) == {"a": [1, 2], "b": {"c": [1, 2]}}

    @pytest.mark.parametrize(
        "text",
        [
            "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)),
            "a: &a [*a]",
            "a: &a {b: *a}",
        ],
        ids=["laughs", "circle", "circle of tables"],
    )
    def test_not_where_they_are_endless(self, text: str) -> None:
        with pytest.raises(UsageError, match="endless"):
            parse(text, "f", "yaml", aliases=True)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**290), 10**290) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(data=values)
def test_json_that_is_neither_deep_nor_long_is_read_as_it_is(data: Any) -> None:
    assert parse(json.dumps(data), "f", "json") == data


@given(depth=st.integers(0, 40), wrap=st.sampled_from([lambda x: [x], lambda x: {"a": x}, lambda x: [0, (x,)]]))
def test_depth_is_counted_in_lists_and_tables(depth: int, wrap: Callable[[Any], Any]) -> None:
    data: Any = 1
    for _ in range(depth):
        data = wrap(data)
    step = 2 if isinstance(wrap(0), list) and len(wrap(0)) == 2 else 1
    assert deeper_than(data, DEEPEST) == (step * depth > DEEPEST)


@given(form=st.sampled_from(["toml", "yaml", "json"]), text=st.text(st.sampled_from("a1.:-[]{}=,\"'#!&*|>%\n \t\\é")))
def test_any_text_is_data_or_an_error_that_names_the_file(form: str, text: str) -> None:
    try:
        parse(text, "f", form)
    except UsageError as error:
        assert error.where.startswith("f")


@given(form=st.sampled_from(["toml", "yaml", "json"]), digits=st.integers(290, 320))
def test_a_number_that_is_read_can_be_compared_as_a_float(form: str, digits: int) -> None:
    text = {"toml": "a = 0x{:x}", "yaml": "a: {}", "json": '{{"a": {}}}'}[form].format(10**digits)
    try:
        assert float(parse(text, "f", form)["a"]) >= 1e289
    except UsageError as error:
        assert digits >= 297 and "a number of more than 300 digits" in str(error)
