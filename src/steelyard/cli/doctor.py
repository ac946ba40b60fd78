"""`steelyard doctor`: is this machine fit to measure, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.cli.output import console, emit_json, json_option, store_option, width

if TYPE_CHECKING:
    from steelyard.machine.doctor import Finding

GLYPHS = {"ok": "✓", "note": "·", "warn": "!", "bad": "✗"}
COLOURS = {"ok": "green", "note": "dim", "warn": "yellow", "bad": "red"}
WORDS = {"ok": "fit", "note": "to know", "warn": "to change", "bad": "unfit"}


@click.command("doctor")
@click.option("--strict", is_flag=True, help="Exit with 3 when a finding says the machine is unfit to measure (✗).")
@store_option
@json_option
def command(strict: bool, store: Path | None, as_json: bool) -> None:
    """Say whether this machine is fit to measure, and what to change.

    Each finding says what was seen, how much it matters to a timing (≈), and the exact command that changes it (→).
    """
    from steelyard.errors import FAILED
    from steelyard.machine import doctor, facts

    machine = facts.collect()
    key, findings = facts.key(machine), doctor.examine(machine, store=store)
    if as_json:
        emit_json({"machine": machine, "key": key, "findings": findings})
    else:
        _draw(f"{facts.summary(machine)} · key {key}", findings)
    if strict and any(finding.status == "bad" for finding in findings):
        raise click.exceptions.Exit(FAILED)


def _draw(title: str, findings: list[Finding]) -> None:
    """Words wrap at the reader's width; a command never does, because half a command must not be pasted."""
    from rich.text import Text

    out, columns = console(), width()
    longest = max(len(finding.name) for finding in findings)
    margin = longest + 4
    out.print(Text(title, "bold"))
    for finding in findings:
        head = Text(f"{GLYPHS[finding.status]} ", COLOURS[finding.status]).append(f"{finding.name:<{longest}}  ", "none")
        for row, words in enumerate(_wrapped(finding.saw, columns - margin)):
            out.print((head if row == 0 else Text(" " * margin)) + Text(words))
        if finding.status == "ok":
            continue
        for row, words in enumerate(_wrapped(finding.matters, columns - margin - 2)):
            out.print(Text(" " * margin + ("≈ " if row == 0 else "  ") + words, "dim"))
        if finding.do:
            indent = " " * (margin if margin + 2 + len(finding.do) <= columns else 4)
            out.print(Text(f"{indent}→ ").append(finding.do, "bold"), soft_wrap=True)
    counts = {status: sum(finding.status == status for finding in findings) for status in GLYPHS}
    out.print(" · ".join(f"{count} {WORDS[status]}" for status, count in counts.items() if count))


def _wrapped(text: str, columns: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(columns, 20), break_on_hyphens=False)
