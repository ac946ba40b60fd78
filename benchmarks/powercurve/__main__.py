"""The power curve's commands: `collect`, `gpu`, `inputs`, `score`, `plot`. Run as `python -m benchmarks.powercurve` from the repository."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The folder itself can be run too, from anywhere.
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.powercurve import cells, results  # noqa: E402


def main() -> None:
    """Do what was asked."""
    chosen = _parser().parse_args()
    chosen.do(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.powercurve", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: object, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(do=do)
        made.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR", help="where the lines are kept")
        return made

    collecting = command("collect", _collect, "compare for a stated time, those cells first that lack data")
    collecting.add_argument("--env", choices=(cells.QUIET, cells.HOGS), default=cells.QUIET)
    collecting.add_argument("--only", type=_words, default=[], metavar="KIND,…", help=f"of {', '.join(_kinds())}")
    collecting.add_argument("--op", type=_words, default=[], metavar="OP,…", help=f"of {', '.join(_ops())}")
    collecting.add_argument("--budget", type=_numbers, default=[], metavar="SECONDS,…", help="those budgets alone")
    collecting.add_argument("--no-rules", action="store_true", help="without others' rules on our blocks, which take as long as measuring")
    collecting.add_argument("--at-once", type=int, default=1, metavar="N", help="so many programs side by side, each on a core of its own")
    collecting.add_argument("--core", type=int, metavar="K", help="run on this core alone")
    device = command("gpu", _gpu, "the same for the device's rows")
    device.add_argument("--only", type=_words, default=[], metavar="KIND,…", help=f"of {', '.join(_device_kinds())}")
    device.add_argument("--op", type=_words, default=[], metavar="OP,…", help=f"of {', '.join(cells.DEVICE)}")
    for made in (collecting, device):
        made.add_argument("--minutes", type=float, required=True)
        made.add_argument("--seed", type=int, help="of what is drawn (default: new every time)")
    held = commands.add_parser("inputs", help="equal code over lists, dicts, strings, objects and modules, as users compare it")
    held.set_defaults(do=_inputs)
    held.add_argument("--comparisons", type=int, default=400, help="of equal code; those of slowed code come on top (default 400)")
    held.add_argument("--budget", type=float, default=1.0, help="seconds for each (default 1)")
    held.add_argument("--door", type=_words, default=[], metavar="DOOR,…", help="of vs, compare, path (default all)")
    held.add_argument("--seed", type=int, help="of what is drawn (default: new every time)")
    held.add_argument("--keep", type=Path, metavar="FILE", help="append a line of JSON for each")
    scoring = command("score", _score, "print the tables and the goals")
    scoring.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    plotting = command("plot", _plot, "draw the curve")
    plotting.add_argument("file", type=Path, metavar="FILE.svg")
    for made in (scoring, plotting):
        made.add_argument("--versions", type=_versions, default=[], metavar="ID,…", help="earlier versions of the code, pooled")
        made.add_argument("--machine", type=_machine, metavar="KEY", help="results of one machine alone")
    command("serve", _serve, "used by collect: compare what is asked on standard input")
    return parser


def _ops() -> list[str]:
    return [*cells.SHORT, *cells.LONG, *cells.OPERATORS]


def _numbers(text: str) -> list[float]:
    return [float(word) for word in _words(text)]


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _versions(text: str) -> list[str]:
    if not all(re.fullmatch(r"[0-9a-f]{10}", word) for word in _words(text)):
        raise argparse.ArgumentTypeError("versions are folder names of the results, ten hexadecimal digits each")
    return _words(text)


def _machine(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{12}", text):
        raise argparse.ArgumentTypeError("machines are file names of the results, twelve hexadecimal digits each")
    return text


def _kinds() -> list[str]:
    return [kind for kinds in cells.FAMILIES.values() for kind in kinds]


def _device_kinds() -> list[str]:
    return [cells.GRAPH, cells.DO_BENCH, cells.DO_BENCH_GRAPH]


def _refuse_unknown(name: str, known: list[str], asked: list[str]) -> None:
    if wrong := [word for word in asked if word not in known]:
        raise SystemExit(f"no {name} named {wrong[0]!r}; there are {', '.join(known)}")


def _collect(chosen: argparse.Namespace) -> None:
    from benchmarks.powercurve import collect

    if chosen.at_once > 1:
        collect.side_by_side(chosen.at_once, [*sys.argv[1:], "--at-once", "1"])
        return
    if chosen.core is not None:
        os.sched_setaffinity(0, {chosen.core})
    for name, known, asked in (("kind", _kinds(), chosen.only), ("op", _ops(), chosen.op)):
        _refuse_unknown(name, known, asked)
    wanted = cells.chosen(cells.cpu_plan(chosen.env), chosen.only, chosen.op)
    wanted = {cell: goal for cell, goal in wanted.items() if not chosen.budget or cell.budget in chosen.budget}
    for reason in sorted({cells.missing(cell.kind) for cell in wanted} - {""}):
        print(reason, file=sys.stderr)
    wanted = {cell: goal for cell, goal in wanted.items() if not cells.missing(cell.kind)}
    if not wanted:
        raise SystemExit("nothing of that can be compared here")
    collect.collect(wanted, chosen.env, 60 * chosen.minutes, chosen.results, random.Random(chosen.seed), ruled=not chosen.no_rules)


def _gpu(chosen: argparse.Namespace) -> None:
    from benchmarks.powercurve import gpu

    for name, known, asked in (("kind", _device_kinds(), chosen.only), ("op", list(cells.DEVICE), chosen.op)):
        _refuse_unknown(name, known, asked)
    gpu.collect(cells.chosen(cells.gpu_plan(), chosen.only, chosen.op), 60 * chosen.minutes, chosen.results, random.Random(chosen.seed))
    chosen.versions, chosen.json, chosen.machine = [], None, None
    _score(chosen)


def _inputs(chosen: argparse.Namespace) -> None:
    from benchmarks.powercurve import inputs

    doors = {"vs": inputs.VS, "compare": inputs.COMPARE, "path": inputs.PATH}
    if wrong := [word for word in chosen.door if word not in doors]:
        raise SystemExit(f"no door named {wrong[0]!r}; there are {', '.join(doors)}")
    inputs.run(chosen.comparisons, chosen.budget, tuple(doors[word] for word in chosen.door or doors), chosen.seed, chosen.keep)


def _score(chosen: argparse.Namespace) -> None:
    from benchmarks.powercurve import goals, score

    from steelyard.machine import facts

    shots = list(score.shots(_kept(chosen)))
    listed, promised = score.rows(shots), goals.promises(shots)
    machine = f"machine {chosen.machine}" if chosen.machine else facts.summary(facts.collect())
    print(f"{machine} · {len(shots)} judgements · versions {_current()}")
    for table in (*score.tables(listed), goals.table([one for one in promised if one.found != "-"] or promised)):
        print(f"\n{table}")
    for reason in filter(None, map(cells.missing, (cells.PYPERF, cells.PYTEST, cells.ASV))):
        print(reason)
    if chosen.json:
        figures = {
            "machine": machine,
            "rows": [row.plain() for row in listed],
            "goals": [{**vars(one), "state": one.state} for one in promised],
        }
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")


def _plot(chosen: argparse.Namespace) -> None:
    from benchmarks.powercurve import plot, score

    chosen.file.write_text(plot.draw(list(score.shots(_kept(chosen)))), encoding="utf-8")


def _serve(chosen: argparse.Namespace) -> None:
    from benchmarks.powercurve import collect

    collect.serve(sys.stdin, sys.stdout)


def _kept(chosen: argparse.Namespace) -> list[results.Outcome]:
    kinds = [*_kinds(), *_device_kinds()]
    found = list(results.read(chosen.results, kinds, chosen.versions, chosen.machine or "*"))
    calm = [outcome for outcome in found if outcome.calm]
    if len(calm) < len(found):
        print(
            f"{len(found) - len(calm)} comparisons left out: other work kept more than {results.MOST_OTHERS:g} of a core busy",
            file=sys.stderr,
        )
    return calm


def _current() -> str:
    return ", ".join(f"{kind} {results.version(kind)}" for kind in (cells.ONE, cells.MATCHED, cells.GRAPH, cells.SEQUENTIAL))


if __name__ == "__main__":
    main()
