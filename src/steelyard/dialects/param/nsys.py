"""PARAM's nsys_analysis: the parts of every measured call, from an export of a run with --nsys, in the original's format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from steelyard.errors import NothingMeasured
from steelyard.measuring.nsys_export import Launch, Span, read

LABEL = re.compile(r"\[param\|(?P<op>.+)\|(?P<id>[^|]*\|[^|]*\|[^|]*)\|measure\|(?P<part>forward|backward|forward_backward)\]")
PARTS = ("T1", "T2", "T3", "T4", "T5")


def breakdown(source: Path) -> list[dict[str, Any]]:
    """Return one line per operator and id, as the original tool writes it: its measured ranges, and T1 to T5 of each in nanoseconds.

    T1 is the whole range, T2 the time to the first kernel, T3 the kernels' own time, T4 from the last kernel to the end of
    the range, and T5 the last wait for the device.
    """
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for found in read(source, LABEL):
        op, id = found.label["op"], found.label["id"]
        empty: dict[str, Any] = {"op_name": op, "id": id, "ranges": {}, "analysis": {part: [] for part in PARTS}}
        line = lines.setdefault((op, id), empty)
        calls = {"cuda_kernel": list(map(_launch, found.kernels)), "cuda_sync": list(map(_launch, found.syncs))}
        line["ranges"][found.key] = _span(found.span) | calls
        for part, value in zip(PARTS, found.parts().values(), strict=True):
            line["analysis"][part].append(value)
    if not lines:
        raise NothingMeasured(
            "no measured operator in this export", why="no NVTX range is named like [param|torch.mm|0|0|0|measure|forward]",
            do="export the report of a run with --nsys", where=str(source),
        )  # fmt: skip
    return [line | {"steelyard": {"unit": "ns"}} for line in lines.values()]


def _span(span: Span) -> dict[str, Any]:
    return {"name": span.name, "start": span.start, "end": span.end}


def _launch(launch: Launch) -> list[Any]:
    return [launch.correlation, *([_span(launch.kernel)] if launch.kernel else []), _span(launch.call)]
