"""BERT, base and large: an encoder that returns the last state of every token, in JAX, PyTorch and TensorFlow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from steelyard.workloads.models.bert import EPS, SEGMENTS, encoder
from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, least, token_batch

TEXT = "a photo of a cat"


@dataclass(frozen=True)
class BertSizes:
    """Sizes of the model; `places` is the longest text, in tokens."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int = 30522
    places: int = 512


MODELS = {
    "bert-base-uncased": {
        "tiny": BertSizes(2, 32, 2, 64, 128, 16), "small": BertSizes(4, 256, 4, 1024, 4096, 128), "full": BertSizes(12, 768, 12, 3072),
    },
    "bert-large-uncased": {
        "tiny": BertSizes(3, 32, 2, 64, 128, 16), "small": BertSizes(8, 256, 4, 1024, 4096, 128), "full": BertSizes(24, 1024, 16, 4096),
    },
}  # fmt: skip


def create_model(
    framework: str, batch_size: int = 1, seq_len: int = 384, data_type: str = "fp32", model_name: str = "bert-large-uncased",
    preset: str = "full",
) -> Any:  # fmt: skip
    """The encoder with its table of positions cut to the length of its input, as in our PyTorch model."""
    sizes = chosen(MODELS, model_name, preset, batch_size)
    length = least(seq_len, sizes.places)

    def prepare(text: str) -> tuple[Array, ...]:
        return token_batch(text, sizes.vocabulary, length, batch_size)

    effective = {"model": model_name, "preset": preset, "batch_size": batch_size, "seq_len": length, **asdict(sizes)}
    draft = Draft(TEXT, prepare, effective, data_type)

    def in_torch() -> Any:
        from steelyard.workloads.models.families._torch import torch_model

        inner = encoder(sizes.layers, sizes.hidden, sizes.heads, sizes.ffn, sizes.vocabulary, length, classes=2)
        del inner.pool, inner.classify
        return torch_model(draft, inner, torch_states)

    def in_jax() -> Any:
        from steelyard.workloads.models.families._jax import JaxModel

        return JaxModel(draft, partial(jax_states, sizes))

    def in_tensorflow() -> Any:
        from steelyard.workloads.models.families._tensorflow import tensorflow_model

        return tensorflow_model(draft, partial(tensorflow_states, sizes))

    return choose(framework, {"jax": in_jax, "pytorch": in_torch, "tensorflow": in_tensorflow}, "BERT")


def torch_states(inner: Any, ids: Array, mask: Array) -> Array:
    """The modules of `models/bert`, with a mask for padding."""
    import torch.nn.functional as F

    seen = (mask > 0)[:, None, None, :]

    def mix(attention: Any, x: Array) -> Array:
        q, k, v = attention.qkv(x).unflatten(-1, (3, attention.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return attention.out(mixed.transpose(1, 2).flatten(-2))

    x = inner.norm(inner.tokens(ids) + inner.positions.weight + inner.segments.weight[0])
    for part in inner.blocks:
        x = part.norm_1(x + mix(part.attention, x))
        x = part.norm_2(x + part.feed(x))
    return x


def jax_states(sizes: BertSizes, get: Any, ids: Array, mask: Array) -> Array:
    """The same in JAX."""
    import jax

    from steelyard.workloads.models.families._jax import attend, block, layer_norm

    x = get("tokens.weight", sizes.vocabulary, sizes.hidden)[ids] + get("positions.weight", ids.shape[1], sizes.hidden)
    x = layer_norm(get, "norm", x + get("segments.weight", SEGMENTS, sizes.hidden)[0], EPS)
    activation, mixing = partial(jax.nn.gelu, approximate=False), partial(attend, mask=(mask > 0)[:, None, None, :])
    for number in range(sizes.layers):
        x = block(get, f"blocks.{number}", x, sizes.heads, sizes.ffn, EPS, activation, mixing, norm_first=False)
    return x


def tensorflow_states(sizes: BertSizes, get: Any, ids: Array, mask: Array) -> Array:
    """The same in TensorFlow."""
    import tensorflow as tf

    from steelyard.workloads.models.families._tensorflow import attend, block, layer_norm

    x = tf.gather(get("tokens.weight", sizes.vocabulary, sizes.hidden), ids) + get("positions.weight", ids.shape[1], sizes.hidden)
    x = layer_norm(get, "norm", x + get("segments.weight", SEGMENTS, sizes.hidden)[0], EPS)
    mixing = partial(attend, mask=(mask > 0)[:, None, None, :])
    for number in range(sizes.layers):
        x = block(get, f"blocks.{number}", x, sizes.heads, sizes.ffn, EPS, tf.nn.gelu, mixing, norm_first=False)
    return x
