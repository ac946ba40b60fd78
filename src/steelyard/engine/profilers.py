"""Runs Nsight Compute and Nsight Systems on a program that marks its calls, and reads what they found for each case.

One start profiles one case or many; a mark with its place in the batch says which case a kernel or a call belongs to.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steelyard.engine.messages import Found
from steelyard.engine.tools import run_tool
from steelyard.errors import SteelyardError, UsageError
from steelyard.measuring import marks, nsys_export
from steelyard.measuring.ncu_table import COLUMNS, Kernel, lacking, last_words, marked
from steelyard.model.record import Figure

PRODUCTS = {"ncu": "Nsight Compute", "nsys": "Nsight Systems"}


@dataclass(frozen=True)
class Profiler:
    """One of the two tools as a run uses it; `extra` are a user's own options, in place of our default ones."""

    name: str
    program: str = ""
    extra: tuple[str, ...] | None = None
    ranges: str = marks.OURS

    def command(self, file: Path, metrics: Sequence[str]) -> list[str]:
        """The tool's command up to the program: clocks as they were for the timing, and with ncu only the marked calls."""
        program = self.program or self.name
        if self.name == "nsys":
            return [program, "profile", "-t", "cuda,nvtx", "-o", str(file), *(self.extra or ())]
        fixed = ["--log-file", str(file), "--csv", "--nvtx", "--nvtx-include", marks.measured(self.ranges)]
        plain = ["--clock-control", "none", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics)]
        return [program, *fixed, "--target-processes", "all", *(plain if self.extra is None else self.extra)]

    def check(self, do: str = "add its folder to PATH (often /usr/local/cuda/bin)") -> None:
        """Raise an error, before anything is timed, if the program is missing."""
        if shutil.which(self.program or self.name) is None:
            raise UsageError(
                f"--{self.name} needs {PRODUCTS[self.name]}, and there is no {self.program or self.name!r}",
                why="it comes with the CUDA toolkit", do=f"{do}, or leave --{self.name} out",
            )  # fmt: skip


def check(name: str, devices: Sequence[str]) -> None:
    """Raise an error if the tool is missing or no case runs on its devices."""
    Profiler(name).check()
    if "cuda" not in devices:
        raise UsageError(f"--{name} profiles NVIDIA GPUs, and no case runs on one", do=f"add -d cuda, or leave --{name} out")


@dataclass(frozen=True)
class Profiled:
    """One start of a tool: the command as it was last started, all its output, and what went wrong."""

    argv: Sequence[str]
    said: str
    trouble: str = ""


def profile(tool: Profiler, program: Sequence[str], file: Path, environment: Mapping[str, str], scratch: Path, timeout: float) -> Profiled:
    """Run a program under a tool that writes to `file`; try again without counters that this device lacks."""
    metrics, said = list(COLUMNS.values()), ""
    while True:
        argv = [*tool.command(file, metrics), *program]
        try:
            said, code = run_tool(argv, environment, scratch / "said.txt", timeout)
        except (SteelyardError, OSError) as error:
            return Profiled(argv, said, f"{tool.name} {' '.join(str(error).split())}")
        words = _text(file) + said if tool.name == "ncu" else said
        missing = lacking(words, metrics) if tool.name == "ncu" and tool.extra is None else []
        if not missing or len(missing) == len(metrics):
            return Profiled(argv, said, _trouble(tool, code, words, file))
        metrics = [name for name in metrics if name not in missing]


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def _trouble(tool: Profiler, code: int, words: str, file: Path) -> str:
    """Why there is no result, from the errors of the program or else the tool's last output; empty if there is one."""
    if code:
        errors = [line.strip() for line in words.splitlines() if line.startswith("error: ")]
        return f"{tool.name} exited with code {code}: {'; '.join(errors[:3])[:500] or last_words(words)}"
    if tool.name == "ncu" and tool.extra is None and not marked(words):
        return f"ncu saw no kernel: {last_words(words)}"
    return "" if file.exists() else f"{tool.name} wrote no {file.name}: {last_words(words)}"


PassKernel = tuple[str, Kernel]
"""A kernel, and the pass of the call (forward, backward) that launched it."""


def kernels_by_case(log: Path, ranges: str, count: int) -> tuple[list[list[PassKernel]], int]:
    """The kernels that ncu saw for each case of a batch, and how many kernels belong to none."""
    found: list[list[PassKernel]] = [[] for _ in range(count)]
    strays, pattern = 0, marks.pattern(ranges)
    for kernel, within in marked(_text(log)):
        match = pattern.search(within)
        if match and int(match["position"]) < count:
            found[int(match["position"])].append((match["part"], kernel))
        else:
            strays += 1
    return found, strays


def totals(kernels: Sequence[Kernel], calls: int = 1) -> dict[str, float]:
    """One call's sums of time and traffic, and shares weighted by time; a total with a missing part would be wrong and is left out."""
    times = [kernel.duration for kernel in kernels if kernel.duration is not None]
    total = {}
    for name in ("duration", "dram_bytes"):
        values = [getattr(kernel, name) for kernel in kernels]
        if values and None not in values:
            total[name] = sum(values) / calls
    for name in ("occupancy", "tensor"):
        shares = [getattr(kernel, name) for kernel in kernels]
        if shares and None not in shares and len(times) == len(shares) and sum(times) > 0:
            total[name] = sum(share * duration for share, duration in zip(shares, times, strict=True)) / sum(times)
    return total


def counters(program: Sequence[str], environment: Mapping[str, str], scratch: Path, timeout: float) -> Found:
    """What ncu counts in one call of one case."""
    log, table = scratch / "ncu.csv", scratch / "ncu.json"
    done = profile(Profiler("ncu"), program, log, environment, scratch, timeout)
    [seen], _ = kernels_by_case(log, marks.OURS, 1)
    if done.trouble or not seen:
        raise SteelyardError(done.trouble or "ncu saw no kernel of the marked call")
    kernels = [kernel for _, kernel in seen]
    table.write_text(json.dumps([asdict(kernel) for kernel in kernels], indent=1), encoding="utf-8")
    summed = totals(kernels)
    units = {"duration": "s", "dram_bytes": "B"}
    figures = {f"ncu_{name}": Figure(summed.pop(name), unit, "lower", n=1) for name, unit in units.items() if name in summed}
    return Found(figures, {"ncu": {"kernels": len(kernels), **summed}}, (("ncu", str(log)), ("ncu", str(table))))


def timeline(program: Sequence[str], environment: Mapping[str, str], scratch: Path, timeout: float) -> Found:
    """Where the time of some calls of one case goes, according to nsys: medians of their parts, and the kernels of each call."""
    report, export, table = scratch / "nsys.nsys-rep", scratch / "nsys.sqlite", scratch / "nsys.json"
    tool = Profiler("nsys")
    done = profile(tool, program, report, environment, scratch, timeout)
    if not done.trouble:
        argv = [tool.name, "export", "--type", "sqlite", "--output", str(export), str(report)]
        said, code = run_tool(argv, environment, scratch / "said.txt", timeout, tool.name)
        done = Profiled(argv, said, _trouble(tool, code, said, export))
    calls = [] if done.trouble else nsys_export.read(export, marks.pattern(marks.OURS))
    if not calls:
        raise SteelyardError(done.trouble or "nsys saw no marked call")
    parts = [call.parts() for call in calls]
    launched = [[asdict(launch.kernel) for launch in call.kernels if launch.kernel] for call in calls]
    rows = [{"parts": its, "kernels": kernels} for its, kernels in zip(parts, launched, strict=True)]
    table.write_text(json.dumps({"unit": "ns", "calls": rows}, indent=1), encoding="utf-8")
    figures = {f"nsys_{name}": figure for name in parts[0] if (figure := _median([its[name] for its in parts]))}
    facts: dict[str, Any] = {"calls": len(calls), "kernels_per_call": statistics.median(map(len, launched))}
    return Found(figures, {"nsys": facts}, (("nsys", str(report)), ("nsys", str(table))))


def _median(nanoseconds: Sequence[int | None]) -> Figure | None:
    """The median of one part over all calls; None if some call did not have it."""
    times = [value * 1e-9 for value in nanoseconds if value is not None]
    return Figure(statistics.median(times), "s", "lower", n=len(times)) if len(times) == len(nanoseconds) else None


LOOKS = {"ncu": counters, "nsys": timeline}
