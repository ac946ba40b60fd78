"""Sizes of arrays from named axes: constants, a workload's values, and arithmetic over these, read without running anything."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steelyard.errors import UsageError, unknown

LONGEST, DEEPEST, LARGEST = 500, 30, 2**48
REMEDY = "use names of axes, whole numbers, + - * / // % and brackets"
SIGNS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def resolve(axes: Mapping[str, Any], given: Mapping[str, Any], where: str) -> dict[str, int]:
    """The size of every axis of a definition; those that vary are given by a workload."""
    found: dict[str, int] = {}
    for name in given:
        if name not in axes:
            raise unknown("axis", name, axes, where=where)
    for name, axis in axes.items():
        kind = axis.get("type") if isinstance(axis, dict) else None
        if kind == "const":
            value = axis.get("value")
        elif kind == "var":
            value = given.get(name)
        elif kind == "expr":
            value = calculate(str(axis.get("expression", "")), found, where)
        else:
            raise UsageError(f"axis {name} is not const, var or expr", where=where)
        if type(value) is not int or not 0 <= value < LARGEST:
            raise UsageError(f"axis {name} has no size: {value!r}", do="write a whole number", where=where)
        found[name] = value
    return found


def shape(listed: Any, axes: Mapping[str, int], what: str, where: str) -> list[int] | None:
    """A shape in numbers; None if there is none, because the value is not an array."""
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise UsageError(f"shape of {what} is not a list of axes", where=where)
    return [size if type(size) is int and size >= 0 else calculate(str(size), axes, where) for size in listed]


def calculate(text: str, axes: Mapping[str, int], where: str) -> int:
    """The value of an expression over axes."""
    if len(text) > LONGEST:
        raise UsageError(f"an expression has more than {LONGEST} characters", where=where)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{text[:60]!r} is not a size", do=REMEDY, where=where) from None
    return _value(tree.body, axes, where, 0)


def _value(node: ast.expr, axes: Mapping[str, int], where: str, depth: int) -> int:
    def inner(parts: Sequence[ast.expr]) -> list[int]:
        return [_value(part, axes, where, depth + 1) for part in parts]

    value = None
    if depth > DEEPEST:
        raise UsageError("an expression is nested too deeply", where=where)
    try:
        match node:
            case ast.Constant(value=int() as number) if type(number) is int:
                value = number
            case ast.Name(id=name):
                if name not in axes:
                    raise unknown("axis", name, axes, where=where)
                value = axes[name]
            case ast.BinOp(op=ast.Div()):
                over, under = inner([node.left, node.right])
                if over % under:
                    raise UsageError(f"{over} / {under} is not a whole number", do="use // to round down", where=where)
                value = over // under
            case ast.BinOp() if type(node.op) in SIGNS:
                value = SIGNS[type(node.op)](*inner([node.left, node.right]))
            case ast.UnaryOp(op=ast.USub()):
                value = -inner([node.operand])[0]
    except ZeroDivisionError:
        raise UsageError("an expression divides by zero", where=where) from None
    if value is None:
        raise UsageError(f"{ast.unparse(node)[:60]!r} is not allowed in a size", do=REMEDY, where=where)
    if abs(value) >= LARGEST:
        raise UsageError("an expression gives too large a size", where=where)
    return int(value)
