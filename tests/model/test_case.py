"""A case id must say the same thing however often it is read and written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import UsageError
from steelyard.model.case import MODES, Case, VariantSpec, parse_base, parse_variants
from steelyard.model.values import Digest, Scanner, parse_value, render

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "case-id.md"
EXAMPLES = re.search(r"```case\n(.*?)```", PAGE.read_text(), re.DOTALL)

names = st.tuples(st.sampled_from("aZ09_"), st.text("bY19_.-", max_size=5)).map("".join)
keys = st.tuples(st.sampled_from("aZ_"), st.text("bY19_.-", max_size=5)).map("".join)
short = st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text('aé1 ,]#"', max_size=6)
scalars = short | st.text(max_size=80)
nested = st.recursive(
    short, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=5
)
values = scalars | nested
options = st.dictionaries(keys, short, max_size=2)


@st.composite
def variants(draw: st.DrawFn) -> str:
    steps = draw(st.lists(st.tuples(names, options), min_size=1, max_size=3))
    return "+".join(str(VariantSpec(name, tuple(sorted(pairs.items())))) for name, pairs in steps)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return Case(
        workload="/".join(draw(st.lists(names, min_size=1, max_size=3))),
        params=tuple(draw(st.dictionaries(keys, values, max_size=4)).items()),
        backend=draw(names),
        variant=draw(variants()),
        mode=draw(st.sampled_from(MODES)),
        device=draw(names),
        threads=draw(st.integers(1, 512)),
        ranks=draw(st.integers(1, 512)),
        flags=tuple(draw(st.dictionaries(keys, st.text('a=1 -#"', max_size=30), max_size=3)).items()),
    )


@settings(max_examples=60)
@given(cases())
def test_an_id_is_read_back_as_the_same_case(case: Case) -> None:
    again = Case.parse(case.id)
    assert again == case
    assert again.id == case.id
    assert again.chain == case.chain
    assert "\n" not in case.id


def test_a_long_flag_keeps_the_identity() -> None:
    case = Case("op/a", flags=(("xla", "--" * 40),))
    assert Case.parse(case.id) == case


def test_a_list_with_a_long_string_keeps_the_identity() -> None:
    case = Case("op/a", (("x", ["long" * 20]),))
    assert Case.parse(case.id) == case


@settings(max_examples=60)
@given(cases())
def test_the_plain_form_keeps_the_identity(case: Case) -> None:
    assert Case.from_plain(case.plain()) == case


@settings(max_examples=60)
@given(cases(), st.randoms())
def test_the_order_of_parameters_is_no_part_of_the_identity(case: Case, rng: object) -> None:
    params, flags = list(case.params), list(case.flags)
    rng.shuffle(params)  # type: ignore[attr-defined]
    rng.shuffle(flags)  # type: ignore[attr-defined]
    assert Case.from_plain({**case.plain(), "params": dict(params), "flags": dict(flags)}).id == case.id


@given(values)
def test_a_value_is_itself_or_a_digest(value: object) -> None:
    text = render(value)
    read = Scanner(text).value()
    assert read == value or isinstance(read, Digest)
    assert type(read) is type(value) or isinstance(read, Digest)
    assert render(read) == text


@given(st.text(max_size=40))
def test_any_text_is_a_case_or_a_usage_error(text: str) -> None:
    try:
        case = Case.parse(text)
    except UsageError:
        return
    assert Case.parse(case.id) == case


@given(st.text(max_size=40))
def test_any_text_typed_as_a_value_has_one(text: str) -> None:
    parse_value(text)


def test_the_environment_that_one_is_in_is_no_part_of_an_id() -> None:
    assert Case.parse("op/a@torch/eager:eval:env=here").id == "op/a@torch/eager:eval"
    assert Case.parse("op/a@torch/eager:eval:flag.A=x:env=old").id == "op/a@torch/eager:eval:env=old:flag.A=x"


def test_there_are_enough_examples() -> None:
    assert EXAMPLES is not None
    assert len(set(EXAMPLES[1].splitlines())) == len(EXAMPLES[1].splitlines()) >= 20


@pytest.mark.parametrize("text", EXAMPLES[1].splitlines() if EXAMPLES else [])
def test_an_example_of_the_page_is_canonical(text: str) -> None:
    assert Case.parse(text).id == text


def test_defaults_are_left_out_and_aliases_settled() -> None:
    long = "op/a[n=2,dtype=float32]@torch/eager+compile+eager:eval:ranks=1:threads=2:device=cpu"
    assert Case.parse(long).id == "op/a[dtype=fp32,n=2]@torch/compile:eval:threads=2"
    assert parse_variants("eager") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a workload name"),
        ("op/a", "'@backend/variant:mode'"),
        ("op/a[n=1@torch/eager:eval", "',' or ']'"),
        ("op/a@torch", "'/variant'"),
        ("op/a@torch/eager", "':mode'"),
        ("op/a@torch/eager:eval:cores=2", "device=NAME"),
        ("op/a@torch/eager:eval trailing", "the end of the id"),
        ("op/a[n=1,n=2]@torch/eager:eval", "given twice"),
        ("op/a@torch/eager:evla", "did you mean eval"),
        ("op/a@torch/eager:eval:threads=0", "at least 1"),
        ("op/a[dtype=4]@torch/eager:eval", "a dtype is a name such as fp32, not 4"),
        ("op/a@torch/eager:eval:flag.PYTHONHOME=x", "PYTHONHOME cannot be a flag"),
        ('op/a@torch/eager:eval:flag.A="\\u0000"', "flag A holds a zero byte"),
    ],
)
def test_a_wrong_id_says_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        Case.parse(text)


def test_the_error_points_at_the_place() -> None:
    with pytest.raises(UsageError) as caught:
        Case.parse("op/a[n=]@torch/eager:eval")
    assert caught.value.do.index("^") == len("op/a[n=")


class TestBases:
    @given(names, variants())
    def test_a_base_names_a_variant_or_a_backend_too(self, backend: str, variant: str) -> None:
        assert parse_base(variant) == ("", variant) and parse_base(f"{backend}/{variant}") == (backend, variant)

    @given(cases(), names, variants())
    def test_it_is_the_same_point_otherwise(self, case: Case, backend: str, variant: str) -> None:
        base = case.against(f"{backend}/{variant}")
        assert base.backend == backend and base == case.against(variant).against(f"{backend}/{variant}")
        assert (base.workload, base.params, base.mode, base.device, base.threads) == (
            case.workload, case.params, case.mode, case.device, case.threads,
        )  # fmt: skip
        assert case.against(variant).backend == case.backend

    @pytest.mark.parametrize("text", ["torch/", "/eager", "/"])
    def test_half_a_base_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="not a base"):
            parse_base(text)
