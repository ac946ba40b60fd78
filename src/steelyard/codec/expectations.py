"""Expected failures listed in a file; differences from the list are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.codec.experiments import read_rule
from steelyard.codec.parsing import load
from steelyard.codec.policy import Excuse, parse_policy
from steelyard.codec.reading import CheckedFile, choice, text_value
from steelyard.model.case import Case
from steelyard.model.experiment import Rule
from steelyard.model.record import BAD

_MORE = ("case", "status", "reason")


@dataclass(frozen=True)
class Expectation:
    """Cases, by rule or by a pattern of their ids, and how they are known to fail; `where` is its place in the file."""

    rule: Rule
    excuse: Excuse
    where: str = ""

    def fits(self, case: Case) -> bool:
        """Whether the rule fits a case: every given key must be equal."""
        return self.rule.fits(case) and (not self.excuse.pattern or self.excuse.fits(case.id))

    def __str__(self) -> str:
        given = [str(self.rule)] if self.rule.match else []
        return ", ".join([*given, *([f"case={self.excuse.pattern}"] if self.excuse.pattern else [])])


def load_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read `[[expect]]` tables, or the `[expected]` table of a gate's policy, so that one list can serve both."""
    data, text = load(path, "toml")
    return parse_expectations(data, str(path), text)


def parse_expectations(data: Mapping[str, Any], where: str, text: str = "") -> tuple[Expectation, ...]:
    """Return the checked expectations; one error names all mistakes."""
    if "expect" not in data and "expected" in data:
        listed = parse_policy(data, where, text).expected
        return tuple(Expectation(Rule({}), item, f'{where}  expected."{item.pattern}"') for item in listed if item.outcome in BAD)
    page = CheckedFile(where, text)
    page.known(data, "", ("expect",))
    found = tuple(_expectation(page, table, path) for path, table in page.tables(data, "expect"))
    if not found:
        page.wrong("expect", "missing: nothing is expected without [[expect]] tables, or the [expected] table of a policy")
    page.finish()
    return found


def _expectation(page: CheckedFile, table: Mapping[str, Any], path: str) -> Expectation:
    pattern = page.read(table, path, "case", text_value, "")
    if "status" not in table:
        page.wrong(path, f"status is missing: one of {', '.join(BAD)}")
    status = page.read(table, path, "status", choice(BAD), "failed")
    alone = pattern and not set(table) - set(_MORE)
    rule = Rule({}, page.read(table, path, "reason", text_value, "")) if alone else read_rule(page, table, path, _MORE)
    return Expectation(rule, Excuse(pattern, status, rule.reason), f"{page.where}  {path}")
