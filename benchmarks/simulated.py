"""Stores of made-up runs as large as one likes, written in one go, so that reports can be tried on years of results in seconds.

A run that is measured puts each record on the disk before the next; here the whole file is written at once, in the same form.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from steelyard import codec
from steelyard.model.case import Case
from steelyard.model.pair import Pair
from steelyard.model.record import Arrays, Figure, Record, Verification
from steelyard.store import samples
from steelyard.store.runs import Header, Run, Seal, Store, read_run

FIRST = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
MACHINE: dict[str, Any] = {
    "cpu": {"model": "AMD EPYC 9654", "arch": "x86_64", "cores": 96, "cpus": 192},
    "memory": {"total": 774_840_975_360},
    "os": {"system": "Linux", "kernel": "6.8.0", "distro": "Debian GNU/Linux 12 (bookworm)"},
    "python": {"version": "3.12.8"},
    "gpus": [{"name": "NVIDIA H200", "driver": "580.159", "clocks_set": True, "memory": 150_754_820_096}],
}
MACHINE_KEY = "5a11e5c0ffee"
STACKS = (("torch", "eager"), ("torch", "compile"), ("torch_xla", "eager"), ("jax", "eager"))
WORKLOADS = ("op/softmax", "op/layer_norm", "op/gelu", "op/matmul", "op/sum", "op/embedding", "op/conv2d", "op/attention")

Entry = tuple[Record, Arrays]


def write_run(store: Store, header: Header, entries: Sequence[Entry], pairs: Sequence[Pair] = (), *, sealed: bool = True) -> Run:
    """Put a whole run into a store as its writer would have left it."""
    folder = store.folder / f"{datetime.fromisoformat(header.created).strftime('%Y%m%dT%H%M%S')}-{header.id}"
    folder.mkdir(parents=True)
    lines, parts, at, counts = [b'{"header":%s}' % codec.encode(header)], list[bytes](), 0, dict[str, int]()
    for record, arrays in entries:
        series, data = samples.pack(arrays, at)
        parts.append(data)
        at += len(data)
        lines.append(b'{"record":%s}' % codec.encode(replace(record, samples=series, started=record.started or header.created)))
        counts[record.status] = counts.get(record.status, 0) + 1
    lines += [b'{"pair":%s}' % codec.encode(pair) for pair in pairs]
    if sealed:
        lines.append(b'{"seal":%s}' % codec.encode(Seal(header.created, len(entries), counts, len(pairs), "complete")))
    if at:
        (folder / "samples.bin").write_bytes(b"".join(parts))
    (folder / "run.jsonl").write_bytes(b"\n".join([*lines, b""]))
    return read_run(folder)


def header(id: str, at: datetime, cases: Sequence[str], *, commit: str = "", experiment: str = "simulated", **more: Any) -> Header:
    """A header of the one made-up machine."""
    git = {"git": {"commit": commit, "dirty": False}} if commit else {}
    known = {"machine": {**MACHINE, **git}, "machine_key": MACHINE_KEY, "environment": {"torch": "2.13.0"}, **more}
    created = at.isoformat().replace("+00:00", "Z")
    return Header(id, created, "0.1.0", ["steelyard", "run", f"{experiment}.toml"], experiment, cases=list(cases), **known)


def measured(case: Case, seconds: float, blocks: int, draw: np.random.Generator, slowed: float = 1.0) -> Entry:
    """A record whose figures are those of the blocks kept beside it; the second half of them may be slowed down."""
    times = seconds * draw.lognormal(0.0, 0.01, blocks)
    times[blocks // 2 :] *= slowed
    preempted = draw.random(blocks) < 0.02
    kept = times[~preempted] if not preempted.all() else times
    centre, half = float(np.median(kept)), float(1.25 * 1.96 * kept.std() / np.sqrt(len(kept)))
    time = Figure(centre, "s", "lower", centre - half, centre + half, len(kept))
    done = 2.1e9 * draw.uniform(0.5, 2.0)
    rate = Figure(done / centre, "FLOP/s", "higher", done / (centre + half), done / (centre - half), len(kept))
    record = Record(
        case.id, case.plain(), "ok", metrics={"time": time, "compute": rate, "build_time": Figure(seconds * 40, "s", "lower", n=1)},
        effective={"sampling": "blocks", "calls_per_block": 1, "blocks": blocks, "noise": "B", "device": case.device},
        verification=Verification("passed", f"{case.backend} fp64", "", 1e-7, 3e-7, 1e-4, 1e-5),
        environment={case.backend: "2.13.0", "numpy": "2.4.6", "python": "3.12.8"},
        source={"workload": "449130edb938", "variant": "e3b0c442"}, wall_s=1.0,
    )  # fmt: skip
    arrays = {"block_time": ("s", "<f8", times.astype("<f8").tobytes()), "preempted": ("1", "|u1", preempted.astype("u1").tobytes())}
    return record, arrays


def cases(number: int) -> Iterator[Case]:
    """That many different cases: operators by size by stack."""
    for index in range(number):
        backend, variant = STACKS[index % len(STACKS)]
        step = index // len(STACKS)
        size = 64 * (1 + step // len(WORKLOADS))
        yield Case(WORKLOADS[step % len(WORKLOADS)], (("m", 256), ("n", size)), backend, variant, device="cuda")


def many_records(store: Store, number: int = 10_000, blocks: int = 400) -> Run:
    """One run of so many cases that no page may draw them all; one in fifty went wrong in some way."""
    draw, entries = np.random.default_rng(0), list[Entry]()
    for index, case in enumerate(cases(number)):
        record, arrays = measured(case, 1e-5 * (1 + index // 4) ** 0.7, blocks, draw)
        if index % 50 == 7:
            record, arrays = _broken(record, ("wrong", "failed", "oom", "timeout")[index // 50 % 4]), {}
        entries.append((record, arrays))
    return write_run(store, header("many", FIRST, [record.id for record, _ in entries]), entries)


def _broken(record: Record, status: Any) -> Record:
    why = {"wrong": "out differs from the reference", "failed": "ValueError: no such shape", "oom": "out of memory: 143 GiB asked for"}
    return replace(record, status=status, reason=why.get(status, "stopped after 300 s"), metrics={}, samples=[])


def commit(number: int) -> str:
    """The name of a made-up commit."""
    return hashlib.sha1(f"commit {number}".encode()).hexdigest()


def many_runs(store: Store, number: int = 1_000, per_run: int = 8, first: int = 0) -> list[Run]:
    """Night after night of a few cases, each at a commit of its own."""
    found, places = [], list(cases(per_run))
    for night in range(first, first + number):
        draw, at = np.random.default_rng(night), FIRST + timedelta(days=night)
        entries = [measured(case, 1e-3 * (1 + place), 40, draw) for place, case in enumerate(places)]
        ids = [record.id for record, _ in entries]
        found.append(write_run(store, header(_name(night), at, ids, commit=commit(night), experiment="nightly"), entries))
    return found


def _name(night: int) -> str:
    rng, letters = random.Random(night), "abcdefghjkmnpqrstuvwxyz23456789"
    return "".join(rng.choice(letters) for _ in range(6))
