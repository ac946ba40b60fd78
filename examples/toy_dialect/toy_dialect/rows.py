"""Toy's lines: the cold first call, all times, and the ratio of new to old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.engine.messages import Unweighed
from steelyard.engine.sinks import MeasuredCase, RowSink
from steelyard.model.pair import Pair


class ToyRows(RowSink):
    """Writes a line as soon as both cases and their pair are there."""

    def header(self) -> Mapping[str, Any]:
        return {"toy_results": 1}

    def key_of(self, line: Mapping[str, Any]) -> str:
        """Only what went well is not measured again."""
        return str(line.get("name", "")) if line.get("status") == "ok" else ""

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Pair | Unweighed]) -> Mapping[str, Any]:
        bad = next((case.record for case in cases if case.record.status != "ok"), None)
        if bad:
            return {"name": key, "status": bad.status, "reason": f"{bad.id}: {bad.reason}"}
        (cold, *times), [pair] = cases[1].seconds("forward.measure.time"), pairs
        line = {"name": key, "status": "ok", "cold_s": cold, "times_s": times}
        return line | (
            {"reason": pair.reason} if isinstance(pair, Unweighed) else {"ratio": pair.ratio, "low": pair.low, "high": pair.high}
        )
