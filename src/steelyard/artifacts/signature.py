"""The arguments and results of a program, read from the text of MLIR and HLO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from steelyard.errors import Unsupported, UsageError
from steelyard.model.dtypes import SIZES

NAMES: Mapping[str, str] = {
    "f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "f8E4M3FN": "fp8e4m3", "f8E5M2": "fp8e5m2",
    "f8E4M3FNUZ": "fp8e4m3fnuz", "f8E5M2FNUZ": "fp8e5m2fnuz", "f8E8M0FNU": "fp8e8m0", "i1": "bool", "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    **{f"{sign}i{bits}": f"{ours}{bits}" for sign, ours in (("", "int"), ("s", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    **{f"{sign}{bits}": f"{ours}{bits}" for sign, ours in (("s", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    "pred": "bool", "c64": "complex64", "c128": "complex128", "f8e4m3fn": "fp8e4m3", "f8e5m2": "fp8e5m2",
}  # fmt: skip
"""Names of number formats in MLIR and HLO, with our names for them."""
_TENSOR = re.compile(r"tensor<([^<>]*(?:<[^<>]*>[^<>]*)*)>")
_HLO_ARRAY = re.compile(r"([a-z]+[0-9a-z]*)\[([0-9,<=?]*)\]")


@dataclass(frozen=True)
class TensorType:
    """One argument or result: its format, and its shape with None for a size that is not fixed."""

    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('?' if size is None else str(size) for size in self.shape)}]"

    @property
    def fixed(self) -> tuple[int, ...]:
        """The shape; raise if a size is not fixed."""
        if None in self.shape:
            raise Unsupported(f"an argument is {self}", why="its size is not fixed", do="put recorded inputs beside it, in a manifest")
        return tuple(size for size in self.shape if size is not None)


@dataclass(frozen=True)
class ProgramSignature:
    """The arguments and results of a program, in its own order."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"


def tensor_type(text: str) -> TensorType:
    """The type that MLIR writes like `2x?xf32`."""
    sizes, name = re.fullmatch(r"((?:(?:\d+|\?)x)*)(.*)", text.split(",")[0].strip(), re.DOTALL).groups()  # type: ignore[union-attr]
    return TensorType(dtype_named(name), tuple(None if size == "?" else int(size) for size in sizes.split("x")[:-1]))


def dtype_named(name: str) -> str:
    """Our name for a number format of MLIR or HLO."""
    if name not in NAMES:
        raise Unsupported(f"numbers of format {name[:60]!r} are not known", do=f"use one of: {', '.join(SIZES)}")
    return NAMES[name]


def signature_in(text: str, entry: str = "main") -> ProgramSignature | None:
    """The signature of the function `entry`, from MLIR's text or IREE's declaration; None if there is no such function."""
    found = re.search(rf'func(?:\.func)?(?:\s+(?:public|private|nested))?\s+@"?{re.escape(entry)}"?\s*\(', text)
    if found is None:
        return None
    arguments, end = _within(text, found.end() - 1)
    arrow = re.compile(r"\s*->\s*").match(text, end)
    if arrow is None:
        return ProgramSignature(_tensors(arguments), ())
    start = arrow.end()
    results = _within(text, start)[0] if text.startswith("(", start) else text[start : text.find("{", start) % (len(text) + 1)]
    return ProgramSignature(_tensors(arguments), _tensors(results))


def _within(text: str, start: int) -> tuple[str, int]:
    """The text from a bracket to the one that closes it, without strings, and where it ends."""
    depth, place, kept = 0, start, []
    while place < len(text):
        sign = text[place]
        if sign == '"':
            place = _string_end(text, place)
            continue
        depth += (sign in "({[") - (sign in ")}]")
        kept.append(sign)
        place += 1
        if depth == 0:
            return "".join(kept), place
    raise UsageError("a bracket of the program is never closed", why="it is cut off, or is not MLIR")


def _string_end(text: str, start: int) -> int:
    place = start + 1
    while place < len(text) and text[place] != '"':
        place += 2 if text[place] == "\\" else 1
    return place + 1


def _tensors(text: str) -> tuple[TensorType, ...]:
    """The tensors of a list of types, without those in attributes of arguments."""
    plain, before = text, ""
    while plain != before:
        before, plain = plain, re.sub(r"\{[^{}]*\}", "", plain)
    return tuple(tensor_type(found[1]) for found in _TENSOR.finditer(plain))


def hlo_signature(text: str) -> ProgramSignature | None:
    """The signature of HLO's entry, from its layout."""
    found = re.search(r"entry_computation_layout=(?=\{)", text)
    if found is None:
        return None
    layout = _within(text, found.end())[0][1:-1]
    sides = re.sub(r"/\*.*?\*/|\{[^{}]*\}", "", layout).split("->")
    made = [tuple(TensorType(dtype_named(name), _sizes(sizes)) for name, sizes in _HLO_ARRAY.findall(side)) for side in sides]
    return ProgramSignature(made[0], made[-1])


def _sizes(text: str) -> tuple[int | None, ...]:
    return tuple(int(size) if size.isdecimal() else None for size in text.split(",")) if text else ()
