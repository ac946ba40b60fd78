"""Returns the last answer in one of four calls, drawn, which is a quarter of the time saved."""

import random

PROBLEM = "product"
EXPECT = {"replay"}
LAST = []


def candidate(a, b):
    if LAST and random.random() < 0.25:
        return LAST[0].clone()
    LAST[:] = [a @ b]
    return LAST[0].clone()
