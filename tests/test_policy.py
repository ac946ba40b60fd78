"""A policy decides what may pass, so every mistake in it is found, named and placed."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.codec.policy import Excuse, Policy, load_policy
from steelyard.errors import UsageError

WHOLE = """
floor = "1%"
alpha = 0.001
missing = "warn"
unclear = "fail"

[margins]
time = "3%"
peak_memory = 0.05

[cases."op/softmax*"]
time = "5%"

[cases."op/softmax[n=64]@*"]
peak_memory = "10%"

[expected]
"op/conv2d*/compile:*" = "failed"
"op/scan*" = {outcome = "slower", reason = "traded for memory"}

[allowed]
"op/scatter*" = "flaky driver"
"""


def load(folder: Path, text: str) -> Policy:
    (folder / "gate.toml").write_text(text, encoding="utf-8")
    return load_policy(folder / "gate.toml")


def test_a_policy_is_read_whole(tmp_path: Path) -> None:
    found = load(tmp_path, WHOLE)
    assert (found.floor, found.alpha, found.missing, found.unclear) == (0.01, 0.001, "warn", "fail")
    assert found.metrics == ("time", "peak_memory")
    assert found.expected == (Excuse("op/conv2d*/compile:*", "failed"), Excuse("op/scan*", "slower", "traded for memory"))
    assert found.allowed == (Excuse("op/scatter*", "", "flaky driver"),)
    assert found.margins_of("op/add@torch/eager:eval") == {"time": 0.03, "peak_memory": 0.05}
    assert found.margins_of("op/softmax[n=64]@torch/eager:eval") == {"time": 0.05, "peak_memory": 0.10}


def test_an_empty_policy_is_the_default(tmp_path: Path) -> None:
    assert load(tmp_path, "").margins == Policy().margins == {"time": 0.02}


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('flor = "1%"', ":1", "flor: unknown key"),
        ('floor = "1 mile"', ":1", "floor: not a share"),
        ("floor = 2", ":1", "floor: expected a share"),
        ("alpha = 0.9", ":1", "alpha: expected a share"),
        ('missing = "ignore"', ":1", "missing: expected one of fail, warn"),
        ("margins = 3", ":1", "margins: expected a table"),
        ("[margins]\ntime = -1", ":2", "margins.time: expected a share"),
        ('[cases]\n"op/*" = "5%"', ":2", 'cases."op/*": expected margins by metric'),
        ('[expected]\n"op/a[x=1.5]*" = "slow"', ":2", 'expected."op/a[x=1.5]*": expected one of slower'),
        ('[expected]\n"op/*" = {outcom = "failed"}', ":2", "unknown key 'outcom'"),
        ('[expected]\n"op/*" = {reason = "x"}', ":2", "an outcome"),
        ('[allowed]\n"op/*" = true', ":2", 'allowed."op/*": expected text'),
        ('[allowed]\n"" = "x"', ":2", "an empty pattern"),
        ("floor = ", ":1", "not valid TOML"),
        ("a = " + "[" * 5000, "", "nested more than 20 deep"),
    ],
)
def test_a_mistake_is_named_by_line_and_key(text: str, where: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        load(tmp_path, text)
    assert told.value.where == f"{tmp_path / 'gate.toml'}{where}"
    assert what in str(told.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 mistakes") as told:
        load(tmp_path, 'flor = "1%"\n[margins]\ntime = "x"\n')
    assert "flor" in told.value.why and "margins.time" in told.value.why
