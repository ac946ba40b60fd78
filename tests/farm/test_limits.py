"""Limits of time and memory hold on the far side, and what a case leaves behind there goes with it."""

from __future__ import annotations

from pathlib import Path

from tests.engine.drive import steelyard
from tests.engine.farm.test_runs import records_of
from tests.farm.places import FarmPlace, nothing_left

ENDS = {"none": "ok", "hang": "timeout", "eat": "oom", "escape": "ok"}


def test_a_case_that_hangs_eats_memory_or_leaves_children_is_ended_there(place: FarmPlace, tmp_path: Path) -> None:
    words = ["run", "fake/work", "-a", f"fault={','.join(ENDS)}", "--timeout", "15", "--memory", "700MiB", "--budget", "5ms"]
    steelyard(*words, "--on", place.on(tmp_path), cwd=tmp_path, check=3, env=place.environment, within=400)
    found = {record["case"]["params"]["fault"]: record for record in records_of(tmp_path)}
    assert {fault: record["status"] for fault, record in found.items()} == ENDS, found
    assert all("station" in record["effective"]["host"] for record in found.values())
    assert nothing_left(place.mark) == []
