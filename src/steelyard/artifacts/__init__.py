"""Exported programs with their inputs and outputs, in folders that list their contents: read, checked, published and fetched."""
