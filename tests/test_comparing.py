"""`steelyard.compare` as a script or a notebook uses it: real clocks, tiny budgets, verdicts that only gross errors could turn."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import steelyard
from steelyard.engine import guards
from steelyard.engine.changes import FEW, Sprinkled
from steelyard.errors import UsageError
from steelyard.machine.load import Others
from steelyard.measuring import schedule
from steelyard.model.pair import Delta

BUDGET = 0.15


def short(x: np.ndarray) -> float:
    return float(np.sort(x)[0])


def long(x: np.ndarray) -> float:
    np.sort(x)
    np.sort(x)
    return float(np.sort(x)[0])


def wrong(x: np.ndarray) -> float:
    return float(np.sort(x)[1])


def draw() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(4096)


def test_three_times_the_work_is_slower_and_says_so() -> None:
    found = steelyard.compare(short, long, setup=draw, budget=BUDGET)
    assert isinstance(found, Delta)
    assert (found.verdict, found.direction, found.material, found.paired) == ("slower", 1, True, True)
    assert str(found).startswith(f"long: {found.effect} (against short)") and "x slower [" in found.effect
    assert found.pair is not None
    assert found.pair.floor is not None


def test_other_work_on_the_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def crowded() -> Iterator[Others]:
        yield Others(1.3)

    monkeypatch.setattr("steelyard.machine.load.watch_others", crowded)
    found = steelyard.compare(short, long, setup=draw, budget=BUDGET)
    assert found.other_load == 1.3
    assert "other programs kept 1.3 CPUs busy" in str(found) and "other programs kept 1.3 CPUs busy" in found._repr_html_()
    assert "busy" not in str(replace(found, other_load=0.1)) + str(replace(found, other_load=None))


def test_the_other_way_round_it_is_faster() -> None:
    assert steelyard.compare(long, short, draw(), budget=BUDGET).verdict == "faster"


def test_a_wrong_answer_is_no_speedup() -> None:
    found = steelyard.compare(short, wrong, draw(), budget=BUDGET)
    assert found.verdict == "failed"
    assert "the answers differ" in found.reason
    assert steelyard.compare(short, wrong, draw(), budget=BUDGET, verify=False).verdict != "failed"


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_an_answer_that_is_right_once_or_kept_is_no_speedup(framework: str) -> None:
    """Arrays of numpy's are looked after whichever framework the process has loaded."""
    importlib.import_module(framework)
    calls, kept = iter(range(10**9)), {}

    def once(x: np.ndarray) -> float:
        return short(x) if next(calls) == 0 else 0.0

    def cached(x: np.ndarray) -> float:
        return kept.setdefault(id(x), short(x)) if id(x) not in kept else kept[id(x)]

    data = draw()
    for fn in (once, cached):
        found = steelyard.compare(short, fn, data, budget=BUDGET)
        assert found.verdict == "failed"
        assert found.reason.startswith("the answers differ after timing")
    assert np.array_equal(data, draw())


def test_an_answer_that_turns_wrong_in_the_copies_that_are_timed_is_no_speedup() -> None:
    count = [0]

    def late(x: np.ndarray) -> float:
        count[0] += 1
        return short(x) if count[0] < 12 else 0.0

    found = steelyard.compare(short, late, draw(), budget=BUDGET)
    assert found.verdict == "failed"
    assert found.reason.startswith("the answers differ after timing")


def test_an_answer_kept_by_a_look_at_some_values_is_no_speedup(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at values of which a change of one in 64 reaches some, and one of one in 512 none."""
    monkeypatch.setattr(guards, "_drawn", lambda: 3)
    data = np.random.default_rng(0).standard_normal(16384)
    few, more = (Sprinkled(3, *change)(np.ones(len(data))) < 0 for change in FEW[:2])
    looked_at = np.flatnonzero(more & ~few)[:8]
    kept: dict[bytes, Any] = {}

    def doubled(x: np.ndarray) -> np.ndarray:
        return x * 2

    def sampling(x: np.ndarray) -> np.ndarray:
        key = x[looked_at].tobytes()
        if key not in kept:
            kept[key] = x * 2
        return kept[key]

    found = steelyard.compare(doubled, sampling, data, budget=BUDGET)
    assert found.verdict == "failed"
    assert "part of args[0]" in found.reason


def test_a_comparison_whose_last_rebuild_failed_still_has_its_answers_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    weigh_arms = schedule.weigh_arms
    monkeypatch.setattr(schedule, "weigh_arms", lambda *args, check, **more: weigh_arms(*args, **more))
    assert steelyard.compare(short, short, draw(), budget=BUDGET).verdict != "failed"
    calls = iter(range(10**9))
    found = steelyard.compare(short, lambda x: short(x) if next(calls) == 0 else 0.0, draw(), budget=BUDGET)
    assert found.verdict == "failed"


def test_functions_that_hold_what_they_change_are_compared_as_before() -> None:
    def counting() -> Any:
        total = np.zeros(1)
        return lambda x: total.__iadd__(x[0])[0]

    assert steelyard.compare(counting(), counting(), draw(), budget=BUDGET).verdict != "failed"


def test_functions_that_change_their_inputs_are_compared_as_before() -> None:
    found = steelyard.compare(lambda x: np.add(x, 1, out=x), lambda x: np.add(x, 1, out=x), setup=draw, budget=BUDGET)
    assert found.verdict != "failed"


def test_what_functions_hold_is_moved_too() -> None:
    held, table = draw(), {"x": [1.5, 2.5]}
    found = steelyard.compare(lambda: held.sum() + table["x"][0], lambda: held.sum() + table["x"][0], budget=BUDGET)
    assert found.pair is not None
    assert not any("could not be moved" in note for note in found.pair.notes)


def test_objects_that_cannot_be_moved_are_named_and_the_interval_is_wider() -> None:
    one, two = (threading.Lock() for _ in range(2))

    def look(lock: Any) -> Callable[[], int]:
        return lambda: sum(lock.locked() for _ in range(200))

    found = steelyard.compare(look(one), look(two), budget=BUDGET)
    assert found.pair is not None and found.low is not None and found.high is not None
    assert "lock could not be moved" in found.pair.notes[-1]
    assert found.high - found.low > 0.09


def test_functions_that_change_their_inputs_get_inputs_of_their_own() -> None:
    items = [3.5, 1.5, 2.5]
    assert steelyard.compare(list.sort, list.sort, items, budget=0.05).verdict != "failed"
    assert items == [3.5, 1.5, 2.5]


@pytest.mark.parametrize(("made", "names"), [((draw(),), "tuple"), ({"x": draw()}, "mapping"), (draw(), "value")])
def test_setup_may_give_a_value_a_tuple_or_a_mapping(made: object, names: str) -> None:
    assert steelyard.compare(short, long, setup=lambda: made, budget=BUDGET).verdict == "slower"


def test_a_notebook_shows_text_and_a_picture_with_names_escaped() -> None:
    page = steelyard.compare(short, long, draw(), budget=BUDGET, names=("<script>", "b"))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<svg role='img'" in page


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        steelyard.compare(short, long, draw(), setup=draw)
    with pytest.raises(UsageError, match="takes functions"):
        steelyard.compare(short, 3)  # type: ignore[arg-type]


def test_nothing_is_imported_for_it_that_the_script_does_not_use() -> None:
    code = "import steelyard, sys; steelyard.compare(sorted, list, [3, 1], verify=False, budget=0.05); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_keywords_go_to_both_functions_and_the_result_is_short() -> None:
    found = steelyard.compare(sorted, lambda x, reverse: sorted(x, reverse=reverse), [3, 1, 2], reverse=True, budget=BUDGET)
    assert found.pair is not None and repr(found).startswith("<Weighed: ") and "Pair(" not in repr(found)
    with pytest.raises(UsageError, match="inputs either directly or from setup"):
        steelyard.compare(short, long, setup=draw, reverse=True)
    with pytest.raises(UsageError, match="seed is an option of compare and an argument of seeded"):
        steelyard.compare(seeded, seeded, 1, seed=3)


def seeded(x: int, seed: int = 0) -> int:
    return x + seed
