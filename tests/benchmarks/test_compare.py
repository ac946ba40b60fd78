"""The benchmark of `compare` runs from start to end and puts a peer beside us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.test_programs import check_sheet, hand_in


@pytest.mark.deep
def test_compare_is_weighed_beside_pyperf(tmp_path: Path) -> None:
    printed, found = hand_in("compare", tmp_path, "--repeats", "1", "--cases", "9")
    check_sheet("compare", printed, found)
    names = {"steelyard compare", "steelyard compare --json", "steelyard compare, pyperf files", "pyperf compare_to"}
    assert set(found["figures"]) == names
    assert all(figure["low"] > 0 for figure in found["figures"].values())
