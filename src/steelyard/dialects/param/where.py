"""Conditions on a combination of arguments, such as `args[0].shape[1] == args[1].shape[0]`, read without running anything.

They are written as in Python, with numbers, texts, true, false and null, `args` and `kwargs` with positions and names behind
them, `len(…)`, the signs + - * / // %, comparisons, and, or, not. Python's own parser reads them; all other syntax is refused.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.errors import UsageError

Spec = Mapping[str, Any]
Term = Callable[[Spec], Any]

LONGEST = 1000
DEEPEST = 50
REMEDY = "use args, kwargs, len(…), numbers, texts, + - * / // %, comparisons, and, or, not"
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_ORDERS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_SIGNS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


class Unanswerable(Exception):
    """A condition has no result for one combination: a place is missing, or values cannot be compared."""


@dataclass(frozen=True)
class Condition:
    """A condition as written, and the function that tests it."""

    text: str
    term: Term

    def holds(self, spec: Spec) -> bool:
        """Whether a combination is kept; raises Unanswerable if that is unknown."""
        answer = self.term(spec)
        if not isinstance(answer, bool):
            raise Unanswerable(f"it gives {_kind(answer)}, not true or false")
        return answer


def condition(text: str) -> Condition:
    """Parse a condition; a mistake in it is a usage error."""
    if len(text) > LONGEST:
        raise UsageError(f"a condition is longer than {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError("is not a condition", why=getattr(error, "msg", "") or str(error), do=REMEDY) from None
    return Condition(text, _term(tree.body, text.strip()))


def _term(node: ast.expr, text: str, depth: int = 0) -> Term:
    if depth > DEEPEST:
        raise UsageError("a condition is nested too deeply")

    def inner(part: ast.expr) -> Term:
        return _term(part, text, depth + 1)

    match node:
        case ast.BoolOp():
            terms, decide = [inner(value) for value in node.values], any if isinstance(node.op, ast.Or) else all
            return lambda spec: decide(_truth(term(spec)) for term in terms)
        case ast.UnaryOp(op=ast.Not()):
            denied = inner(node.operand)
            return lambda spec: not _truth(denied(spec))
        case ast.UnaryOp(op=ast.USub()):
            return _calculate(operator.sub, lambda spec: 0, inner(node.operand))
        case ast.BinOp() if type(node.op) in _SIGNS:
            return _calculate(_SIGNS[type(node.op)], inner(node.left), inner(node.right))
        case ast.Compare() if all(type(order) in _ORDERS for order in node.ops):
            return _compare([_ORDERS[type(order)] for order in node.ops], [inner(part) for part in (node.left, *node.comparators)])
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return lambda spec: value
        case ast.Name(id=word) if word in _WORDS:
            return lambda spec: _WORDS[word]
        case ast.Call(func=ast.Name(id="len"), args=[held], keywords=[]):
            measured = inner(held)
            return lambda spec: _length(measured(spec))
        case ast.Name() | ast.Attribute() | ast.Subscript() if steps := _steps(node):
            return lambda spec: _follow(spec, steps)
    refused = ast.get_source_segment(text, node) or text
    raise UsageError(f"{refused[:60]!r} cannot be part of a condition", do=REMEDY)


def _steps(node: ast.expr) -> list[str | int]:
    """Return the path from args or kwargs to a value; empty if the expression is not such a path."""
    steps: list[str | int] = []
    while True:
        match node:
            case ast.Attribute(value=rest, attr=name):
                step: str | int = name
            case ast.Subscript(value=rest, slice=ast.Constant(value=str() | int() as name)) if type(name) is not bool:
                step = name
            case ast.Name(id="args" | "kwargs" as root):
                return [root, *reversed(steps)]
            case _:
                return []
        steps.append(step)
        node = rest


def _compare(orders: Sequence[Callable[[Any, Any], bool]], terms: Sequence[Term]) -> Term:
    def run(spec: Spec) -> bool:
        values = [term(spec) for term in terms]
        try:
            return all(order(left, right) for order, left, right in zip(orders, values, values[1:], strict=False))
        except (TypeError, RecursionError):
            raise Unanswerable(f"{' and '.join(_kind(value) for value in values)} cannot be ordered") from None

    return run


def _follow(spec: Spec, steps: list[str | int]) -> Any:
    value: Any = spec
    for count, step in enumerate(steps, 1):
        there = step < len(value) if isinstance(step, int) and isinstance(value, list) else isinstance(value, Mapping) and step in value
        if not there:
            text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in steps[:count])
            raise Unanswerable(f"{text[1:]} does not exist")
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
