"""One request of text generation: when each token of each row came, in whole nanoseconds, and the times computed from that."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from steelyard.errors import SteelyardError
from steelyard.model.task import Reading


@dataclass
class Stamps:
    """The host's clock at the start of a request, at each token of each row, and at its end.

    Rows that come together, such as those of one batch, are one row here, and `together` is their number.
    """

    start: int
    rows: list[list[int]] = field(default_factory=list)
    end: int = 0
    together: int = 1

    def reading(self, tokens: int) -> Reading:
        """The time to the first token, those between tokens, the rest, and the whole; they must add up, for every row.

        `itl` is the median of a request's times between tokens and `tpot` their mean; if rows come separately, of the median row.
        """
        if not self.rows:
            raise SteelyardError("no token came")
        gaps = [self._gaps(row, tokens) for row in self.rows]
        first = [row[0] - self.start for row in self.rows]
        tails = [self.end - row[-1] for row in self.rows]
        parts = {"ttft": statistics.median(first)}
        if tokens > 1:
            parts["itl"] = statistics.median(statistics.median(each) for each in gaps)
            parts["tpot"] = statistics.median(sum(each) / len(each) for each in gaps)
        if len(self.rows) > 1:
            parts["ttft_last"] = max(first)
        series = {"ttft": first, "itl": [gap for each in gaps for gap in each], "tail": tails}
        return Reading((self.end - self.start) * 1e-9, parts=parts, series=series)

    def _gaps(self, row: Sequence[int], tokens: int) -> list[int]:
        if len(row) != tokens:
            raise SteelyardError(
                f"{len(row)} tokens came instead of {tokens}",
                why="generation ended early" if len(row) < tokens else "generation went on after the last one",
            )
        gaps = [later - earlier for earlier, later in pairwise(row)]
        first, tail = row[0] - self.start, self.end - row[-1]
        if min(first, tail, *gaps) < 0 or first + sum(gaps) + tail != self.end - self.start:
            raise SteelyardError("the times of a request do not add up", why="a token has a time before the one that it follows")
        return gaps


def of_each(series: Mapping[str, Sequence[float]], tokens: int) -> dict[str, list[float]]:
    """From the raw series of a record, one value for each request: whole, to the first token, mean between tokens; over rows the median."""
    whole, first, gaps = (series.get(f"request_{name}", ()) for name in ("time", "ttft", "itl"))
    rows = len(first) // len(whole) if whole else 0
    each = rows * (tokens - 1)
    return {
        "time": list(whole),
        "ttft": [statistics.median(first[i * rows : (i + 1) * rows]) for i in range(len(whole))] if rows else [],
        "tpot": [statistics.fmean(gaps[i * each : (i + 1) * each]) for i in range(len(whole))] if each and gaps else [],
    }
