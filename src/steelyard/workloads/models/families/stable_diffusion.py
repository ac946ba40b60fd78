"""Stable Diffusion's pipeline from tokens to an image, in JAX. Weights have the names that diffusers and transformers give them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from steelyard.workloads.models.families._jax import JaxModel
from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, least, normal, token_batch

TEXT = "a photo of an astronaut riding a horse on mars"
GUIDANCE = 7.5
TRAINED, FIRST_BETA, LAST_BETA = 1000, 0.00085, 0.012
SCALE, COLOURS, LATENT = 0.18215, 3, 4


@dataclass(frozen=True)
class DiffusionSizes:
    """Sizes of its three parts: the text encoder, the noise predictor and the image decoder."""

    text_layers: int = 12
    text_width: int = 768
    text_heads: int = 12
    vocabulary: int = 49408
    places: int = 77
    noise: tuple[int, ...] = (320, 640, 1280, 1280)
    noise_heads: int = 8
    image: tuple[int, ...] = (128, 256, 512, 512)
    side: int = 64
    groups: int = 32


MODELS = {
    "runwayml/stable-diffusion-v1-5": {
        "tiny": DiffusionSizes(1, 16, 2, 128, 16, (8, 16), 2, (8, 8), 4, 4),
        "small": DiffusionSizes(4, 128, 4, 4096, 77, (32, 64, 64, 64), 4, (16, 32, 32, 32), 16, 8),
        "full": DiffusionSizes(),
    },
}


def create_model(
    framework: str = "jax", batch_size: int = 1, seq_len: int = 64, data_type: str = "fp32",
    model_name: str = "runwayml/stable-diffusion-v1-5", num_inference_steps: int = 5, preset: str = "full",
) -> Any:  # fmt: skip
    """A model that returns images with channels last and values from 0 to 1. It always begins with the same noise."""
    sizes = chosen(MODELS, model_name, preset, batch_size)
    length = least(seq_len, sizes.places)

    def prepare(text: str) -> tuple[Array, ...]:
        return (token_batch(text, sizes.vocabulary, length, batch_size)[0],)

    sized = {"batch_size": batch_size, "seq_len": length, "steps": num_inference_steps}
    draft = Draft(TEXT, prepare, {"model": model_name, "preset": preset, **sized, **asdict(sizes)}, data_type)
    noise = normal("stable_diffusion.noise", batch_size, LATENT, sizes.side, sizes.side)
    nothing = token_batch("", sizes.vocabulary, length, batch_size)[0]
    return choose(
        framework, {"jax": lambda: JaxModel(draft, partial(pipeline, sizes, num_inference_steps, noise, nothing))}, "Stable Diffusion"
    )


def pipeline(sizes: DiffusionSizes, steps: int, noise: Array, nothing: Array, get: Any, ids: Array) -> Array:
    """Read the text and an empty one, remove noise step by step (DDIM), and decode the result."""
    import jax
    import jax.numpy as jnp

    states = read_text(sizes, get, jnp.concatenate((jnp.asarray(nothing), ids)))
    times, kept, next_kept = schedule(steps)

    def step(latent: Array, now: tuple[Array, Array, Array]) -> tuple[Array, None]:
        time, share, following = now
        both = jnp.concatenate((latent, latent)).astype(states.dtype)
        without, guided = jnp.split(predict_noise(sizes, get, both, time, states).astype(jnp.float32), 2)
        guess = without + GUIDANCE * (guided - without)
        clean = (latent - jnp.sqrt(1 - share) * guess) / jnp.sqrt(share)
        return jnp.sqrt(following) * clean + jnp.sqrt(1 - following) * guess, None

    latent, _ = jax.lax.scan(step, jnp.asarray(noise), tuple(jnp.asarray(item) for item in (times, kept, next_kept)))
    image = decode_image(sizes, get, (latent / SCALE).astype(states.dtype))
    return jnp.clip(image / 2 + 0.5, 0, 1).transpose(0, 2, 3, 1)


def schedule(steps: int) -> tuple[Array, Array, Array]:
    """The times of the steps, and what share of the signal is kept at each and after it."""
    import numpy as np

    betas = np.linspace(FIRST_BETA**0.5, LAST_BETA**0.5, TRAINED) ** 2
    shares = np.cumprod(1 - betas)
    times = np.arange(steps)[::-1] * (TRAINED // steps) + 1
    before = times - TRAINED // steps
    return times.astype(np.float32), shares[times].astype(np.float32), shares[np.maximum(before, 0)].astype(np.float32)


def read_text(sizes: DiffusionSizes, get: Any, ids: Array) -> Array:
    """CLIP's text encoder: a causal transformer."""
    import jax

    from steelyard.workloads.models.families._jax import attend, layer_norm, linear, split

    width, heads = sizes.text_width, sizes.text_heads
    x = get("text_model.embeddings.token_embedding.weight", sizes.vocabulary, width)[ids]
    x = x + get("text_model.embeddings.position_embedding.weight", sizes.places, width)[: ids.shape[1]]
    for number in range(sizes.text_layers):
        name = f"text_model.encoder.layers.{number}"
        y = layer_norm(get, f"{name}.layer_norm1", x, 1e-5)
        q, k, v = (split(linear(get, f"{name}.self_attn.{part}_proj", y, width), heads) for part in "qkv")
        x = x + linear(get, f"{name}.self_attn.out_proj", attend(q, k, v, causal=True), width)
        y = linear(get, f"{name}.mlp.fc1", layer_norm(get, f"{name}.layer_norm2", x, 1e-5), 4 * width)
        x = x + linear(get, f"{name}.mlp.fc2", y * jax.nn.sigmoid(1.702 * y), width)
    return layer_norm(get, "text_model.final_layer_norm", x, 1e-5)


def residual(get: Any, name: str, x: Array, filters: int, groups: int, eps: float, moment: Array | None = None) -> Array:
    """Two convolutions with norms before them; the time of the step, if there is one, is added between them."""
    import jax

    from steelyard.workloads.models.families._jax import conv, group_norm, linear

    y = conv(get, f"{name}.conv1", jax.nn.silu(group_norm(get, f"{name}.norm1", x, groups, eps)), filters, 3)
    if moment is not None:
        y = y + linear(get, f"{name}.time_emb_proj", jax.nn.silu(moment), filters)[:, :, None, None]
    y = conv(get, f"{name}.conv2", jax.nn.silu(group_norm(get, f"{name}.norm2", y, groups, eps)), filters, 3)
    return y + (conv(get, f"{name}.conv_shortcut", x, filters, 1) if x.shape[1] != filters else x)


def cross(sizes: DiffusionSizes, get: Any, name: str, image: Array, states: Array) -> Array:
    """A transformer over the positions of an image, which also attends to the text."""
    import jax
    import jax.numpy as jnp

    from steelyard.workloads.models.families._jax import attend, conv, group_norm, layer_norm, linear, split

    batch, width, rows, columns = image.shape
    x = conv(get, f"{name}.proj_in", group_norm(get, f"{name}.norm", image, sizes.groups, 1e-6), width, 1)
    x, part = x.reshape(batch, width, -1).swapaxes(1, 2), f"{name}.transformer_blocks.0"
    for number in (1, 2):
        y = layer_norm(get, f"{part}.norm{number}", x, 1e-5)
        known = y if number == 1 else states
        q, k, v = (
            split(linear(get, f"{part}.attn{number}.to_{which}", source, width, bias=False), sizes.noise_heads)
            for which, source in (("q", y), ("k", known), ("v", known))
        )
        x = x + linear(get, f"{part}.attn{number}.to_out.0", attend(q, k, v), width)
    value, gate = jnp.split(linear(get, f"{part}.ff.net.0.proj", layer_norm(get, f"{part}.norm3", x, 1e-5), 8 * width), 2, axis=-1)
    x = x + linear(get, f"{part}.ff.net.2", value * jax.nn.gelu(gate, approximate=False), width)
    return image + conv(get, f"{name}.proj_out", x.swapaxes(1, 2).reshape(batch, width, rows, columns), width, 1)


def larger(x: Array) -> Array:
    """An image twice as high and twice as wide."""
    return x.repeat(2, axis=2).repeat(2, axis=3)


def predict_noise(sizes: DiffusionSizes, get: Any, x: Array, time: Array, states: Array) -> Array:
    """The U-Net: a way down, a middle and a way up, which also gets the states of the way down at each size."""
    import jax
    import jax.numpy as jnp

    from steelyard.workloads.models.families._jax import conv, group_norm, linear

    widths, deepest = sizes.noise, len(sizes.noise) - 1
    half = widths[0] // 2
    waves = time * jnp.exp(-jnp.log(10000.0) * jnp.arange(half) / half)
    moment = jnp.broadcast_to(jnp.concatenate((jnp.cos(waves), jnp.sin(waves))).astype(x.dtype), (x.shape[0], widths[0]))
    moment = linear(
        get, "time_embedding.linear_2", jax.nn.silu(linear(get, "time_embedding.linear_1", moment, 4 * widths[0])), 4 * widths[0]
    )
    layer = partial(residual, get, groups=sizes.groups, eps=1e-5, moment=moment)
    x = conv(get, "conv_in", x, widths[0], 3)
    seen = [x]
    for level, width in enumerate(widths):
        for number in range(2):
            x = layer(f"down_blocks.{level}.resnets.{number}", x, width)
            x = cross(sizes, get, f"down_blocks.{level}.attentions.{number}", x, states) if level < deepest else x
            seen.append(x)
        if level < deepest:
            x = conv(get, f"down_blocks.{level}.downsamplers.0.conv", x, width, 3, 2)
            seen.append(x)
    x = layer("mid_block.resnets.0", x, widths[-1])
    x = layer("mid_block.resnets.1", cross(sizes, get, "mid_block.attentions.0", x, states), widths[-1])
    for level, width in enumerate(reversed(widths)):
        for number in range(3):
            x = layer(f"up_blocks.{level}.resnets.{number}", jnp.concatenate((x, seen.pop()), axis=1), width)
            x = cross(sizes, get, f"up_blocks.{level}.attentions.{number}", x, states) if level > 0 else x
        x = conv(get, f"up_blocks.{level}.upsamplers.0.conv", larger(x), width, 3) if level < deepest else x
    return conv(get, "conv_out", jax.nn.silu(group_norm(get, "conv_norm_out", x, sizes.groups, 1e-5)), LATENT, 3)


def decode_image(sizes: DiffusionSizes, get: Any, x: Array) -> Array:
    """The image decoder: convolutions at growing sizes, with one attention over all positions."""
    import jax

    from steelyard.workloads.models.families._jax import attend, conv, group_norm, linear, split

    widths = tuple(reversed(sizes.image))
    layer = partial(residual, get, groups=sizes.groups, eps=1e-6)
    x = conv(get, "decoder.conv_in", conv(get, "post_quant_conv", x, LATENT, 1), widths[0], 3)
    x, name = layer("decoder.mid_block.resnets.0", x, widths[0]), "decoder.mid_block.attentions.0"
    y = group_norm(get, f"{name}.group_norm", x, sizes.groups, 1e-6).reshape(*x.shape[:2], -1).swapaxes(1, 2)
    q, k, v = (split(linear(get, f"{name}.to_{part}", y, widths[0]), 1) for part in "qkv")
    x = x + linear(get, f"{name}.to_out.0", attend(q, k, v), widths[0]).swapaxes(1, 2).reshape(x.shape)
    x = layer("decoder.mid_block.resnets.1", x, widths[0])
    for level, width in enumerate(widths):
        for number in range(3):
            x = layer(f"decoder.up_blocks.{level}.resnets.{number}", x, width)
        x = conv(get, f"decoder.up_blocks.{level}.upsamplers.0.conv", larger(x), width, 3) if level < len(widths) - 1 else x
    return conv(get, "decoder.conv_out", jax.nn.silu(group_norm(get, "decoder.conv_norm_out", x, sizes.groups, 1e-6)), COLOURS, 3)
