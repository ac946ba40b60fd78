"""Facts about this machine, and whether it is fit to measure."""
