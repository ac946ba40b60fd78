"""Multiplies in bf16 what was asked in fp32."""

PROBLEM = "product"
EXPECT = {"precision"}


def candidate(a, b):
    return (a.bfloat16() @ b.bfloat16()).float()
