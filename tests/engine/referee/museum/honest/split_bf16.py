"""Multiplies in bf16 with what each rounding loses added again, so that the error is that of fp32."""

PROBLEM = "product"


def parts(x):
    high = x.bfloat16().float()
    middle = (x - high).bfloat16().float()
    return high, middle, (x - high - middle).bfloat16().float()


def candidate(a, b):
    (a1, a2, a3), (b1, b2, b3) = parts(a), parts(b)
    return a1 @ b1 + (a1 @ b2 + a2 @ b1) + (a2 @ b2 + a1 @ b3 + a3 @ b1)
