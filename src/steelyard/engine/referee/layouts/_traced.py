"""Arguments of operators as traces write them, such as `((T([4, 8], f16), 2), {'dtype': f32})`, read without running anything.

They become plain values: a tensor is `{"tensor": [shape, dtype, strides]}`, a tuple `{"tuple": […]}`, a dict `{"dict": {…}}`; formats,
devices, infinity and NaN have their own keys. Python's parser reads the text; any other syntax is refused.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.dtypes import SIZES, canonical

LONGEST, DEEPEST, LARGEST = 100_000, 20, 2**62
OPERATOR, COUNT = "Operator:", "cnt:"
LINE = re.compile(r"cnt:\s*(\d{1,18})\s*,\s*(.+)")
NAME = re.compile(r"aten(?:\.|::)([A-Za-z_]\w*)(?:\.(\w+))?")
DTYPES = {
    "bf16": "bf16", "f64": "fp64", "f32": "fp32", "f16": "fp16", "c32": "complex32", "c64": "complex64", "c128": "complex128",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "b8": "bool", "u8": "uint8",
}  # fmt: skip
NUMBERS = ("inf", "nan")
LAYOUTS = ("strided", "sparse_coo", "sparse_csr")
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
DEVICE = re.compile(r"(?:torch\.device\('|)(cpu|cuda|xpu|mps)(?::\d+)?(?:'\)|)")
REMEDY = "write ((T([4, 8], f16), 2), {})"
SPARSE = "ST"


@dataclass(frozen=True)
class TracedCall:
    """One line of a trace: an operator, how often it was called with these arguments, and the arguments as plain values."""

    operator: str
    count: int
    args: list[Any]
    kwargs: dict[str, Any]
    text: str
    unsupported: str = ""


def operator_name(text: str) -> str:
    """An operator as `add.Tensor`, from `aten.add.Tensor` or `aten::add.Tensor`; empty if the text is not an operator."""
    found = NAME.fullmatch(text.strip())
    return f"{found[1]}.{found[2] or 'default'}" if found else ""


def calls(text: str, where: str) -> Iterator[TracedCall]:
    """The calls that a trace lists; errors name the line."""
    operator = ""
    for number, line in enumerate(text.splitlines(), 1):
        place, line = f"{where}:{number}", line.strip()
        if not line:
            continue
        if line.startswith(OPERATOR):
            operator = operator_name(line.removeprefix(OPERATOR))
            if not operator:
                raise UsageError(f"{line[:60]!r} does not name an operator", do="write Operator: aten.add.Tensor", where=place)
        elif (found := LINE.fullmatch(line)) and operator:
            yield call(operator, int(found[1]), found[2], place)
        else:
            raise UsageError(
                f"{line[:60]!r} is not a line of a trace", do=f"write Operator: aten.add.Tensor, then cnt: 1, {REMEDY[6:]}", where=place
            )


def call(operator: str, count: int, text: str, where: str) -> TracedCall:
    """One call from the text of its arguments."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body if len(text) <= LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if not isinstance(tree, ast.Tuple) or len(tree.elts) != 2:
        raise UsageError(f"{text[:60]!r} are not arguments", do=REMEDY, where=where)
    if any(isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == SPARSE for node in _few(tree, where)):
        return TracedCall(operator, count, [], {}, text, "it has a sparse tensor, which cannot be drawn here")
    args, kwargs = (_value(node, where, 0) for node in tree.elts)
    if not isinstance(args, dict) or "tuple" not in args or not isinstance(kwargs, dict) or "dict" not in kwargs:
        raise UsageError(f"{text[:60]!r} is not a tuple of arguments and a dict of named ones", do=REMEDY, where=where)
    return TracedCall(operator, count, args["tuple"], kwargs["dict"], text)


def _few(tree: ast.AST, where: str) -> list[ast.AST]:
    nodes = list(ast.walk(tree))
    if len(nodes) > LONGEST:
        raise UsageError("too many arguments", where=where)
    return nodes


def _value(node: ast.expr, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise UsageError(f"arguments are nested more than {DEEPEST} deep", where=where)
    match node:
        case ast.Constant(value=bool() | int() | float() | None as value):
            return _number(value, where)
        case ast.Constant(value=str() as text):
            return _word(text)
        case ast.UnaryOp(op=ast.USub()):
            return _negative(_value(node.operand, where, depth + 1), node, where)
        case ast.Name(id=name) if name in DTYPES:
            return {"dtype": DTYPES[name]}
        case ast.Name(id=name) if name in NUMBERS:
            return {"number": name}
        case ast.Attribute(value=ast.Name(id="torch" | "th"), attr=name) if (found := _named(name)) is not None:
            return found
        case ast.List():
            return [_value(item, where, depth + 1) for item in node.elts]
        case ast.Tuple():
            return {"tuple": [_value(item, where, depth + 1) for item in node.elts]}
        case ast.Dict() if all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys):
            names = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            return {"dict": {str(name): _value(item, where, depth + 1) for name, item in zip(names, node.values, strict=True)}}
        case ast.Call(func=ast.Name(id="T"), args=[shape, dtype, *more], keywords=named) if len(more) + len(named) <= 1:
            return _tensor(shape, dtype, [*more, *(word.value for word in named if word.arg == "stride")], len(more) + len(named), where)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="device"), args=[ast.Constant(value=str() as text)], keywords=[]):
            return _word(text)
    raise UsageError(f"{ast.unparse(node)[:60]!r} is not allowed in a trace", do=REMEDY, where=where)


def _tensor(shape: ast.expr, dtype: ast.expr, strides: list[ast.expr], given: int, where: str) -> dict[str, Any]:
    sizes, form = _sizes(shape), _value(dtype, where, DEEPEST)
    steps = _sizes(strides[0]) if strides else None
    plain = isinstance(form, dict) and "dtype" in form
    if sizes is None or not plain or len(strides) != given or (strides and (steps is None or len(steps) != len(sizes))):
        raise UsageError("a tensor needs a shape, a dtype and perhaps strides", do="write T([4, 8], f16, stride=(1, 4))", where=where)
    return {"tensor": [sizes, form["dtype"], steps]}


def _sizes(node: ast.expr) -> list[int] | None:
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [None]
    found = [item.value for item in items if isinstance(item, ast.Constant) and type(item.value) is int and 0 <= item.value < LARGEST]
    return [int(size) for size in found] if len(found) == len(items) else None


def _number(value: Any, where: str) -> Any:
    if type(value) is int and abs(value) > LARGEST * 4:
        raise UsageError("a number is too large", where=where)
    if isinstance(value, float) and value == float("inf"):
        return {"number": "inf"}
    return value


def _negative(value: Any, node: ast.expr, where: str) -> Any:
    if value == {"number": "inf"}:
        return {"number": "-inf"}
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{ast.unparse(node)[:60]!r} is not allowed in a trace", do=REMEDY, where=where)
    return -value


def _word(text: str) -> Any:
    """A text, or a format or device that a trace writes as text."""
    if text in DTYPES:
        return {"dtype": DTYPES[text]}
    if found := DEVICE.fullmatch(text):
        return {"device": "cpu" if found[1] == "cpu" else ""}
    return (_named(text.removeprefix("torch.")) if text.startswith("torch.") else None) or text


def _named(name: str) -> dict[str, str] | None:
    """What `torch.NAME` is: a number format, a memory format, or a layout; None if it is none of these."""
    if name in LAYOUTS:
        return {"layout": name}
    if name in FORMATS:
        return {"format": name}
    try:
        found = canonical(name)
    except UsageError:
        return None
    return {"dtype": found} if found in SIZES else None
