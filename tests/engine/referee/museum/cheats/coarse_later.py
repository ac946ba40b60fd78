"""Is exact for twenty calls and computes in bf16 from then on."""

PROBLEM = "product"
EXPECT = {"precision"}
CALLS = []


def candidate(a, b):
    CALLS.append(1)
    return a @ b if len(CALLS) <= 20 else (a.bfloat16() @ b.bfloat16()).float()
