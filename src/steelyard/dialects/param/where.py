"""Conditions on a combination of arguments, such as `args[0].shape[1] == args[1].shape[0]`, read without running anything.

condition  = all { "or" all }                 all = one { "and" one }          one = "not" one | comparison
comparison = sum { ("==" | "!=" | "<" | "<=" | ">" | ">=") sum }
sum        = product { ("+" | "-") product }  product = factor { ("*" | "/" | "//" | "%") factor }
factor     = "-" factor | number | "text" | true | false | null | "len" "(" sum ")" | "(" condition ")" | place
place      = ("args" | "kwargs") { "[" number "]" | "[" "text" "]" | "." name }
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.errors import UsageError

Spec = Mapping[str, Any]
Term = Callable[[Spec], Any]

LONGEST = 1000
DEEPEST = 50
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?)|(\"[^\"]*\"|'[^']*')|([A-Za-z_]\w*)|(==|!=|<=|>=|//|[-<>+*/%().\[\]]))", re.ASCII)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_SUMS: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


class Unanswerable(Exception):
    """A condition that has no answer for one combination: a place that is not there, or things that cannot be compared."""


@dataclass(frozen=True)
class Condition:
    """A condition as written, and the test it stands for."""

    text: str
    term: Term

    def holds(self, spec: Spec) -> bool:
        """Whether a combination is kept; Unanswerable where that cannot be said."""
        answer = self.term(spec)
        if not isinstance(answer, bool):
            raise Unanswerable(f"it gives {_kind(answer)}, not true or false")
        return answer


def condition(text: str) -> Condition:
    """Read a condition; a mistake in it is the user's error."""
    if len(text) > LONGEST:
        raise UsageError(f"a condition has at most {LONGEST} characters")
    return Condition(text, _Parser(text).whole())


class _Parser:
    """A cursor over the words of one condition."""

    def __init__(self, text: str) -> None:
        self.words: list[tuple[int, str]] = []
        self.at, self.depth = 0, 0
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if not found:
                raise UsageError(f"cannot read {text[position:].strip()[:20]!r} in a condition", do="see the how-to page on filters")
            kind = int(found.lastindex or 0)
            self.words.append((kind, found.group(kind)))
            position = found.end()

    def failure(self, expected: str) -> UsageError:
        got = f"not {self.words[self.at][1]!r}" if self.at < len(self.words) else "but the condition ends"
        return UsageError(f"expected {expected}, {got}")

    def peek(self) -> str:
        """The next word, if it is an operator or a name."""
        return self.words[self.at][1] if self.at < len(self.words) and self.words[self.at][0] >= 3 else ""

    def take(self, *words: str) -> str:
        found = self.peek()
        if found not in words or not found:
            return ""
        self.at += 1
        return found

    def need(self, word: str) -> None:
        if not self.take(word):
            raise self.failure(repr(word))

    def whole(self) -> Term:
        term = self.either()
        if self.at < len(self.words):
            raise self.failure("the end or a comparison")
        return term

    def either(self) -> Term:
        terms = [self.all_of()]
        while self.take("or"):
            terms.append(self.all_of())
        return terms[0] if len(terms) == 1 else lambda spec: any(_truth(term(spec)) for term in terms)

    def all_of(self) -> Term:
        terms = [self.one()]
        while self.take("and"):
            terms.append(self.one())
        return terms[0] if len(terms) == 1 else lambda spec: all(_truth(term(spec)) for term in terms)

    def one(self) -> Term:
        self.deeper()
        if self.take("not"):
            term = self.one()
            self.depth -= 1
            return lambda spec: not _truth(term(spec))
        self.depth -= 1
        return self.comparison()

    def comparison(self) -> Term:
        terms, orders = [self.sum()], []
        while found := self.take(*_ORDERS):
            orders.append(_ORDERS[found])
            terms.append(self.sum())
        if not orders:
            return terms[0]

        def compare(spec: Spec) -> bool:
            values = [term(spec) for term in terms]
            try:
                return all(order(left, right) for order, left, right in zip(orders, values, values[1:], strict=False))
            except (TypeError, RecursionError):
                raise Unanswerable(f"{' and '.join(_kind(value) for value in values)} have no order") from None

        return compare

    def sum(self) -> Term:
        term = self.product()
        while found := self.take(*_SUMS):
            term = _calculate(_SUMS[found], term, self.product())
        return term

    def product(self) -> Term:
        term = self.factor()
        while found := self.take(*_PRODUCTS):
            term = _calculate(_PRODUCTS[found], term, self.factor())
        return term

    def factor(self) -> Term:
        self.deeper()
        term = self.simple()
        self.depth -= 1
        return term

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise UsageError("a condition is nested too deeply")

    def simple(self) -> Term:
        if self.take("-"):
            inner = self.factor()
            return _calculate(operator.sub, lambda spec: 0, inner)
        if self.take("("):
            inner = self.either()
            self.need(")")
            return inner
        if self.at >= len(self.words):
            raise self.failure("a value")
        kind, word = self.words[self.at]
        if kind == 1:
            self.at += 1
            return _constant(int(word) if word.isdigit() else float(word))
        if kind == 2:
            self.at += 1
            return _constant(word[1:-1])
        if word in _WORDS:
            self.at += 1
            return _constant(_WORDS[word])
        if self.take("len"):
            self.need("(")
            inner = self.sum()
            self.need(")")
            return lambda spec: _length(inner(spec))
        if word in ("args", "kwargs"):
            self.at += 1
            return self.place(word)
        raise self.failure("args, kwargs, len or a value")

    def place(self, root: str) -> Term:
        steps: list[str | int] = [root]
        while found := self.take("[", "."):
            kind, word = self.words[self.at] if self.at < len(self.words) else (0, "")
            if found == "." and kind == 3:
                steps.append(word)
            elif found == "[" and kind == 1 and word.isdigit():
                steps.append(int(word))
            elif found == "[" and kind == 2:
                steps.append(word[1:-1])
            else:
                raise self.failure("a name" if found == "." else "a position or a name in quotes")
            self.at += 1
            if found == "[":
                self.need("]")
        return lambda spec: _follow(spec, steps)


def _constant(value: Any) -> Term:
    return lambda spec: value


def _follow(spec: Spec, steps: list[str | int]) -> Any:
    value: Any = spec
    for count, step in enumerate(steps, 1):
        there = step < len(value) if isinstance(step, int) and isinstance(value, list) else isinstance(value, Mapping) and step in value
        if not there:
            text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in steps[:count])
            raise Unanswerable(f"{text[1:]} is not there")
        value = value[step]
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unanswerable(f"{_kind(value)} is not true or false")
    return value


def _length(value: Any) -> int:
    if not isinstance(value, (list, str)):
        raise Unanswerable(f"{_kind(value)} has no length")
    return len(value)


def _calculate(apply: Callable[[Any, Any], Any], left: Term, right: Term) -> Term:
    def run(spec: Spec) -> Any:
        first, second = left(spec), right(spec)
        for value in (first, second):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise Unanswerable(f"{_kind(value)} is not a number")
        try:
            return apply(first, second)
        except ArithmeticError:
            raise Unanswerable("the numbers in it cannot be divided, or are too large") from None

    return run


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", type(None): "null"}
    return names.get(type(value), "an object")
