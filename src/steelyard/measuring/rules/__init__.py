"""Verification rules by name: when an answer counts as right. One module each, with one function `judge`.

`steelyard` is our own, which checks a task before and after it is timed; `none` checks nothing. A rule is written like a variant,
with its options if it has any: `ptxla[tolerance=0.01]`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol, get_type_hints

from steelyard.errors import UsageError, unknown
from steelyard.measuring.verify import LeafLike
from steelyard.model.case import parse_variants
from steelyard.model.experiment import NO_RULE, OWN_RULE
from steelyard.model.record import Figure, Verification
from steelyard.model.task import Standard
from steelyard.model.units import is_amount

MOST_CALLS = 1_000_000
RAISED = "EXCEPTION_RAISED"
"""The code of a rule that could not be applied."""
Leaves = Mapping[str, LeafLike]
"""The arrays of an answer by their place in the answer."""


class Answers(Protocol):
    """The answers a rule can request; each is the last answer of some calls from the initial state.

    `rate` is how far one step of an optimizer moves a weight whatever its gradient is, as Adam's does; None for others. `standard` is the
    requirement on a variant that gives up accuracy on purpose; None for others.
    """

    @property
    def mode(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def rate(self) -> float | None: ...
    @property
    def standard(self) -> Standard | None: ...

    def candidate(self, calls: int) -> Leaves:
        """The answer of what was timed, from its initial state."""

    def eager(self, calls: int) -> Leaves:
        """The same without anything that compiles, built again."""

    def double(self, calls: int) -> Leaves:
        """The same in double precision; raises if that does not exist."""

    def beside(self, inputs: int, *, outliers: bool) -> Iterator[tuple[Leaves, Leaves]]:
        """The answers of the timed task and of its reference on the same inputs: a number of new ones, or the existing ones. Gradients in
        training."""

    def standards(self, inputs: int) -> Iterator[tuple[Leaves, Leaves]]:
        """The answers of its reference and of the plain task, in the same way; None if both are the same."""

    def scored(self, answer: Any) -> tuple[LeafLike, LeafLike] | None:
        """The scores of the timed and the plain task for the continuation of a given answer; None if they have none."""


def names() -> list[str]:
    """The names of all rules."""
    return [OWN_RULE, NO_RULE, *(item.name for item in pkgutil.iter_modules(__path__))]


def listing() -> list[tuple[str, str, list[str]]]:
    """Every rule with what it does and its options."""
    others = [(name, _module(name)) for name in names() if name not in (OWN_RULE, NO_RULE)]
    return [
        (OWN_RULE, "our own: against the best available reference, before and after timing, also with other values", []),
        (NO_RULE, "answers are not checked", []),
        *((name, str(module.__doc__).partition("\n")[0], _options(module)) for name, module in others),
    ]


def _options(module: Any) -> list[str]:
    return list(inspect.signature(module.judge).parameters)[1:]


def check(text: str) -> None:
    """Refuse a rule that does not exist, or options that it does not have, before anything is timed."""
    name, options = parse(text)
    if name not in names():
        raise unknown("verification rule", name, names())
    known = [] if name in (OWN_RULE, NO_RULE) else _options(_module(name))
    hints = get_type_hints(_module(name).judge) if known else {}
    for key, value in options.items():
        if key not in known:
            raise unknown(f"option of rule {name!r}", key, known)
        switch, whole = hints[key] is bool, hints[key] is int
        if switch and not isinstance(value, bool):
            raise UsageError(f"{key} of rule {name} is {value!r:.60}", do="write true or false")
        if whole and not (type(value) is int and 1 <= value <= MOST_CALLS):
            raise UsageError(f"{key} of rule {name} is {value!r:.60}", do=f"write a whole number from 1 to {MOST_CALLS}")
        if not switch and not is_amount(value):
            raise UsageError(f"{key} of rule {name} is {value!r:.60}", do="write a finite number of at least 0")


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The name and options of a rule."""
    try:
        steps = parse_variants(text)
    except UsageError:
        steps = ()
    if len(steps) != 1:
        raise UsageError(f"not a verification rule: {text!r:.60}", do=f"name one of {', '.join(names())}")
    return steps[0].name, dict(steps[0].options)


def asked(text: str, rule: str, option: str) -> Any:
    """The value of an option in a rule as a user wrote it; None if it is another rule or the option is left out."""
    name, options = parse(text) if text else ("", {})
    return options.get(option) if name == rule else None


def takes(text: str, option: str) -> bool:
    """Whether a rule has an option."""
    return option in _options(_module(parse(text)[0]))


def judge(text: str, answers: Answers) -> Verification:
    """Apply a rule other than our own to answers."""
    name, options = parse(text)
    found: Verification = _module(name).judge(answers, **options)
    return found


def metrics(text: str, found: Verification) -> dict[str, Figure]:
    """The figures of a rule that belong among the metrics of a record."""
    known: Mapping[str, tuple[str, Literal["lower", "higher"]]] = getattr(_module(parse(text)[0]), "FIGURES", {})
    return {name: Figure(found.figures[name], unit, better, n=1) for name, (unit, better) in known.items() if name in found.figures}


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
