"""T5, small and large, in JAX and TensorFlow: the last states of the decoder for a pair of texts. Weights have transformers' names."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, least, token_batch

TEXTS = ("Studies have been shown that owning a dog is good for you", "Studies show that")
EPS = 1e-6
BUCKETS, FURTHEST = 32, 128


@dataclass(frozen=True)
class T5Sizes:
    """Sizes of the model; `places` is the longest text that is read here, and `writes` the most that is written, in tokens."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    width: int = 64
    vocabulary: int = 32128
    places: int = 512
    writes: int = 256


MODELS = {
    "t5-small": {
        "tiny": T5Sizes(2, 32, 2, 64, 16, 128, 16, 4), "small": T5Sizes(3, 192, 3, 768, 64, 4096, 128, 32),
        "full": T5Sizes(6, 512, 8, 2048),
    },
    "t5-large": {
        "tiny": T5Sizes(3, 32, 2, 64, 16, 128, 16, 4), "small": T5Sizes(6, 256, 4, 1024, 64, 4096, 128, 32),
        "full": T5Sizes(24, 1024, 16, 4096),
    },
}  # fmt: skip


def create_model(
    framework: str, batch_size: int = 1, seq_len: int = 512, data_type: str = "fp32", model_name: str = "t5-large", preset: str = "full"
) -> Any:
    """Encoder and decoder on texts of one length; padding is read like any token, as in the original."""
    sizes = chosen(MODELS, model_name, preset, batch_size)
    length = least(seq_len, sizes.places)

    def prepare(read: str, written: str) -> tuple[Array, ...]:
        return tuple(token_batch(text, sizes.vocabulary, length, batch_size)[0] for text in (read, written))

    effective = {"model": model_name, "preset": preset, "batch_size": batch_size, "seq_len": length, **asdict(sizes)}
    draft = Draft(TEXTS, prepare, effective, data_type)

    def in_jax() -> Any:
        from steelyard.workloads.models.families._jax import JaxModel

        return JaxModel(draft, partial(jax_states, sizes))

    def in_tensorflow() -> Any:
        from steelyard.workloads.models.families._tensorflow import tensorflow_model

        return tensorflow_model(draft, partial(tensorflow_states, sizes))

    return choose(framework, {"jax": in_jax, "tensorflow": in_tensorflow}, "T5")


def buckets(queries: int, keys: int, *, both_ways: bool) -> Array:
    """The row of the table of distances for each pair of positions: near distances one by one, far ones by their logarithm."""
    import numpy as np

    ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    count = BUCKETS // 2 if both_ways else BUCKETS
    side = (ahead > 0) * count if both_ways else 0
    far = np.abs(ahead) if both_ways else np.maximum(-ahead, 0)
    exact = count // 2
    scale = (count - exact) / math.log(FURTHEST / exact)
    grown = exact + (np.log(np.maximum(far, 1).astype(np.float32) / exact) * scale).astype(np.int32)
    return side + np.where(far < exact, far, np.minimum(grown, count - 1))


def jax_states(sizes: T5Sizes, get: Any, read: Array, written: Array) -> Array:
    """The decoder's last states, computed with those of the encoder."""
    return jax_decoder(sizes, get, written, jax_encoder(sizes, get, read))


def jax_bias(sizes: T5Sizes, get: Any, stack: str, length: int) -> Array:
    """What distance adds to scores, as [1, head, query, key]."""
    table = get(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", BUCKETS, sizes.heads)
    return table[buckets(length, length, both_ways=stack == "encoder")].transpose(2, 0, 1)[None]


def jax_heads(sizes: T5Sizes, get: Any, name: str, x: Array, parts: str = "qkv") -> list[Array]:
    """Queries, keys and values, split into heads."""
    from steelyard.workloads.models.families._jax import linear, split

    return [split(linear(get, f"{name}.{part}", x, sizes.heads * sizes.width, bias=False), sizes.heads) for part in parts]


def jax_attend(sizes: T5Sizes, get: Any, name: str, q: Array, k: Array, v: Array, **how: Any) -> Array:
    """Attention without a scale, and the product after it."""
    from steelyard.workloads.models.families._jax import attend, linear

    return linear(get, f"{name}.o", attend(q, k, v, scale=1.0, **how), sizes.hidden, bias=False)


def jax_feed(sizes: T5Sizes, get: Any, name: str, x: Array) -> Array:
    """Norm, and two products with a ReLU between."""
    import jax

    from steelyard.workloads.models.families._jax import linear, rms_norm

    inner = jax.nn.relu(linear(get, f"{name}.DenseReluDense.wi", rms_norm(get, f"{name}.layer_norm", x, EPS), sizes.ffn, bias=False))
    return x + linear(get, f"{name}.DenseReluDense.wo", inner, sizes.hidden, bias=False)


def jax_encoder(sizes: T5Sizes, get: Any, ids: Array, mask: Array | None = None) -> Array:
    """The states of the text that is read."""
    from steelyard.workloads.models.families._jax import rms_norm

    x = get("shared.weight", sizes.vocabulary, sizes.hidden)[ids]
    bias = jax_bias(sizes, get, "encoder", ids.shape[1])
    for number in range(sizes.layers):
        name = f"encoder.block.{number}.layer"
        heads = jax_heads(sizes, get, f"{name}.0.SelfAttention", rms_norm(get, f"{name}.0.layer_norm", x, EPS))
        x = x + jax_attend(sizes, get, f"{name}.0.SelfAttention", *heads, bias=bias, mask=mask)
        x = jax_feed(sizes, get, f"{name}.1", x)
    return rms_norm(get, "encoder.final_layer_norm", x, EPS)


def jax_decoder(sizes: T5Sizes, get: Any, ids: Array, known: Array) -> Array:
    """The states of the written text, each from the tokens before it and from the text that was read."""
    from steelyard.workloads.models.families._jax import rms_norm

    x = get("shared.weight", sizes.vocabulary, sizes.hidden)[ids]
    bias = jax_bias(sizes, get, "decoder", ids.shape[1])
    for number in range(sizes.layers):
        name = f"decoder.block.{number}.layer"
        heads = jax_heads(sizes, get, f"{name}.0.SelfAttention", rms_norm(get, f"{name}.0.layer_norm", x, EPS))
        x = x + jax_attend(sizes, get, f"{name}.0.SelfAttention", *heads, bias=bias, causal=True)
        across = f"{name}.1.EncDecAttention"
        (q,) = jax_heads(sizes, get, across, rms_norm(get, f"{name}.1.layer_norm", x, EPS), "q")
        x = x + jax_attend(sizes, get, across, q, *jax_heads(sizes, get, across, known, "kv"))
        x = jax_feed(sizes, get, f"{name}.2", x)
    return rms_norm(get, "decoder.final_layer_norm", x, EPS)


def tensorflow_states(sizes: T5Sizes, get: Any, read: Array, written: Array) -> Array:
    """The same in TensorFlow."""
    import tensorflow as tf

    from steelyard.workloads.models.families._tensorflow import attend, linear, rms_norm, split

    def heads(name: str, x: Array, parts: str = "qkv") -> list[Array]:
        return [split(linear(get, f"{name}.{part}", x, sizes.heads * sizes.width, bias=False), sizes.heads) for part in parts]

    def mix(name: str, *parts: Array, **how: Any) -> Array:
        return linear(get, f"{name}.o", attend(*parts, scale=1.0, **how), sizes.hidden, bias=False)

    def feed(name: str, x: Array) -> Array:
        inner = tf.nn.relu(linear(get, f"{name}.DenseReluDense.wi", rms_norm(get, f"{name}.layer_norm", x, EPS), sizes.ffn, bias=False))
        return x + linear(get, f"{name}.DenseReluDense.wo", inner, sizes.hidden, bias=False)

    def stack(kind: str, ids: Array, known: Array | None = None) -> Array:
        x, length = tf.gather(get("shared.weight", sizes.vocabulary, sizes.hidden), ids), ids.shape[1]
        table = get(f"{kind}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", BUCKETS, sizes.heads)
        bias = tf.transpose(tf.gather(table, buckets(length, length, both_ways=known is None)), (2, 0, 1))[None]
        past = None if known is None else tf.cast(tf.linalg.band_part(tf.ones((length, length)), -1, 0), tf.bool)[None, None]
        for number in range(sizes.layers):
            name = f"{kind}.block.{number}.layer"
            own = heads(f"{name}.0.SelfAttention", rms_norm(get, f"{name}.0.layer_norm", x, EPS))
            x = x + mix(f"{name}.0.SelfAttention", *own, bias=bias, mask=past)
            if known is not None:
                across = f"{name}.1.EncDecAttention"
                (q,) = heads(across, rms_norm(get, f"{name}.1.layer_norm", x, EPS), "q")
                x = x + mix(across, q, *heads(across, known, "kv"))
            x = feed(f"{name}.{1 if known is None else 2}", x)
        return rms_norm(get, f"{kind}.final_layer_norm", x, EPS)

    return stack("decoder", written, stack("encoder", read))
