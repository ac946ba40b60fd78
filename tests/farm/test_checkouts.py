"""Two checkouts compared on a farm: both arms of every pair are weighed on one host, with files that travel there where it must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.drive import steelyard
from tests.engine.farm.test_runs import events_of, lines_of, records_of
from tests.farm.places import FarmPlace, nothing_left

BENCH = """
from amount import TIMES
from steelyard import Task, workload

@workload("own/adds", axes={"n": [1000, 2000, 3000, 4000]}, backend="numpy")
def adds(n, be):
    import numpy as np
    x = np.ones(n, np.float32)

    def work():
        y = x
        for _ in range(TIMES):
            y = y + 1
        return y

    return Task(work)
"""
BASE_TIMES, HEAD_TIMES = 200, 300


def test_pairs_of_two_checkouts_stay_on_one_host(place: FarmPlace, tmp_path: Path) -> None:
    base, head = tmp_path / "base", tmp_path / "head"
    for folder, times in ((base, BASE_TIMES), (head, HEAD_TIMES)):
        folder.mkdir()
        (folder / "bench.py").write_text(BENCH)
        (folder / "amount.py").write_text(f"TIMES = {times}\n")
    words = ["run", "bench.py", "--vs-path", "../base", "--budget", "300ms", "--on", place.on(tmp_path)]
    steelyard(*words, cwd=head, env=place.environment, within=400)
    records = records_of(head)
    pairs = [line["pair"] for line in lines_of(head) if "pair" in line]
    assert len(records) == len(pairs) == 4 and {record["status"] for record in records} == {"ok"}
    for pair in pairs:
        assert pair["ratio"] == pytest.approx(HEAD_TIMES / BASE_TIMES, rel=0.2)
    begun = {event.number("group"): event.text("station") for event in events_of(head) if event.kind == "begun"}
    stations = {record["id"]: record["effective"]["host"]["station"] for record in records}
    assert len(begun) == 4 and sorted(stations.values()) == sorted(begun.values()), "each pair is kept of the last station that began it"
    for pair in pairs:
        assert pair["head"]["id"] in stations
    assert nothing_left(place.mark) == []
