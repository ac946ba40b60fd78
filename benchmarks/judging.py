"""Candidates per minute that `judge_all` rules on in a batch, each in a process of its own, and where the seconds of one go.

On the CPU the candidates are plain torch; with --device cuda every other one is a Triton kernel. With --twins they are the reference
itself, under other names: how far their ratios are from 1 is the judge's own error.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from sheet import Goal, Sheet, Table, alone, count, options, quantity
from steelyard.engine.referee import court, judging, seats
from steelyard.engine.referee.options import JudgeOptions
from steelyard.engine.referee.partner import Partner

GOAL = {"cpu": 20.0, "cuda": 60.0}
"""Candidates a minute."""
REFERENCE = """\
import torch

def reference(x):
    e = (x - x.max(-1, keepdim=True).values).exp()
    return e / e.sum(-1, keepdim=True)

def inputs(seed):
    return (torch.randn(256, 1024, generator=torch.Generator().manual_seed(seed)),)
"""
TORCH = "import torch\nNUMBER = {number}\ndef candidate(x):\n    return torch.softmax(x, -1)\n"
TWIN = REFERENCE.replace("def reference", "NUMBER = {number}\n\ndef candidate")
TRITON = """\
import torch
import triton
import triton.language as tl

NUMBER = {number}

@triton.jit
def kernel(out, x, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + columns, powers / tl.sum(powers, 0), mask=columns < n)

def candidate(x):
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](out, x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""


def written(folder: Path, number: int, device: str, twins: bool = False) -> list[str]:
    """So many different candidates as files, or copies of the reference."""
    (folder / "reference.py").write_text(REFERENCE)
    files = [folder / f"candidate_{each}.py" for each in range(number)]
    for each, file in enumerate(files):
        text = TWIN if twins else TRITON if device != "cpu" and each % 2 else TORCH
        file.write_text(text.replace("{number}", str(each)))
    return [str(file) for file in files]


@contextmanager
def by_phase(spent: Counter[str], steps: Counter[str]) -> Iterator[None]:
    """Count the seconds and the number of steps between the judge and its partners, of draws, and of seating and ending candidates.

    A candidate's first call is apart: there its kernels are compiled and loaded.
    """
    whole = {
        "draw": "drawing", "prepare": "preparing single draws", "seat": "seating", "_talk": "waiting for an interpreter",
        "unseat": "ending", "see_off": "waiting for the last one's end",
    }  # fmt: skip
    before = {name: getattr(court.Court, name) for name in whole}
    step = Partner.step
    called: list[Partner] = []
    inside: list[float] = []
    """Seconds that were spent in phases inside of each open phase: each second counts for one phase alone."""

    def timed(name: str, work: Any) -> Any:
        def call(self: Any, *args: Any, **words: Any) -> Any:
            if not name and args[0] in ("draw", "prepare"):
                return work(self, *args, **words)
            phase = name or f"{args[0]} {'by a stand' if isinstance(self, seats.Stander) else 'by the examiner'}"
            if phase == "call by a stand" and all(self is not each for each in called):
                phase = "first call"
                called.append(self)
            began = time.perf_counter()
            inside.append(0.0)
            try:
                return work(self, *args, **words)
            finally:
                took = time.perf_counter() - began
                spent[phase] += took - inside.pop()
                steps[phase] += 1
                inside[-1:] = [inside[-1] + took] if inside else []

        return call

    try:
        for name, phase in whole.items():
            setattr(court.Court, name, timed(phase, before[name]))
        setattr(Partner, "step", timed("", step))  # noqa: B010
        yield
    finally:
        for name, work in before.items():
            setattr(court.Court, name, work)
        setattr(Partner, "step", step)  # noqa: B010


def main() -> None:
    """Judge a batch and print the rate, the start, and the seconds of one candidate by phase."""
    parser = options(__doc__)
    parser.add_argument("--candidates", type=count, default=20, help="how many (default 20)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--twins", action="store_true", help="judge copies of the reference, to see how far off ratios are")
    chosen = parser.parse_args()
    load = os.getloadavg()
    spent: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    rulings, stamps = [], [time.perf_counter()]
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        if chosen.device != "cpu":  # on the CPU judging itself holds these locks
            stack.enter_context(alone("benchmark judging"))
        stack.enter_context(by_phase(spent, steps))
        named = written(Path(name), chosen.candidates, chosen.device, chosen.twins)
        for ruling in judging.judge_all(str(Path(name, "reference.py")), named, JudgeOptions(device=chosen.device)):
            stamps.append(time.perf_counter())
            rulings.append(ruling)
            if len(rulings) == 1:
                spent.clear()
                steps.clear()
    wrong = [f"{ruling.candidate}: {ruling.status} {ruling.reason}" for ruling in rulings if not ruling.correct]
    first, rest = stamps[1] - stamps[0], stamps[-1] - stamps[1]
    each = rest / max(1, len(rulings) - 1)
    whole = 60 * len(rulings) / (stamps[-1] - stamps[0])
    further = max(1, len(rulings) - 1)
    phases = {name: seconds / further for name, seconds in spent.most_common()}
    rows = [("the first, with the start", quantity(first, "s")), ("each further one", quantity(each, "s"))]
    rows += [
        (f"{name.replace('_', ' ')}, median", f"{median(ruling.facts.get(name, 0) for ruling in rulings):.0f}")
        for name in ("draws", "blocks", "calls_timed", "answers_checked")
    ]
    pairs = [ruling.pair for ruling in rulings if ruling.pair is not None]
    if chosen.twins and len(pairs) > 1:
        off = [100 * math.log(pair.ratio) for pair in pairs]
        rows += [("off by, mean", f"{fmean(off):+.1f} %"), ("off by, SD", f"{stdev(off):.1f} %")]
        rows += [("intervals without 1", f"{sum(not pair.low <= 1 <= pair.high for pair in pairs)}")]
    widths = [50 * math.log(pair.high / pair.low) for pair in pairs]
    rows += [("half of the ratio's interval, median", f"{median(widths):.1f} %")] if widths else []
    rate = Table(f"{len(rulings)} candidates on {chosen.device}, {len(wrong)} not right", ("candidate", "time"), tuple(rows))
    share = tuple(
        (name, f"{steps[name] / further:.1f}", quantity(seconds, "s"), f"{seconds / each:.0%}") for name, seconds in phases.items() if each
    )
    parts = Table("of one candidate", ("phase", "steps", "time", "share"), share)
    goals = (
        Goal(
            "candidates a minute, once warm", 60 / each if each else 0.0, GOAL.get(chosen.device.partition(":")[0], 60.0), "", at_least=True
        ),
        Goal("candidates that were not right", float(len(wrong)), 0.0, ""),
    )
    figures = {"device": chosen.device, "first_s": first, "each_s": each, "per_minute": 60 / each if each else 0.0}
    figures |= {"per_minute_with_start": whole, "phases_s": phases, "not_right": wrong, "half_width_percent": widths}
    Sheet("judging", (rate, parts), goals, figures, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
