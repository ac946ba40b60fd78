"""`python -m tests.fuzz`: every parser against many inputs; exit code 1 where one of them ends in a bug of ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.drive import HEAD, content, fuzz
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Read the flags, fuzz, print a row per parser and what broke."""
    known = {target.name: target for target in TARGETS}
    flags = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    flags.add_argument("--inputs", type=int, default=2000, help="inputs in all, shared among the parsers")
    flags.add_argument("--seed", type=int, default=1, help="the same seed gives the same inputs")
    flags.add_argument("--parser", choices=known, action="append", help="only this one; may be repeated")
    flags.add_argument("--save", type=Path, default=Path("fuzz-failures"), help="folder for inputs that broke something")
    flags.add_argument("--print", type=int, metavar="NUMBER", help="write this input of --parser to stdout and stop")
    asked = flags.parse_args()
    chosen = [known[name] for name in asked.parser or known]
    if asked.print is not None:
        sys.stdout.buffer.write(content(chosen[0], asked.seed, asked.print))
        return 0
    print(HEAD, flush=True)
    tallies = []
    for target in chosen:
        tallies.append(fuzz(target, max(1, asked.inputs // len(chosen)), asked.seed, asked.save))
        print(tallies[-1].row(), flush=True)
    broken = [(tally, number, why) for tally in tallies for number, why in tally.broken.items()]
    told: set[str] = set()
    for tally, number, why in broken:
        last = why.strip().rpartition("\n")[2]
        if (tally.name + last[:60]) not in told:
            told.add(tally.name + last[:60])
            print(f"\n{tally.name} #{number}\n{why.rstrip()}")
    total = sum(tally.inputs for tally in tallies)
    print(f"\n{total} inputs, {len(broken)} broken" + (f"; saved in {asked.save}" if broken else ""))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
