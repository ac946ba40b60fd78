"""Configs and outputs of other benchmark tools, so that their users can switch to Steelyard without changing files."""
