"""The program that ncu and nsys start: calls the inputs of one operator, between NVTX ranges that the tools can find.

`python -m steelyard.dialects.param.shim.batch -f FILE` writes no results; the tool around it does. FILE is the original's
run_batch file, with our own settings under the key `steelyard`, which may be absent.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.dialects.param import native
from steelyard.dialects.param.expand import Config
from steelyard.dialects.param.flags import BATCH_COMMAND, Options, settle
from steelyard.engine.fixed import measure_all
from steelyard.engine.messages import Answer, Measure, RecordAnswer, Sources, Started
from steelyard.engine.worker import load
from steelyard.errors import FAILED, PASS, SteelyardError, UsageError
from steelyard.measuring.fixed import take


def main(argv: Sequence[str] | None = None) -> int:
    """Run a batch; an input that fails is reported by its id, does not affect others, and changes the exit code."""
    parser = argparse.ArgumentParser(prog=BATCH_COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-f", "--file", required=True, help="the batch, as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what runs")
    asked = parser.parse_args(argv)
    try:
        failed = run(read(Path(asked.file)), asked.verbose)
    except SteelyardError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for full_id, reason in failed.items():
        print(f"error: {full_id}: {reason}", file=sys.stderr)
    return FAILED if failed else PASS


def read(file: Path) -> Measure:
    """Read a batch file; the error for a handwritten one names what is missing."""
    try:
        return _job(json.loads(file.read_text(encoding="utf-8")))
    except KeyError as error:
        raise UsageError(
            f"the batch has no {error}", do="it needs op_name, config_build_id, op_info and run_options", where=str(file)
        ) from None
    except (OSError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise UsageError("cannot read the batch", why=f"{type(error).__name__}: {error}", where=str(file)) from None


def _job(data: Mapping[str, Any]) -> Measure:
    info, asked, ours = data["op_info"], data["run_options"], data.get("steelyard", {})
    entry = info["config"][0]
    asked_for = Options(
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
    options = settle(asked_for)[0]
    cases = tuple(native.case_of(config, options) for config in configs)
    return Measure(sources, native.settings(options), cases, tuple(config.full_id for config in configs))


def run(job: Measure, verbose: bool = False) -> dict[str, str]:
    """Call every input between its marks, and return the errors of failed ones by full id."""
    failed, begun = dict[str, str](), list[str]()

    def heard(answer: Answer) -> None:
        if isinstance(answer, Started):
            begun.append(job.labels[len(begun)])
            if verbose:
                print(begun[-1], file=sys.stderr, flush=True)
        elif isinstance(answer, RecordAnswer) and answer.record.status not in ("ok", "not_applicable"):
            failed[begun[-1]] = " ".join((answer.record.reason or answer.record.status).split())

    measure_all(job, load(job.sources, {}), heard, lambda: None, lambda position: functools.partial(take, position=position))
    return failed


if __name__ == "__main__":
    sys.exit(main())
