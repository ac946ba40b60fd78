"""Keeps the garbage collector out of calls that a dialect times by itself; for blocks, `sample` does that."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def calm() -> Iterator[None]:
    """Stop garbage collection inside the block, and exclude the objects loaded before it from later collections there."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
