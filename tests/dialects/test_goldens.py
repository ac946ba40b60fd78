"""What the dialects write stays as it is: order, ids, keys, configs, statuses and how many values each list has."""

from __future__ import annotations

import json

import pytest

from tests.dialects.golden import FOLDER, SCENARIOS, found

pytestmark = pytest.mark.torch
QUICK = ("param-troubled", "param-duplicates")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in SCENARIOS])
def test_a_scenario_ends_as_before(name: str) -> None:
    assert found(name) == json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
