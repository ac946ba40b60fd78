"""The worker's half of the PyTorch/XLA runner: models, timing and verification, where a framework is at hand."""
