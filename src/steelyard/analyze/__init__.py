"""Comparing, gating and history of stored results; no framework is needed."""
