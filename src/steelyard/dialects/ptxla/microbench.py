"""PyTorch/XLA's A/B micro-benchmark: its timing, its line and its profiles of a slowdown, with a paired verdict.

    from steelyard.dialects.ptxla.microbench import compare

    compare(old, new, "softmax-1024", save_profile_to_dir="profiles")

A script written for the original needs only other imports: `do_bench` and `microbench` take the original's arguments.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from steelyard.drop_in import WaitedCall, call_times, check_words, summarise
from steelyard.errors import UsageError
from steelyard.model.pair import MARGIN, Delta

SLOWER, FASTER = 0.95, 1.05
RED, GREEN, RESET = "\x1b[31m", "\x1b[32m", "\x1b[0m"
SHORTEST = 1e-6
"""A nanosecond, in milliseconds: the least time of a call after its clock was corrected."""
ROLES = ("baseline", "testing")
ARMS = ("base", "test")

Call = Callable[[], Any]
Bench = Callable[[Call], tuple[float, Any]]
Difference = Callable[[Any, Any], str]


@dataclass(frozen=True)
class Side:
    """One of the two functions, what waits for its device, the device whose cache is overwritten, and a timer in place of `do_bench`."""

    fn: Call
    sync_fn: Call | None = None
    device: Any = None
    bench: Bench | None = None


@dataclass(frozen=True)
class Result:
    """The original's result under its own names, with the verdict of the pair, its evidence, and the paths of profiles."""

    test_name: str
    testing_speedup: float
    baseline_wall_ms: float
    testing_wall_ms: float
    verdict: str = ""
    said: str = ""
    profiles: tuple[str, ...] = ()
    note: str = ""
    delta: Delta | None = field(default=None, compare=False, repr=False)

    @property
    def colour(self) -> str:
        """Green above 1.05 and red below 0.95, as in the original; a requested verdict must agree."""
        if SLOWER <= self.testing_speedup <= FASTER:
            return ""
        found, word = (GREEN, "faster") if self.testing_speedup > FASTER else (RED, "slower")
        return found if self.verdict in ("", word) else ""

    def line(self, coloured: bool = False) -> str:
        """The original's line."""
        words = [self.test_name, f"{self.testing_speedup:.2f}x", f"{self.baseline_wall_ms:.2f}ms", f"{self.testing_wall_ms:.2f}ms"]
        if coloured and self.colour:
            words = [f"{self.colour}{word}{RESET}" for word in words]
        return "{}: speedup={}; base={}; test={}".format(*words)

    def text(self, coloured: bool = False) -> str:
        """The original's line, and below it our additions."""
        added = [*self.said.splitlines(), self.note, *(f"profile: {folder}" for folder in self.profiles)]
        return "\n".join([self.line(coloured), *(f"  {line.strip()}" for line in added if line.strip())])

    def __str__(self) -> str:
        return self.text()

    def plain(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "delta"}
        if self.delta is not None:
            found["paired"] = {name: getattr(self.delta, name) for name in ("ratio", "low", "high", "margin", "p", "reason")}
        return found


def do_bench(
    fn: Call,
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Any = None,
    quantiles: Sequence[float] | None = None,
    fast_flush: bool = True,
    device: Any = None,
    sync_fn: Call | None = None,
    return_mode: str = "mean",
) -> Any:
    """Return milliseconds and an output, or only quantiles, with the arguments of the original's `bench.do_bench` in their order.

    The time is that of `steelyard.do_bench`; the output is that of one more call, made like the others.
    """
    check_words(quantiles, return_mode)
    times, output = call_times(fn, warmup, rep, grad_to_none, device, sync_fn, answered=quantiles is None)
    found = summarise(times, quantiles, return_mode)
    return found if quantiles is not None else (found, output)


def microbench(
    test_name: str,
    baseline_fn: Call,
    testing_fn: Call,
    baseline_bench_fn: Bench,
    testing_bench_fn: Bench,
    baseline_sync_fn: Call,
    testing_sync_fn: Call,
    save_profile_to_dir: str | os.PathLike[str] | None = None,
) -> Result:
    """The original's function: it prints nothing; its result prints as the original's line with a verdict below."""
    base, test = (
        Side(baseline_fn, baseline_sync_fn, bench=baseline_bench_fn),
        Side(testing_fn, testing_sync_fn, bench=testing_bench_fn),
    )
    return compare(base, test, test_name, save_profile_to_dir=save_profile_to_dir, show=False)


def compare(
    base: Call | Side,
    test: Call | Side,
    name: str,
    *,
    warmup: float = 25,
    rep: float = 100,
    return_mode: str = "min",
    save_profile_to_dir: str | os.PathLike[str] | None = None,
    weigh: bool = True,
    verify: bool | Difference = True,
    budget: float | str = "normal",
    margin: float | str = MARGIN,
    show: bool = True,
) -> Result:
    """Time two functions one after the other as the original does, and weigh them against each other as `steelyard.compare` does.

    The timing gives the figures of the line; a difference between them may be drift or luck. The comparison gives the verdict.
    `verify` may be a function of both outputs that returns how they differ, or an empty text if they do not. Below a speedup
    of 0.95 both sides are profiled into `save_profile_to_dir`.
    """
    check_words(None, return_mode)
    check_name(name, save_profile_to_dir)
    if return_mode == "all":
        raise UsageError("return_mode 'all' is not supported here", why="each side needs one figure", do="use min, mean, median or max")
    sides = [side if isinstance(side, Side) else Side(side) for side in (base, test)]
    base_ms, test_ms = (max(_milliseconds(side, warmup, rep, return_mode), SHORTEST) for side in sides)
    result = Result(name, base_ms / test_ms, base_ms, test_ms)
    if weigh:
        result = _weighed(result, sides, verify, budget, margin)
    if save_profile_to_dir and result.testing_speedup < SLOWER:
        result = _profiled(result, sides, Path(save_profile_to_dir))
    if show:
        print(result.text(wants_colour(sys.stdout)))
    return result


def wants_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal that wants colours."""
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return stream.isatty() and not os.environ.get("NO_COLOR") and not in_ci


def check_name(name: str, folder: str | os.PathLike[str] | None) -> None:
    """Check a name: it is printed, and names a folder if profiles are requested."""
    if not name or not name.isprintable():
        raise UsageError(f"not a name for a micro-benchmark: {name!r}", do="use printable characters")
    if folder and (name in (".", "..") or "/" in name or os.sep in name or len(os.fsencode(name)) > 255):
        raise UsageError(f"profiles cannot be saved under the name {name!r}", why="it would not be one folder", do="choose another name")


def _milliseconds(side: Side, warmup: float, rep: float, return_mode: str) -> float:
    if side.bench is not None:
        return float(side.bench(side.fn)[0])
    return float(do_bench(side.fn, warmup, rep, device=side.device, sync_fn=side.sync_fn, return_mode=return_mode)[0])


def _weighed(result: Result, sides: Sequence[Side], verify: bool | Difference, budget: float | str, margin: float | str) -> Result:
    """Add the verdict of the pair. `steelyard.comparing` is in a layer above the dialects, so it is imported by name."""
    weigh = importlib.import_module("steelyard.comparing").compare
    calls = [_waited(side) for side in sides]
    delta = weigh(*calls, budget=budget, margin=margin, names=ARMS, verify=verify is True)
    if callable(verify) and (differs := verify(calls[0](), calls[1]())):
        delta = replace(delta, verdict="failed", reason=f"the answers differ: {differs}")
    return replace(result, verdict=delta.verdict, said=str(delta), delta=delta)


def _waited(side: Side) -> Call:
    """Return a call that includes waiting for its device, unless the device's own clock is read."""
    fn, wait = side.fn, side.sync_fn
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if wait is None or wait is getattr(cuda, "synchronize", None):
        return fn
    return WaitedCall(fn, wait)


def _profiled(result: Result, sides: Sequence[Side], root: Path) -> Result:
    """Profiles of both sides in the original's folders; functions that do not use torch have none."""
    if sys.modules.get("torch") is None:
        return replace(result, note="no profile: these functions do not use torch")
    passes = importlib.import_module("steelyard.backends._torch_passes")
    folders = []
    for side, role in zip(sides, ROLES, strict=True):
        folder = root / result.test_name / role
        try:
            folder.mkdir(parents=True, exist_ok=True)
            passes.profile_stacks(side.fn, side.sync_fn or passes.wait_for_cuda, folder)
        except OSError as error:
            raise UsageError(f"cannot save a profile in {folder}", why=error.strerror or str(error)) from error
        folders.append(str(folder))
    return replace(result, profiles=tuple(folders))
