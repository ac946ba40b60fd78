"""Configs and outputs of other benchmark tools, so that their users change tools without changing files."""
