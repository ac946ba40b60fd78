# mypy: ignore-errors
"""Triton kernels for rows and for matrix products, each beside the function that launches it.

Triton has no types, and a kernel's arguments are pointers, so types are checked up to the launching functions' door. The
registry skips this file because of its underscore: importing it needs torch and Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LONGEST_ROW = 32768
CHUNK = 8192
SHARED = 200 * 1024


@triton.jit
def _softmax(x, y, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    start = row.to(tl.int64) * n
    column = tl.arange(0, BLOCK)[None, :]
    if WHOLE:
        inside = (row < m) & (column < n)
        value = tl.load(x + start + column, mask=inside, other=float("-inf")).to(tl.float32)
        raised = tl.exp(value - tl.max(value, 1, keep_dims=True))
        tl.store(y + start + column, (raised / tl.sum(raised, 1, keep_dims=True)).to(y.dtype.element_ty), mask=inside)
    else:
        highest = tl.full((ROWS, 1), float("-inf"), tl.float32)
        total = tl.zeros((ROWS, 1), tl.float32)
        for first in range(0, n, BLOCK):
            inside = (row < m) & (first + column < n)
            value = tl.load(x + start + first + column, mask=inside, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(highest, tl.max(value, 1, keep_dims=True))
            shift = tl.where(higher == float("-inf"), 0.0, higher)
            total = total * tl.exp(highest - shift) + tl.sum(tl.exp(value - shift), 1, keep_dims=True)
            highest = higher
        for first in range(0, n, BLOCK):
            inside = (row < m) & (first + column < n)
            value = tl.load(x + start + first + column, mask=inside, other=float("-inf")).to(tl.float32)
            tl.store(y + start + first + column, (tl.exp(value - highest) / total).to(y.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax of rows: a row that fits is read once and held in registers, a longer one is read twice with a running maximum."""
    if dim not in (-1, x.ndim - 1):
        raise ValueError(f"this kernel works along the last axis, not along {dim}")
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    y = torch.empty_like(rows)
    m, n = rows.shape
    grid, shape = _row_shape(m, n)
    _softmax[grid](rows, y, m, n, **shape)
    return y.view(x.shape)


@triton.jit
def _rms_norm(x, gain, y, m, n, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    start = row.to(tl.int64) * n
    column = tl.arange(0, BLOCK)[None, :]
    if WHOLE:
        inside = (row < m) & (column < n)
        value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
        factor = tl.load(gain + column, mask=column < n, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 1, keep_dims=True) / n + eps)
        tl.store(y + start + column, (value * scale * factor).to(y.dtype.element_ty), mask=inside)
    else:
        squares = tl.zeros((ROWS, 1), tl.float32)
        for first in range(0, n, BLOCK):
            inside = (row < m) & (first + column < n)
            value = tl.load(x + start + first + column, mask=inside, other=0.0).to(tl.float32)
            squares += tl.sum(value * value, 1, keep_dims=True)
        scale = tl.rsqrt(squares / n + eps)
        for first in range(0, n, BLOCK):
            inside = (row < m) & (first + column < n)
            value = tl.load(x + start + first + column, mask=inside, other=0.0).to(tl.float32)
            factor = tl.load(gain + first + column, mask=first + column < n, other=0.0).to(tl.float32)
            tl.store(y + start + first + column, (value * scale * factor).to(y.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, shape: tuple[int, ...], gain: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm of rows, in one read where a row fits in registers."""
    if tuple(shape) != (x.shape[-1],):
        raise ValueError(f"this kernel normalises the last axis of {tuple(x.shape)}, not {tuple(shape)}")
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    y = torch.empty_like(rows)
    m, n = rows.shape
    grid, tile = _row_shape(m, n)
    _rms_norm[grid](rows, gain.contiguous(), y, m, n, eps, **tile)
    return y.view(x.shape)


def _row_shape(m, n):
    """Programs, and what each of them works on: some 32 numbers a thread, several rows where they are short."""
    whole = n <= LONGEST_ROW
    block = triton.next_power_of_2(n) if whole else CHUNK
    rows = max(1, 1024 // block)
    warps = min(16, max(4, rows * block // 1024))
    return (triton.cdiv(m, rows),), {"ROWS": rows, "BLOCK": block, "WHOLE": whole, "num_warps": warps}


def _describe_tiles(args):
    """The bulk copy engine must know the tile that the tuner is trying."""
    if args["BULK"]:
        args["a"].block_shape = [args["BM"], args["BK"]]
        args["b"].block_shape = [args["BK"], args["BN"]]


def _tile(bm, bn, bk, warps, stages):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_warps=warps, num_stages=stages, pre_hook=_describe_tiles)


SMALL = _tile(64, 64, 32, 4, 3)
TILES = [
    SMALL,
    _tile(128, 64, 32, 4, 4),
    _tile(128, 128, 32, 8, 4),
    _tile(128, 128, 64, 4, 4),
    _tile(128, 256, 64, 8, 3),
    _tile(128, 256, 64, 8, 4),
    _tile(256, 128, 64, 8, 3),
]


def _worth_trying(configs, args, **options):
    """Tiles that the matrix fills and shared memory holds; full fp32 has no tensor cores, so no registers for large ones."""
    size = 2 if options["PRECISION"] == "half" else 4
    most = 128 * 64 if options["PRECISION"] == "ieee32" else 256 * 128

    def fits(config):
        bm, bn, bk = config.kwargs["BM"], config.kwargs["BN"], config.kwargs["BK"]
        return bm <= args["m"] and bn <= args["n"] and bm * bn <= most and (bm + bn) * bk * size * config.num_stages <= SHARED

    return [config for config in configs if fits(config)] or [SMALL]


@triton.autotune(TILES, key=["m", "n", "k", "PRECISION", "BULK"], prune_configs_by={"early_config_prune": _worth_trying})
@triton.jit
def _matmul(
    a, b, c, m, n, k,
    PRECISION: tl.constexpr, BULK: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    down, across = tl.cdiv(m, BM), tl.cdiv(n, BN)
    tile = tl.program_id(0)
    row, column = tl.swizzle2d(tile // across, tile % across, down, across, GROUP)
    i = (row * BM + tl.arange(0, BM))[:, None]
    j = (column * BN + tl.arange(0, BN))[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        if BULK:
            left = a.load([row * BM, first])
            right = b.load([first, column * BN])
        else:
            over = first + tl.arange(0, BK)
            left = tl.load(a + i.to(tl.int64) * k + over[None, :], mask=(i < m) & (over[None, :] < k), other=0.0)
            right = tl.load(b + over[:, None].to(tl.int64) * n + j, mask=(over[:, None] < k) & (j < n), other=0.0)
        total = tl.dot(left, right, total, input_precision="tf32" if PRECISION == "tf32" else "ieee")
    tl.store(c + i.to(tl.int64) * n + j, total.to(c.dtype.element_ty), mask=(i < m) & (j < n))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Matrix product in tiles, visited in groups of rows so that what one reads the next finds in the cache.

    Half precision of aligned shape goes through Hopper's bulk copy engine; fp32 follows torch's setting for TF32.
    """
    a, b = a.contiguous(), b.contiguous()
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    precision = "half" if a.itemsize == 2 else "ieee32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    bulk = precision == "half" and _in_bulk(a, k) and _in_bulk(b, n)
    left, right = (TensorDescriptor.from_tensor(item, [64, 64]) if bulk else item for item in (a, b))
    _matmul[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](
        left, right, c, m, n, k, PRECISION=precision, BULK=bulk, GROUP=8
    )
    return c


def _in_bulk(x, width):
    return torch.cuda.get_device_capability(x.device)[0] >= 9 and width * x.itemsize % 16 == 0 and x.data_ptr() % 16 == 0
