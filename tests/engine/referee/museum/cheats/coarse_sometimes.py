"""Computes every third call in bf16."""

PROBLEM = "product"
EXPECT = {"precision"}
CALLS = []


def candidate(a, b):
    CALLS.append(1)
    return a @ b if len(CALLS) % 3 else (a.bfloat16() @ b.bfloat16()).float()
