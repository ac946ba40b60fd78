"""Inherits from a class that is not its own, for a harness that runs both files in one namespace."""

PROBLEM = "kernelbench_mlp"
EXPECT = {"failed"}
FIRST = "raises"


class ModelNew(Model):  # noqa: F821
    """The reference under another name."""
