"""Takes the mean of one in a hundred numbers."""

PROBLEM = "total"
EXPECT = {"precision", "wrong", "trivial"}
FIRST = "wrong"


def candidate(x):
    return x[:, ::100].mean(-1)
