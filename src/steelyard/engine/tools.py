"""Runs tools such as profilers in their own process group, with a time limit, and reads their output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from steelyard.engine.process import die_with_parent, end_tree
from steelyard.errors import SteelyardError
from steelyard.model.units import plain as quantity


def run_tool(argv: Sequence[str], environment: Mapping[str, str], output: Path, timeout: float, name: str = "") -> tuple[str, int]:
    """Run a command and return all its output and its exit code; it is ended after its time, or with this process."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environment), start_new_session=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            code = process.wait(timeout)
        except BaseException as error:
            end_tree(process.pid, itself=True)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise SteelyardError(f"{name} did not end within {quantity(timeout, 's')}".strip(), do="use a longer --timeout") from None
            raise
    return output.read_text(encoding="utf-8", errors="replace"), code
