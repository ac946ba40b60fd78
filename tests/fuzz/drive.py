"""Drives targets: inputs in forked children with bounded memory and time, and a count of what became of each."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from steelyard.cli.main import main
from steelyard.errors import BUG, SteelyardError
from tests.fuzz.targets import Target, emptied

BATCH = 200
ROOM = 1 << 30
SECONDS = 30.0
TYPED = 40
"""One input in so many is also given to a command line, which takes as long as dozens of others."""


class Late(BaseException):
    """An input took longer than any may; no handler of ordinary errors takes it for one."""


@dataclass
class Tally:
    """What became of the inputs of one target; `broken` are numbers of inputs, each with what happened."""

    name: str
    inputs: int = 0
    typed: int = 0
    accepted: int = 0
    refused: int = 0
    growth: int = 0
    slowest: float = 0.0
    slowest_input: int = -1
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, result: dict[str, Any]) -> None:
        """Count one input."""
        self.inputs += 1
        self.typed += result["typed"]
        self.accepted += result["end"] == "accepted"
        self.refused += result["end"] == "refused"
        self.growth = max(self.growth, result["growth"])
        if result["seconds"] > self.slowest:
            self.slowest, self.slowest_input = result["seconds"], result["number"]
        if result["end"] == "broken":
            self.broken[result["number"]] = result["why"]

    def row(self) -> str:
        """One line of the table."""
        return (
            f"{self.name:<20}{self.inputs:>8}{self.typed:>8}{self.accepted:>10}{self.refused:>9}{len(self.broken):>8}"
            f"{self.growth / 1024:>10.0f} MiB{self.slowest:>9.2f} s  #{self.slowest_input}"
        )


HEAD = f"{'parser':<20}{'inputs':>8}{'typed':>8}{'accepted':>10}{'refused':>9}{'exit 1':>8}{'growth':>14}{'slowest':>11}"


def content(target: Target, seed: int, number: int) -> bytes:
    """The input of this number, whatever came before it."""
    return target.made(Random(f"{seed}:{target.name}:{number}"))


def fuzz(target: Target, inputs: int, seed: int, save: Path | None = None, first: int = 0) -> Tally:
    """Try a number of inputs; those that break something are saved where a folder is named."""
    tally = Tally(target.name)
    check_seeds(target)
    number = first
    while number < first + inputs:
        ended = 0
        for result in _batch(target, seed, number, min(BATCH, first + inputs - number)):
            tally.add(result)
            ended = result["number"] + 1 - number
        number += max(1, ended)
    if save is not None and tally.broken:
        save.mkdir(parents=True, exist_ok=True)
        for broken, why in tally.broken.items():
            stem = f"{target.name.replace(' ', '-')}-{seed}-{broken}"
            (save / f"{stem}{Path(target.file).suffix}").write_bytes(content(target, seed, broken))
            (save / f"{stem}.txt").write_text(why)
    return tally


def check_seeds(target: Target) -> None:
    """What is not bent must be accepted, or the rest proves nothing; it also imports what the children share."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in target.seeds() if target.name != "words" else target.seeds()[:3]:
            raw = seed if isinstance(seed, bytes) else target.write(Random(0), seed)
            target.read(_placed(target, Path(folder), raw))


def _placed(target: Target, folder: Path, raw: bytes) -> Path:
    emptied(folder)
    path = folder / target.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    if target.around:
        target.around(path)
    return path


def _batch(target: Target, seed: int, first: int, count: int) -> Iterator[dict[str, Any]]:
    """The results of one child; where it dies, the input that it died of has one too."""
    inward, outward = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inward)
        _child(target, seed, first, count, outward)
    os.close(outward)
    running = None
    with os.fdopen(inward, "rb") as answers:
        for line in answers:
            result = json.loads(line)
            running = result["number"] if "end" not in result else None
            if running is None:
                yield result
    _, status = os.waitpid(child, 0)
    if running is not None:
        why = f"the process died of it: signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"the process ended: {status}"
        yield {"number": running, "end": "broken", "why": why, "seconds": 0.0, "growth": 0, "typed": 0}


def _child(target: Target, seed: int, first: int, count: int, outward: int) -> None:
    code = 1
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, hard))
        signal.signal(signal.SIGALRM, _late)
        os.environ["COLUMNS"] = "100"
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update({name: f"{folder}/{name}" for name in ("STEELYARD_LOCKS", "STEELYARD_ENVS", "STEELYARD_CACHE")})
            home = Path(folder) / "home"
            home.mkdir()
            os.chdir(home)
            for number in range(first, first + count):
                os.write(outward, json.dumps({"number": number}).encode() + b"\n")
                os.write(outward, json.dumps(_tried(target, seed, number, home)).encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


def _late(*_: Any) -> None:
    raise Late


def _tried(target: Target, seed: int, number: int, home: Path) -> dict[str, Any]:
    raw = content(target, seed, number)
    path = _placed(target, home, raw)
    words = target.words[number // TYPED % len(target.words)] if target.words and number % TYPED == 0 else None
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        end, why = _ended(target, path)
        if words and end != "broken":
            typed = [word.replace("FILE", str(path)).replace("ROOT", str(home)) for word in words]
            end, why = _typed(typed, end)
    except Late:
        end, why = "broken", f"took longer than {SECONDS:.0f} s\n{traceback.format_exc(limit=-6)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds, growth = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"number": number, "end": end, "why": why, "seconds": seconds, "growth": growth, "typed": words is not None}


def _ended(target: Target, path: Path) -> tuple[str, str]:
    try:
        target.read(path)
    except SteelyardError as error:
        return ("broken", f"its exit code is 1: {error}") if error.exit_code == BUG else ("refused", "")
    except Exception:
        return "broken", traceback.format_exc()
    return "accepted", ""


def _typed(words: Sequence[str], end: str) -> tuple[str, str]:
    """The same through the front door; a tool whose exit codes are kept may end with 1 too, so the words decide."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(["--debug", *words])
    return ("broken", f"{' '.join(words)}\n{said.getvalue()[-4000:]}") if code == BUG and "this is a bug" in said.getvalue() else (end, "")
