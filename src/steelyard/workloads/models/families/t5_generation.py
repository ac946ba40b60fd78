"""T5 that writes a summary, in JAX: the likeliest token each time, with keys and values cached.

No text ends early, so every call writes as many tokens as were requested.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from steelyard.workloads.models.families._shared import PAD, Array, Draft, choose, chosen, least, token_batch, words
from steelyard.workloads.models.families.t5 import (
    EPS,
    MODELS,
    T5Sizes,
    jax_attend,
    jax_bias,
    jax_encoder,
    jax_feed,
    jax_heads,
)

TEXT = "summarize: My friends are cool but they eat too many carbs."


def create_model(
    framework: str = "jax", batch_size: int = 1, seq_len: int = 512, max_new_tokens: int = 128, data_type: str = "fp32",
    model_name: str = "t5-large", preset: str = "full",
) -> Any:  # fmt: skip
    """A model that returns the tokens it wrote, after the one that every text begins with."""
    sizes = chosen(MODELS, model_name, preset, batch_size)
    length, new = least(seq_len, sizes.places), least(max_new_tokens, sizes.writes)

    def prepare(text: str) -> tuple[Array, ...]:
        return (token_batch(text, sizes.vocabulary, length, batch_size)[0],)

    def finish(rows: Array) -> list[str]:
        return words(rows)

    sized = {"batch_size": batch_size, "seq_len": length, "max_new_tokens": new}
    draft = Draft(TEXT, prepare, {"model": model_name, "preset": preset, **sized, **asdict(sizes)}, data_type, finish=finish)

    def in_jax() -> Any:
        from steelyard.workloads.models.families._jax import JaxModel

        return JaxModel(draft, partial(jax_summary, sizes, new))

    return choose(framework, {"jax": in_jax}, "T5 for generation")


def jax_summary(sizes: T5Sizes, new: int, get: Any, ids: Array) -> Array:
    """Read the text once, then write a token at a time; scores are by the table of tokens, scaled down as in T5."""
    import jax
    import jax.numpy as jnp

    from steelyard.workloads.models.families._jax import rms_norm

    batch, seen = ids.shape[0], (ids != PAD)[:, None, None, :]
    known, table = jax_encoder(sizes, get, ids, seen), get("shared.weight", sizes.vocabulary, sizes.hidden)
    names = [f"decoder.block.{number}.layer" for number in range(sizes.layers)]
    across = [jax_heads(sizes, get, f"{name}.1.EncDecAttention", known, "kv") for name in names]
    biases = jax_bias(sizes, get, "decoder", new)

    def step(state: tuple[Array, Array], place: Array) -> tuple[tuple[Array, Array], Array]:
        token, kept = state
        x, layers = table[token][:, None], []
        bias, past = biases[:, :, place][:, :, None], (jnp.arange(new) <= place)[None, None, None]
        for number, name in enumerate(names):
            own = f"{name}.0.SelfAttention"
            q, *fresh = jax_heads(sizes, get, own, rms_norm(get, f"{name}.0.layer_norm", x, EPS))
            now = jax.lax.dynamic_update_slice(kept[number], jnp.stack(fresh), (0, 0, place, 0, 0))
            layers.append(now)
            x = x + jax_attend(sizes, get, own, q, now[0], now[1], bias=bias, mask=past)
            (q,) = jax_heads(sizes, get, f"{name}.1.EncDecAttention", rms_norm(get, f"{name}.1.layer_norm", x, EPS), "q")
            x = x + jax_attend(sizes, get, f"{name}.1.EncDecAttention", q, *across[number], mask=seen)
            x = jax_feed(sizes, get, f"{name}.2", x)
        x = rms_norm(get, "decoder.final_layer_norm", x[:, 0], EPS) * sizes.hidden**-0.5
        written = jnp.einsum("bi,vi->bv", x, table).argmax(-1).astype(ids.dtype)
        return (written, jnp.stack(layers)), written

    first = jnp.full(batch, PAD, ids.dtype)
    kept = jnp.zeros((sizes.layers, 2, batch, new, sizes.heads, sizes.width), table.dtype)
    _, written = jax.lax.scan(step, (first, kept), jnp.arange(new))
    return jnp.concatenate((first[:, None], written.T), axis=1)
