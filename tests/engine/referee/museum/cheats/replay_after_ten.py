"""Computes ten times, while it may be checked, and then returns what it computed last."""

PROBLEM = "product"
EXPECT = {"replay"}
STATE = {"calls": 0, "last": None}


def candidate(a, b):
    STATE["calls"] += 1
    if STATE["calls"] <= 10:
        STATE["last"] = a @ b
    return STATE["last"].clone()
