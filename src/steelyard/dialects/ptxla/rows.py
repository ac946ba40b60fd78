"""Read rows of the original's JSONL, also of killed runs and older versions; invalid ones are counted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError, unknown
from steelyard.files import lines, open_named

BACKENDS = {"eager": "Eager", "inductor": "Inductor", "openxla+dynamo": "XLA+Dynamo", "openxla+lazytensor": "XLA+LazyTensor"}
"""Names of backends in reports, with their column headings."""
_PAIRS = {(None, None): "eager", (None, "PJRT"): "openxla+lazytensor", ("openxla", "PJRT"): "openxla+dynamo"}

ACCELERATORS = {"v100": "One of Tesla V100", "a6000": "One of Quadro P1000, NVIDIA RTX A6000", "a100": "NVIDIA A100-SXM4-40GB"}
"""Short names, each with the part of a device's full name by which the original recognizes it; the first match counts."""

TIERS: dict[int, tuple[str, ...]] = {
    1: (
        "BERT_pytorch", "cm3leon_generate", "DALLE2_pytorch", "dlrm", "hf_GPT2", "hf_GPT2_large", "GPT_3", "hf_T5", "hf_T5_base",
        "hf_T5_generate", "hf_T5_large", "llama_v2_7b_16h", "stable_diffusion_xl",
    ),
    2: (
        "alexnet", "attention_is_all_you_need_pytorch", "Background_Matting", "basic_gnn_gcn", "basic_gnn_gin", "basic_gnn_sage",
        "dcgan", "densenet121", "detectron2_fasterrcnn_r_101_c4", "detectron2_fasterrcnn_r_101_dc5",
        "detectron2_fasterrcnn_r_101_fpn", "detectron2_fasterrcnn_r_50_c4", "detectron2_fasterrcnn_r_50_dc5",
        "detectron2_fasterrcnn_r_50_fpn", "detectron2_fcos_r_50_fpn", "detectron2_maskrcnn", "detectron2_maskrcnn_r_101_c4",
        "detectron2_maskrcnn_r_101_fpn", "detectron2_maskrcnn_r_50_c4", "detectron2_maskrcnn_r_50_fpn", "fastNLP_Bert",
        "functorch_dp_cifar10", "hf_Albert", "hf_Bart", "hf_Bert", "hf_Bert_large", "llama",
    ),
    3: ("doctr_det_predictor", "doctr_reco_predictor", "drq", "functorch_maml_omniglot"),
}  # fmt: skip

AXES = ("accelerator", "xla", "xla_flags", "dynamo", "torch_xla2", "test", "keep_model_data_on_cuda", "enable_functionalization")
"""The axes of an experiment, in their order."""
TOP = ("model", "experiment", "repeat", "iterations_per_run", "metrics", "timestamp", "verification_code")
_TOP = frozenset((*TOP, "verification_mean_rel_error", "outputs_file", "steelyard"))
_MODEL = frozenset(("suite_name", "model_name"))
_EXPERIMENT = frozenset((
    "accelerator", "accelerator_model", "xla", "xla_flags", "dynamo", "torch_xla2", "keep_model_data_on_cuda", "test", "batch_size",
    "enable_functionalization", "experiment_name", "outputs_file", "process_env",
))  # fmt: skip
LONGEST_NAME = 200
MOST_REASONS = 40
LONGEST_TIME = 1e9
SHORTEST_TIME = 1e-12


@dataclass
class RowTally:
    """Rows left out or odd, by reason: how many, and where the first is."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, where: str = "") -> None:
        """Count one row; reasons beyond the first MOST_REASONS are counted together."""
        if reason not in self.counts and len(self.counts) >= MOST_REASONS:
            reason = "left out or odd for other reasons"
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.first.setdefault(reason, where)

    def lines(self) -> list[str]:
        """Return a line per reason, such as `left out: a blank line: 2 rows, first results.jsonl:7`."""
        return [self._line(reason, count) for reason, count in self.counts.items()]

    def _line(self, reason: str, count: int) -> str:
        place = f", first {printable(self.first[reason])}" if self.first[reason] else ""
        return f"{printable(reason)}: {count} row{'s' if count > 1 else ''}{place}"


@dataclass(frozen=True, slots=True)
class Row:
    """One config measured by one process, or the reason why there is no time; `others` has the other keys of the line."""

    model: Mapping[str, Any]
    experiment: Mapping[str, Any]
    metrics: Mapping[str, Any]
    timestamp: Any = None
    repeat: Any = None
    iterations_per_run: Any = None
    verification_code: Any = None
    others: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.model["model_name"])

    @property
    def backend(self) -> str | None:
        """The name in reports, or None for a pair of dynamo and xla that has none."""
        return backend_name(self.experiment.get("dynamo"), self.experiment.get("xla"))

    @property
    def error(self) -> str:
        """Why it failed or was skipped; empty for a row with measurements."""
        return str(self.metrics["error"]) if "error" in self.metrics else ""

    @property
    def moment(self) -> float | None:
        """Seconds since 1970; None if the row has no valid timestamp."""
        try:
            told = isinstance(self.timestamp, (int, float, str)) and not isinstance(self.timestamp, bool)
            found = float(self.timestamp) if told else math.nan
        except (ValueError, OverflowError):
            return None
        return found if 0 <= found < 253402300800 else None

    def plain(self) -> dict[str, Any]:
        """The row as the original writes it, keys in its order."""
        known = {key: getattr(self, key) for key in TOP}
        found: dict[str, Any] = _sound({**{key: value for key, value in known.items() if value is not None}, **self.others})
        return found


def backend_name(dynamo: Any, xla: Any) -> str | None:
    """Return the one of four backends that a pair of axes means; None for any other pair."""
    if dynamo == "inductor":
        return "inductor"
    told = all(part is None or isinstance(part, str) for part in (dynamo, xla))
    return _PAIRS.get((dynamo, xla)) if told else None


def read(path: Path, tally: RowTally) -> Iterator[Row]:
    """Yield the rows of a file; invalid lines are counted, also a last line that a crash cut short."""
    with open_named(path, "name a JSONL file") as file:
        yield from parse(lines(file, str(path)), path.name, tally)


def parse(found: Iterable[bytes], name: str, tally: RowTally) -> Iterator[Row]:
    """Yield the rows of lines that end in a line feed; `name` is that of their file in messages."""
    import msgspec

    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(found, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            data = decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            data = _second_try(line, tally, f"{name}:{number}")
            if data is None:
                continue
        if row := take(data, tally, f"{name}:{number}"):
            yield row


def _second_try(line: bytes, tally: RowTally, where: str) -> Any:
    """Parse a line with NaN or Infinity, which Python writes, as null; None for a line that is not JSON."""
    if not line.strip():
        tally.add("left out: a blank line", where)
        return None
    try:
        return json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        tally.add("left out: not JSON" if line.endswith(b"\n") else "left out: cut short, as a killed run leaves it", where)
        return None


def take(data: Any, tally: RowTally, where: str = "") -> Row | None:
    """Return a row from the JSON of a line; None if it is invalid, which is counted."""
    if not isinstance(data, dict):
        tally.add("left out: not an object", where)
        return None
    model, experiment, metrics = data.get("model"), data.get("experiment"), data.get("metrics")
    for key, value in (("model", model), ("experiment", experiment), ("metrics", metrics)):
        if not isinstance(value, dict):
            tally.add(f"left out: {key} is missing or not an object", where)
            return None
    assert isinstance(model, dict) and isinstance(experiment, dict) and isinstance(metrics, dict)
    if not isinstance(model.get("model_name"), str):
        tally.add("left out: model.model_name is missing or not text", where)
        return None
    if not (data.keys() <= _TOP and model.keys() <= _MODEL and experiment.keys() <= _EXPERIMENT):
        _tell_unknown(data, model, experiment, tally, where)
    others = {key: value for key, value in data.items() if key not in TOP}
    return Row(
        model, experiment, metrics, data.get("timestamp"), data.get("repeat"), data.get("iterations_per_run"),
        data.get("verification_code"), others, where,
    )  # fmt: skip


def _tell_unknown(data: dict[str, Any], model: dict[str, Any], experiment: dict[str, Any], tally: RowTally, where: str) -> None:
    keys = [*(data.keys() - _TOP), *(f"model.{key}" for key in model.keys() - _MODEL)]
    keys += [f"experiment.{key}" for key in experiment.keys() - _EXPERIMENT]
    for key in sorted(keys)[:8]:
        tally.add(f"ignored: unknown key {printable(key, 60)}", where)


def _sound(value: Any) -> Any:
    """Return a value in which numbers that JSON lacks are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _sound(item) for key, item in value.items()}
    return [_sound(item) for item in value] if isinstance(value, (list, tuple)) else value


def seconds(values: Sequence[Any]) -> list[float] | None:
    """Return times as floats; None if one is null, zero, negative, infinite or not a number."""
    found = []
    for value in values:
        if type(value) is int and abs(value) < LONGEST_TIME:
            value = float(value)
        if type(value) is not float or not SHORTEST_TIME <= value < LONGEST_TIME:
            return None
        found.append(value)
    return found


def known_accelerator(device: str) -> str | None:
    """Return the original's short name of a device; None if it has none."""
    return next((name for name, part in ACCELERATORS.items() if part in device), None)


def accelerator_fits(asked: str, kind: Any, device: Any) -> bool:
    """Whether a row is of the requested accelerator: a short name as a whole word, a kind, or any part of the device's name."""
    wanted, full = asked.lower(), device if isinstance(device, str) else ""
    if wanted in ACCELERATORS:
        known = known_accelerator(full)
        return known == wanted if known else bool(re.search(rf"(?<![0-9a-z]){wanted}(?![0-9a-z])", full.lower()))
    return wanted == kind or wanted in full.lower()


def chooser(
    filters: Sequence[str] = (), excludes: Sequence[str] = (), tiers: Sequence[int] = (), exclude_tiers: Sequence[int] = ()
) -> Callable[[str], bool]:
    """Return a test of model names: a filter or tier must match and no exclusion may, ignoring case."""
    wanted = _pattern([*filters, *map(_tier, tiers)] or ["."])
    unwanted = _pattern([*excludes, *map(_tier, exclude_tiers)] or ["^$"])
    return lambda name: bool(wanted.search(name)) and not unwanted.search(name)


def _tier(number: int) -> str:
    if number not in TIERS:
        raise unknown("tier", str(number), map(str, TIERS))
    return f"^({'|'.join(map(re.escape, TIERS[number]))})$"


def _pattern(parts: Sequence[str]) -> re.Pattern[str]:
    for part in parts:
        try:
            re.compile(part)
        except re.error as error:
            raise UsageError(f"not a regular expression: {part!r}", why=str(error)) from None
    return re.compile("|".join(parts), re.IGNORECASE)


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """Return one line without control characters, cut if it is too long."""
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return short if short.isprintable() else "".join(char if char.isprintable() else "_" for char in short)
