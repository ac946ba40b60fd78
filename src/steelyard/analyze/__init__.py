"""What stored results say about each other: comparing, gating and history, on a laptop with no framework."""
