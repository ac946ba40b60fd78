"""Parts of ids and expressions that users type: what they fit, mistakes told, and none that keeps a run from ever beginning."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine import filters
from steelyard.engine.filters import Filters, fits, patient
from steelyard.engine.plan import expand
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Rule
from tests.engine.planned import BOTH, CATALOGUE

CASE = Case("op/softmax", (("n", 8),))


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("op/softmax", True), ("softmax", True), (".*softmax.*", True), ("OP/SOFTMAX", False), ("(?i)OP/SOFTMAX", True),
        (r"op/softmax\[n=8\]@torch/eager:eval", True), ("softmax[n=8]@torch", True), ("n=8", True), ("n=9", False), ("^softmax", False),
        ("^op/softmax$", True), ("^op/soft$", False), ("tag:smoke", True), ("tag:smo", False),
        ("tag:smo.*", True), ("tier:1", True), ("tier:[12]", True), ("tier:2", False),
        ("softmax and n=8", True), ("softmax and not n=8", False), ("gelu or softmax and not n=9", True), ("not gelu", True),
        ("not softmax", False), ("gelu and softmax", False), ("softmax and ", False), ("sand and or", False),
    ],
)  # fmt: skip
def test_a_part_is_enough_and_tags_match_as_a_whole(text: str, fitting: bool) -> None:
    assert fits(text, CASE, ["smoke", "tier:1"]) == fitting


@given(st.data())
def test_every_part_of_an_id_fits_as_plain_text_whatever_it_means_as_an_expression(data: st.DataObject) -> None:
    case = Case("op/softmax", (("n", 8), ("x", "a+b(c"), ("dims", [1, 2])), variant="compile[mode=max-autotune]")
    begin = data.draw(st.integers(0, len(case.id) - 1))
    part = case.id[begin : data.draw(st.integers(begin + 1, len(case.id)))]
    try:
        chosen = Filters(keep=(part,))
    except UsageError as error:
        assert "not a regular expression" in error.why or not part.strip()
        return
    assert chosen.against(case, ()) is None and Filters(drop=(part,)).against(case, ()) is not None


def test_an_empty_one_is_refused() -> None:
    with pytest.raises(UsageError, match="--filter is empty"):
        Filters(keep=("",))


@pytest.mark.parametrize("text", ["[", "(", "*", "a{5,1}", "(?P<1>a)", "tag:(", "a" + "{2}" * 200 + "{99999999999}"])
def test_what_is_no_expression_is_told_by_its_option(text: str) -> None:
    with pytest.raises(UsageError, match="--exclude"):
        Filters(drop=(text,))


def test_an_expression_that_only_looks_odd_is_no_warning() -> None:
    assert Filters(keep=("[[a]",)).keep == ("[[a]",)


def test_one_that_would_never_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "PATIENCE", 0.05)
    endless = Filters(keep=(r"(\w+\S?)+!",))
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(UsageError, match="takes too long to match"), patient(endless):
        endless.against(Case("op/a_very_long_name_for_a_workload_that_nobody_could_ever_match"), ())
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_nothing_is_interrupted_where_no_signal_can_be_caught() -> None:
    said: list[bool] = []

    def match() -> None:
        with patient(Filters(keep=(".*",))):
            said.append(fits(".*", CASE, ()))

    thread = threading.Thread(target=match)
    thread.start()
    thread.join()
    assert said == [True]


class TestPlans:
    @pytest.mark.parametrize(
        ("keep", "drop", "left"),
        [
            (("op/one",), (), [8, 16]), (("one",), (), [8, 16]), (("n=8]@",), (), [8]), (("op/two", ".*n=16.*"), (), [16, None]),
            ((), ("op/one",), [None]),
            ((".*",), (".*n=8.*",), [16, None]), (("tag:smoke",), ("tier:1",), [8, 16]), (("tag:s.ow",), (), [None]),
        ],
    )  # fmt: skip
    def test_an_expression_is_found_in_an_id_or_matches_a_tag(self, keep: tuple[str, ...], drop: tuple[str, ...], left: list[Any]) -> None:
        found = expand(Experiment(matrix=(BOTH,)), CATALOGUE, filters=Filters(keep, drop))
        assert [dict(job.case.params).get("n") for job in found.jobs] == left
        assert len(found.dropped) == 3 - len(left) and {item.kind for item in found.dropped} <= {"filter"}

    @pytest.mark.parametrize(("part", "near"), [("OP/ONE", True), ("three", False)])
    def test_where_nothing_fits_the_other_case_is_suggested_if_that_does(self, part: str, near: bool) -> None:
        with pytest.raises(NothingMeasured, match="3 cases were all dropped by filters") as caught:
            expand(Experiment(matrix=(BOTH,)), CATALOGUE, filters=Filters((part,)))
        assert (f"--filter '(?i){part}'" in str(caught.value)) == near

    def test_the_filter_that_dropped_a_case_is_named(self) -> None:
        found = expand(Experiment(matrix=(BOTH,)), CATALOGUE, filters=Filters(("op/.*",), ("op/one",)))
        assert {str(item.rule) for item in found.dropped} == {"--exclude=op/one"}

    def test_what_is_filtered_away_is_not_recorded_as_denied(self) -> None:
        denying = Experiment(matrix=(BOTH,), deny=(Rule({"workload": "op/one"}, "it crashes"),))
        assert expand(denying, CATALOGUE, filters=Filters(("op/two",))).denied == ()

    @pytest.mark.parametrize("text", ["(", "tag:[", "*op"])
    def test_what_is_no_expression_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            Filters((), (text,))
