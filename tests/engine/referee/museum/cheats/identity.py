"""Returns a copy of its input, since a rectifier of positive numbers changes nothing."""

PROBLEM = "relu"
EXPECT = {"trivial", "narrow"}


def candidate(x):
    return x.clone()
