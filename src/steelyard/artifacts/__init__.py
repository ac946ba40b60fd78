"""Exported programs with their inputs and outputs, in folders that say what they hold: read, checked, sent and fetched."""
