"""The configs to run: the product of the axes without dropped ones, the chosen models, and the key of a config."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from steelyard.dialects.ptxla import rows
from steelyard.dialects.ptxla.flags import ACCELERATORS, DYNAMOS, NULL, TESTS, TORCH_XLA2S, XLAS, RunnerOptions
from steelyard.dialects.ptxla.rows import AXES
from steelyard.errors import UsageError, unknown

RunnerPoint = dict[str, Any]
"""One point of the matrix, keys in the order of `AXES`."""
Model = dict[str, Any]

COMPILERS = ("inductor", "openxla")
MEANING = (
    "repeat", "iterations_per_run", "batch_size", "randomize_input", "collect_full_output", "pure_wall_time", "filter_by_single_graph",
    "verify", "verify_iterations", "disable_tf32", "matmul_precision", "collect_dynamo_counters", "profile_cuda_cpu",
    "profile_cuda_cpu_individual_ops", "size", "threads",
)  # fmt: skip
"""Options that change a row: one made with other values does not count for this config."""
LEAVING = (
    "dump_hlo", "save_ir_format", "save_output", "dump_dynamo_counters", "dump_pytorch_profiles", "dump_pytorch_xla_metrics", "profile_xla",
    "env",
)  # fmt: skip
"""Options that leave files beside the row, or that set where it is made: a row made without them does not count as done."""
UNTOLD = ("training", "sgd")
"""Settings for a model that are not from a policy file."""
LONGEST_PART, LONGEST_FOLDER = 32, 80


@dataclass(frozen=True)
class Facts:
    """Facts for rules besides the experiment; `head` is for the last version of the original, which has no XLA on CUDA."""

    has_device: Callable[[str, str], bool] = lambda accelerator, xla: True
    head: bool = False


@dataclass(frozen=True)
class MatrixRule:
    """One reason to leave a combination out."""

    number: int
    why: str
    drops: Callable[[RunnerPoint, Facts], bool]


RULES = (
    MatrixRule(1, "torch has no such compiler", lambda e, f: e["dynamo"] is not None and e["dynamo"] not in COMPILERS),
    MatrixRule(2, "torch_xla2 and dynamo exclude each other", lambda e, f: e["torch_xla2"] is not None and e["dynamo"] is not None),
    MatrixRule(3, "inductor works neither on a TPU nor with XLA",
         lambda e, f: e["dynamo"] == "inductor" and (e["accelerator"] == "tpu" or e["xla"] is not None)),
    MatrixRule(4, "openxla needs XLA", lambda e, f: e["dynamo"] == "openxla" and e["xla"] is None),
    MatrixRule(5, "there is no such XLA device here",
         lambda e, f: e["xla"] is not None and e["torch_xla2"] is None and not f.has_device(e["accelerator"], e["xla"])),
    MatrixRule(6, "a TPU needs XLA", lambda e, f: e["accelerator"] == "tpu" and e["xla"] is None),
    MatrixRule(7, "XRT is for TPUs", lambda e, f: e["accelerator"] in ("cpu", "cuda") and e["xla"] == "XRT"),
    MatrixRule(8, "XLA no longer supports CUDA", lambda e, f: f.head and e["accelerator"] == "cuda" and e["xla"] is not None),
    MatrixRule(9, "data stays on CUDA with openxla only", lambda e, f: bool(e["keep_model_data_on_cuda"]) and e["dynamo"] != "openxla"),
)  # fmt: skip


@dataclass(frozen=True)
class DroppedPoint:
    """A combination that is not run, and the first rule that drops it."""

    experiment: RunnerPoint
    rule: MatrixRule

    def __str__(self) -> str:
        return f"dropped --experiment-config={json.dumps(self.experiment)} (rule {self.rule.number}: {self.rule.why})"


@dataclass(frozen=True)
class Combinations:
    """Every combination, kept or dropped, in the order of the axes."""

    kept: tuple[RunnerPoint, ...]
    dropped: tuple[DroppedPoint, ...]


def axes(options: RunnerOptions) -> dict[str, list[Any]]:
    """Return the values of every axis; an axis that was not given has all its values, and a value given twice counts once."""
    values: dict[str, Sequence[Any]] = {
        "accelerator": options.accelerator or ACCELERATORS,
        "xla": [_null(item) for item in options.xla or XLAS],
        "xla_flags": [_null(item) for item in options.xla_flags or (NULL,)],
        "dynamo": [_null(item) for item in options.dynamo or DYNAMOS],
        "torch_xla2": [_null(item) for item in options.torch_xla2 or (NULL,)],
        "test": options.test or TESTS,
        "keep_model_data_on_cuda": [options.keep_model_data_on_cuda],
        "enable_functionalization": [options.enable_functionalization],
    }
    return {name: list(dict.fromkeys(values[name])) for name in AXES}


def _null(text: str) -> str | None:
    return None if text == NULL else text


def expand(options: RunnerOptions, facts: Facts | None = None) -> Combinations:
    """Return all combinations, kept or dropped by the rules."""
    known, kept, dropped = facts or Facts(), [], []
    for point in itertools.product(*axes(options).values()):
        experiment = dict(zip(AXES, point, strict=True))
        rule = dropping(experiment, known)
        if rule is None:
            kept.append(experiment)
        else:
            dropped.append(DroppedPoint(experiment, rule))
    return Combinations(tuple(kept), tuple(dropped))


def dropping(experiment: RunnerPoint, facts: Facts | None = None) -> MatrixRule | None:
    """Return the first rule that drops a combination; None if it is kept."""
    known = facts or Facts()
    return next((rule for rule in RULES if rule.drops(experiment, known)), None)


def partition(names: Sequence[str], parts: int, part: int) -> list[str]:
    """Return one of `parts` ranges of equal length; the last one also gets the rest."""
    length = len(names) // parts
    return list(names[part * length :] if part == parts - 1 else names[part * length : (part + 1) * length])


def choose(names: Sequence[str], options: RunnerOptions) -> list[str]:
    """Return the models of this part that pass the filters and tiers."""
    wanted = rows.chooser(options.filter, options.exclude, options.filter_by_tier, options.exclude_by_tier)
    return [name for name in partition(names, options.total_partitions, options.partition_id) if wanted(name)]


def read_model(text: str, suite: str) -> Model:
    """Read a model from the command line; unknown keys are errors, and so is a suite other than that of --suite-name."""
    data = _object(text, "--model-config", ("model_name", "suite_name"))
    if not isinstance(data.get("model_name"), str) or not data["model_name"]:
        raise UsageError("--model-config names no model", do="""write it like '{"model_name": "dummy"}'""")
    if data.get("suite_name", suite) != suite:
        raise UsageError(f"suite_name is {data['suite_name']!r}, and --suite-name is {suite!r}", where="--model-config")
    return {"model_name": data["model_name"]}


def read_experiment(text: str) -> RunnerPoint:
    """Read an experiment from the command line; a missing key is null, false, or the first choice."""
    data = _object(text, "--experiment-config", (*AXES, "batch_size", "accelerator_model"))
    usual: dict[str, Any] = dict.fromkeys(AXES) | {
        "accelerator": "cpu", "test": "eval", "keep_model_data_on_cuda": False, "enable_functionalization": False,
    }  # fmt: skip
    made = {name: data.get(name, usual[name]) for name in AXES}
    for name, known in (("accelerator", ACCELERATORS), ("test", TESTS)):
        if made[name] not in known:
            raise unknown(name, str(made[name]), known, where="--experiment-config")
    for name, values in (("xla", XLAS), ("dynamo", DYNAMOS), ("torch_xla2", TORCH_XLA2S)):
        if made[name] is not None and made[name] not in values[1:]:
            raise unknown(name, str(made[name]), values[1:], where="--experiment-config")
    if not (made["xla_flags"] is None or isinstance(made["xla_flags"], str)) or not _settable(made["xla_flags"] or ""):
        raise UsageError(f"xla_flags must be text or null, not {made['xla_flags']!r}", where="--experiment-config")
    for name in ("keep_model_data_on_cuda", "enable_functionalization"):
        if made[name] is not None and not isinstance(made[name], bool):
            raise UsageError(f"{name} must be true or false, not {made[name]!r}", where="--experiment-config")
        made[name] = bool(made[name])
    return made


def _settable(text: str) -> bool:
    """Whether a text can be the value of an environment variable."""
    return "\0" not in text and text.encode("utf-8", "ignore").decode() == text


def read_batch_size(text: str, asked: int | str | None) -> int | str | None:
    """Return the batch size in --experiment-config, where rows have it; else that of --batch-size."""
    told = _object(text, "--experiment-config", (*AXES, "batch_size", "accelerator_model")).get("batch_size")
    if told is None:
        return asked
    if type(told) is not int or told < 1:
        raise UsageError(f"batch_size must be a whole number from 1, not {told!r}", where="--experiment-config")
    if asked not in (None, told):
        raise UsageError(f"batch_size is {told}, and --batch-size is {asked}", where="--experiment-config", do="name it once")
    return told


def _object(text: str, where: str, known: Sequence[str]) -> dict[str, Any]:
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _named_once(pairs, where))
    except (ValueError, RecursionError) as error:
        raise UsageError("not JSON", why=str(error), where=where) from None
    if not isinstance(data, dict):
        raise UsageError("a JSON object is needed", where=where)
    for name in data:
        if name not in known:
            raise unknown("key", name, known, where=where)
    return data


def _named_once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"{name!r} is listed twice", where=where)
        found[name] = value
    return found


def line(model: Model, experiment: RunnerPoint) -> str:
    """Return the line that announces a config, with the flags that run it again."""
    return f"--model-config={json.dumps(model)} --experiment-config={json.dumps(experiment)}"


def fingerprint(
    suite: str, model: Model, experiment: RunnerPoint, options: RunnerOptions, policy: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """Return the key of a config, the same in every run: the config, all options that change its row, and the model's policy."""
    asked = {name: getattr(options, name) for name in MEANING} | {name: value for name in LEAVING if (value := getattr(options, name))}
    told = {name: value for name, value in policy.items() if value and name not in UNTOLD}
    text = json.dumps([suite, model, experiment, asked, *([told] if told else [])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def basename(model: Model, experiment: RunnerPoint) -> str:
    """Return the name that the side files of a config share; a long value is shortened to its hash, the same one in every process."""
    parts = [str(experiment[key]) for key in sorted(experiment) if key != "batch_size"] + [str(model[key]) for key in sorted(model)]
    return "-".join(_safe(part) if len(part) <= LONGEST_PART else _digest(part) for part in parts)


def folder(model: Model) -> str:
    """Return the folder of a model's side files: a name from a file or a user must not lead outside."""
    return _safe(str(model["model_name"]), LONGEST_FOLDER)


def _safe(text: str, longest: int = LONGEST_PART) -> str:
    """Return a text as part of a file's name; a changed one gets a digest, so that different texts stay different."""
    plain = re.sub(r"[^A-Za-z0-9_.=+-]|^[.]+", "_", text[:longest])
    return plain if plain == text else f"{plain}_{_digest(text)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
