"""Nightly runs: measure, store, compare with the last good night, confirm, report."""
