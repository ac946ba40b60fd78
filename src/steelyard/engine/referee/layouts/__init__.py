"""Ways in which problems and candidates are written down, one module each, as `Layout` in `referee/posed.py` describes it."""

from __future__ import annotations

from steelyard import files
from steelyard.engine.referee.layouts import _reading, backendbench, flashinfer, gpumode, kernelbench, plain
from steelyard.engine.referee.layouts._reading import under_contract
from steelyard.engine.referee.posed import Layout
from steelyard.errors import UsageError, unknown

LAYOUTS: dict[str, Layout] = {
    "plain": plain, "kernelbench": kernelbench, "gpumode": gpumode, "flashinfer": flashinfer, "backendbench": backendbench,
}  # fmt: skip
"""By the name in problems and submissions, in the order in which they are tried."""

__all__ = ["LAYOUTS", "find", "named", "under_contract"]


def find(path: str) -> Layout:
    """The layout of a file or folder; raises with what each layout looks for if it has none."""
    for layout in LAYOUTS.values():
        if layout.recognise(path):
            return layout
    file, _ = _reading.split(path)
    if not file.is_dir():
        files.open_named(file, "name a file or folder").close()
    if file.suffix == ".py":
        _reading.outline(file)
    seen = "\n  ".join(f"{name}: {layout.LOOKS_FOR}" for name, layout in LAYOUTS.items())
    raise UsageError(f"no problem is written in {path!r}", why=f"looked for\n  {seen}")


def named(name: str) -> Layout:
    """The layout that a problem or submission names."""
    if name not in LAYOUTS:
        raise unknown("layout", name, LAYOUTS)
    return LAYOUTS[name]
