"""Arguments from their descriptions: every draw comes from one seed, so that a config gives the same data each time.

Without a `distribution` data are drawn as by PARAM: floats uniform in [0, 1), whole numbers in [-10, 10), unsigned ones in [0, 10),
booleans with equal chances, and for a shape of no dimensions one number in [-10, 10). On the meta device there is no data.
"""

from __future__ import annotations

import functools
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from steelyard.backends.torch import FORMATS
from steelyard.errors import UsageError, unknown
from steelyard.model.dtypes import canonical

Spec = Mapping[str, Any]
Array = Any
Draw = Callable[["Maker", Spec, tuple[int, ...], int | None], Array]

LARGEST = 10
WIDEST = 2**62
DIRECT = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
MEMORY_FORMATS = {
    "contiguous": torch.contiguous_format, "contiguous_format": torch.contiguous_format, "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d, "preserve": torch.preserve_format, "preserve_format": torch.preserve_format,
}  # fmt: skip
LAYOUTS = {
    name: getattr(torch, name) for name in ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
}


def arguments(spec: Spec, device: str, seed: int, *, grad: bool = True) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """The positional and the named arguments of a spec, and every number that was drawn for a `value_range`, by argument.

    Without `grad` no tensor requires a gradient, whatever the spec says.
    """
    maker = Maker(spec, device, seed, grad)
    args = [maker.value(item, f"args[{place}]") for place, item in enumerate(spec.get("args", ()))]
    kwargs = {name: maker.value(item, f"kwargs.{name}") for name, item in spec.get("kwargs", {}).items()}
    return args, kwargs, maker.drawn


@functools.cache
def format_of(name: str) -> Any:
    """The torch format of any usual spelling."""
    return FORMATS[canonical(name)]


class Maker:
    """Turns one spec into values; has its random numbers and a record of what was drawn."""

    def __init__(self, spec: Spec, device: str, seed: int, grad: bool) -> None:
        self.spec, self.device, self.seed, self.grad = spec, device, seed, grad
        self.meta = device == "meta"
        self.drawn: dict[str, Any] = {}

    @functools.cached_property
    def chance(self) -> Any:
        """The generator of tensors."""
        return torch.Generator(self.device).manual_seed(self.seed)

    @functools.cached_property
    def dice(self) -> random.Random:
        """The generator of single numbers."""
        return random.Random(self.seed)

    def value(self, item: Any, where: str) -> Any:
        """One argument of any type."""
        if not isinstance(item, Mapping) or "type" not in item:
            raise UsageError("an argument is an object with a type", where=where)
        kind = item["type"]
        make = MAKERS.get(kind) if isinstance(kind, str) else None
        if make is None:
            raise unknown("argument type", str(kind), MAKERS, where=where)
        return make(self, item, where)

    def number(self, item: Spec, where: str) -> Any:
        """A number as it is written, or drawn between two ends, both included."""
        if "value" in item:
            return item["value"]
        low, high = _asked(item, "value_range", where)
        whole = item["type"] in ("int", "long")
        self.drawn[where] = self.dice.randint(low, high) if whole else self.dice.uniform(low, high)
        return self.drawn[where]

    def items(self, item: Spec, where: str) -> list[Any]:
        """A list of arguments of any types."""
        return [self.value(part, f"{where}[{place}]") for place, part in enumerate(_asked(item, "value", where))]

    def tensor(self, item: Spec, where: str) -> Array:
        """A tensor with its data, layout in memory and gradient as described."""
        dtype = _format(item, "dtype", where)
        made = self.laid_out(item, dtype, where)
        differentiable = dtype.is_floating_point or dtype.is_complex
        wanted = item.get("requires_grad", differentiable)
        if wanted and not differentiable:
            raise UsageError(f"a tensor of {item['dtype']} cannot require a gradient", where=where, do="write requires_grad: false")
        return made.requires_grad_() if wanted and self.grad else made

    def laid_out(self, item: Spec, dtype: Any, where: str) -> Array:
        """The data in the described layout."""
        if "values" in item:
            made = self.fixed(item, dtype, where)
        elif "strides" in item:
            return self.strided(item, dtype, where)
        else:
            made = self.filled(item, tuple(_asked(item, "shape", where)), dtype, where)
        if (name := item.get("memory_format")) is None:
            return made
        if name in ("channels_last", "channels_last_3d") and made.ndim != (4 if name == "channels_last" else 5):
            raise UsageError(f"{name} needs {4 if name == 'channels_last' else 5} dimensions, not {made.ndim}", where=where)
        return made.contiguous(memory_format=_named("memory format", name, MEMORY_FORMATS, where))

    def strided(self, item: Spec, dtype: Any, where: str) -> Array:
        """A view with the given strides over as much memory as it spans."""
        shape, strides = tuple(_asked(item, "shape", where)), tuple(item["strides"])
        if len(shape) != len(strides) or any(stride < 0 for stride in strides):
            raise UsageError(
                f"strides {list(strides)} do not fit shape {list(shape)}", where=where, do="give one per dimension, none below 0"
            )
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
        return self.filled(item, (span,), dtype, where).as_strided(shape, strides)

    def fixed(self, item: Spec, dtype: Any, where: str) -> Array:
        """Data that the spec itself contains."""
        wider = torch.float32 if dtype.is_floating_point and dtype.itemsize == 1 else torch.complex64 if dtype is torch.complex32 else dtype
        try:
            made = _cast(torch.tensor(item["values"], dtype=wider), dtype)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"values do not fit a tensor of {item['dtype']}", why=str(error).splitlines()[0], where=where) from error
        if "shape" in item and tuple(item["shape"]) != tuple(made.shape):
            raise UsageError(f"values have shape {list(made.shape)}, not {list(item['shape'])}", where=where)
        return made.to(self.device)

    def filled(self, item: Spec, shape: tuple[int, ...], dtype: Any, where: str) -> Array:
        """Data of a shape, drawn as the spec says."""
        if any(size < 0 for size in shape):
            raise UsageError(f"shape {list(shape)} has a negative size", where=where)
        bound = self.bound(item, dtype, where) if "index" in item else None
        rule: Spec = item.get("distribution", {})
        draw = _named("distribution", rule.get("name"), DISTRIBUTIONS, where) if "distribution" in item else None
        if self.meta:
            return _quietly(dtype, lambda: torch.empty(shape, dtype=dtype, device="meta"))
        if draw is not None:
            return _cast(self.drawn_by(draw, rule, shape, bound, where), dtype)
        if bound is not None:
            return _cast(self.whole(0, bound, shape), dtype)
        if not shape:
            return self.scalar(dtype)
        if dtype in DIRECT:
            return torch.rand(shape, dtype=dtype, device=self.device, generator=self.chance)
        if dtype is torch.bool:
            return self.uniform(shape) < 0.5
        if dtype.is_floating_point or dtype.is_complex:
            return _cast(self.uniform(shape, torch.complex64 if dtype.is_complex else torch.float32), dtype)
        low = 0 if dtype in UNSIGNED else -LARGEST
        return _cast(self.whole(low, LARGEST, shape), dtype)

    def scalar(self, dtype: Any) -> Array:
        """One number in a tensor of no dimensions."""
        if dtype is torch.bool:
            return self.uniform(()) < 0.5
        low = 0 if dtype in (*UNSIGNED, torch.float8_e8m0fnu) else -LARGEST
        return _cast(self.uniform((), torch.float64) * (LARGEST - low) + low, dtype)

    def uniform(self, shape: tuple[int, ...], dtype: Any = torch.float32) -> Array:
        """Numbers in [0, 1)."""
        return torch.rand(shape, dtype=dtype, device=self.device, generator=self.chance)

    def whole(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        """Whole numbers in [low, high)."""
        return torch.randint(low, high, shape, device=self.device, generator=self.chance)

    def bound(self, item: Spec, dtype: Any, where: str) -> int:
        """The size of the dimension that an index tensor points into; its tensor may come later in the spec."""
        args, kwargs, index = self.spec.get("args", ()), self.spec.get("kwargs", {}), item["index"]
        place, name, dim = index.get("arg"), index.get("kwarg"), index.get("dim", 0)
        known = kwargs.get(name) if name is not None else args[place] if isinstance(place, int) and 0 <= place < len(args) else None
        shape = known.get("shape") if isinstance(known, Mapping) else None
        if shape is None or not -len(shape) <= dim < len(shape):
            target = f"kwargs.{name}" if name is not None else f"args[{place}]"
            raise UsageError(f"index: {target} has no dimension {dim}", where=where, do="name a tensor argument with a shape")
        if shape[dim] < 1:
            raise UsageError("index: that dimension is empty, so no index is valid", where=where)
        if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
            raise UsageError(f"an index is a whole number, not {item['dtype']}", where=where, do="use int64 or int32")
        if shape[dim] > torch.iinfo(dtype).max + 1:
            raise UsageError(f"{item['dtype']} cannot count to {shape[dim] - 1}", where=where, do="use int64")
        return int(shape[dim])

    def drawn_by(self, draw: Draw, rule: Spec, shape: tuple[int, ...], bound: int | None, where: str) -> Array:
        """Data drawn by a named rule; with a bound, whole numbers below it."""
        try:
            made = draw(self, rule, shape, bound)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            what = f"distribution {rule['name']} cannot be drawn"
            raise UsageError(what, why=f"{type(error).__name__}: {str(error).splitlines()[0]}", where=where) from error
        if bound is not None and made.numel() and not (made.min() >= 0 and made.max() < bound):
            raise UsageError(
                f"distribution {rule['name']} points outside of [0, {bound})", where=where, do="use zipf, permutation or arange"
            )
        return made


def _spread(maker: Maker, rule: Spec, shape: tuple[int, ...], bound: int | None) -> Array:
    low, high = rule.get("low", 0.0), rule.get("high", 1.0 if bound is None else bound)
    return maker.uniform(shape, torch.float64) * (high - low) + low


def _normal(maker: Maker, rule: Spec, shape: tuple[int, ...], bound: int | None) -> Array:
    drawn = torch.randn(shape, dtype=torch.float64, device=maker.device, generator=maker.chance)
    return drawn * rule.get("std", 1.0) + rule.get("mean", 0.0)


def _zipf(maker: Maker, rule: Spec, shape: tuple[int, ...], bound: int | None) -> Array:
    """Ranks whose frequency falls as a power: 1 and up, or indices from 0 below a bound.

    Drawn by inverting the sum over ranks as if it were an integral, so that neither a table nor a rejection is needed.
    """
    alpha, top = float(rule["alpha"]), float(WIDEST if bound is None else bound + 1)
    if alpha < 0 or (bound is None and alpha <= 1):
        raise ValueError(f"alpha is {alpha:g}; it must be above 1, or above 0 for an index")
    drawn = maker.uniform(shape, torch.float64)
    rank = top**drawn if alpha == 1 else (1 + drawn * (top ** (1 - alpha) - 1)) ** (1 / (1 - alpha))
    whole = rank.to(torch.int64).clamp_(1, int(top) - 1)
    return whole if bound is None else whole - 1


def _arange(maker: Maker, rule: Spec, shape: tuple[int, ...], bound: int | None) -> Array:
    made = torch.arange(math.prod(shape), device=maker.device)
    return (made if bound is None else made % bound).reshape(shape)


def _permutation(maker: Maker, rule: Spec, shape: tuple[int, ...], bound: int | None) -> Array:
    """Every number once; if more are asked for than there are, the same order is repeated."""
    count = math.prod(shape)
    made = torch.randperm(bound or count, device=maker.device, generator=maker.chance)
    return (made if len(made) >= count else made.repeat(-(-count // len(made))))[:count].reshape(shape)


DISTRIBUTIONS: dict[str, Draw] = {
    "uniform": _spread, "normal": _normal, "zipf": _zipf, "arange": _arange, "permutation": _permutation,
    "integers": lambda maker, rule, shape, bound: maker.whole(rule.get("low", 0), rule["high"], shape),
    "constant": lambda maker, rule, shape, bound: torch.full(shape, rule["value"], device=maker.device),
}  # fmt: skip


def _device(maker: Maker, item: Spec, where: str) -> Any:
    """A device by name; the meta device if the arguments have no data."""
    try:
        named = torch.device(_asked(item, "value", where))
        return torch.device("meta") if maker.meta else named
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"no device {item['value']!r}", why=str(error).splitlines()[0], where=where) from error


def _complex(maker: Maker, item: Spec, where: str) -> complex:
    parts = _asked(item, "value", where)
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise UsageError("a complex value is [real, imaginary]", where=where)
    return complex(*parts)


MAKERS: dict[str, Callable[[Maker, Spec, str], Any]] = {
    "tensor": Maker.tensor, "int": Maker.number, "long": Maker.number, "float": Maker.number, "double": Maker.number,
    "bool": lambda maker, item, where: _asked(item, "value", where),
    "str": lambda maker, item, where: item.get("value", ""),
    "none": lambda maker, item, where: None,
    "genericlist": Maker.items,
    "tuple": lambda maker, item, where: tuple(maker.items(item, where)),
    "device": _device,
    "complex": _complex,
    "dtype": lambda maker, item, where: _format(item, "value", where),
    "layout": lambda maker, item, where: _named("layout", _asked(item, "value", where), LAYOUTS, where),
    "memory_format": lambda maker, item, where: _named("memory format", _asked(item, "value", where), MEMORY_FORMATS, where),
}  # fmt: skip


def _asked(item: Spec, key: str, where: str) -> Any:
    if key not in item:
        raise UsageError(f"an argument of type {item['type']} needs {key!r}", where=where)
    return item[key]


def _format(item: Spec, key: str, where: str) -> Any:
    name = _asked(item, key, where)
    try:
        return format_of(name if isinstance(name, str) else str(name))
    except UsageError as error:
        raise UsageError(error.what, do=error.do, where=where) from None


def _named(kind: str, name: Any, table: Mapping[str, Any], where: str) -> Any:
    plain = name.removeprefix("torch.") if isinstance(name, str) else str(name)
    if plain not in table:
        raise unknown(kind, plain, table, where=where)
    return table[plain]


def _cast(made: Array, dtype: Any) -> Array:
    return made if made.dtype == dtype else _quietly(dtype, lambda: made.to(dtype))


def _quietly(dtype: Any, make: Callable[[], Array]) -> Array:
    """Call `make`; hides torch's warning that half-precision complex numbers are new, which is of no use to a user of a config."""
    if dtype is not torch.complex32:
        return make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return make()
