"""One arm as pyperf measures it: a program of its own, because pyperf re-executes the program it is in."""

from __future__ import annotations

import argparse
import random

import pyperf  # type: ignore[import-untyped]
from benchmarks.powercurve import ops


def hand_down(command: list[str], chosen: argparse.Namespace) -> None:
    """pyperf's workers must build the same arm."""
    command += ["--op", chosen.op, "--extra", str(chosen.extra)]


if __name__ == "__main__":
    runner = pyperf.Runner(add_cmdline_args=hand_down)
    runner.argparser.add_argument("--op", required=True)
    runner.argparser.add_argument("--extra", type=int, required=True)
    asked = runner.parse_args()
    ops.settle()
    runner.bench_func("arm", ops.arm_with(asked.op, asked.extra, random.Random())().fn)
