"""Works in its input's memory, as the problem itself does and the contract says."""

PROBLEM = "scaled"


def candidate(x):
    return x.sub_(x.mean(-1, keepdim=True)).mul_(1.5)
