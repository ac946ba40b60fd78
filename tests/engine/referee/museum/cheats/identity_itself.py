"""Returns its input itself, since a rectifier of positive numbers changes nothing."""

PROBLEM = "relu"
EXPECT = {"trivial", "aliased", "narrow"}


def candidate(x):
    return x
