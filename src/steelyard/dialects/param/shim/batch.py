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
from steelyard.dialects.param.expand import Config
from steelyard.dialects.param.flags import BATCH_COMMAND, Options, settle
from steelyard.engine.fixed import measure_all
from steelyard.engine.messages import Answer, Measure, RecordAnswer, Sources, Started
from steelyard.engine.worker import load
from steelyard.errors import FAILED, PASS, SteelyardError, UsageError
from steelyard.measuring.marks import take_marked


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
    """Call every input between its marks, and answer why those that failed did, by full id."""
    failed, ids, begun = dict[str, str](), [config.full_id for config in given.configs], list[str]()

    def heard(answer: Answer) -> None:
        if isinstance(answer, Started):
            begun.append(ids[len(begun)])
            if verbose:
                print(begun[-1], file=sys.stderr, flush=True)
        elif isinstance(answer, RecordAnswer) and answer.record.status not in ("ok", "not_applicable"):
            failed[begun[-1]] = " ".join((answer.record.reason or answer.record.status).split())

    cases = tuple(native.case_of(config, given.options) for config in given.configs)
    job = Measure(given.sources, native.settings(given.options), cases, tuple(ids))
    measure_all(job, load(given.sources, {}), heard, lambda: None, lambda position: functools.partial(take_marked, position))
    return failed


if __name__ == "__main__":
    sys.exit(main())
