"""PARAM's embedding benchmark: bags of several tables looked up in one call of FBGEMM, if that is installed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from steelyard.errors import Unsupported, UsageError
from steelyard.model.dtypes import SIZES
from steelyard.workloads.operators._values import arguments

NAME = "SplitTableBatchedEmbeddingBagsCodegen"
GENERATOR = f"{NAME}InputDataGenerator"
FILES = {"indices": "split_embedding_indices", "offsets": "split_embedding_offsets", "weights": "split_embedding_weights"}
ALPHA = "split_embedding_distribution"
FIRST_MINOR = 5
PLAIN = ("fp32", "fp16", "bf16")
INPUTS = ("num_tables", "rows", "dims", "batch_size", "pooling_factor", "weighted", "weights_precision")


def library() -> Any:
    """FBGEMM's training module; a build for another torch fails like a missing one."""
    try:
        return importlib.import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
    except (ImportError, OSError) as error:
        kind = "fbgemm-gpu-cpu" if torch.version.cuda is None else "fbgemm-gpu"
        major, minor = map(int, torch.__version__.split(".")[:2])
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        do = f"pip install --no-deps '{kind}=={major - 1}.{minor - FIRST_MINOR}.*', which is made for torch {major}.{minor}"
        raise Unsupported(f"{NAME} needs fbgemm_gpu", why=why, do=do) from error


class TableBatch:
    """Several embedding tables in one operator, which updates its weights in its backward pass."""

    def __init__(self) -> None:
        self.device = "cpu"
        self.op: Any = None
        self.row: tuple[float, int, bool] | None = None

    def build(
        self,
        num_tables: int,
        rows: int | Sequence[int],
        dims: int | Sequence[int],
        pooling: int,
        weighted: bool,
        weights_precision: str,
        optimizer: str = "exact_row_wise_adagrad",
        lr: float = 0.01,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        """Make the tables; they are on the device that computes, without a cache."""
        training = library()
        host = self.device.startswith("cpu")
        if not host and not self.device.startswith("cuda"):
            raise Unsupported(f"{NAME} runs on cpu and cuda, not on {self.device}")
        location = training.EmbeddingLocation.HOST if host else training.EmbeddingLocation.DEVICE
        where = training.ComputeDevice.CPU if host else training.ComputeDevice.CUDA
        sizes = list(zip(_each(rows, num_tables, "rows"), _each(dims, num_tables, "dims"), strict=True))
        try:
            self.op = training.SplitTableBatchedEmbeddingBagsCodegen(
                [(count, width, location, where) for count, width in sizes],
                optimizer=training.OptimType(optimizer),
                pooling_mode=training.PoolingMode(pooling),
                weights_precision=training.SparseType(weights_precision),
                learning_rate=lr,
                eps=eps,
                weight_decay=weight_decay,
                device=torch.device(self.device),
            )
        except ValueError as error:
            raise UsageError(str(error).splitlines()[0]) from error
        self.op.init_embedding_weights_uniform(-1.0, 1.0)
        widths = {width for _, width in sizes}
        even = len(widths) == 1 and weights_precision in PLAIN
        self.row = (SIZES[weights_precision], widths.pop(), self.op.pooling_mode != training.PoolingMode.NONE) if even else None

    def forward(self, indices: Any, offsets: Any, weights: Any = None) -> Any:
        """The pooled rows of every table, side by side."""
        if self.op is None:
            raise UsageError(f"{NAME} must be built before it is called", do="add a build list")
        return self.op(indices, offsets, weights)

    def parameters(self) -> list[Any]:
        """The tables; their update is part of the backward pass, which passes no gradient on."""
        return [item for name, item in self.op.named_parameters() if name.startswith("weights_") and item.numel()]

    def traffic(self, args: Sequence[Any]) -> float | None:
        """The least that a call moves: each looked-up row, the other arguments, and the answer; None for rows of unequal length."""
        if self.row is None:
            return None
        size, width, pooled = self.row
        told = sum(float(item.nbytes) for item in args if item is not None)
        return len(args[0]) * size * width + told + (len(args[1]) - 1 if pooled else len(args[0])) * width * SIZES["fp32"]

    def cleanup(self) -> None:
        """Release the tables."""
        self.op = None


def generate(spec: Mapping[str, Any], device: str, seed: int) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Indices, offsets and, if asked for, a weight per lookup, from the sizes that PARAM's iterator passes on.

    `alpha` says how rows repeat: at 0 as many rows as a bag has, in turn; up to 0.5 all rows in turn; up to 1 all rows are equally
    likely; above 1 few rows have most lookups. It is a keyword of the spec, or PARAM's environment variable, or 1.
    """
    places, names, drawn = arguments(spec, "cpu", seed, grad=False)
    if len(places) != len(INPUTS):
        raise UsageError(f"{GENERATOR} takes {len(INPUTS)} arguments and got {len(places)}", do=f"give {', '.join(INPUTS)}")
    if any(isinstance(item, Mapping) and "indices_tensor" in item for item in spec["args"]):
        do = f"name the files in the environment: {', '.join(FILES.values())}"
        raise UsageError("a config cannot name files of indices", do=do)
    given = dict(zip(INPUTS, places, strict=True))
    weighted = bool(given["weighted"])
    if (kept := _from_files(weighted)) is not None:
        return [item if item is None else item.to(device) for item in kept], {}, {**drawn, "indices": "from files"}
    alpha = float(names.get("alpha", os.environ.get(ALPHA, 1.0)))
    chance, tables = torch.Generator().manual_seed(seed), int(given["num_tables"])
    rows, pooling = _each(given["rows"], tables, "rows"), _each(given["pooling_factor"], tables, "pooling_factor")
    batch = int(given["batch_size"])
    indices = torch.cat([lookups(batch * length, length, count, alpha, chance) for count, length in zip(rows, pooling, strict=True)])
    lengths = torch.cat([torch.full((batch,), length) for length in pooling])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    weights = torch.randn(len(indices), generator=chance).to(device) if weighted else None
    return [indices.to(device), offsets.to(device), weights], {}, {**drawn, "alpha": alpha}


def lookups(count: int, length: int, rows: int, alpha: float, chance: Any) -> Any:
    """Which row each lookup of one table reads."""
    if alpha <= 0.5:
        return torch.arange(count) % min(rows, length if alpha == 0 else rows)
    if alpha <= 1:
        return torch.randint(0, rows, (count,), generator=chance)
    import numpy as np

    ranks = np.random.default_rng(int(torch.randint(2**62, (), generator=chance))).zipf(alpha, count)
    return torch.from_numpy(ranks % rows)


def _from_files(weighted: bool) -> list[Any] | None:
    """Tensors from files that environment variables name; anything in a file besides tensors is not read."""
    names = [os.environ.get(FILES[part]) for part in ("indices", "offsets", "weights")]
    if names[0] is None or names[1] is None:
        return None
    wanted = [name if place < 2 or weighted else None for place, name in enumerate(names)]
    found = []
    for name in wanted:
        if name is not None and not Path(name).is_file():
            raise UsageError(f"no file {name!r}", why=f"it is named by one of {', '.join(FILES.values())}")
        found.append(None if name is None else torch.load(name, map_location="cpu", weights_only=True))
    return found


def _each(value: int | Sequence[int], count: int, name: str) -> list[int]:
    """A number for every table, or one for all of them."""
    values = [value] * count if isinstance(value, int) else [int(item) for item in value]
    if len(values) != count:
        raise UsageError(f"{name} has {len(values)} values for {count} tables")
    return values
