"""Returns a view where a copy was asked."""

PROBLEM = "turned"
EXPECT = {"aliased"}


def candidate(x):
    return x.t()
