"""Models have the published layouts, compute what independent code computes, cost what they declare, and learn."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steelyard.backends._torch_modes import in_mode  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.errors import NotApplicable  # noqa: E402
from steelyard.measuring.verify import compare  # noqa: E402
from steelyard.model.task import Task  # noqa: E402
from steelyard.workloads.models.parts import block_class, count  # noqa: E402
from steelyard.workloads.ops.attention import attend  # noqa: E402
from steelyard.workloads.ops.conv import correlate  # noqa: E402
from steelyard.workloads.ops.norm import rescale  # noqa: E402
from steelyard.workloads.ops.pointwise import silu_of  # noqa: E402
from tests.workloads.test_cost import Shapes, counted, weight  # noqa: E402
from tests.workloads.tiny import MODELS, TINY_MODELS, build, defaults, results  # noqa: E402

pytestmark = pytest.mark.torch

Array = np.ndarray[Any, Any]
every_model = pytest.mark.parametrize("name", TINY_MODELS)
CAUSAL = ("model/gpt", "model/llama")
WITHOUT_NORMS = ("model/mlp", "model/dlrm")
OUTPUTS = {
    "model/mlp": (5, 7), "model/resnet50": (2, 7), "model/bert": (2, 3), "model/gpt": (2, 5, 29), "model/llama": (2, 5, 29),
    "model/vit": (2, 7), "model/dlrm": (5,),
}  # fmt: skip
PUBLISHED = {
    "resnet50": ("model/resnet50", {"width": 64, "classes": 1000}, 25_557_032),
    "bert-base": ("model/bert", {"seq": 512, "layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 30522}, 109_483_778),
    "bert-large": ("model/bert", MODELS["model/bert"].sizes["h200"], 335_143_938),
    "gpt2": ("model/gpt", {"seq": 1024, "layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50257}, 124_439_808),
    "llama-1.1b": ("model/llama", MODELS["model/llama"].sizes["h200"], 1_100_048_384),
    "vit-large": ("model/vit", MODELS["model/vit"].sizes["h200"], 304_326_632),
}
LEAST_GPU_FLOPS, MOST_GPU_BYTES = 1e11, 20e9


def tiny(name: str, dtype: str = "fp32", seed: int = 0) -> Task:
    return build(name, TINY_MODELS[name], Torch(seed=seed), dtype)


def precisely(task: Task) -> Any:
    """The answer of the same weights, as they were rounded, in double precision."""
    assert isinstance(task.fn, torch.nn.Module)
    with torch.no_grad():
        return copy.deepcopy(task.fn).double()(*(item.double() if item.is_floating_point() else item for item in task.args))


def stir(module: Any) -> Any:
    """Draw all weights anew, so that no gain is 1 and no bias 0 by accident."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for item in module.parameters():
            item.copy_(torch.randn(item.shape, generator=generator, dtype=item.dtype) / max(1, item.numel() // len(item)) ** 0.5)
    return module.eval()


def weights(module: Any) -> dict[str, Array]:
    return {name: item.detach().numpy() for name, item in module.state_dict().items()}


def test_every_model_is_tested() -> None:
    assert set(TINY_MODELS) == set(MODELS) == set(OUTPUTS)
    assert all(item.modes == ("eval", "fwd", "bwd", "train") for item in MODELS.values())


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
@every_model
def test_outputs_have_their_shape_and_are_as_exact_as_the_format(name: str, dtype: str) -> None:
    be, task = Torch(seed=0), tiny(name, dtype)
    found = be.outputs(task())
    assert [(leaf.data.shape, leaf.dtype) for leaf in found] == [(OUTPUTS[name], dtype)]
    verdict = compare(found, be.outputs(precisely(task)), "fp64", own=task.tolerance, same_dtype=False)
    assert verdict.status == "passed", verdict.message


@every_model
def test_the_seed_decides(name: str) -> None:
    be = Torch(seed=0)
    one, same, other = (results(tiny(name, seed=seed), be)[0] for seed in (3, 3, 4))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


@every_model
def test_flops_are_those_that_torch_counts_less_what_a_causal_mask_hides(name: str) -> None:
    task, params = tiny(name), TINY_MODELS[name]
    hidden = 0
    if name in CAUSAL:
        above = params["seq"] * (params["seq"] - 1) // 2
        hidden = 4 * params["layers"] * params["batch"] * above * params["hidden"]
    assert task.flops == counted(task) - hidden > 0


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@every_model
def test_bytes_are_weights_read_once_and_what_goes_in_and_out(name: str, dtype: str) -> None:
    task = tiny(name, dtype)
    assert isinstance(task.fn, torch.nn.Module)
    moved = weight(task.args) + weight(task()) + weight(list(task.fn.parameters()))
    tables = [item for item in task.fn.modules() if isinstance(item, (torch.nn.Embedding, torch.nn.EmbeddingBag))]
    for table in tables:
        looked_up = task.args[-1].numel() // (len(tables) if name == "model/dlrm" else 1)
        if table.num_embeddings in (TINY_MODELS[name].get("vocab"), TINY_MODELS[name].get("rows")) and name != "model/gpt":
            moved += (looked_up - table.num_embeddings) * table.embedding_dim * table.weight.element_size()
    assert task.bytes == moved


@pytest.mark.parametrize("layout", PUBLISHED)
def test_layouts_have_as_many_weights_as_published(layout: str) -> None:
    name, change, known = PUBLISHED[layout]
    task = MODELS[name].bodies["torch"](**{**defaults(MODELS[name]), **change}, be=Shapes(seed=0))
    assert count(task.fn) == known


@every_model
def test_the_large_preset_fills_a_gpu_and_fits(name: str) -> None:
    item = MODELS[name]
    task = item.bodies["torch"](**{**defaults(item), **item.sizes["h200"]}, be=Shapes(seed=0))
    held = weight(task.args) + weight(task.parameters) + weight(task())
    assert held <= MOST_GPU_BYTES and (task.flops or 0) >= LEAST_GPU_FLOPS
    assert {parameter.dtype for parameter in task.parameters} == {torch.bfloat16}


@every_model
def test_is_one_graph(name: str) -> None:
    task = tiny(name)
    torch._dynamo.reset()
    compiled = torch.compile(task.fn, fullgraph=True, backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(*task.args), task())


@every_model
def test_learns(name: str) -> None:
    task = tiny(name, "fp64")
    step = in_mode(task, "train")
    first, second = step(), step()
    assert second < first
    assert step.observe is not None
    slopes = step.observe()["gradients"]
    assert len(slopes) == len(task.parameters)
    assert all(slope is not None and slope.isfinite().all() for slope in slopes)
    assert sum(bool(slope.any()) for slope in slopes) == len(task.parameters)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@every_model
def test_every_mode_answers_with_numbers(name: str, dtype: str) -> None:
    be = Torch(seed=0)
    for mode in MODELS[name].modes:
        assert all(np.isfinite(item).all() for item in results(in_mode(tiny(name, dtype), mode), be))


@every_model
def test_two_builds_share_no_weights(name: str) -> None:
    one, other = tiny(name), tiny(name)
    in_mode(one, "train")()
    for kept, drawn in zip(other.parameters, tiny(name).parameters, strict=True):
        assert torch.equal(kept, drawn)


def blunt(module: Any) -> None:
    """An epsilon of 0.1 in every norm."""
    for part in module.modules():
        if hasattr(part, "eps"):
            part.eps = 1e-1


def transpose(module: Any) -> None:
    """One square weight the wrong way round."""
    square = next(item for item in module.parameters() if item.ndim >= 2 and item.shape[0] == item.shape[1])
    with torch.no_grad():
        square.copy_(square.transpose(0, 1).clone())


def verdict_on(name: str, dtype: str, spoil: Callable[[Any], None]) -> str:
    be, task = Torch(seed=0), tiny(name, dtype)
    right = be.outputs(precisely(task))
    spoil(task.fn)
    return compare(be.outputs(task()), right, "fp64", own=task.tolerance, same_dtype=False).status


@pytest.mark.parametrize("name", [name for name in TINY_MODELS if name not in WITHOUT_NORMS])
def test_a_wrong_epsilon_is_found(name: str) -> None:
    assert verdict_on(name, "fp32", blunt) == "failed"


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@every_model
def test_a_weight_the_wrong_way_round_is_found(name: str, dtype: str) -> None:
    assert verdict_on(name, dtype, transpose) == "failed"


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("model/bert", {"heads": 3}, "heads=3"),
        ("model/gpt", {"heads": 3}, "heads=3"),
        ("model/llama", {"kv_heads": 3}, "kv_heads=3"),
        ("model/llama", {"hidden": 12}, "head width=3"),
        ("model/vit", {"patch": 5}, "patch=5"),
        ("model/dlrm", {"hidden": 18}, "hidden=18"),
    ],
)
def test_a_shape_without_meaning_says_why(name: str, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        build(name, {**TINY_MODELS[name], **change}, Torch(seed=0))


@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["sum first", "norm first"])
def test_a_block_is_the_block_that_torch_has(norm_first: bool, causal: bool) -> None:
    mine = stir(block_class()(16, 4, 20, 1e-5, causal=causal, norm_first=norm_first).double())
    theirs = torch.nn.TransformerEncoderLayer(
        16, 4, 20, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).train()
    names = {
        "norm1": "norm_1", "norm2": "norm_2", "self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj": "attention.out",
        "linear1": "feed.0", "linear2": "feed.2",
    }  # fmt: skip
    state = mine.state_dict()
    theirs.load_state_dict({key: state[next(key.replace(a, b) for a, b in names.items() if a in key)] for key in theirs.state_dict()})
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64) if causal else None
    torch.testing.assert_close(mine(x), theirs(x, src_mask=mask, is_causal=causal))


def test_llama_is_what_numpy_makes_of_its_weights() -> None:
    task, params = tiny("model/llama", "fp64"), TINY_MODELS["model/llama"]
    w, heads, width = weights(stir(task.fn)), params["heads"], params["hidden"] // params["heads"]
    x = w["tokens.weight"][task.args[0].numpy()]
    angle = np.arange(params["seq"])[:, None] * 10000.0 ** (-2 * np.arange(width // 2) / width)
    turning = np.exp(1j * angle)

    def split(x: Array, matrix: Array, turned: bool) -> Array:
        parts = (x @ matrix.T).reshape(*x.shape[:2], -1, width).swapaxes(1, 2)
        whole = (parts[..., : width // 2] + 1j * parts[..., width // 2 :]) * turning
        return np.concatenate((whole.real, whole.imag), axis=-1) if turned else parts

    for layer in range(params["layers"]):
        at = f"blocks.{layer}."
        known = rescale(x, x.shape[-1:], w[at + "norm_1.weight"], 1e-5)
        q, k, v = (split(known, w[f"{at}attention.{part}.weight"], part != "v") for part in "qkv")
        x = x + attend(q, k, v, True).swapaxes(1, 2).reshape(*x.shape[:2], heads * width) @ w[at + "attention.out.weight"].T
        known = rescale(x, x.shape[-1:], w[at + "norm_2.weight"], 1e-5)
        gate, up = known @ w[at + "feed.gate.weight"].T, known @ w[at + "feed.up.weight"].T
        x = x + (silu_of(gate) * up) @ w[at + "feed.down.weight"].T
    expected = rescale(x, x.shape[-1:], w["norm.weight"], 1e-5) @ w["out.weight"].T
    np.testing.assert_allclose(task().detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def descend(x: Array, w: dict[str, Array], at: str, layers: int) -> Array:
    """A perceptron in numpy, without the last activation."""
    for layer in range(layers):
        x = (np.maximum(x, 0) if layer else x) @ w[f"{at}{2 * layer}.weight"].T + w[f"{at}{2 * layer}.bias"]
    return x


def test_mlp_is_what_numpy_makes_of_its_weights() -> None:
    task = tiny("model/mlp", "fp64")
    expected = descend(task.args[0].numpy(), weights(stir(task.fn)), "", 3)
    np.testing.assert_allclose(task().detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_dlrm_is_what_numpy_makes_of_its_weights() -> None:
    task, params = tiny("model/dlrm", "fp64"), TINY_MODELS["model/dlrm"]
    w, (numbers, index) = weights(stir(task.fn)), (item.numpy() for item in task.args)
    known = np.maximum(descend(numbers, w, "bottom.", 3), 0)
    bags = [w[f"tables.{table}.weight"][index[table]].sum(axis=1) for table in range(params["tables"])]
    features = [known, *bags]
    products = [(features[i] * features[j]).sum(axis=1) for i in range(len(features)) for j in range(i)]
    expected = descend(np.concatenate((known, np.stack(products, axis=1)), axis=1), w, "top.", 5)[:, 0]
    np.testing.assert_allclose(task().detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("index", "stride"), [(4, 1), (5, 1), (7, 2)], ids=["wider", "plain", "halving"])
def test_a_bottleneck_is_what_numpy_makes_of_its_weights(index: int, stride: int) -> None:
    task = tiny("model/resnet50", "fp64")
    block = stir(task.fn)[index]
    w = weights(block)
    x = np.random.default_rng(0).standard_normal((2, w["branch.0.weight"].shape[1], 7, 7))

    def step(x: Array, at: str, place: int, stride: int = 1) -> Array:
        matrix, gain, shift = w[f"{at}.{place}.weight"], w[f"{at}.{place + 1}.weight"], w[f"{at}.{place + 1}.bias"]
        made = correlate(x, matrix, np.zeros(len(matrix)), stride, matrix.shape[-1] // 2, 1, 1)
        return made / np.sqrt(1 + 1e-5) * gain[:, None, None] + shift[:, None, None]

    inner = np.maximum(step(x, "branch", 0), 0)
    inner = np.maximum(step(inner, "branch", 3, stride), 0)
    expected = np.maximum(step(inner, "branch", 6) + (step(x, "shortcut", 0, stride) if "shortcut.0.weight" in w else x), 0)
    np.testing.assert_allclose(block(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-9, atol=1e-12)
