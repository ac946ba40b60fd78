"""RMSNorm in one operation, in the form that the package `kernels` loads."""

from . import layers

__all__ = ["layers"]
