"""Results whose every word tries to be something else: markup, a formula, a mention, a control character."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.model.case import Case
from steelyard.model.record import Figure, Record, Verification
from steelyard.store.runs import Header, Run, Store

WORDS = (
    "</script><script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "@SUM(A1)",
    "-2+3",
    "`code` **bold** | cell",
    "![x](http://evil.example/x.png) <img src=x onerror=alert(1)>",
    "@torch #12 www.evil.example https://evil.example/a",
    "a\tb\rc\nd\x1b[31m\x00\x7f\u2028\u2029",
    "<!--DATA--> <!--SCRIPTS--> {{data}} -->",
    "ends with a backslash \\",
)


def record(name: str, number: int) -> Record:
    """A case of another tool, whose name may be anything."""
    figures = {"time": Figure(1e-3 * number, "s", "lower", 0.9e-3 * number, 1.1e-3 * number, 9), name: Figure(1.0, name, "none")}
    return Record(
        name,
        {"workload": name, "params": {"text": name, "n": number}, "backend": name, "variant": name, "flags": {"F": name}},
        "ok" if number % 2 else "failed",
        name,
        figures,
        environment={"torch": name},
        verification=Verification("failed", name, name),
        effective={"tool": name},
    )


def run(created: str = "2026-01-02T03:00:00Z", words: Sequence[str] = WORDS, **header: Any) -> Run:
    """One run of such cases."""
    head = Header(id="evil", created=created, experiment=words[0], command=["steelyard", *words], machine={"os": {"system": words[0]}})
    return Run(Path("evil"), replace(head, **header), tuple(record(name, number) for number, name in enumerate(words, 1)))


def saved(store: Store, hour: int = 3, seconds: float = 1e-3, **header: Any) -> Run:
    """A run in a store, of a case with an ordinary name beside those; its attachments are a trace and a page that runs a script."""
    created = header.pop("created", f"2026-01-02T{hour:02d}:00:00Z")
    with store.create(Header(created=created, **{"machine_key": "m" * 12, "experiment": "nightly", **header})) as writer:
        for number in (1, 2):
            case = Case("op/a", (("n", number),), "numpy")
            time = Figure(seconds * number, "s", "lower", seconds * number * 0.999, seconds * number * 1.001, 40)
            kept = [writer.attach("trace", f"trace {number}.json", b"{}"), writer.attach("page", "page.html", b"<script>alert(1)</script>")]
            writer.append(Record(case.id, case.plain(), "ok", metrics={"time": time}, attachments=kept))
        writer.append(record(WORDS[0], 2))
        writer.seal()
    return store.open(writer.path)
