"""The types of the task."""

KINDS = {"even": 2.0, "odd": 3.0}
