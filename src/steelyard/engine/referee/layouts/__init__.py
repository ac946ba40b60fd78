"""Ways in which problems and candidates are written down, one module each."""

from __future__ import annotations

import importlib
from typing import Any


def module(name: str) -> Any:
    """The module of a layout by its name."""
    return importlib.import_module(f"{__name__}.{name}")
