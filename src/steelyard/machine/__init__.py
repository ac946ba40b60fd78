"""What this machine is and whether it is fit to measure."""
