"""Gate policies: what may change by how much, and what is known to fail; a file is checked completely before anything is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from steelyard.codec.hud import HudPolicy, parse_hud
from steelyard.codec.parsing import load
from steelyard.codec.reading import CheckedFile, choice, expect, quantity, shown, text_value
from steelyard.errors import UsageError, did_you_mean
from steelyard.model.pair import MARGIN
from steelyard.model.record import BAD
from steelyard.model.units import parse_share

ALPHA = 0.01
LEAST_ALPHA = 1e-9
"""The least alpha: below it floating point cannot distinguish the probability from 0, and intervals become infinite."""
OUTCOMES = ("slower", "unclear", "missing", "incomparable", *BAD)
POLICY_KEYS = frozenset({"floor", "alpha", "missing", "unclear", "unconfirmed", "margins", "cases", "expected", "allowed", "hud"})


@dataclass(frozen=True)
class Excuse:
    """Cases, by pattern, whose outcome is expected; an empty `outcome` means any failure.

    If `most` is given, a larger change of time is not covered.
    """

    pattern: str
    outcome: str = ""
    reason: str = ""
    most: float | None = None

    def fits(self, case: str) -> bool:
        """Whether the pattern matches a case: `*` and `?` are wildcards, brackets are literal, because case ids contain them."""
        return fits(self.pattern, case)

    def covers(self, outcome: str, ratio: float | None = None) -> bool:
        """Whether an outcome is the expected one; `failed` means any way of failing."""
        if self.most is not None and ratio is not None and ratio > 1 + self.most:
            return False
        return outcome in BAD if self.outcome in ("", "failed") else outcome == self.outcome


@dataclass(frozen=True)
class Policy:
    """What the gate lets pass; the defaults are those of `compare`.

    `cases` gives cases their own margins, by pattern; if several fit, the last one in the file decides. `hud` are rules by ratio
    and status in place of margins, for the figures that they name. `known` are the changes listed in the store's own file.
    """

    margins: Mapping[str, float] = field(default_factory=lambda: {"time": MARGIN})
    floor: float | None = None
    alpha: float = ALPHA
    missing: Literal["fail", "warn"] = "fail"
    unclear: Literal["pass", "fail"] = "pass"
    unconfirmed: Literal["pass", "fail"] = "pass"
    cases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    expected: tuple[Excuse, ...] = ()
    allowed: tuple[Excuse, ...] = ()
    where: str = ""
    hud: HudPolicy | None = None
    known: tuple[Excuse, ...] = ()

    def margins_of(self, case: str) -> dict[str, float]:
        """The margins by metric that apply to a case."""
        found = dict(self.margins)
        for pattern, margins in self.cases.items():
            if fits(pattern, case):
                found.update(margins)
        return found

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics judged: time, and every metric with a margin."""
        named = [*self.margins, *(metric for margins in self.cases.values() for metric in margins)]
        return tuple(dict.fromkeys(("time", *named)))


def fits(pattern: str, case: str) -> bool:
    """Match a case id, taking brackets literally."""
    return fnmatchcase(case, pattern.replace("[", "[[]"))


def load_policy(path: Path) -> Policy:
    """Read a policy file, or raise one error that names every mistake in it by line and key path."""
    data, text = load(path, "toml")
    return parse_policy(data, str(path), text)


def parse_policy(data: Mapping[str, Any], where: str, text: str = "") -> Policy:
    """Return the checked policy; one error names all mistakes."""
    page = CheckedFile(where, text)
    page.known(data, "", POLICY_KEYS)
    policy = Policy(
        margins=_margins(page, page.table(data.get("margins", {}), "margins"), "margins") or Policy().margins,
        floor=page.read(data, "", "floor", _share, None),
        alpha=page.read(data, "", "alpha", _alpha, ALPHA),
        missing=page.read(data, "", "missing", choice(("fail", "warn")), "fail"),
        unclear=page.read(data, "", "unclear", choice(("pass", "fail")), "pass"),
        unconfirmed=page.read(data, "", "unconfirmed", choice(("pass", "fail")), "pass"),
        cases={pattern: _own_margins(page, pattern, value) for pattern, value in _patterns(page, data, "cases")},
        expected=tuple(_expected(page, pattern, value) for pattern, value in _patterns(page, data, "expected")),
        allowed=tuple(_allowed(page, pattern, value) for pattern, value in _patterns(page, data, "allowed")),
        where=where,
        hud=parse_hud(page, data["hud"]) if "hud" in data else None,
    )
    page.finish()
    return policy


_share = quantity(parse_share, "a share such as 2% or 0.02", lambda share: 0 < share < 1)
_alpha = quantity(parse_share, f"a share such as 0.01, from {LEAST_ALPHA:g} to 0.5", lambda share: LEAST_ALPHA <= share <= 0.5)


def _patterns(page: CheckedFile, data: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a table whose keys are patterns of case ids."""
    for pattern, value in page.table(data.get(key, {}), key).items():
        if pattern.strip():
            yield pattern, value
        else:
            page.wrong(f'{key}.""', "an empty pattern fits no case", near='""')


def _margins(page: CheckedFile, table: Mapping[str, Any], path: str) -> dict[str, float]:
    found = {metric: page.read(table, path, metric, _share, None) for metric in table}
    return {metric: margin for metric, margin in found.items() if margin is not None}


def _own_margins(page: CheckedFile, pattern: str, value: Any) -> dict[str, float]:
    path = f'cases."{pattern}"'
    if not isinstance(value, dict) or not value:
        page.wrong(path, f'expected margins by metric, such as {{time = "5%"}}, not {shown(value)}', near=f'"{pattern}"')
        return {}
    return _margins(page, value, path)


def _expected(page: CheckedFile, pattern: str, value: Any) -> Excuse:
    table, key = {"outcome": value} if isinstance(value, str) else value, f'"{pattern}"'
    outcome, reason = page.read({key: table}, "expected", key, _outcome_and_reason, ("failed", ""), near=key)
    return Excuse(pattern, outcome, reason)


def _allowed(page: CheckedFile, pattern: str, value: Any) -> Excuse:
    key = f'"{pattern}"'
    return Excuse(pattern, "", page.read({key: value}, "allowed", key, text_value, "", near=key))


def _outcome_and_reason(table: Any) -> tuple[str, str]:
    expect(isinstance(table, dict), f"one of {', '.join(OUTCOMES)}, or a table of outcome and reason", table)
    for key in table:
        if key not in ("outcome", "reason"):
            raise UsageError(f"unknown key {key!r} (allowed: outcome, reason)", do=did_you_mean(str(key), ("outcome", "reason")))
    expect("outcome" in table, f"an outcome: one of {', '.join(OUTCOMES)}", table)
    return choice(OUTCOMES)(table["outcome"]), text_value(table["reason"]) if "reason" in table else ""
