"""A large document is zipped and loses nothing; one that is too large for a page loses what matters least, and says so."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze.compare import RunsSide
from steelyard.model.case import Case
from steelyard.report.web.document import document
from steelyard.report.web.fit import MANY, STEPS, fit, weight
from steelyard.report.web.html import single_page
from steelyard.store.runs import Header, Run
from tests.analyze.saved import pair, record
from tests.report.web.shape import check
from tests.report.web.test_html import Page


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


def test_a_large_page_holds_the_whole_document_zipped(large: dict[str, Any]) -> None:
    check(large)
    page = Page(single_page(large))
    assert page.data == json.loads(json.dumps(large)) and len(page.held) < 0.2 * len(json.dumps(large))
    assert single_page(large) == single_page(large), "the same document gives the same bytes"


def test_a_small_document_can_be_read_in_the_source() -> None:
    made = document([Run(Path("a"), Header(id="a"), (record(Case("op/a").id, 1.0),))])
    assert json.loads(Page(single_page(made)).held) == made


def test_what_a_document_will_weigh_is_known_before_it_is_written(large: dict[str, Any]) -> None:
    bare = {**large, "charts": {}}
    assert weight(large) == pytest.approx(len(Page(single_page(bare)).held), rel=0.05)


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
