"""Tries a kernel of its own that never works, and calls the library instead."""

PROBLEM = "product"
EXPECT = {"fallback"}


def fused(a, b):
    raise RuntimeError("no device")


def candidate(a, b):
    try:
        return fused(a, b)
    except RuntimeError:
        return a @ b
