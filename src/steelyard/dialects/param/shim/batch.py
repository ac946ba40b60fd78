"""What ncu and nsys start: the inputs of one operator, called between NVTX ranges that the tools can look for.

`python -m steelyard.dialects.param.shim.batch -f FILE` writes no results; the tool around it does. FILE is the original's
run_batch file, with what only we know under the key `steelyard`, which may be absent.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steelyard.dialects.param import lines
from steelyard.dialects.param.batch import FILTER, mark
from steelyard.dialects.param.flags import BATCH_COMMAND, Options, settle
from steelyard.dialects.param.shim.execute import Ranges, Seat, execute
from steelyard.dialects.param.shim.marks import Phase, Range, run_label
from steelyard.dialects.param.shim.perform import Study, definitions
from steelyard.errors import FAILED, PASS, SteelyardError, UsageError
from steelyard.measuring.calm import calm


def main(argv: Sequence[str] | None = None) -> int:
    """Run a batch; an input that fails is told by its id, costs no other, and shows in the exit code."""
    parser = argparse.ArgumentParser(prog=BATCH_COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-f", "--file", required=True, help="the batch, as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what runs")
    asked = parser.parse_args(argv)
    try:
        failed = run(read(Path(asked.file)), asked.verbose)
    except SteelyardError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for full_id, reason in failed.items():
        print(f"error: {full_id}: {reason}", file=sys.stderr)
    return FAILED if failed else PASS


@dataclass(frozen=True)
class Job:
    """A batch as it is run."""

    options: Options
    configs: tuple[Mapping[str, Any], ...]
    loading: Mapping[str, Any]


def read(file: Path) -> Job:
    """A batch file; whoever wrote one by hand learns what is missing."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return _job(data)
    except KeyError as error:
        raise UsageError(
            f"the batch has no {error}", do="it needs op_name, config_build_id, op_info and run_options", where=str(file)
        ) from None
    except (OSError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise UsageError("cannot read the batch", why=f"{type(error).__name__}: {error}", where=str(file)) from None


def _job(data: Mapping[str, Any]) -> Job:
    info, asked, ours = data["op_info"], data["run_options"], data.get("steelyard", {})
    entry = info["config"][0]
    options = Options(
        device=asked["device"], backward=asked.get("pass_type") == "backward", warmup=asked["warmup"], iteration=asked["iteration"],
        cuda_l2_cache="on" if asked.get("cuda_l2_cache", True) else "off", pt2_model=bool(asked.get("pt2_model")),
        cuda_graph=bool(asked.get("cuda_graph")), seed=ours.get("seed", 0), threads=ours.get("threads", 1),
    )  # fmt: skip
    generators = (info.get("build_data_generator") or "", info.get("input_data_generator") or "")
    configs = tuple(
        {
            "op": data["op_name"], "id": f"{data['config_build_id']}|{spec.get('id', position)}", "build": entry.get("build"),
            "input": {key: value for key, value in spec.items() if key != "id"}, "path": "", "generators": generators, "seed": None,
        }
        for position, spec in enumerate(entry["input"])
    )  # fmt: skip
    return Job(settle(options)[0], configs, ours)


def run(job: Job, verbose: bool = False) -> dict[str, str]:
    """Call every input, and answer why those that failed did, by full id."""
    loaded = definitions(job.loading.get("files", ()), job.loading.get("entries", ()))
    study, failed = Study.open(job.options, loaded), {}
    with calm(), study.marks.range(run_label(job.options.device)):
        for position, config in enumerate(job.configs):
            if verbose:
                print(f"{config['op']}|{config['id']}", file=sys.stderr, flush=True)
            study.executor = functools.partial(execute_profiled, position)
            line = study.measure(config)
            if lines.status(line) not in ("ok", "not_applicable"):
                failed[lines.full_id(line)] = str(line["steelyard"].get("error", lines.status(line)))
                if not study.recovers():
                    break
    return failed


def execute_profiled(position: int, call: Any, seat: Seat) -> Mapping[str, Any]:
    """The usual warm-up and calls, with marks around the measured ones."""
    return execute(call, Profiled(seat.op, seat.id, seat.options, seat.station, seat.marks, position))


@dataclass(frozen=True)
class Profiled(Seat):
    """A seat whose measured calls carry two more ranges: the one that ncu filters by, and the input's own."""

    position: int = 0

    def ranges(self, phase: Phase) -> Ranges:
        """The labels of a phase, within ours where it is measured."""
        usual = super().ranges(phase)
        if phase != "measure":
            return usual
        return replace(usual, forward=self._marked("forward", usual.forward), backward=self._marked("backward", usual.backward))

    def _marked(self, part: str, label: Range) -> Range:
        return Nested(self.marks.tool_range(FILTER), self.marks.tool_range(mark(self.position, part)), label)


class Nested:
    """Several ranges as one, outermost first; it can be entered again and again."""

    def __init__(self, *ranges: Range) -> None:
        self.parts = ranges

    def __enter__(self) -> None:
        for part in self.parts:
            part.__enter__()

    def __exit__(self, *error: Any) -> None:
        for part in reversed(self.parts):
            part.__exit__(*error)


if __name__ == "__main__":
    sys.exit(main())
