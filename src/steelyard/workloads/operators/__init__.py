"""Any operator of PyTorch, or of a user, called with arguments that a configuration describes."""
