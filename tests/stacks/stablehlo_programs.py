"""Small StableHLO programs of many operations, one file each, written by JAX: `python stablehlo_programs.py FOLDER`.

For coverage: which of them each backend runs. Run in the environment of JAX.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

M, V, C = (4, 8), (8,), (2, 8, 8, 3)


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions by name, each with shapes and formats of what it is called with."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def array(shape: tuple[int, ...], dtype: Any = "float32") -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    x, y, v, w = array(M), array(M), array(V), array((8, 4))
    image, kernel = array(C), array((3, 3, 3, 4))
    i, flags, half = array(M, "int32"), array(M, "bool"), array(M, "bfloat16")
    unary: dict[str, Callable[..., Any]] = {
        name: getattr(jnp, name)
        for name in ("abs", "exp", "sin", "cos", "tanh", "floor", "ceil", "sign", "square", "sinh", "cbrt", "expm1", "log1p", "round")
    }
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {name: (fn, (x,)) for name, fn in unary.items()}
    found |= {name: (getattr(jnp, name), (x, y)) for name in ("add", "subtract", "multiply", "maximum", "minimum", "arctan2", "remainder")}
    found |= {
        "matmul": (lambda a, b: a @ b, (x, w)),
        "dot_bf16": (lambda a, b: a @ b.T, (half, half)),
        "einsum": (lambda a, b: jnp.einsum("ij,kj->ik", a, b), (x, y)),
        "batched": (lambda a: jnp.einsum("bijc,bkjc->bik", a, a), (image,)),
        "convolution": (
            lambda a, k: lax.conv_general_dilated(a, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            (image, kernel),
        ),
        "max_pool": (lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), (image,)),
        "softmax": (jax.nn.softmax, (x,)),
        "gelu": (jax.nn.gelu, (x,)),
        "layer_norm": (lambda a: (a - a.mean(-1, keepdims=True)) * lax.rsqrt(a.var(-1, keepdims=True) + 1e-5), (x,)),
        "sum": (jnp.sum, (x,)),
        "prod_axis": (lambda a: jnp.prod(a, axis=0), (x,)),
        "argmax": (lambda a: jnp.argmax(a, -1), (x,)),
        "any": (jnp.any, (flags,)),
        "sort": (jnp.sort, (v,)),
        "argsort": (lambda a: jnp.argsort(a), (v,)),
        "top_k": (lambda a: lax.top_k(a, 3), (v,)),
        "cumsum": (jnp.cumsum, (v,)),
        "cumlogsumexp": (lambda a: lax.cumlogsumexp(a), (v,)),
        "gather": (lambda a, n: jnp.take(a, n[0], axis=0), (x, i)),
        "scatter": (lambda a: a.at[jnp.array([1, 3])].set(0.0), (x,)),
        "scatter_add": (lambda a, n: jnp.zeros(4).at[n[0]].add(a[0]), (x, i)),
        "slice": (lambda a: a[1:3, ::2], (x,)),
        "dynamic_slice": (lambda a, n: lax.dynamic_slice(a, (n[0, 0], n[0, 1]), (2, 2)), (x, i)),
        "dynamic_update_slice": (lambda a, n: lax.dynamic_update_slice(a, jnp.ones((1, 2)), (n[0, 0], n[0, 1])), (x, i)),
        "concatenate": (lambda a, b: jnp.concatenate([a, b], 1), (x, y)),
        "pad": (lambda a: jnp.pad(a, ((1, 0), (0, 2))), (x,)),
        "reverse": (lambda a: a[::-1], (x,)),
        "transpose": (lambda a: a.T.reshape(2, 16), (x,)),
        "broadcast": (lambda a: jnp.broadcast_to(a, (3, 8)), (v,)),
        "select": (jnp.where, (flags, x, y)),
        "clamp": (lambda a: jnp.clip(a, -1, 1), (x,)),
        "compare": (lambda a, b: a < b, (x, y)),
        "bits": (lambda a: (a << 1) ^ (a >> 2) & 7, (i,)),
        "popcount": (lambda a: lax.population_count(a), (i,)),
        "not": (jnp.logical_not, (flags,)),
        "bitcast": (lambda a: lax.bitcast_convert_type(a, "int32"), (x,)),
        "convert": (lambda a: a.astype("float16").astype("int32"), (x,)),
        "while": (lambda a: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 0.5), (0, a))[1], (x,)),
        "scan": (lambda a: lax.scan(lambda s, r: (s + r, s * r), jnp.zeros(8), a), (x,)),
        "cond": (lambda a: lax.cond(a[0, 0] > 0, jnp.sin, jnp.cos, a), (x,)),
        "switch": (lambda n, a: lax.switch(n[0, 0], [jnp.sin, jnp.cos, jnp.tanh], a), (i, x)),
        "fori": (lambda a: lax.fori_loop(0, 3, lambda _, s: s @ s.T @ s, a), (x,)),
        "fft": (lambda a: jnp.abs(jnp.fft.fft(a)), (v,)),
        "rfft": (lambda a: jnp.fft.rfft(a), (v,)),
        "complex": (lambda a, b: lax.complex(a, b) * 2, (x, y)),
        "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + 9 * jnp.eye(4)), (x,)),
        "triangular_solve": (
            lambda a: lax.linalg.triangular_solve(jnp.eye(4) + jnp.tril(jnp.ones((4, 4))), a, left_side=True, lower=True),
            (x,),
        ),
        "qr": (lambda a: jnp.linalg.qr(a)[1], (x,)),
        "random": (lambda a: a + jax.random.uniform(jax.random.key(0), M), (x,)),
        "rng_bits": (lambda: lax.rng_bit_generator(jnp.zeros(4, "uint32"), (4,))[1], ()),
        "iota": (lambda a: a + jnp.arange(8), (x,)),
        "gradient": (jax.grad(lambda a: jnp.sum(jnp.tanh(a @ a.T))), (x,)),
        "erf": (lambda a: lax.erf(a), (x,)),
        "lgamma": (lambda a: lax.lgamma(jnp.abs(a) + 1), (x,)),
        "nextafter": (jnp.nextafter, (x, y)),
        "isfinite": (jnp.isfinite, (x,)),
        "outputs": (lambda a, b: (a + b, a - b, (a * b).sum()), (x, y)),
        "int64": (lambda a: a.astype("int32") % 3, (i,)),
        "unsigned": (lambda a: a.astype("uint8") * 3, (i,)),
        "fp16": (lambda a: jnp.tanh(a.astype("float16")), (x,)),
        "reduce_precision": (lambda a: lax.reduce_precision(a, 8, 7), (x,)),
        "attention": (lambda a, b: jax.nn.softmax(a @ b.T) @ b, (x, y)),
    }
    return found


def write(folder: Path) -> int:
    """Every program in a file of its own, in MLIR's bytecode."""
    import jax

    folder.mkdir(parents=True, exist_ok=True)
    listed = programs()
    for name, (function, inputs) in listed.items():
        module = jax.jit(function).lower(*inputs).compiler_ir("stablehlo")
        with (folder / f"{name}.mlirbc").open("wb") as file:
            module.operation.write_bytecode(file)
    return len(listed)


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
