"""Ways in which problems and candidates are written down, one module each."""
