"""A packed document is shorter and loses nothing; one that is too large for a page loses what matters least, and says so."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide
from steelyard.model.case import Case
from steelyard.report.web.document import document
from steelyard.report.web.fit import MANY, STEPS, fit, weight
from steelyard.report.web.packing import pack, packed_rows
from steelyard.store.runs import Header, Run
from tests.analyze.saved import pair, record
from tests.report.web.shape import check
from tests.report.web.unpacking import unpack, unpacked_rows

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abv"), inner, max_size=2)),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from(["id", "x", "y", "z"]), values, max_size=4), max_size=12))
def test_any_rows_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    assert json.loads(json.dumps(unpacked_rows(json.loads(json.dumps(packed_rows(rows)))))) == rows


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    ids = [
        Case("op/a", (("n", number), ("m", number % 7)), variant=variant).id
        for number in range(1, MANY // 2 + 2)
        for variant in ("eager", "half")
    ]
    answers = [record(id, 1e-3 * (1 + place % 5), effective={"blocks": 3}) for place, id in enumerate(ids)]
    pairs = tuple(pair(base, head, 1.1, 0.01) for base, head in zip(ids[::2], ids[1::2], strict=True))
    run = Run(Path("a"), Header(id="a", machine_key="m"), tuple(answers), pairs)
    old = Run(Path("b"), Header(id="b", machine_key="m"), tuple(record(id, 1e-3) for id in [*ids[:40], Case("op/gone").id]))
    return document([run], base=RunsSide("b", (old,)))


def test_a_large_document_comes_back_whole(large: dict[str, Any]) -> None:
    check(large)
    small = json.dumps(pack(large))
    assert len(small) < 0.6 * len(json.dumps(large))
    assert unpack(json.loads(small)) == large


def test_a_small_document_stays_as_it_is() -> None:
    made = document([Run(Path("a"), Header(id="a"), (record(Case("op/a").id, 1.0),))])
    assert pack(made) is made and unpack(made) is made


def test_what_a_document_will_weigh_is_known_before_it_is_packed(large: dict[str, Any]) -> None:
    assert weight(large) == pytest.approx(len(json.dumps({**pack(large), "charts": {}}, separators=(",", ":"))), rel=0.25)


def test_where_there_is_room_nothing_is_left_out(large: dict[str, Any]) -> None:
    same = copy.deepcopy(large)
    assert 0 < fit(same) < 8_700_000 and same == large


def test_what_matters_least_is_left_out_first_and_said(large: dict[str, Any]) -> None:
    tight, empty = copy.deepcopy(large), copy.deepcopy(large)
    assert fit(tight, weight(large) - 1) > 0
    assert len(tight["warnings"]) == len(large["warnings"]) + 1 and "speedups are given over one stack only" in tight["warnings"][-1]
    assert list(tight["matrix"]["by_baseline"]) == [large["matrix"]["baseline"]] and tight["cases"] == large["cases"]
    assert fit(empty, 1) == 0 and len(empty["warnings"]) == len(large["warnings"]) + len(STEPS)
    check(empty)
    assert not any(item["effective"] for item in empty["cases"]) and all("time" in item["metrics"] for item in empty["cases"])
