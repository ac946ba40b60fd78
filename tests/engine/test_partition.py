"""Parts of a plan: every case in exactly one, whatever is known about their costs and whenever they are asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine import conduct
from steelyard.engine.partition import parse_part, past_costs, share_out, take
from steelyard.engine.plan import Plan
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.experiment import Experiment, Matrix, Rule, Settings
from steelyard.model.record import Record
from steelyard.store.runs import Header, Store
from tests.engine.drive import run_json, steelyard

SECONDS = tuple(n * 1e-6 for n in range(1, 9))


def planned(**rest: object) -> Plan:
    return conduct.from_experiment(Experiment(matrix=(Matrix(("fake/work",), {"seconds": SECONDS}),), **rest))  # type: ignore[arg-type]


def ids(plan: Plan) -> list[str]:
    return [job.case.id for job in plan.jobs]


def save(store: Store, walls: dict[str, float], created: str, **settings: str) -> None:
    """A finished run in which each case took as long as said."""
    with store.create(Header(created=created, settings=dict(settings))) as writer:
        for id, wall in walls.items():
            writer.append(Record(id, {}, "ok", started=created, wall_s=wall))
        writer.seal()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "1/2@soon", "-1/2", "1/99999999"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_part(text)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60), st.integers(1, 9))
def test_no_part_has_more_than_another_by_more_than_one_cost(costs: Sequence[float], parts: int) -> None:
    places = share_out(costs, parts)
    loads = [math.fsum(cost for cost, place in zip(costs, places, strict=True) if place == part) for part in range(1, parts + 1)]
    assert set(places) <= set(range(1, parts + 1))
    assert max(loads) - min(loads) <= max(costs) * (1 + 1e-9)


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8])
def test_together_they_have_every_case_once_in_the_written_order(parts: int, tmp_path: Path) -> None:
    whole = planned()
    each = [take(whole, parse_part(f"{number}/{parts}"), Store(tmp_path)) for number in range(1, parts + 1)]
    assert sorted(id for part in each for id in ids(part)) == sorted(ids(whole))
    for part in each:
        assert ids(part) == [id for id in ids(whole) if id in ids(part)]
        assert {item.case.id for item in part.dropped} == set(ids(whole)) - set(ids(part))


def test_the_last_cost_counts_and_an_unknown_one_is_the_median(tmp_path: Path) -> None:
    whole, store = planned(), Store(tmp_path)
    first, second, third, *_ = names = ids(whole)
    save(store, {first: 100.0, second: 2.0}, "2026-01-01T00:00:00Z")
    save(store, {first: 30.0, third: 4.0, names[3]: 0.0}, "2026-01-02T00:00:00Z")
    assert past_costs(names, store) == {first: 30.0, second: 2.0, third: 4.0}
    assert ids(take(whole, parse_part("1/2"), store)) == [first]
    assert ids(take(whole, parse_part("2/2"), store)) == names[1:]


def test_one_that_took_too_long_costs_what_it_was_allowed(tmp_path: Path) -> None:
    with Store(tmp_path).create(Header()) as writer:
        writer.append(Record("a", {}, "timeout", requested={"timeout": 300.0}))
        writer.append(Record("b", {}, "skipped"))
    assert past_costs(["a", "b"], Store(tmp_path)) == {"a": 300.0}


def test_parts_do_not_change_the_costs_that_other_parts_see_unless_a_moment_is_given(tmp_path: Path) -> None:
    whole, store = planned(), Store(tmp_path)
    first, second, *_ = ids(whole)
    save(store, {first: 5.0}, "2026-01-01T00:00:00Z")
    save(store, {first: 9.0, second: 9.0}, "2026-01-02T00:00:00Z", partition="1/2")
    assert past_costs([first, second], store) == {first: 5.0}
    assert past_costs([first, second], store, "2026-01-02") == {first: 5.0}
    assert past_costs([first, second], store, "2026-01-03") == {first: 9.0, second: 9.0}


def test_what_is_weighed_together_stays_together(tmp_path: Path) -> None:
    matrix = Matrix(("fake/work",), {"seconds": SECONDS}, variant=("half",))
    whole = conduct.from_experiment(Experiment(matrix=(matrix,), settings=Settings(vs="eager")))
    for number in (1, 2, 3):
        part = take(whole, parse_part(f"{number}/3"), Store(tmp_path))
        assert len(part.jobs) in (4, 6) and all(job.vs.id in ids(part) for job in part.jobs if job.vs)


def test_denied_cases_are_shared_out_and_an_empty_part_is_never_green(tmp_path: Path) -> None:
    whole = planned(deny=(Rule({"axes.seconds": list(SECONDS[:3])}, "too short"),))
    each = [take(whole, parse_part(f"{number}/2"), Store(tmp_path)) for number in (1, 2)]
    assert [len(part.denied) for part in each] == [2, 1]
    with pytest.raises(NothingMeasured, match="part 9/9 is empty"):
        take(whole, parse_part("9/9"), Store(tmp_path))


@pytest.mark.deep
def test_one_after_the_other_in_one_store_they_miss_and_repeat_nothing(tmp_path: Path) -> None:
    words = ["fake/work", "-a", f"seconds={','.join(f'{n}e-6' for n in range(1, 8))}"]
    seen = [record["id"] for number in (1, 2, 3) for record in run_json(*words, "--partition", f"{number}/3", cwd=tmp_path)["records"]]
    assert len(seen) == len(set(seen)) == 7
    saved = json.loads(steelyard("show", "--json", "latest", cwd=tmp_path).stdout)
    assert saved["header"]["settings"]["partition"] == "3/3"
    again = json.loads(steelyard("run", *words, "--partition", "3/3", "--dry-run", "--json", cwd=tmp_path).stdout)
    assert again["cases"] == [record["id"] for record in saved["records"]]
    assert {item["kind"] for item in again["dropped"]} == {"partition"}


@pytest.mark.deep
def test_five_times_the_same_order(tmp_path: Path) -> None:
    words = ["run", "quickstart", "fake/work", "-k", ".*", "--partition", "2/3", "--dry-run", "--json"]
    told = [steelyard(*words, cwd=tmp_path, env={"PYTHONHASHSEED": str(seed)}).stdout for seed in range(5)]
    assert len(set(told)) == 1 and json.loads(told[0])["cases"]
