"""One spelling per number format, so that a case means the same on every backend."""

from __future__ import annotations

from steelyard.errors import unknown

SIZES: dict[str, float] = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8e4m3": 1, "fp8e5m2": 1, "fp8e4m3fnuz": 1, "fp8e5m2fnuz": 1, "fp8e8m0": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip

ALIASES: dict[str, str] = {
    "float64": "fp64", "double": "fp64", "f64": "fp64",
    "float32": "fp32", "float": "fp32", "f32": "fp32",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4m3", "f8e4m3": "fp8e4m3", "float8_e5m2": "fp8e5m2", "f8e5m2": "fp8e5m2",
    "float8_e4m3fnuz": "fp8e4m3fnuz", "float8_e5m2fnuz": "fp8e5m2fnuz", "float8_e8m0fnu": "fp8e8m0",
    "long": "int64", "i64": "int64", "int": "int32", "i32": "int32", "short": "int16", "i16": "int16",
    "i8": "int8", "char": "int8", "u8": "uint8", "byte": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "chalf": "complex32", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip


def canonical(name: str) -> str:
    """Our name of a dtype from any usual spelling; an unknown one is a UsageError."""
    plain = name.removeprefix("torch.").removeprefix("np.").removeprefix("jnp.")
    found = ALIASES.get(plain, plain)
    if found not in SIZES:
        raise unknown("dtype", name, [*SIZES, *ALIASES])
    return found


def is_float(name: str) -> bool:
    """Whether a dtype is floating point (or complex), so that values are compared with tolerances and not exactly."""
    return canonical(name).startswith(("fp", "bf", "complex"))
