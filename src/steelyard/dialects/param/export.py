"""Write a saved run as PARAM's output file, for tools that read such files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from steelyard.dialects.param import lines, native
from steelyard.dialects.param.expand import Config
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.lines import Line
from steelyard.dialects.param.sink import line_of
from steelyard.errors import UsageError
from steelyard.model.protocol import Fixed
from steelyard.model.record import Arrays, Record
from steelyard.store.runs import Run
from steelyard.version import __version__


def text(run: Run) -> str:
    """Return the text of the file, which can contain only records of PARAM's calls."""
    calls = [record for record in run.records if record.case["workload"] == native.WORKLOAD]
    if not calls:
        raise UsageError(f"run {run.id} has no call of an operator", why=f"the file can contain only records of {native.WORKLOAD}")
    options = _options(run, calls[0])
    made = [lines.header(options, _system(run), _moment(run.header.created))]
    for number, record in enumerate(calls):
        arrays = _arrays(run, record)
        made += [line_of(config, options, record, arrays) for config in _configs(record, number)]
    if run.seal:
        made.append(lines.finish(_moment(run.seal.time)))
    return "".join(json.dumps(line) + "\n" for line in made)


def _options(run: Run, record: Record) -> Options:
    """The equivalent command line options; without a fixed protocol there are no calls to count."""
    given, case = run.header.settings.get("fixed"), record.case
    fixed = Fixed(**given) if isinstance(given, dict) else Fixed(repeats=0)
    modes = {clock: mode for mode, clock in native.CLOCKS.items()}
    return Options(
        config=run.header.experiment, warmup=fixed.warmup, iteration=fixed.repeats, backward=fixed.backward, device=case["device"],
        cuda_l2_cache="off" if fixed.flush else "on", exec_mode=modes[fixed.clock], pt2_model="compile" in case["variant"],
        cuda_graph="cuda_graph" in case["variant"], seed=case["params"].get("seed") or 0, threads=case["threads"],
    )  # fmt: skip


def _system(run: Run) -> Line:
    """Return the facts about the system that the run recorded."""
    versions, unknown = run.header.machine.get("packages", {}), dict.fromkeys(("hostname", "pid", "cwd", "cuda_available"))
    python = run.header.machine.get("python", {}).get("version")
    return {
        **unknown, "python_version": python, "param_train_compute_version": f"steelyard {run.header.version or __version__}",
        "pytorch_version": versions.get("torch"), "pytorch_debug_build": None, "pytorch_build_config": None,
    }  # fmt: skip


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone().replace(tzinfo=None)


def _configs(record: Record, number: int) -> Iterator[Config]:
    """Yield a config for every id that its file had for the case; a case from elsewhere gets a number."""
    params: Mapping[str, Any] = record.case["params"]
    build, input = (_without_generator(params.get(name)) for name in ("build", "input"))
    for label in str(record.effective.get("label", "")).split() or [f"{params['op']}|{number}|0|0"]:
        yield Config(params["op"], label.partition("|")[2], build, input, "", ("", ""), params.get("seed"))


def _without_generator(spec: Any) -> Any:
    return {key: value for key, value in spec.items() if key != "generator"} if isinstance(spec, dict) else spec


def _arrays(run: Run, record: Record) -> Arrays:
    return {series.name: (series.unit, series.dtype, run.array(series).tobytes()) for series in record.samples}
