"""TorchBench without a framework: which models a checkout has, and what its policy file says about them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.codec.parsing import parse
from steelyard.dialects.ptxla.rows import AXES
from steelyard.errors import UsageError, unknown
from steelyard.files import read_text

MODELS = Path("torchbenchmark") / "models"
CHECKOUTS, ABOVE = ("torchbenchmark", "torchbench", "benchmark"), 3
POLICIES = (
    Path("userbenchmark") / "dynamo" / "dynamobench" / "torchbench.yaml",
    Path("benchmarks") / "dynamo" / "torchbench.yaml",
    Path("torchbench.yaml"),
)
"""Where a checkout, or PyTorch beside it, keeps the file."""
OURS, ALIKE = ("deny", "expected_failures", "iou", "max_multiplier"), 0.75
"""Keys that we add to the original's, and how similar to one an unknown key must be to count as misspelled."""
MOST_TIMES = 10.0
"""How many times eager's own error is allowed if the policy forces that."""
KINDS = {"eval": "inference", "train": "training"}
GENERATING = ("cm3leon_generate", "hf_T5_generate")
DENIED: dict[str, tuple[dict[str, Any], ...]] = {
    **{name: ({"test": "eval", "xla": "PJRT", "dynamo": None},) for name in GENERATING},
    **{name: ({"test": "eval", "accelerator": "cuda"}, {"test": "eval", "accelerator": "tpu"})
       for name in ("mobilenet_v2_quantized_qat", "resnet50_quantized_qat")},
}  # fmt: skip
"""Combinations of TorchBench models that are known not to work: an entry applies if all its keys are equal."""
BY_SGD = (
    "BERT_pytorch", "LearningToPaint", "alexnet", "dcgan", "demucs", "densenet121", "dlrm", "fastNLP_Bert", "mobilenet_v2",
    "phlippe_densenet", "phlippe_resnet", "pytorch_stargan", "resnet18", "shufflenet_v2_x1_0", "speech_transformer", "squeezenet1_1",
    "stable_diffusion_text_encoder", "timm_efficientdet", "timm_nfnet", "timm_regnet", "timm_vision_transformer", "timm_vovnet", "vgg16",
    "hf_T5", "llama_v2_7b_16h",
)  # fmt: skip
"""Models trained by plain gradient descent, because the state of Adam does not fit or its steps diverge."""


@dataclass(frozen=True)
class ModelPolicy:
    """The content of a policy file; empty if there is none."""

    skipped: frozenset[str] = frozenset()
    by_test: Mapping[str, frozenset[str]] = field(default_factory=dict)
    by_device: Mapping[str, frozenset[str]] = field(default_factory=dict)
    denied: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    expected: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    batch_sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fixed_batch: frozenset[str] = frozenset()
    half: frozenset[str] = frozenset()
    cast: frozenset[str] = frozenset()
    tolerances: Mapping[str, float] = field(default_factory=dict)
    overlaps: Mapping[str, float] = field(default_factory=dict)
    forced: frozenset[str] = frozenset()
    even_higher: frozenset[str] = frozenset()
    cosine: frozenset[str] = frozenset()
    small_tensors: frozenset[str] = frozenset()
    unverified: frozenset[str] = frozenset()

    def skip(self, model: str, experiment: Mapping[str, Any]) -> str:
        """Why a model is left out of an experiment; empty if it is included."""
        if model in self.skipped:
            return "the policy skips this model"
        kind = KINDS[experiment["test"]]
        if model in self.by_test.get(kind, ()):
            return f"the policy skips this model in {kind}"
        if model in self.by_device.get(experiment["accelerator"], ()):
            return f"the policy skips this model on {experiment['accelerator']}"
        for entry in self.denied.get(model, ()):
            if matches(entry, experiment):
                return "denied: " + ", ".join(f"{key}={_word(value)}" for key, value in entry.items())
        return ""

    def expects_failure(self, model: str, experiment: Mapping[str, Any]) -> bool:
        """Whether this failure is known, so that only new failures and new passes need attention."""
        return any(matches(entry, experiment) for entry in self.expected.get(model, ()))

    def batch_size(self, model: str, test: str, asked: int | None) -> int | None:
        """Return the user's batch size, unless the model forbids that, else the policy's; None leaves it to the model."""
        given = None if model in self.fixed_batch else asked
        return given or self.batch_sizes.get(KINDS[test], {}).get(model)

    def for_model(self, model: str, test: str, asked: int | None) -> dict[str, Any]:
        """Return all settings for one model in one test."""
        return {
            "batch_size": self.batch_size(model, test, asked), "half": model in self.half, "cast": model in self.cast,
            "training": test == "train", "sgd": model in BY_SGD, "tolerance": self.tolerances.get(model),
            "even_higher": model in self.even_higher, "cosine": model in self.cosine, "small_tensors": model in self.small_tensors,
            "iou": self.overlaps.get(model), "multiplier": MOST_TIMES if model in self.forced else None,
            "unverified": model in self.unverified,
        }  # fmt: skip


def matches(entry: Mapping[str, Any], experiment: Mapping[str, Any]) -> bool:
    """Whether all listed keys are equal; an entry without keys always applies."""
    return all(experiment.get(key) == value for key, value in entry.items())


def _word(value: Any) -> str:
    return "None" if value is None else str(value)


def models(checkout: Path) -> list[str]:
    """Return the models of a checkout, by their folders; none of their code runs."""
    place = checkout / MODELS
    if not place.is_dir():
        raise UsageError(f"{checkout} is not a checkout of TorchBench", why=f"it has no folder {MODELS}")
    return sorted(item.name for item in place.iterdir() if (item / "__init__.py").is_file() and not item.name.startswith((".", "_")))


def policy_file(checkout: Path) -> Path | None:
    """Return the policy file that comes with a checkout."""
    return next((checkout / name for name in POLICIES if (checkout / name).is_file()), None)


def read_policy(path: Path | None, denied: Mapping[str, tuple[Mapping[str, Any], ...]] | None = None) -> ModelPolicy:
    """Read a policy file in the layout of PyTorch's torchbench.yaml, with our additions such as `deny` and `expected_failures`."""
    known: dict[str, tuple[Mapping[str, Any], ...]] = dict(denied or {})
    if path is None:
        return ModelPolicy(denied=known)
    data = _load(path)
    for key in map(str, data):
        if key not in OURS and difflib.get_close_matches(key, OURS, cutoff=ALIKE):
            raise unknown("key", key, OURS, where=str(path))
    skip, tolerance = _table(data, "skip", path), _table(data, "tolerance", path)
    accuracy = _table(_table(data, "accuracy", path), "skip", path)
    own = {name: float(value) for name, value in tolerance.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    for name, entries in _entries(data.get("deny"), "deny", path).items():
        known[name] = (*known.get(name, ()), *entries)
    return ModelPolicy(
        skipped=_names(skip.get("all")) | _names(skip.get("multiprocess")),
        by_test={key: _names(value) for key, value in _table(skip, "test", path).items()},
        by_device={key: _names(value) for key, value in _table(skip, "device", path).items()},
        denied=known,
        expected=_entries(data.get("expected_failures"), "expected_failures", path),
        batch_sizes={key: _sizes(value) for key, value in _table(data, "batch_size", path).items()},
        fixed_batch=_names(data.get("dont_change_batch_size")),
        half=_names(_table(data, "dtype", path).get("force_fp16_for_bf16_models")),
        cast=_names(_table(data, "dtype", path).get("force_amp_for_fp16_bf16_models")),
        tolerances=own, overlaps=_shares(data, "iou", path), forced=_names(data.get("max_multiplier")),
        even_higher=_names(tolerance.get("even_higher")),
        cosine=_names(tolerance.get("cosine")),
        small_tensors=_names(data.get("require_larger_multiplier_for_smaller_tensor")),
        unverified=_names(data.get("non_deterministic")) | _names(accuracy.get("large_models"))
        | _names(accuracy.get("eager_not_deterministic")),
    )  # fmt: skip


def _load(path: Path) -> dict[str, Any]:
    data = parse(read_text(path), str(path), "yaml", aliases=True)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UsageError("a policy file must be a table", where=str(path))
    return data


def _table(data: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = data.get(key) or {}
    if not isinstance(value, dict):
        raise UsageError(f"{key} must be a table", where=str(path))
    return value


def _shares(data: Mapping[str, Any], key: str, path: Path) -> dict[str, float]:
    """Return numbers from 0 to 1 by model."""
    found = _table(data, key, path)
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise UsageError(f"{key}.{name} must be a number from 0 to 1, not {value!r:.60}", where=str(path))
    return {str(name): float(value) for name, value in found.items()}


def find_checkout(start: Path) -> Path | None:
    """Return a checkout of TorchBench here, or in a folder of its usual names here or in one of the three folders above."""
    for folder in (start, *list(start.parents)[:ABOVE]):
        for place in (folder, *(folder / name for name in CHECKOUTS)):
            if (place / MODELS).is_dir():
                return place
    return None


def _names(value: Any) -> frozenset[str]:
    """Return all names at any depth: the file nests lists, each of which is read once."""
    found: set[str] = set()
    seen: set[int] = set()
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, Mapping):
            found.update(map(str, item))
        elif isinstance(item, list) and id(item) not in seen:
            seen.add(id(item))
            left += item
    return frozenset(found)


def _sizes(value: Any) -> dict[str, int]:
    return {str(name): size for name, size in value.items() if isinstance(size, int)} if isinstance(value, Mapping) else {}


def _entries(value: Any, key: str, path: Path) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """Read `model: [{key: value}]`, or `model: {key: value}` for one; `None` is null, as on the command line."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{key} must be a table of models", where=str(path))
    found: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for name, entries in value.items():
        listed = entries if isinstance(entries, list) else [entries or {}]
        if not all(isinstance(entry, Mapping) for entry in listed):
            raise UsageError(f"{key}.{name}: every entry must be a table of keys and their required values", where=str(path))
        for axis in (str(axis) for entry in listed for axis in entry):
            if axis not in AXES:
                raise unknown(f"axis in {key}.{name}", axis, AXES, where=str(path))
        found[str(name)] = tuple({str(k): None if v == "None" else v for k, v in entry.items()} for entry in listed)
    return found
