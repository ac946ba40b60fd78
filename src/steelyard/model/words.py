"""Options of a variant written as suffixes of its name: `int4wo-128-hqq` is int4wo with a group of 128, by HQQ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from steelyard.errors import UsageError, unknown

SWITCH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Word:
    """One option written as a suffix: a choice of words or numbers, a whole number in a range, a word that turns it on, or true and false.

    Without any limits it takes any whole number; with `zero_below`, negative numbers mean the same as 0.
    """

    option: str
    values: tuple[Any, ...] = ()
    least: int | None = None
    most: int | None = None
    on: str = ""
    switch: bool = False
    zero_below: bool = False

    def describe(self) -> dict[str, Any]:
        """The option as plain data."""
        return {
            "option": self.option, "values": list(self.values), "least": self.least, "most": self.most, "on": self.on,
            "switch": self.switch, "zero_below": self.zero_below,
        }  # fmt: skip

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Word:
        """An option from plain data."""
        return cls(**{**plain, "values": tuple(plain["values"])})

    @property
    def form(self) -> str:
        """The values allowed, for messages and lists."""
        if self.on:
            return self.on
        if self.switch:
            return "true|false"
        if self.values:
            return "|".join(map(str, self.values))
        ends = ("" if self.least is None else str(self.least), "" if self.most is None else str(self.most))
        return f"{self.option}" if ends == ("", "") else f"{self.option} {'..'.join(ends)}"

    def check(self, value: Any, variant: str) -> None:
        """Refuse a value that cannot be written as a suffix."""
        if self.on or self.switch:
            if not isinstance(value, bool):
                raise UsageError(f"{self.option} of {variant} is {value!r:.40}", do="give true or false")
        elif type(self.read(str(value), variant)) is not type(value):
            raise UsageError(f"{self.option} of {variant} is {value!r:.40}", do=f"give {self.form}")

    def write(self, value: Any, variant: str) -> str | None:
        """The canonical text of a value; empty if the suffix is left out, None if the value cannot be written as a suffix."""
        if self.on:
            return self.on if value else ""
        if self.switch:
            return str(bool(value)).lower()
        try:
            return str(self.read(str(value), variant))
        except UsageError:
            return None

    def read(self, text: str, variant: str) -> Any:
        """The option's value, from its text."""
        known: dict[str, Any] = {self.on: True} if self.on else SWITCH if self.switch else {str(value): value for value in self.values}
        if known:
            word = str(int(text)) if text.isdecimal() and text.isascii() else text.lower()
            if word not in known:
                raise unknown(f"{self.option} of {variant}", text, known)
            return known[word]
        try:
            value = int(text)
        except ValueError:
            raise UsageError(f"{self.option} of {variant} is a whole number, not {text!r:.40}") from None
        value = max(value, 0) if self.zero_below else value
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            raise UsageError(f"{self.option} of {variant} is {value}", do=f"give a whole number: {self.form}")
        return value


def read_words(name: str, rest: str, words: Sequence[Word]) -> dict[str, Any]:
    """The options in the suffixes of a variant's name; a negative number has its sign after the hyphen: `-4--1`."""
    given = _split(rest)
    found: dict[str, Any] = {}
    left = list(words)
    for text in given:
        while left and left[0].on and text.lower() != left[0].on:
            left.pop(0)
        if not left:
            raise UsageError(f"{name}{rest} has more options than variant {name} takes", do=f"write {spelling(name, words)}")
        word = left.pop(0)
        found[word.option] = word.read(text, name)
    return found


def _split(rest: str) -> list[str]:
    """The words between hyphens; an empty word is the minus sign of the next one."""
    parts, found, sign = rest.split("-")[1:], list[str](), ""
    for part in parts:
        if not part and not sign:
            sign = "-"
            continue
        found.append(sign + part)
        sign = ""
    return found + ([sign] if sign else [])


def in_full(name: str, words: Sequence[Word], options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A variant's name with all options that can be suffixes, and the remaining options, so that each meaning has one spelling.

    `int4wo`, `int4wo-0128` and `int4wo[group=128]` are all `int4wo-128`.
    """
    left, found = dict(options), name
    for word in words:
        text = word.write(options.get(word.option), name)
        if text is None:
            break
        found += f"-{text}" if text else ""
        left.pop(word.option, None)
    return found, left


def spelling(name: str, words: Sequence[Word]) -> str:
    """How a variant is written: `int4wo[-32|64|128|256][-hqq]`."""
    return name + "".join(f"[-{word.form}]" for word in words)


Known = TypeVar("Known")


def find_named(name: str, *tables: Mapping[str, Known]) -> tuple[Known, dict[str, Any]] | None:
    """The variant that a name means, from the first table that has it, with the options in its suffixes; None if no table has it.

    The longest name wins: `semi-sparse` is not `semi` with a suffix.
    """
    for known, rest in prefixes(name):
        for table in tables:
            if known in table and (not rest or _words_of(table[known])):
                return table[known], read_words(known, rest, _words_of(table[known])) if rest else {}
    return None


def _words_of(found: Any) -> tuple[Word, ...]:
    """The options that can be suffixes of a variant, which may be plain data."""
    return tuple(map(Word.of, found.get("words", ()))) if isinstance(found, Mapping) else found.words


def prefixes(name: str) -> Iterable[tuple[str, str]]:
    """Every way to split a name at a hyphen into a variant's name and the rest, the longest name first."""
    yield name, ""
    for place in range(len(name) - 1, 0, -1):
        if name[place] == "-":
            yield name[:place], name[place:]
