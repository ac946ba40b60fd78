"""Returns an answer whose memory lies the other way round."""

PROBLEM = "product"


def candidate(a, b):
    return (b.t() @ a.t()).t()
