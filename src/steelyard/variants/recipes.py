"""TorchAO's recipes under its own names: number formats and sparsity for the weights of linear layers.

A name means the same on every device; only the packing of weights depends on the device, and the record says how they are packed. A
recipe that torchao no longer has, or that needs other hardware or another package, raises an error that says so. We do not let torchao
change inductor's settings, because they apply to the whole process and so to the baseline too.

A floor is the lowest SQNR of one linear layer that we measured with normal inputs and with outliers, in bf16 and fp32 with K from 256 to
8192, less about a third. Outliers make the floors of recipes with int8 activations lower.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from steelyard.errors import Unsupported
from steelyard.model.words import Word
from steelyard.variants.recipe import GROUP, Pruning, recipe

BITS = Word("bits", least=1, most=8)
ANY_GROUP = Word(GROUP, zero_below=True)
HQQ = Word("hqq", on="hqq")
FOUR_BITS, EIGHT_BITS = 14.0, 30.0
FEWEST = 3.0


def by_bits(bits: int, **others: Any) -> float:
    """Return the floor for integer weights: 6 dB per bit, less two bits for the sign and for sharing scales in a group or row."""
    return min(max(6.0 * bits - 12, FEWEST), EIGHT_BITS)


def by_bits_and_activations(bits: int, **others: Any) -> float:
    """Return the floor for integer weights with int8 activations; with outliers these keep about 24 dB."""
    return min(by_bits(bits), 18.0)


def of_codebook(bits: int) -> float:
    """Return the floor for weights from a table with 2**bits entries."""
    return min(max(6.0 * bits - 10, 4.0), EIGHT_BITS)


@recipe("int8wo", floor=EIGHT_BITS)
def int8wo() -> Any:
    """Weights in int8, one scale per row."""
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig(set_inductor_config=False)


@recipe("int8dq", floor=20, arithmetic="int8")
def int8dq() -> Any:
    """Weights and activations in int8, activations dynamically."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)


@recipe(
    "int8dq_prefill_wo_decode",
    floor=20,
    arithmetic="int8",
    facts={"same_as": "int8dq: torchao 0.18 accepts weight_only_decode and ignores it"},
)
def int8dq_prefill_wo_decode() -> Any:
    """int8dq for many rows at a time, only weights in int8 for one row; torchao 0.18 ignores the switch and does the same as int8dq."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return Int8DynamicActivationInt8WeightConfig(weight_only_decode=True, set_inductor_config=False)


@recipe("int4wo", floor=FOUR_BITS, words=(Word(GROUP, values=(32, 64, 128, 256)), HQQ))
def int4wo(be: Any, group: int = 128, hqq: bool = False) -> Any:
    """Weights in int4 by groups, chosen by HQQ if requested; packed for the CPU on a CPU, and in tiles for tensor cores on CUDA."""
    way = "hqq" if hqq else "tinygemm"
    if be.device == "cpu":
        if group == 256:
            raise Unsupported("torchao packs int4 for the CPU in groups of 32, 64 or 128")
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

        return PrototypeInt4WeightOnlyConfig(group, int4_choose_qparams_algorithm=way, set_inductor_config=False)
    from torchao.quantization import Int4WeightOnlyConfig

    tiles = "tile_packed_to_4d"
    return Int4WeightOnlyConfig(group, int4_packing_format=tiles, int4_choose_qparams_algorithm=way, set_inductor_config=False)


@recipe("intxwo", floor=by_bits, words=(BITS, ANY_GROUP))
def intxwo(bits: int = 4, group: int = 32) -> Any:
    """Weights of 1 to 8 bits by groups, stored in int8; a group of 0 or less is a whole row."""
    from torchao.quantization import IntxWeightOnlyConfig

    return IntxWeightOnlyConfig(weight_dtype=_integer(bits), granularity=_granularity(group))


@recipe(
    "int8_dynamic_activation_intx_weight",
    floor=by_bits_and_activations,
    words=(BITS, ANY_GROUP, Word("asymmetric", switch=True)),
    arithmetic="int8",
)
def int8_dynamic_activation_intx_weight(bits: int = 4, group: int = 32, asymmetric: bool = False) -> Any:
    """Dynamic activations in int8, and weights of 1 to 8 bits by groups, stored in int8."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.quant_primitives import MappingType

    kind = MappingType.ASYMMETRIC if asymmetric else MappingType.SYMMETRIC
    return Int8DynamicActivationIntxWeightConfig(_integer(bits), weight_granularity=_granularity(group), weight_mapping_type=kind)


@recipe("uintx", floor=by_bits, words=(BITS, Word(GROUP), HQQ))
def uintx(bits: int = 4, group: int = 64, hqq: bool = False) -> Any:
    """Unsigned weights of 1 to 8 bits, packed."""
    raise Unsupported(
        f"torchao {_version()} has packed weights of {bits} bits only with the package gemlite",
        do=(f"use gemlitewo-{bits}-{group} where gemlite and Triton are installed, or " if bits in (4, 8) else "use ")
        + f"intxwo-{bits}-{group}, which stores them in int8",
    )


@recipe("gemlitewo", floor=by_bits, words=(Word("bits", values=(4, 8)), Word(GROUP)))
def gemlitewo(be: Any, bits: int = 4, group: int = 64) -> Any:
    """Weights of 4 bits by groups or 8 bits by rows, with gemlite's Triton kernels."""
    import importlib.util

    if be.device == "cpu" or importlib.util.find_spec("gemlite") is None:
        raise Unsupported("gemlitewo needs a GPU and the package gemlite", do="pip install gemlite")
    from torchao.prototype.quantization.quant_api import UIntxWeightOnlyConfig

    return UIntxWeightOnlyConfig(group if bits == 4 else None, bits, set_inductor_config=False)


@recipe("float8wo", floor=24)
def float8wo() -> Any:
    """Weights in float8 (e4m3), one scale per row."""
    from torchao.quantization import Float8WeightOnlyConfig

    return Float8WeightOnlyConfig(set_inductor_config=False)


@recipe("float8dq", floor=18, words=(Word("scales", values=("tensor", "row")),), devices=("cuda", "xpu"), arithmetic="fp8e4m3")
def float8dq(be: Any, scales: str = "tensor") -> Any:
    """Weights and activations in float8, activations dynamically, one scale per tensor or row; needs hardware that multiplies float8."""
    import torch
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, PerTensor

    if be.device == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability() < (8, 9):
        raise Unsupported("float8dq needs a GPU of compute capability 8.9 or newer")
    fine = PerRow() if scales == "row" else PerTensor()
    return Float8DynamicActivationFloat8WeightConfig(granularity=fine, set_inductor_config=False)


@recipe("nf4", floor=FOUR_BITS)
def nf4() -> Any:
    """Weights in NF4, the four-bit format of QLoRA."""
    from torchao.prototype._nf4tensor_api import NF4WeightOnlyConfig

    return NF4WeightOnlyConfig()


@recipe("nvfp4wo", floor=FOUR_BITS)
def nvfp4wo() -> Any:
    """Weights in NVFP4: blocks of 16 with a float8 scale each."""
    from torchao.prototype.mx_formats import NVFP4WeightOnlyConfig

    return NVFP4WeightOnlyConfig()


@recipe("codebook", floor=of_codebook, words=(BITS,))
def codebook(bits: int = 4) -> Any:
    """Weights as indices into a table found by k-means."""
    import torch
    from torchao.prototype.quantization.codebook.codebook_quantized_tensor import CodebookWeightOnlyConfig

    return CodebookWeightOnlyConfig(getattr(torch, f"uint{bits}"))


@recipe("semi-sparse", floor=EIGHT_BITS, devices=("cuda",))
def semi_sparse() -> Any:
    """The two smaller of every four weights set to zero, in the layout of sparse tensor cores."""

    def change(model: Any) -> Any:
        from torchao.sparsity.sparse_api import SemiSparseWeightConfig, sparsify_

        return sparsify_(model, SemiSparseWeightConfig())

    return Pruning(largest_two, change, two_of_four, "zero in two of every four places")


@recipe("block-sparse", floor=EIGHT_BITS, words=(Word("block", values=(16, 32, 64, 128)),), devices=("cuda",))
def block_sparse(block: int = 64) -> Any:
    """The smaller half of the square blocks of every weight set to zero, with Triton kernels."""

    def change(model: Any) -> Any:
        from torchao.sparsity.sparse_api import BlockSparseWeightConfig, sparsify_

        return sparsify_(model, BlockSparseWeightConfig(block))

    return Pruning(
        partial(larger_blocks, block=block), change, partial(half_of_blocks, block=block), f"zero in half of the blocks of {block}"
    )


def _gone(name: str, why: str) -> Any:
    """Make a recipe for a name that torchao no longer has; it is always unsupported and says why."""

    def build() -> Any:
        raise Unsupported(f"torchao has no {name} any more: {why}")

    build.__doc__ = f"Removed from torchao: {why}."
    return recipe(name, floor=FEWEST)(build)


int8adq_int4w_symm = _gone("int8adq-int4w-symm", "its CUTLASS kernel for int8 by int4 was removed")
marlin = _gone("marlin", "its sparse Marlin layout was removed")
marlin_qqq = _gone("marlin-qqq", "its QQQ layout was removed")
fp6 = _gone("fp6", "its layout for formats of six bits was removed")


def _integer(bits: int) -> Any:
    import torch

    return getattr(torch, f"int{bits}")


def _granularity(group: int) -> Any:
    from torchao.quantization.granularity import PerAxis, PerGroup

    return PerGroup(group) if group > 0 else PerAxis(0)


def _version() -> str:
    from importlib.metadata import version

    return version("torchao")


def largest_two(weight: Any) -> Any:
    """Return 1 for the two largest of every four weights of a row, 0 for the two smaller ones."""
    import torch

    if weight.shape[-1] % 4:
        raise Unsupported(f"rows of {weight.shape[-1]} weights cannot be pruned by fours")
    fours = weight.abs().reshape(-1, 4)
    kept = torch.zeros_like(fours).scatter_(1, fours.topk(2, dim=1).indices, 1)
    return kept.reshape(weight.shape)


def two_of_four(weight: Any) -> bool:
    """Whether two of every four weights of a row are zero."""
    return bool(((weight.reshape(-1, 4) == 0).sum(1) >= 2).all())


def larger_blocks(weight: Any, block: int) -> Any:
    """Return 1 for weights in the larger half of the square blocks, 0 for weights in the smaller half."""
    import torch

    sums = _in_blocks(weight.abs(), block).sum((1, 3))
    kept = torch.ones_like(sums).flatten()
    kept[sums.flatten().argsort()[: kept.numel() // 2]] = 0
    return kept.reshape(sums.shape).repeat_interleave(block, 0).repeat_interleave(block, 1)


def half_of_blocks(weight: Any, block: int) -> bool:
    """Whether at least half of the square blocks are zero, rounded down for an odd number of blocks."""
    empty = (_in_blocks(weight, block) == 0).all(3).all(1)
    return bool(empty.numel() > 1 and int(empty.sum()) >= empty.numel() // 2)


def _in_blocks(weight: Any, block: int) -> Any:
    rows, columns = weight.shape
    if rows % block or columns % block:
        raise Unsupported(f"blocks of {block} do not divide a weight of {rows} by {columns}")
    return weight.reshape(rows // block, block, columns // block, block)
