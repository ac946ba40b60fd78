"""Repeats of several calls: what is inside a time, what each call gets, what is counted, on a clock that moves only when told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest

from steelyard import clocks
from steelyard.errors import UsageError
from steelyard.measuring import fixed
from steelyard.measuring.fixed import Sampled, Stopwatch, take
from steelyard.model.protocol import Fixed
from steelyard.model.task import Task

CALL, PREPARED, HANDED, WAITED = 1_000, 10, 7, 50_000
"""Nanoseconds of each kind of work."""


class Desk(Stopwatch):
    """A device whose calls return at once, are handed over one by one, and are done when somebody waits."""

    asynchronous = True

    def __init__(self) -> None:
        self.now = self.runs = self.since = 0
        self.said: list[str] = []

    def spend(self, nanoseconds: int, word: str = "") -> None:
        self.now += nanoseconds
        if word:
            self.said.append(word)

    def before(self) -> None:
        self.spend(0, "before")

    def sync(self) -> None:
        self.spend(WAITED, "wait")

    def hand_over(self) -> None:
        self.spend(HANDED, "hand over")

    def count_anew(self) -> None:
        self.since = self.runs
        self.said.append("count anew")

    def counts(self) -> dict[str, Any]:
        return {"runs": self.runs - self.since}

    def report(self) -> str:
        return f"{self.runs} runs"

    def task(self, spent: Callable[[int], int] = lambda run: CALL, **words: Any) -> Task:
        """A call whose time is a function of its number."""

        def call(*args: Any, **kwargs: Any) -> tuple[Any, Mapping[str, Any]]:
            self.runs += 1
            self.spend(spent(self.runs), "call")
            return args, kwargs

        return Task(call, **words)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk()
    monkeypatch.setattr(clocks, "perf_counter_ns", lambda: made.now)
    return made


def taken(desk: Desk, task: Task, renew: fixed.Renew | None = None, **words: Any) -> Sampled:
    return take(task, Fixed(**words), desk, None, "", renew)


def test_a_repeat_is_all_its_calls_until_the_last_is_done(desk: Desk) -> None:
    found = taken(desk, desk.task(), repeats=3, calls=4).phases["measure"]
    assert found.forward.time == [4 * (CALL + HANDED) + WAITED] * 3
    assert found.forward.host == [4 * CALL] * 3
    assert found.forward.unit == "ns" and not found.backward.time and found.counts == []
    assert desk.said == ["before", "count anew", *["call", "hand over"] * 4, "wait"] * 3


def test_what_is_prepared_before_a_call_is_in_the_time_and_not_the_hosts(desk: Desk) -> None:
    found = taken(desk, desk.task(prepare=lambda: desk.spend(PREPARED, "prepare")), calls=2).phases["measure"]
    assert found.forward.time == [2 * (PREPARED + CALL + HANDED) + WAITED]
    assert found.forward.host == [2 * CALL]
    assert desk.said[2:-1] == ["prepare", "call", "hand over"] * 2


def test_inputs_are_made_before_a_repeat_is_timed_and_each_call_has_its_own(desk: Desk) -> None:
    made, seen = count(), list[Any]()

    def renew() -> tuple[tuple[Any, ...], dict[str, Any]]:
        desk.spend(10**9, "renew")
        return (next(made),), {"more": -next(made)}

    def call(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))
        desk.spend(CALL)

    found = taken(desk, Task(call, ("never",)), renew, repeats=2, calls=2, inputs="fresh").phases["measure"]
    assert seen == [((0,), {"more": -1}), ((2,), {"more": -3}), ((4,), {"more": -5}), ((6,), {"more": -7})]
    assert found.forward.time == [2 * (CALL + HANDED) + WAITED] * 2
    assert desk.said[:3] == ["renew", "renew", "before"]


def test_without_new_inputs_all_calls_get_those_of_the_task(desk: Desk) -> None:
    seen: list[Any] = []
    taken(desk, Task(lambda *args, **kwargs: seen.append((args, kwargs)), (1, 2), {"a": 3}), calls=2)
    assert seen == [((1, 2), {"a": 3})] * 2


def test_nothing_is_called_before_the_first_repeat_which_compiles(desk: Desk) -> None:
    found = taken(desk, desk.task(lambda run: 10**6 if run == 1 else CALL), repeats=3, calls=2, cold=True)
    times = found.phases["measure"].forward.time
    assert times[0] - times[1] == 10**6 - CALL and times[1] == times[2]
    assert found.phases["warmup"].forward.time == [] and desk.runs == 6


def test_warm_ups_are_repeats_too(desk: Desk) -> None:
    found = taken(desk, desk.task(), warmup=2, repeats=1, calls=3)
    assert [len(found.phases[phase].forward.time) for phase in ("warmup", "measure")] == [2, 1]
    assert desk.runs == 9 and not found.backward


@pytest.mark.parametrize(
    ("counters", "expected"),
    [("none", []), ("counts", [{"runs": 2}] * 2), ("reports", [{"runs": 2, "report": f"{n} runs"} for n in (2, 4)])],
)
def test_each_repeat_has_what_was_counted_in_it(desk: Desk, counters: Any, expected: list[Any]) -> None:
    assert taken(desk, desk.task(), repeats=2, calls=2, counters=counters).phases["measure"].counts == expected


def test_the_fastest_of_many_calls_counts_for_each_input(desk: Desk) -> None:
    ms = 1_000_000
    spent = {2: ms, 40: 2 * ms}
    prepared: list[int] = []
    task = desk.task(lambda run: spent.get(run, 5 * ms), prepare=lambda: prepared.append(desk.now))
    found = taken(desk, task, clock="fastest").phases["measure"]
    within = fixed.BEFORE + fixed.DURING
    assert len(prepared) == desk.runs and within <= desk.now < within + 5 * ms + 2 * WAITED
    assert desk.runs < 40 and found.forward.time == [5 * ms + WAITED]
    assert found.forward.host == []


def test_the_fastest_call_is_looked_for_once_things_are_warm(desk: Desk) -> None:
    ms = 1_000_000
    task = desk.task(lambda run: ms if run in (2, 12) else 2 * ms if run == 20 else 5 * ms)
    assert desk.now == 0
    found = taken(desk, task, clock="fastest", calls=2).phases["measure"]
    assert found.forward.time == [ms + WAITED + 5 * ms + WAITED]


def test_a_call_that_takes_longer_than_all_that_time_is_made_once(desk: Desk) -> None:
    found = taken(desk, desk.task(lambda run: 10**9), clock="fastest", repeats=2).phases["measure"]
    assert desk.runs == 2 and found.forward.time == [10**9 + WAITED] * 2


def test_on_a_host_a_call_is_done_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(0, 100)
    monkeypatch.setattr(clocks, "perf_counter_ns", lambda: next(ticks))
    found = take(Task(lambda: None), Fixed(calls=3, counters="reports"), Stopwatch()).phases["measure"]
    assert found.forward.time == [700] and found.forward.host == [300]
    assert found.counts == [{"report": ""}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"calls": 0}, "calls is 0"), ({"calls": True}, "calls is True"), ({"inputs": "other"}, "no inputs named 'other'"),
        ({"counters": "all"}, "no counters named 'all'"), ({"clock": "slowest"}, "no clock named 'slowest'"),
        ({"cold": True, "warmup": 1}, "a cold first repeat has no calls before it"), ({"cold": True, "rehearse": 1}, "a cold first repeat"),
        ({"calls": 2, "backward": True}, "repeats of several calls"), ({"inputs": "fresh", "flush": True}, "repeats of several calls"),
        ({"counters": "counts", "clock": "events"}, "repeats of several calls"), ({"clock": "fastest", "backward": True}, "repeats of"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Fixed(**words)


def test_what_is_usual_is_not_written_down() -> None:
    assert Fixed(calls=2, inputs="random", cold=True, counters="counts", clock="fastest").plain() == {
        "calls": 2, "inputs": "random", "cold": True, "counters": "counts", "clock": "fastest",
    }  # fmt: skip
    assert Fixed().plain() == {} and not Fixed(cold=True).grouped
