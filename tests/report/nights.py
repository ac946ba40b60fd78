"""Simulated nights: an archive in which it is known what changed, when, at which commit, and what was only noise.

3 models x 4 stacks x 2 modes on one machine, night after night. One case is 3 % slower from a known commit on, another has
six restless nights, one night has a crash, and one was killed before its end. Everything else is noise.

    python -m tests.report.nights FOLDER [--nights 60] [--seed 0]
"""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulated import Entry, write_run

from steelyard.measuring.roofline import Roof, with_roof
from steelyard.measuring.stats import median_interval, noise_grade
from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Arrays, Figure, Record, Verification
from steelyard.store.runs import Header, Run, Store

FIRST = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
STEP = 1.03
BLOCKS = 120
QUIETEST, LOUDEST, SHARED = 0.004, 0.008, 0.0015
RESTLESS_NIGHTS, RESTLESS, OUTLIER = 6, 4.0, 8.0
MACHINE_KEY = "0a1b2c3d4e5f"
ROOF = Roof(9.9e14, 4.8e12, "datasheet")


@dataclass(frozen=True)
class Model:
    """What one model costs: seconds of a call in eager, operations and bytes of it, and the other stacks' share of its time."""

    params: tuple[tuple[str, Any], ...]
    seconds: float
    flops: float
    bytes: float
    shares: tuple[float, float, float, float]


MODELS = {
    "model/resnet50": Model((("batch", 32), ("dtype", "bf16")), 6.1e-3, 2.6e11, 4.1e9, (1.0, 0.71, 0.83, 0.69)),
    "model/bert": Model((("batch", 16), ("dtype", "bf16"), ("seq", 512)), 8.4e-3, 2.8e12, 9.8e9, (1.0, 0.64, 0.77, 0.74)),
    "model/llama": Model((("batch", 4), ("dtype", "bf16"), ("seq", 1024)), 21.7e-3, 8.9e12, 3.1e10, (1.0, 0.81, 0.93, 0.88)),
}
STACKS = (("torch", "eager"), ("torch", "compile"), ("torch_xla", "eager"), ("jax", "eager"))
MODES = {"eval": 1.0, "train": 3.1}


def point(model: str, stack: tuple[str, str], mode: str) -> Case:
    """One cell of the matrix."""
    return Case(model, MODELS[model].params, *stack, mode, device="cuda")


CASES = [point(model, stack, mode) for model in MODELS for mode in MODES for stack in STACKS]
STEPPED = point("model/bert", STACKS[1], "eval")
RESTLESS_CASE = point("model/llama", STACKS[0], "train")
CRASHED = point("model/resnet50", STACKS[2], "train")
UNSUPPORTED = point("model/llama", STACKS[3], "train")


@dataclass(frozen=True)
class Nights:
    """A store of simulated nights and what is true of it; nights count from 0."""

    store: Store
    commits: tuple[str, ...]
    step: int
    restless: range
    crashed: int
    unfinished: int

    @property
    def last(self) -> str:
        """The last commit at the old level that was measured to the end."""
        return self.commits[self.step - 1]

    @property
    def first(self) -> str:
        """The commit that made one case slower."""
        return self.commits[self.step]


def simulate(folder: Path, nights: int = 60, seed: int = 0) -> Nights:
    """Fill a store; the same seed gives the same nights."""
    if nights < 20:
        raise ValueError("fewer than 20 nights have no room for all that is planted")
    found = Nights(
        Store(folder), tuple(hashlib.sha1(f"{seed}/{night}".encode()).hexdigest() for night in range(nights)),
        step=round(0.62 * nights), restless=range(nights // 4, nights // 4 + RESTLESS_NIGHTS), crashed=nights - 5, unfinished=nights // 2,
    )  # fmt: skip
    draw = np.random.default_rng(seed)
    spread = {case.id: draw.uniform(QUIETEST, LOUDEST) for case in CASES}
    for night in range(nights):
        shared = draw.normal(0, SHARED)
        levels = {case.id: shared + draw.normal(0, spread[case.id]) for case in CASES}
        if night in found.restless:
            loud = OUTLIER if night in (found.restless[1], found.restless[4]) else RESTLESS
            levels[RESTLESS_CASE.id] = shared + loud * draw.normal(0, spread[RESTLESS_CASE.id])
        if night >= found.step:
            levels[STEPPED.id] += float(np.log(STEP))
        _spend(found, night, {id: float(np.exp(level)) for id, level in levels.items()}, draw)
    return found


def _spend(found: Nights, night: int, levels: dict[str, float], draw: np.random.Generator) -> Run:
    at = FIRST + timedelta(days=night)
    entries = []
    for place, case in enumerate(CASES):
        started = (at + timedelta(seconds=40 * place)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if case == UNSUPPORTED:
            entries.append(
                (_bare(case, started, "unsupported", "jax has no fused optimizer for this model; it is measured with torch"), {})
            )
        elif case == CRASHED and night == found.crashed:
            entries.append((_bare(case, started, "crashed", "the worker died of signal 11 (segmentation fault) while building"), {}))
        else:
            entries.append(
                _measured(case, levels[case.id], started, _torch(night, len(found.commits)), draw, restless=_restless(found, night, case))
            )
    killed = night == found.unfinished
    entries = entries[: len(entries) // 2] if killed else entries
    return write_run(found.store, _header(found, night, at), entries, [] if killed else _pairs(entries), sealed=not killed)


def _restless(found: Nights, night: int, case: Case) -> bool:
    return case == RESTLESS_CASE and night in found.restless


def _torch(night: int, nights: int) -> str:
    """One upgrade that changed nothing, three quarters in: a difference of environments that is to blame for no change."""
    return "2.13.0" if night >= round(0.75 * nights) else "2.12.1"


def _header(found: Nights, night: int, at: datetime) -> Header:
    torch = _torch(night, len(found.commits))
    machine: dict[str, Any] = {
        "cpu": {"model": "AMD EPYC 9654 96-Core Processor", "arch": "x86_64", "cores": 96, "cpus": 192},
        "memory": {"total": 774_840_975_360},
        "os": {"system": "Linux", "kernel": "6.8.0-60-generic", "distro": "Debian GNU/Linux 12 (bookworm)"},
        "python": {"version": "3.12.8", "implementation": "cpython"},
        "packages": {"steelyard": "0.1.0", "numpy": "2.3.1", "torch": torch, "jax": "0.7.0"},
        "gpus": [{"name": "NVIDIA H200", "driver": "580.159", "clocks_set": False}],
        "git": {"commit": found.commits[night], "branch": "main", "dirty": False},
    }
    return Header(
        id=f"n{night:03d}", created=at.isoformat().replace("+00:00", "Z"), version="0.1.0",
        command=["steelyard", "nightly", "models.toml", "--keep", "archive"], experiment="models", settings={"budget": 1.0, "margin": 0.02},
        fingerprint=found.commits[night][:16], cases=[case.id for case in CASES], machine=machine, machine_key=MACHINE_KEY,
    )  # fmt: skip


def _bare(case: Case, started: str, status: Any, reason: str) -> Record:
    return Record(case.id, case.plain(), status, reason, started=started, wall_s=2.1)


def _measured(case: Case, level: float, started: str, torch: str, draw: np.random.Generator, *, restless: bool) -> Entry:
    """A record whose figures are those of its raw blocks, which scatter to the right as real ones do."""
    model, scale = MODELS[case.workload], MODES[case.mode]
    seconds = model.seconds * scale * model.shares[STACKS.index((case.backend, case.variant))] * level
    within = 0.02 if restless else 0.006
    blocks = seconds * (1 + within * draw.normal(0, 1, BLOCKS) + within * draw.exponential(0.5, BLOCKS))
    if restless:
        blocks[BLOCKS // 2 :] *= 1.03
    blocks *= seconds / float(np.median(blocks))
    preempted = draw.random(BLOCKS) < (0.06 if restless else 0.01)
    found = median_interval(blocks[~preempted])
    figures = {"time": Figure(found.centre, "s", "lower", found.low, found.high, found.n)}
    for name, unit, amount in (("compute", "FLOP/s", model.flops * scale), ("bandwidth", "B/s", model.bytes * scale)):
        figures[name] = Figure(amount / found.centre, unit, "higher", amount / found.high, amount / found.low, found.n)
    figures["discarded"] = Figure(float(preempted.mean()), "1", "none", n=BLOCKS)
    figures["build_time"] = Figure(0.8 + 0.1 * draw.random(), "s", "lower", n=1)
    slow_start = case.variant == "compile" or case.backend != "torch"
    figures["first_call_time"] = Figure((14.0 if slow_start else 0.05) * (1 + 0.05 * draw.random()), "s", "lower", n=1)
    figures["peak_memory"] = Figure(model.bytes * (1.0 if case.mode == "eval" else 2.6), "B", "lower", n=1)
    arrays, telemetry = _telemetry(float(blocks.sum()), restless, draw)
    record = Record(
        case.id, case.plain(), "ok", metrics=figures, requested={"budget": 1.0, "precision": 0.01, "margin": 0.02},
        effective={
            "sampling": "blocks", "calls_per_block": 1, "blocks": BLOCKS, "stopped_by": "precision", "warmup": "flat", "warmup_blocks": 40,
            "warmup_time": 40 * seconds, "noise": noise_grade(blocks, float(preempted.mean())), "device": "cuda", "threads": 1,
            "telemetry": telemetry,
        },
        verification=Verification("passed", "numpy in double precision", "", 3.1e-3, 8e-3, 2e-2, 1e-3),
        environment=_environment(case, torch), source={"workload": "449130edb938", "variant": "e3b0c44298fc"}, started=started, wall_s=36.0,
    )  # fmt: skip
    raw: Arrays = {
        "block_time": ("s", "<f8", blocks.astype("<f8").tobytes()),
        "preempted": ("1", "|u1", preempted.astype("|u1").tobytes()),
        **arrays,
    }
    return with_roof(record, ROOF), raw


def _environment(case: Case, torch: str) -> dict[str, Any]:
    own = {"torch": {"torch": torch}, "torch_xla": {"torch_xla": "2.9.0", "torch": "2.9.1"}, "jax": {"jax": "0.7.0", "jaxlib": "0.7.0"}}
    return {**own[case.backend], "numpy": "2.3.1", "device": "NVIDIA H200", "driver": "580.159"}


def _telemetry(span: float, restless: bool, draw: np.random.Generator) -> tuple[Arrays, dict[str, Any]]:
    """Clocks as the device had them; on a restless night it was too hot in the second half."""
    count = 24
    clock = 1.98e9 + 4e6 * draw.normal(0, 1, count)
    if restless:
        clock[count // 2 :] -= 1.5e8
    power = 610 + 9 * draw.normal(0, 1, count)
    series = {"telemetry_time": ("s", np.linspace(0, span, count)), "telemetry_sm_clock": ("Hz", clock), "telemetry_power": ("W", power)}
    arrays: Arrays = {name: (unit, "<f8", values.astype("<f8").tobytes()) for name, (unit, values) in series.items()}
    slowed = ["heat"] if restless else []
    return arrays, {"sm_clock": [float(clock.min()), float(clock.max())], "slowed_by": slowed, "readings": count, "cost": 0.0004}


def _pairs(entries: list[Entry]) -> list[Pair]:
    """What `--vs eager` weighed: torch.compile beside eager."""
    records = {record.id: record for record, _ in entries if record.status == "ok"}
    found = []
    for case in CASES:
        base = replace(case, variant="eager")
        if case.variant == "compile" and case.id in records and base.id in records:
            ratio = records[case.id].metrics["time"].value / records[base.id].metrics["time"].value
            arms = Arm(base.id), Arm(case.id)
            found.append(Pair(*arms, ratio, ratio * 0.995, ratio * 1.005, 0.99, 8, 64, 1, (1, 1), p=1e-6, processes=1, clock="device"))
    return found


def main() -> None:
    """Write a store to look at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="store to write, such as archive; use it with --store")
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    made = simulate(asked.folder, asked.nights, asked.seed)
    print(f"{asked.nights} nights in {asked.folder}; {STEPPED.id} is slower from night {made.step} on: {made.last[:10]}..{made.first[:10]}")


if __name__ == "__main__":
    main()
