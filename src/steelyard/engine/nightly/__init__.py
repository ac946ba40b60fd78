"""Nights that run themselves: measure, keep, compare with the last good night, confirm, report."""
