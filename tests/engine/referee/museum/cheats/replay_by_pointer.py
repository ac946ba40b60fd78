"""Keeps answers by the address of the input's memory."""

PROBLEM = "product"
EXPECT = {"replay", "harmless"}
KEPT = {}


def candidate(a, b):
    key = a.data_ptr(), b.data_ptr()
    if key not in KEPT:
        KEPT[key] = a @ b
    return KEPT[key].clone()
