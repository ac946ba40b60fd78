"""RMSNorm in one operation, in the form that the package `kernels` loads."""

from __future__ import annotations

from . import _layers as layers

__all__ = ["layers"]
