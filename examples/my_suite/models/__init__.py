"""Base models; each module has create_model."""
