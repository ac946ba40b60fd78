"""Runs for the browser's tests: three models by four stacks by two modes as an evening would leave them, names that attack, and damage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulated import FIRST, MACHINE, STACKS, Entry, commit, header, measured, write_run

from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Arrays, Attachment, Figure, Record, Verification
from steelyard.store.runs import Header, Run, Store, read_run
from tests.report.charts.test_accuracy import weighed_recipes

MODELS: Mapping[str, tuple[float, dict[str, Any]]] = {
    "model/bert": (5.8e-3, {"batch": 8, "dtype": "bf16", "hidden": 768, "layers": 12, "seq": 128}),
    "model/llama": (21e-3, {"batch": 1, "dtype": "bf16", "hidden": 2048, "layers": 16, "seq": 512}),
    "model/resnet50": (3.1e-3, {"batch": 32, "dtype": "bf16", "image": 224}),
}
SPEEDUPS = {("torch", "eager"): 1.0, ("torch", "compile"): 1.42, ("torch_xla", "eager"): 0.71, ("jax", "eager"): 1.18}
BAD = {
    ("model/llama", "jax/eager", "train"): ("wrong", "out differs from the reference: 0.31 at most"),
    ("model/resnet50", "torch_xla/eager", "train"): ("unsupported", "no backward for this layout; steelyard env create torch-xla"),
    ("model/llama", "torch_xla/eager", "train"): ("oom", "out of memory: 143 GiB asked for, 139 GiB there"),
}
THROTTLED = ("model/llama", "torch/eager", "eval")
PEAK = {"compute": 9.9e14, "bandwidth": 4.8e12}
SCRIPT = "<script>window.pwned=1;alert(1)</script>"
IMAGE = "<img src=x onerror=window.pwned=1>"
CLOSING = "</script><!--<script>"
EVIL = f"{SCRIPT}{IMAGE}\"'`${{window.pwned=1}}&lt;{CLOSING}\u2028=1+1"


def grid(store: Store, night: int = 0, id: str = "grid", **slower: float) -> Run:
    """3 models x 4 stacks x 2 modes: most are right, one is wrong, one not supported, one out of memory, one throttled midway."""
    draw = np.random.default_rng(night)
    entries = [
        _entry(name, stack, mode, draw, slower.get(name.partition("/")[2], 1.0))
        for name in MODELS
        for stack in STACKS
        for mode in ("eval", "train")
    ]
    at = FIRST + timedelta(days=night)
    head = header(id, at, [record.id for record, _ in entries], commit=commit(night), experiment="stacks")
    return write_run(store, head, entries, _pairs([record for record, _ in entries]))


def _entry(name: str, stack: tuple[str, str], mode: str, draw: np.random.Generator, factor: float) -> Entry:
    seconds, params = MODELS[name]
    case = Case(name, tuple(params.items()), *stack, mode=mode, device="cuda")
    own = np.random.default_rng(sum(case.id.encode())).uniform(0.93, 1.07)
    seconds *= factor * (3.1 if mode == "train" else 1.0) / (SPEEDUPS[stack] * own * draw.lognormal(0, 0.002))
    throttled = (name, "/".join(stack), mode) == THROTTLED
    record, arrays = measured(case, seconds, 240, draw, 1.25 if throttled else 1.0)
    why = BAD.get((name, "/".join(stack), mode))
    if why and why[0] != "wrong":
        return replace(record, status=why[0], reason=why[1], metrics={}, effective={}, verification=None), {}
    record, arrays = _watched(record, arrays, throttled=throttled)
    record = _roofed(record, draw)
    memory = {"peak_memory": Figure(2.1e9 * factor, "B", "lower", n=1), "model_bytes": Figure(0.9e9, "B", "lower", n=1)}
    phases = {"first_call_time": Figure(seconds * 9, "s", "lower", n=1)}
    if stack[1] == "compile":
        phases["compile_time"] = Figure(14.2, "s", "lower", 13.8, 14.9, 3)
        phases["code_size"] = Figure(265216.0, "B", "lower", n=1)
    record = replace(
        record, metrics={**record.metrics, **memory, **phases}, attachments=[Attachment("log", "attachments/worker.log", "ab" * 32)]
    )
    if why:
        verification = Verification("failed", "torch fp64", "out differs", 0.31, 0.04, 1e-2, 1e-5)
        record = replace(record, status="wrong", reason=why[1], verification=verification)
    return record, arrays


def _watched(record: Record, arrays: Arrays, *, throttled: bool) -> Entry:
    """Clocks and power beside the blocks; those of a throttled device fall when its blocks slow down."""
    times = np.frombuffer(arrays["block_time"][2], "<f8")
    span = np.linspace(0.0, float(times.sum()), 40)
    clock = np.where(throttled & (span > times[: len(times) // 2].sum()), 1.55e9, 1.98e9)
    telemetry: Arrays = {
        "telemetry_time": ("s", "<f8", span.tobytes()),
        "telemetry_sm_clock": ("Hz", "<f8", clock.tobytes()),
        "telemetry_power": ("W", "<f8", np.full(40, 612.0).tobytes()),
    }
    seen = {"sm_clock": [float(clock.min()), 1.98e9], "power": [612.0, 612.0], "slowed_by": ["heat"] if throttled else [], "readings": 40}
    record = replace(record, effective={**record.effective, "telemetry": seen, "noise": "D" if throttled else "A"})
    return record, {**arrays, **telemetry}


def _roofed(record: Record, draw: np.random.Generator) -> Record:
    """Rates, their share of the roof and what holds the case back."""
    time, intensity = record.metrics["time"], float(draw.uniform(20, 900))
    roof = min(PEAK["compute"], intensity * PEAK["bandwidth"])
    reached = 0.6 * roof * float(draw.uniform(0.4, 1.2))
    rates = {"compute": (reached, "FLOP/s"), "bandwidth": (reached / intensity, "B/s"), "roof": (reached / roof, "1")}
    found = {name: Figure(value, unit, "higher", value * 0.998, value * 1.002, time.n) for name, (value, unit) in rates.items()}
    bound = "compute" if intensity > PEAK["compute"] / PEAK["bandwidth"] else "memory"
    facts = {"bound": bound, "roof_source": "datasheet"}
    return replace(record, metrics={**record.metrics, **found}, effective={**record.effective, **facts})


def _pairs(records: list[Record]) -> list[Pair]:
    """What `--vs eager` adds: compiled against eager, weighed together."""
    eager = {_point(record): record for record in records if (record.case["backend"], record.case["variant"]) == STACKS[0]}
    found = []
    for record in records:
        base = eager[_point(record)]
        if record.status == "ok" and record.case["variant"] == "compile":
            ratio = record.metrics["time"].value / base.metrics["time"].value
            centres = list(np.log(ratio) + np.random.default_rng(len(found)).normal(0, 0.004, 8))
            ends = (ratio * 0.995, ratio * 1.005)
            found.append(Pair(Arm(base.id), Arm(record.id), ratio, *ends, 0.99, 8, 64, 1, (16, 16), centres=centres, p=1e-6))
    return found


def _point(record: Record) -> tuple[str, str]:
    return record.case["workload"], record.case["mode"]


def sweep(store: Store, id: str = "sweep") -> Run:
    """One operator over five sizes on two stacks."""
    draw, entries = np.random.default_rng(5), list[Entry]()
    for size in (256, 512, 1024, 2048, 4096):
        for variant in ("eager", "compile"):
            case = Case("op/softmax", (("dtype", "bf16"), ("m", 4096), ("n", size)), "torch", variant, device="cuda")
            record, arrays = measured(case, (4e-6 + 7e-9 * size) / (1.0 if variant == "eager" else 1.0 + size / 9000), 120, draw)
            entries.append((_roofed(record, draw), arrays))
    at = FIRST + timedelta(hours=6)
    return write_run(store, header(id, at, [record.id for record, _ in entries], commit=commit(0), experiment="sizes"), entries)


def broken(store: Store) -> Run:
    """The same operator where nothing gave a time."""
    cases = [Case("op/softmax", (("n", size),), "torch", variant) for size in (256, 512) for variant in ("eager", "compile")]
    entries: list[Entry] = [(Record(case.id, case.plain(), "failed", "out of luck"), {}) for case in cases]
    return write_run(store, header("broken", FIRST, [case.id for case in cases]), entries)


def hostile(store: Store, night: int = 0, id: str = "evil") -> Run:
    """A file from elsewhere whose every free text is an attack: names, reasons, versions, flags, the machine and the command."""
    draw, entries = np.random.default_rng(night), list[Entry]()
    for number, status in enumerate(("ok", "wrong", "failed", "ok")):
        plain = Case("op/a", (("n", 64 * (1 + number)),), "torch", "eager" if number % 2 else "compile", device="cuda")
        record, arrays = measured(plain, 1e-3 * (1 + number), 60, draw)
        record, arrays = _watched(_roofed(record, draw), arrays, throttled=False)
        name = f"{EVIL}/{number // 2}"
        case = {**record.case, "workload": name, "params": {"n": 64 * (1 + number), EVIL: EVIL}, "flags": {EVIL: EVIL}, "backend": EVIL}
        changed = replace(
            record, id=f"{name}[n={number}]@torch/eager:eval", case={**case, "variant": f"{EVIL}{number % 2}", "mode": EVIL},
            status=status, reason=EVIL, metrics={**record.metrics, EVIL: Figure(1.0, EVIL, "lower", 0.9, 1.1, 9)},
            effective={**record.effective, EVIL: EVIL, "noise": EVIL, "bound": EVIL, "roof_source": EVIL},
            verification=Verification("failed" if status == "wrong" else "passed", EVIL, EVIL, 1.0, 1.0, 1e-3, 1e-3),
            environment={EVIL: f"{EVIL}{night}"}, source={"workload": EVIL},
            attachments=[Attachment(EVIL, f"javascript:window.pwned=1//{EVIL}", EVIL)],
        )  # fmt: skip
        entries.append((changed, arrays))  # type: ignore[arg-type]
    machine = {
        **MACHINE,
        "cpu": {"model": EVIL, "arch": EVIL},
        "gpus": [{"name": EVIL, "driver": EVIL}],
        "git": {"commit": EVIL, "dirty": True},
    }
    at = FIRST + timedelta(days=night)
    head = header(id, at, [record.id for record, _ in entries] + [EVIL], experiment=EVIL, machine=machine, machine_key=EVIL)
    first, second = (Arm(entries[place][0].id, EVIL, EVIL) for place in (0, 3))
    pairs = [Pair(first, second, 1.5, 1.4, 1.6, 0.99, 8, 64, 1, (16, 16), notes=[EVIL], stopped_by=EVIL, clock=EVIL)]
    return write_run(store, replace(head, command=["steelyard", "run", EVIL]), entries, pairs)


def without_sidecar(store: Store) -> Run:
    """The figures came, the raw samples were left behind."""
    run = grid(store, id="nosamples")
    (run.path / "samples.bin").unlink()
    return run


def truncated(store: Store) -> Run:
    """A run whose machine went away in the middle of a line."""
    run = grid(store, id="cutrun")
    file = run.path / "run.jsonl"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return read_run(run.path)


def from_the_future(store: Store) -> Run:
    """A run that a newer version went on with: half of its lines cannot be read."""
    run = grid(store, id="newer")
    file = run.path / "run.jsonl"
    lines = file.read_text().splitlines()
    changed = [line.replace('"schema":1}', '"schema":99}') if number % 2 else line for number, line in enumerate(lines)]
    file.write_text("\n".join([*changed, ""]))
    return read_run(run.path)


def elsewhere(store: Store) -> Run:
    """The same cases on another machine."""
    draw, seed = np.random.default_rng(3), grid(Store(Path(store.root) / "seed"), id="seed")
    entries = [measured(Case.from_plain(record.case), 4e-3, 60, draw) for record in seed.records]
    machine = {**MACHINE, "gpus": [{"name": "NVIDIA L4", "driver": "550.54"}]}
    head = header("other", FIRST + timedelta(days=1), [record.id for record, _ in entries], machine=machine, machine_key="0123456789ab")
    return write_run(store, head, entries)


def recipes(store: Store) -> Run:
    """What weighing number formats gives: the cases of the chart's own test."""
    records, pairs = weighed_recipes(("a", "b"))
    with store.create(Header(created="2026-01-02T03:00:00Z", machine_key="m" * 12)) as writer:
        for record in records:
            writer.append(record)
        for pair in pairs:
            writer.append_pair(pair)
        writer.seal()
    return read_run(writer.path)
