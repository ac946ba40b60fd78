"""The original's sweep over square matrix products, one stack against another, under the original's names."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.dialects.ptxla.microbench import Side
from steelyard.dialects.ptxla.rows import BACKENDS
from steelyard.errors import Unsupported, UsageError, unknown

FIRST, LAST, STEP = 256, 8192, 128
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""Formats of the sweep in their order, with torch's names."""
TOLERANCES = {"f32": 1e-2, "f16": 1e-2, "bf16": 3e-2}
"""Errors allowed to an element, relative to the usual size of one; products of f32 may be made in TF32, as in the original."""
SEED = 1337
LARGEST = 2**17
"""Whose factors in f32, of both sides, fill 256 GiB."""


@dataclass(frozen=True)
class Product:
    """One product of the sweep."""

    dtype: str
    n: int

    @property
    def name(self) -> str:
        """As the original prints it."""
        return f"matmul-torch.{DTYPES[self.dtype]}-lhs{self.n}x{self.n}-rhs{self.n}x{self.n}"

    def difference(self, base: float, test: float) -> str:
        """How two answers to the same product differ; an element of it is about the root of n large."""
        allowed = TOLERANCES[self.dtype] * math.sqrt(self.n)
        return "" if abs(test - base) <= allowed else f"{test:.6g} instead of {base:.6g}"


def sizes(text: str) -> list[int]:
    """`256:8192:128` with both ends, or sizes one by one: `256,1024`."""
    try:
        if ":" in text:
            first, last, step = (int(part) for part in text.split(":"))
            found = list(range(first, min(last, LARGEST + step) + 1, step)) if step > 0 and first > 0 else []
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > LARGEST:
        raise UsageError(f"not sizes of matrices: {text!r}", do=f"write them like {FIRST}:{LAST}:{STEP} (first:last:step) or 256,1024")
    return list(dict.fromkeys(found))


def sweep(numbers: Sequence[int], dtypes: Sequence[str] = ()) -> list[Product]:
    """Every size in one format after the other."""
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise unknown("number format of the sweep", dtype, DTYPES)
    return [Product(dtype, n) for dtype in dtypes or DTYPES for n in numbers]


@dataclass(frozen=True)
class ProductStack:
    """Where one side's tensors live, how its function is compiled, what waits for it, and whether the device's cache is overwritten.

    Both sides must agree on the last: on a CPU nothing is overwritten, whoever computes there.
    """

    device: Any
    compiled: Callable[[Callable[[], float]], Callable[[], float]]
    wait: Callable[[], Any] | None = None
    flushed: bool = False

    def side(self, lhs: Any, rhs: Any) -> Side:
        """The product on this stack; one element of it is read back, so that the call ends when the product is there."""
        torch = importlib.import_module("torch")
        left, right = lhs.to(self.device), rhs.to(self.device)

        def product() -> float:
            found: float = torch.matmul(left, right)[0, 0].item()
            return found

        return Side(self.compiled(product), self.wait, self.device if self.flushed else None)


def open_stack(name: str, accelerator: str) -> ProductStack:
    """A stack by the name that reports have for it, or the reason why it cannot be had here."""
    if name not in BACKENDS:
        raise unknown("backend", name, BACKENDS)
    torch = importlib.import_module("torch")
    if name in ("eager", "inductor"):
        if accelerator == "cuda" and not torch.cuda.is_available():
            raise Unsupported("torch sees no CUDA device here", do="choose another with --accelerator")
        wait = torch.cuda.synchronize if accelerator == "cuda" else None
        return ProductStack(torch.device(accelerator), _same if name == "eager" else torch.compile, wait, accelerator != "cpu")
    try:
        torch_xla = importlib.import_module("torch_xla")
        xm = importlib.import_module("torch_xla.core.xla_model")
    except ImportError as error:
        raise Unsupported(
            f"{name} needs torch_xla", why=str(error), do="steelyard env create torch-xla, then add --env torch-xla"
        ) from None

    def compiled(fn: Callable[[], float]) -> Callable[[], float]:
        found: Callable[[], float] = torch.compile(fn, backend="openxla")
        return found

    return ProductStack(torch_xla.device(), compiled if name == "openxla+dynamo" else _same, xm.wait_device_ops, accelerator != "cpu")


def _same(fn: Callable[[], float]) -> Callable[[], float]:
    return fn


def pair(product: Product, base: ProductStack, test: ProductStack) -> tuple[Side, Side]:
    """Both sides of a product, with the same numbers; products of f32 may use TF32, as the original lets them.

    What was compiled for another size is forgotten: torch.compile would take this one for a size that varies, and soon give up.
    """
    torch = importlib.import_module("torch")
    torch.set_float32_matmul_precision("high")
    torch.compiler.reset()
    dice = torch.Generator().manual_seed(SEED)
    dtype = getattr(torch, DTYPES[product.dtype])
    lhs, rhs = (torch.randn((product.n, product.n), generator=dice).to(dtype) for _ in range(2))
    return base.side(lhs, rhs), test.side(lhs, rhs)
