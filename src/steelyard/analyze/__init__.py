"""Compare, gate and follow stored results; no framework is needed."""
