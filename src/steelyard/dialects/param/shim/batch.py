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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.dialects.param import native
from steelyard.dialects.param.batch import FILTER, mark
from steelyard.dialects.param.expand import Config
from steelyard.dialects.param.flags import BATCH_COMMAND, Options, settle
from steelyard.engine import weigh
from steelyard.engine.bench import open_backend
from steelyard.engine.messages import Sources
from steelyard.engine.worker import load
from steelyard.errors import FAILED, PASS, SteelyardError, UsageError
from steelyard.measuring.calm import calm
from steelyard.measuring.fixed import Labels, Range, Sampled, Stopwatch, take
from steelyard.model.protocol import Fixed
from steelyard.model.task import Task


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
class Given:
    """A batch as it is run."""

    options: Options
    configs: tuple[Config, ...]
    sources: Sources


def read(file: Path) -> Given:
    """A batch file; whoever wrote one by hand learns what is missing."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return _given(data)
    except KeyError as error:
        raise UsageError(
            f"the batch has no {error}", do="it needs op_name, config_build_id, op_info and run_options", where=str(file)
        ) from None
    except (OSError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise UsageError("cannot read the batch", why=f"{type(error).__name__}: {error}", where=str(file)) from None


def _given(data: Mapping[str, Any]) -> Given:
    info, asked, ours = data["op_info"], data["run_options"], data.get("steelyard", {})
    entry = info["config"][0]
    options = Options(
        device=asked["device"], backward=asked.get("pass_type") == "backward", warmup=asked["warmup"], iteration=asked["iteration"],
        cuda_l2_cache="on" if asked.get("cuda_l2_cache", True) else "off", pt2_model=bool(asked.get("pt2_model")),
        cuda_graph=bool(asked.get("cuda_graph")), seed=ours.get("seed", 0), threads=ours.get("threads", 1),
    )  # fmt: skip
    generators = (info.get("build_data_generator") or "", info.get("input_data_generator") or "")
    configs = tuple(
        Config(
            data["op_name"], f"{data['config_build_id']}|{spec.get('id', position)}", entry.get("build"),
            {key: value for key, value in spec.items() if key != "id"}, "", generators,
        )
        for position, spec in enumerate(entry["input"])
    )  # fmt: skip
    sources = Sources(tuple(ours.get("files", ())), tuple((kind, name) for kind, name in ours.get("entries", ())))
    return Given(settle(options)[0], configs, sources)


def run(given: Given, verbose: bool = False) -> dict[str, str]:
    """Call every input, and answer why those that failed did, by full id."""
    loaded, options, failed = load(given.sources, {}), given.options, dict[str, str]()
    settings = native.settings(options)
    be = open_backend("torch")(options.device.partition(":")[0], threads=options.threads)
    with calm(), be.labels().range(f"[param|{options.device}]"):
        for position, config in enumerate(given.configs):
            if verbose:
                print(config.full_id, file=sys.stderr, flush=True)
            case, taker = native.case_of(config, options), functools.partial(take_marked, position)
            with be.as_it_was():
                record, _ = weigh.weigh_case(case, loaded, settings, _untold, label=config.full_id, taker=taker)
            if record.status not in ("ok", "not_applicable"):
                failed[config.full_id] = " ".join((record.reason or record.status).split())
                if not be.recovers(record.reason):
                    break
    return failed


def _untold(phase: str, fraction: float | None) -> None:
    """The tool around us tells how far it is."""


def take_marked(position: int, task: Task, fixed: Fixed, watch: Stopwatch, labels: Labels, name: str) -> Sampled:
    """The usual warm-up and calls, with marks around the measured ones."""
    return take(task, fixed, watch, Marked(labels, position), name)


@dataclass(frozen=True)
class Marked:
    """Labels whose measured calls carry two more ranges: the one that ncu filters by, and the input's own."""

    labels: Labels
    position: int = 0

    def range(self, label: str) -> Range:
        """A range of this name, within ours where it is around one measured pass."""
        usual = self.labels.range(label)
        part = next((part for part in ("forward", "backward") if label.endswith(f"|measure|{part}]")), None)
        if part is None:
            return usual
        return Nested(self.labels.tool_range(FILTER), self.labels.tool_range(mark(self.position, part)), usual)

    def profiler_range(self, label: str) -> Range:
        """One that only traces show."""
        return self.labels.profiler_range(label)

    def tool_range(self, label: str) -> Range:
        """One that only tools from outside see."""
        return self.labels.tool_range(label)


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
