"""PyTorch/XLA's benchmark runner: its flags, its rows, its analysis and its reports."""
