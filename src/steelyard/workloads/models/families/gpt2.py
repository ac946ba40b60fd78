"""GPT-2 with its head, in JAX, PyTorch and TensorFlow: the scores of the next token at every position of a text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, least, token_batch
from steelyard.workloads.models.gpt import EPS, decoder

TEXT = "a photo of a cat"


@dataclass(frozen=True)
class Gpt2Sizes:
    """Sizes of the model; `places` is the longest text, and `writes` the most that its pipeline writes, in tokens."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    ffn: int = 3072
    vocabulary: int = 50257
    places: int = 1024
    writes: int = 200


MODELS = {"gpt2": {"tiny": Gpt2Sizes(2, 32, 2, 64, 128, 16, 4), "small": Gpt2Sizes(4, 256, 4, 1024, 4096, 128, 32), "full": Gpt2Sizes()}}


def create_model(
    framework: str, batch_size: int = 1, seq_len: int = 512, data_type: str = "fp32", model_name: str = "gpt2", preset: str = "full"
) -> Any:
    """The decoder over a whole text; in PyTorch padding is read like other tokens, which changes nothing because it follows the text."""
    sizes = chosen(MODELS, model_name, preset, batch_size)
    length = least(seq_len, sizes.places)

    def prepare(text: str) -> tuple[Array, ...]:
        return token_batch(text, sizes.vocabulary, length, batch_size)

    effective = {"model": model_name, "preset": preset, "batch_size": batch_size, "seq_len": length, **asdict(sizes)}
    draft = Draft(TEXT, prepare, effective, data_type)

    def in_torch() -> Any:
        from steelyard.workloads.models.families._torch import torch_model

        inner = decoder(sizes.layers, sizes.hidden, sizes.heads, sizes.ffn, sizes.vocabulary, length)
        return torch_model(draft, inner, lambda inner, ids, mask: inner(ids))

    def in_jax() -> Any:
        from steelyard.workloads.models.families._jax import JaxModel

        return JaxModel(draft, partial(jax_scores, sizes))

    def in_tensorflow() -> Any:
        from steelyard.workloads.models.families._tensorflow import tensorflow_model

        return tensorflow_model(draft, partial(tensorflow_scores, sizes))

    return choose(framework, {"jax": in_jax, "pytorch": in_torch, "tensorflow": in_tensorflow}, "GPT-2")


def jax_scores(sizes: Gpt2Sizes, get: Any, ids: Array, mask: Array) -> Array:
    """`models/gpt` in JAX, with the same names of weights."""
    from steelyard.workloads.models.families._jax import attend

    places = get("positions.weight", ids.shape[1], sizes.hidden)
    mixing = partial(attend, causal=True, mask=(mask > 0)[:, None, None, :] | (mask[:, None, :, None] == 0))
    return jax_head(sizes, get, jax_decoder(sizes, get, ids, places, lambda _: mixing))


def jax_decoder(sizes: Gpt2Sizes, get: Any, ids: Array, places: Array, mixing: Any) -> Array:
    """Every token's last state; `mixing(layer)` is how a layer attends."""
    import jax

    from steelyard.workloads.models.families._jax import block, layer_norm

    x = get("tokens.weight", sizes.vocabulary, sizes.hidden)[ids] + places
    activation = partial(jax.nn.gelu, approximate=True)
    for number in range(sizes.layers):
        x = block(get, f"blocks.{number}", x, sizes.heads, sizes.ffn, EPS, activation, mixing(number))
    return layer_norm(get, "norm", x, EPS)


def jax_head(sizes: Gpt2Sizes, get: Any, x: Array) -> Array:
    """Scores by the table of tokens."""
    import jax.numpy as jnp

    return jnp.einsum("...i,vi->...v", x, get("tokens.weight", sizes.vocabulary, sizes.hidden))


def tensorflow_scores(sizes: Gpt2Sizes, get: Any, ids: Array, mask: Array) -> Array:
    """The same in TensorFlow."""
    import tensorflow as tf

    from steelyard.workloads.models.families._tensorflow import attend

    length = ids.shape[1]
    places = get("positions.weight", length, sizes.hidden)
    past = tf.cast(tf.linalg.band_part(tf.ones((length, length)), -1, 0), tf.bool)[None, None]
    seen = past & ((mask > 0)[:, None, None, :] | (mask[:, None, :, None] == 0))
    mixing = partial(attend, mask=seen)
    return tensorflow_head(sizes, get, tensorflow_decoder(sizes, get, ids, places, lambda _: mixing))


def tensorflow_decoder(sizes: Gpt2Sizes, get: Any, ids: Array, places: Array, mixing: Any) -> Array:
    """Every token's last state; `mixing(layer)` is how a layer attends."""
    import tensorflow as tf

    from steelyard.workloads.models.families._tensorflow import block, layer_norm

    x = tf.gather(get("tokens.weight", sizes.vocabulary, sizes.hidden), ids) + places
    activation = partial(tf.nn.gelu, approximate=True)
    for number in range(sizes.layers):
        x = block(get, f"blocks.{number}", x, sizes.heads, sizes.ffn, EPS, activation, mixing(number))
    return layer_norm(get, "norm", x, EPS)


def tensorflow_head(sizes: Gpt2Sizes, get: Any, x: Array) -> Array:
    """Scores by the table of tokens."""
    import tensorflow as tf

    flat = tf.linalg.matmul(tf.reshape(x, (-1, sizes.hidden)), get("tokens.weight", sizes.vocabulary, sizes.hidden), transpose_b=True)
    return tf.reshape(flat, (*x.shape[:-1], sizes.vocabulary))
