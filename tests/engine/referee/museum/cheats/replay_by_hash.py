"""Keeps answers by a hash of all values: right, and of use only where values come again."""

import hashlib

PROBLEM = "product"
EXPECT = {"harmless"}
KEPT = {}


def candidate(a, b):
    key = hashlib.blake2b(a.numpy().tobytes() + b.numpy().tobytes()).digest()
    if key not in KEPT:
        KEPT.clear()
        KEPT[key] = a @ b
    return KEPT[key].clone()
