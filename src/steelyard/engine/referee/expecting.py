"""The reference's answers: in its own format, in double precision, and on inputs moved by a rounding."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.errors import told
from steelyard.machine.cpu import affinity
from steelyard.measuring.closeness import UNITS, Wanted, coarser, finer
from steelyard.measuring.leaves import (
    Array,
    Draws,
    Piece,
    arrays_of,
    as_format,
    copied,
    is_floating,
    mapped,
    pieces,
    precision_of,
    widened,
)
from steelyard.model.judging import Contract

KEPT, KEPT_BYTES = 16, 1 << 28
"""How many expected answers are kept for reuse, and how many bytes of them besides the latest two."""
STIRS = 2
"""How often inputs are moved by a rounding; each costs a call of the reference in double precision."""
WIDE = ("float64", "complex128")

Call = Callable[..., Any]


@dataclass(frozen=True)
class Expected:
    """The answer that is expected for some inputs; `against` says how it was computed, `note` why not in double precision."""

    inputs: Sequence[Any]
    answer: Any
    wanted: tuple[Wanted, ...]
    against: str
    note: str = ""

    @property
    def pieces(self) -> list[Piece]:
        """The arrays of the reference's own answer."""
        return [item.answer for item in self.wanted]

    @property
    def bytes(self) -> int:
        """Bytes that keeping this takes."""
        held = [array for item in self.wanted for array in (item.answer.array, item.exact, *item.stirs)]
        return sum(int(array.nbytes) for array in (*held, *arrays_of(list(self.inputs))))


@contextlib.contextmanager
def all_cpus() -> Iterator[None]:
    """Let torch use all CPUs but the one of the stands for checking.

    The reference's own answer is made without this, because its bits may depend on the number of threads.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, len(affinity()) - 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Oracle:
    """Calls the reference, each time with a copy of the inputs, which it may change, and with the same random numbers."""

    def __init__(self, reference: Call, contract: Contract, be: Any) -> None:
        self.reference, self.contract, self.be = reference, contract, be
        self._kept: list[Expected] = []

    def answer(self, inputs: Sequence[Any]) -> Any:
        """What the reference gives for inputs, in their own format."""
        return self._call(self.reference, [mapped(item, copied) for item in inputs])

    def expect(self, inputs: Sequence[Any]) -> Expected:
        """What an answer to these inputs is compared with; kept for the next call with the same inputs."""
        for found in self._kept:
            if found.inputs is inputs:
                return found
        made = self._expect(inputs)
        small = 0
        kept = [made]
        for place, other in enumerate(self._kept[: KEPT - 1]):
            small += other.bytes
            if place == 0 or small <= KEPT_BYTES:
                kept.append(other)
        self._kept = kept
        return made

    def _expect(self, inputs: Sequence[Any]) -> Expected:
        answer = self.answer(inputs)
        plain = pieces(answer)
        base = self.precision(inputs)
        try:
            exact, stirs = self._widely(inputs, plain, base)
            against, note = "the reference in fp64", ""
        except Exception as error:
            note = f"no fp64 form of the reference ({told(error, 200)})" if not isinstance(error, _Fixed) else str(error)
            exact, stirs = plain, self._stirred(self.reference, inputs, base, plain)
            against = f"the reference in {base or 'its own format'}"
        wanted = []
        for place, piece in enumerate(plain):
            admitted = self._admitted(piece, base)
            moved = tuple(stir[place].array for stir in stirs)
            stretch = UNITS[admitted] / UNITS.get(base, UNITS[admitted])
            wanted.append(Wanted(piece, exact[place].array, moved, admitted, stretch))
        return Expected(inputs, answer, tuple(wanted), against, note)

    def precision(self, inputs: Sequence[Any]) -> str:
        """The format that inputs are rounded to, or what the contract admits: the finest of theirs, as a mask may be coarse."""
        own = functools.reduce(finer, (precision_of(array) for array in arrays_of(list(inputs)) if is_floating(array)), "")
        return coarser(own, self.contract.precision) if own else self.contract.precision

    def _admitted(self, piece: Piece, base: str) -> str:
        stored = precision_of(piece.array) if piece.dtype not in ("float", "complex") else base
        return coarser(stored or base, base) or "fp32"

    def _call(self, function: Call, inputs: Sequence[Any]) -> Any:
        self.be.sow()
        answer = function(*inputs)
        self.be.sync()
        return answer

    @all_cpus()
    def _widely(self, inputs: Sequence[Any], plain: Sequence[Piece], base: str) -> tuple[list[Piece], list[list[Piece]]]:
        """The answer in double precision, and the answers to inputs moved by a rounding, also in double precision."""
        function = self._wide
        wide = [mapped(item, _doubled) for item in inputs]
        exact = pieces(self._call(function, [mapped(item, copied) for item in wide]))
        if [(piece.path, piece.shape) for piece in exact] != [(piece.path, piece.shape) for piece in plain]:
            raise _Fixed("the reference gives an answer of another structure in fp64")
        for mine, theirs in zip(exact, plain, strict=True):
            if theirs.floating and theirs.dtype not in ("float", "complex") and mine.dtype not in WIDE:
                raise _Fixed(f"no fp64 form of the reference (it gives {mine.dtype} for fp64 inputs)")
        return exact, self._stirred(function, wide, base, plain)

    def _stirred(self, function: Call, inputs: Sequence[Any], base: str, plain: Sequence[Piece]) -> list[list[Piece]]:
        """Answers to inputs with each number moved up or down by one rounding of the base's format."""
        unit = UNITS.get(base)
        if unit is None:
            return []
        found = []
        for number in range(STIRS):
            chance = Draws(number + 1)
            moved = [mapped(item, functools.partial(_moved, chance=chance, unit=unit)) for item in inputs]
            with contextlib.suppress(ArithmeticError, ValueError, RuntimeError):
                made = pieces(self._call(function, moved))
                if [piece.shape for piece in made] == [piece.shape for piece in plain]:
                    found.append(made)
        return found

    @functools.cached_property
    def _wide(self) -> Call:
        """The reference with its weights in double precision."""
        return in_double(self.reference)


class _Fixed(Exception):
    """The reference has no answer in double precision, whatever its inputs are in."""


def _doubled(array: Array) -> Array:
    return widened(array) if is_floating(array) else copied(array)


def _moved(array: Array, chance: Draws, unit: float) -> Array:
    """Move each floating number up or down by a share; other arrays stay as they are."""
    if not is_floating(array):
        return copied(array)
    up = chance.uniform(array) < 0.5
    if precision_of(array) == "fp64":
        return array + array * (unit * (up * 2.0 - 1.0))
    return as_format(widened(array) * (1.0 + unit * (widened(up) * 2.0 - 1.0)), array)


def in_double(function: Call) -> Call:
    """A function with its modules in double precision: itself, the object of a method, or what it closes over.

    A function without modules is returned as it is: it computes in the format of its inputs, or raises if it cannot.
    """
    module = _module_kind()
    if module is not None and isinstance(function, module):
        made: Call = _copy_in_double(function)
        return made
    if isinstance(function, functools.partial):
        args = [_copy_in_double(item) if module and isinstance(item, module) else item for item in function.args]
        return functools.partial(in_double(function.func), *args, **function.keywords)
    owner = getattr(function, "__self__", None)
    if module is not None and isinstance(owner, module):
        bound: Call = getattr(_copy_in_double(owner), function.__name__)
        return bound
    if isinstance(function, types.FunctionType) and function.__closure__:
        cells = tuple(_cell(cell) for cell in function.__closure__)
        again = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
        again.__kwdefaults__ = function.__kwdefaults__
        return again
    return function


def _cell(cell: types.CellType) -> types.CellType:
    """A variable that a function closes over, with the modules and tensors in it in double precision."""
    try:
        held = cell.cell_contents
    except ValueError:
        return cell
    module = _module_kind()
    if module is not None and isinstance(held, module):
        return types.CellType(_copy_in_double(held))
    return types.CellType(mapped(held, _doubled)) if isinstance(held, (list, tuple, dict)) or is_floating(held) else cell


def _module_kind() -> type[Any] | None:
    torch = sys.modules.get("torch")
    return None if torch is None else torch.nn.Module


def _copy_in_double(module: Any) -> Any:
    return copy.deepcopy(module).double()
