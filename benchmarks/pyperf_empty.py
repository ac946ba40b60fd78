"""pyperf's own account of an empty function, started by `overhead.py` because pyperf re-executes the program it is in."""

from __future__ import annotations

import pyperf  # type: ignore[import-untyped]


def empty() -> None:
    """Nothing to time but the harness."""


if __name__ == "__main__":
    pyperf.Runner().bench_func("empty", empty)
