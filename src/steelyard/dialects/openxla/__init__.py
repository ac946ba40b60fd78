"""OpenXLA: the comparative benchmark suite of models in JAX, PyTorch and TensorFlow, and models of one's own beside it."""
