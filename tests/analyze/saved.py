"""Runs, sides and deltas made by hand, for the tests of gate and history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.analyze.compare import RunsSide
from steelyard.model.case import Case
from steelyard.model.pair import Arm, Delta, Pair, judge
from steelyard.model.record import BAD, Figure, Record
from steelyard.store.runs import Header, Run, Store


def case(name: str | int, variant: str = "eager") -> str:
    return Case(f"op/{name}", (("n", 64),), variant=variant).id


def record(id: str, answer: float | str, **more: Any) -> Record:
    """A record with this time, or with this status."""
    if isinstance(answer, str):
        return Record(id, Case.parse(id).plain(), answer, "told to" if answer in BAD else "", **more)  # type: ignore[arg-type]
    time = Figure(answer, "s", "lower", answer * 0.999, answer * 1.001, 40)
    return Record(id, Case.parse(id).plain(), "ok", metrics={"time": time, **more.pop("metrics", {})}, **more)


def side(name: str, answers: Mapping[str, float | str], *pairs: Pair) -> RunsSide:
    records = tuple(record(id, answer) for id, answer in answers.items())
    return RunsSide(name, (Run(Path(name), Header(name), records, pairs),))


def delta(id: str, ratio: float, half: float, *, margin: float = 0.02, paired: bool = True, metric: str = "time") -> Delta:
    low, high = ratio - half, ratio + half
    return Delta(id, id, metric, ratio, low, high, margin, judge(low, high, margin), paired)


def pair(base: str, head: str, ratio: float, half: float) -> Pair:
    return Pair(Arm(base), Arm(head), ratio, ratio - half, ratio + half, 0.99, 8, 64, 1, (16, 16))


def save(store: Store, answers: Mapping[str, float | str], *pairs: Pair, created: str = "", key: str = "m" * 12, **machine: Any) -> str:
    """Put a run into a store; gives its id."""
    with store.create(Header(created=created, machine_key=key, machine=machine)) as writer:
        for id, answer in answers.items():
            writer.append(record(id, answer))
        for item in pairs:
            writer.append_pair(item)
        writer.seal()
    return writer.id
