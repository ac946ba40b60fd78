"""The real command line in a real process, for tests of what happens between processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "steelyard"]


def steelyard(
    *words: str, cwd: Path, check: int | None = 0, env: dict[str, str] | None = None, within: float = 120.0
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run to the end, within so many seconds, and insist on the exit code."""
    done = subprocess.run([*PROGRAM, *words], cwd=cwd, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=within)
    assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run_json(*words: str, cwd: Path, check: int | None = 0, within: float = 120.0) -> dict[str, Any]:
    """`steelyard run … --json`, parsed."""
    found: dict[str, Any] = json.loads(steelyard("run", "--json", *words, cwd=cwd, check=check, within=within).stdout)
    return found


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Start and leave running; its lines can be read from stderr."""
    return subprocess.Popen([*PROGRAM, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def processes_below(folder: Path) -> list[int]:
    """Processes whose working folder is this one: what a run left behind."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (entry / "cwd").resolve() == folder.resolve() and (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def arm_figures(calls: tuple[int, int] = (1, 1), quads: int = 1) -> dict[str, Any]:
    """What an arm of a comparison in two processes says of itself, as it comes through the pipe."""
    told = {"quads": quads, "rebuilds": 1, "renewal": None, "quad": 1e-3, "overhead": 0.0, "doubt": 0.0, "source": "a", "single": False}
    return {"calls": list(calls), **told}
