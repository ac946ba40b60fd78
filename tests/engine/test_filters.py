"""Expressions that users type: whole matches, mistakes told, and none that keeps a run from ever beginning."""

from __future__ import annotations

import signal
import threading

import pytest

from steelyard.engine import filters
from steelyard.engine.filters import Filters, fits, patient
from steelyard.errors import UsageError
from steelyard.model.case import Case

CASE = Case("op/softmax", (("n", 8),))


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("op/softmax", True), ("softmax", False), (".*softmax.*", True), ("OP/SOFTMAX", False), ("(?i)OP/SOFTMAX", True),
        (r"op/softmax\[n=8\]@torch/eager:eval", True), (r".*\[n=8\].*", True), ("tag:smoke", True), ("tag:smo", False),
        ("tag:smo.*", True), ("tier:1", True), ("tier:[12]", True), ("tier:2", False), ("", False),
    ],
)  # fmt: skip
def test_the_whole_must_match(text: str, fitting: bool) -> None:
    assert fits(text, CASE, ["smoke", "tier:1"]) == fitting


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
