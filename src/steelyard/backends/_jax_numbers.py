"""Random arrays made on a device by JAX, with the bits that numpy makes on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from steelyard.backends import _numbers
from steelyard.backends._numbers import Stream


def normals(stream: Stream, shape: Sequence[int], scale: float, dtype: Any) -> Any:
    """Return normal numbers times a scale, in any format; 64-bit integers must be enabled in JAX."""
    keys = np.asarray(_numbers.keys_of(stream), np.int64)
    return _normals(keys, _numbers.quantiles(), np.float32(scale), tuple(shape), dtype)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _normals(keys: Any, table: Any, scale: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return numbers for the keys of a stream; keys are arguments, so that one program serves all arrays of a shape."""
    count = math.prod(shape)
    blocks = jnp.arange(-(-count // 8), dtype=jnp.int64)
    words = jnp.stack(_numbers.mixed(blocks, [(keys[number, 0], keys[number, 1]) for number in range(_numbers.ROUNDS)]), axis=-1)
    halves = jax.lax.bitcast_convert_type(words, jnp.int32).reshape(-1)[:count]
    drawn = _numbers.normals(halves, jnp.asarray(table), lambda whole: whole.astype(jnp.float32))
    return (drawn * scale).astype(dtype).reshape(shape)
