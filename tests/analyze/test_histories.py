"""All series of a store at once are what each would be alone, within any window and from any machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.analyze.history import histories, histories_of, history
from steelyard.errors import UsageError
from steelyard.store.runs import Run, Store
from tests.analyze.saved import case, save

A, B = case("a"), case("b")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Twenty-four nights with a step, two of them elsewhere, and a failure."""
    made = Store(tmp_path)
    for night in range(24):
        git = {"commit": f"{night:040x}", "dirty": False}
        time = (1.0 if night < 12 else 1.06) * (1 + 0.001 * (night % 4))
        save(made, {A: time, B: 1.0 if night != 3 else "failed"}, created=f"2026-01-{night + 1:02}T03:00:00Z", git=git)
    for night in (1, 2):
        save(made, {B: 5.0}, created=f"2026-02-0{night}T03:00:00Z", key="other")
    return made


def runs_of(store: Store) -> list[Run]:
    return [store.open(info) for info in reversed(store.runs())]


def test_each_series_is_what_it_is_alone(store: Store) -> None:
    found = histories(store)
    assert found == {case: replace(history(store, case), conditions=None) for case in (A, B)}
    assert len(found[A].changes) == 1 and found[B].machine_key == "other" and len(found[B].points) == 2
    assert histories(store, [B, "never measured"], machine_key="m" * 12) == {B: replace(history(store, B, "m" * 12), conditions=None)}


def test_every_machine_has_its_own_series_when_asked(store: Store) -> None:
    found = histories(store, everywhere=True)
    assert list(found) == [A, B, f"{B} on {'m' * 12}"]
    assert found[f"{B} on {'m' * 12}"] == replace(history(store, B, "m" * 12), conditions=None)


def test_a_window_ends_with_the_whole_day_that_is_named(store: Store) -> None:
    found = histories(store, since="2026-01-05", until="2026-01-10")
    assert [point.created[:10] for point in found[A].points] == [f"2026-01-{day:02}" for day in range(5, 11)]
    assert len(histories(store, until="2026-01-10T02:00:00Z")[A].points) == 9
    assert histories(store, since="2027-01-01") == {}
    with pytest.raises(UsageError, match="not a date: 'yesterday'"):
        histories(store, since="yesterday")


def test_runs_at_hand_have_the_same_series_as_their_store(store: Store, tmp_path: Path) -> None:
    runs = runs_of(store)
    assert histories_of(runs) == histories(store)
    assert histories_of([*runs[:1], *runs[:1]]) == {}
    elsewhere = Store(tmp_path / "empty")
    elsewhere.folder.mkdir(parents=True)
    assert histories(elsewhere, imported=runs) == histories(store)
    assert list(histories(elsewhere, [A], imported=runs)) == [A]


def test_imported_runs_are_laid_between_those_of_the_store(store: Store, tmp_path: Path) -> None:
    extra = Store(tmp_path / "extra")
    save(extra, {A: 1.0}, created="2026-01-02T12:00:00Z")
    found = histories(store, imported=runs_of(extra))[A]
    assert [point.created[8:13] for point in found.points[:4]] == ["01T03", "02T03", "02T12", "03T03"]


def test_many_cases_are_found_as_well_as_few(tmp_path: Path) -> None:
    store, many = Store(tmp_path), [case(number) for number in range(300)]
    save(store, dict.fromkeys(many, 1.0))
    assert set(histories(store)) == set(histories(store, many)) == set(many)
    assert set(histories(store, many[:250])) == set(many[:250])
