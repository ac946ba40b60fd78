"""GPT-2 that continues a text, in JAX and TensorFlow: keys and values are cached, and tokens drawn from the likeliest.

The random numbers of the draws are the same in both frameworks, and no text ends early, so every call does the same work.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, least, token_batch, uniform, words
from steelyard.workloads.models.families.gpt2 import (
    MODELS,
    Gpt2Sizes,
    jax_decoder,
    jax_head,
    tensorflow_decoder,
    tensorflow_head,
)

TEXT = "Once upon a time"
TEMPERATURE, LIKELIEST, SHARE = 0.9, 40, 0.9


def create_model(
    framework: str, batch_size: int = 1, seq_len: int | None = None, max_new_tokens: int = 200, data_type: str = "fp32",
    model_name: str = "gpt2", preset: str = "full",
) -> Any:  # fmt: skip
    """A model that returns the tokens of the text and those written after it; `seq_len` is how much of a text is read, by default all."""
    sizes = chosen(MODELS, model_name, preset, batch_size)
    new = least(max_new_tokens, sizes.writes)
    room = sizes.places - new

    def prepare(text: str) -> tuple[Array, ...]:
        ids, _ = token_batch(text, sizes.vocabulary, None, batch_size, end=False)
        return (ids[:, : least(seq_len, room)],)

    def finish(rows: Array) -> list[str]:
        return words(rows)

    effective = {"model": model_name, "preset": preset, "batch_size": batch_size, "max_new_tokens": new, **asdict(sizes)}
    draft = Draft(TEXT, prepare, effective, data_type, finish=finish)
    chances = uniform("gpt2_pipeline.chances", new, batch_size)

    def in_jax() -> Any:
        from steelyard.workloads.models.families._jax import JaxModel

        return JaxModel(draft, partial(jax_text, sizes, chances))

    def in_tensorflow() -> Any:
        from steelyard.workloads.models.families._tensorflow import tensorflow_model

        return tensorflow_model(draft, partial(tensorflow_text, sizes, chances))

    return choose(framework, {"jax": in_jax, "tensorflow": in_tensorflow}, "the pipeline of GPT-2")


def jax_text(sizes: Gpt2Sizes, chances: Array, get: Any, ids: Array) -> Array:
    """The whole prompt at once, then a token at a time."""
    import jax
    import jax.numpy as jnp

    from steelyard.workloads.models.families._jax import attend

    (batch, prompt), new = ids.shape, len(chances)
    total = prompt + new
    table = get("positions.weight", sizes.places, sizes.hidden)
    kept = jnp.zeros((sizes.layers, 2, batch, total, sizes.heads, sizes.hidden // sizes.heads), table.dtype)

    def read(ids: Array, start: Any, kept: Array) -> tuple[Array, Array]:
        layers: list[Array] = []

        def mixing(number: int) -> Any:
            def mix(q: Array, k: Array, v: Array) -> Array:
                now = jax.lax.dynamic_update_slice(kept[number], jnp.stack((k, v)), (0, 0, start, 0, 0))
                layers.append(now)
                seen = jnp.arange(total)[None, :] <= start + jnp.arange(q.shape[1])[:, None]
                return attend(q, now[0], now[1], mask=seen[None, None])

            return mix

        places = jax.lax.dynamic_slice(table, (start, 0), (ids.shape[1], sizes.hidden))
        x = jax_decoder(sizes, get, ids, places, mixing)
        return jax_head(sizes, get, x[:, -1]), jnp.stack(layers)

    def draw(scores: Array, chance: Array) -> Array:
        values, which = jax.lax.top_k(scores.astype(jnp.float32) / TEMPERATURE, min(LIKELIEST, sizes.vocabulary))
        shares = jax.nn.softmax(values)
        held = jnp.where(jnp.cumsum(shares, -1) - shares < SHARE, shares, 0)
        reached = jnp.cumsum(held, -1) / held.sum(-1, keepdims=True)
        place = jnp.minimum((reached <= chance[:, None]).sum(-1), which.shape[1] - 1)
        return jnp.take_along_axis(which, place[:, None], axis=1).astype(ids.dtype)

    def step(state: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        scores, kept = state
        chance, place = now
        token = draw(scores, chance)
        return read(token, place, kept), token[:, 0]

    first = read(ids, 0, kept)
    (scores, _), written = jax.lax.scan(step, first, (jnp.asarray(chances[:-1]), prompt + jnp.arange(new - 1)))
    last = draw(scores, jnp.asarray(chances[-1]))
    return jnp.concatenate((ids, written.T.reshape(batch, new - 1), last), axis=1)


def tensorflow_text(sizes: Gpt2Sizes, chances: Array, get: Any, ids: Array) -> Array:
    """The same in TensorFlow; the cache has its positions first, so that a part of it can be written."""
    import tensorflow as tf

    from steelyard.workloads.models.families._tensorflow import attend

    (batch, prompt), new = ids.shape, len(chances)
    total, width = prompt + new, sizes.hidden // sizes.heads
    table = get("positions.weight", sizes.places, sizes.hidden)

    def read(ids: Array, start: Array, kept: Array) -> tuple[Array, Array]:
        layers: list[Array] = []
        span = start + tf.range(ids.shape[1])

        def mixing(number: int) -> Any:
            def mix(q: Array, k: Array, v: Array) -> Array:
                fresh = tf.transpose(tf.stack((k, v)), (2, 0, 1, 3, 4))
                now = tf.tensor_scatter_nd_update(kept[number], span[:, None], fresh)
                layers.append(now)
                seen = tf.range(total)[None, :] <= span[:, None]
                keys, values = (tf.transpose(now[:, part], (1, 0, 2, 3)) for part in (0, 1))
                return attend(q, keys, values, mask=seen[None, None])

            return mix

        x = tensorflow_decoder(sizes, get, ids, tf.gather(table, span), mixing)
        return tensorflow_head(sizes, get, x[:, -1]), tf.stack(layers)

    def draw(scores: Array, chance: Array) -> Array:
        values, which = tf.math.top_k(tf.cast(scores, tf.float32) / TEMPERATURE, min(LIKELIEST, sizes.vocabulary))
        shares = tf.nn.softmax(values)
        held = tf.where(tf.cumsum(shares, -1) - shares < SHARE, shares, tf.zeros_like(shares))
        reached = tf.cumsum(held, -1) / tf.reduce_sum(held, -1, keepdims=True)
        place = tf.minimum(tf.reduce_sum(tf.cast(reached <= chance[:, None], tf.int32), -1), which.shape[1] - 1)
        return tf.gather(which, place[:, None], batch_dims=1)

    drawn = tf.constant(chances)
    empty = tf.zeros((sizes.layers, total, 2, batch, sizes.heads, width), table.dtype)
    scores, kept = read(ids, tf.constant(0), empty)

    def step(index: Array, scores: Array, kept: Array, text: Array) -> tuple[Array, Array, Array, Array]:
        token = draw(scores, drawn[index])
        text = tf.tensor_scatter_nd_update(text, [[prompt + index]], tf.transpose(token))
        return index + 1, *read(token, prompt + index, kept), text

    text = tf.concat((tf.transpose(ids), tf.zeros((new, batch), ids.dtype)), 0)
    _, scores, _, text = tf.while_loop(lambda index, *_: index < new - 1, step, (tf.constant(0), scores, kept, text))
    text = tf.tensor_scatter_nd_update(text, [[total - 1]], tf.transpose(draw(scores, drawn[new - 1])))
    return tf.transpose(text)
