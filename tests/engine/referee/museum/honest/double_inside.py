"""Computes in double precision and rounds at the end."""

PROBLEM = "product"


def candidate(a, b):
    return (a.double() @ b.double()).float()
