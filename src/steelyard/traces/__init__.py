"""Execution traces: the operators of a recorded step with their arguments, read as a stream and checked, never executed."""
