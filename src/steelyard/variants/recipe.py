"""Recipes as variants: a recipe changes the weights of a model's linear layers. We check that it changed them and nothing else."""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from steelyard.errors import NotApplicable, NotApplied, SteelyardError, Unsupported, UsageError, out_of_memory, told
from steelyard.measuring.rules.sqnr import FLOOR as LOWEST
from steelyard.measuring.rules.sqnr import RULE, share_lost
from steelyard.model.case import IDENTITY, MODES, parse_variants
from steelyard.model.define import Variant, summary_of
from steelyard.model.registering import register
from steelyard.model.task import Amounts, Standard, Task
from steelyard.model.words import Word
from steelyard.variants.wrap import body_of

GROUP = "group"
PACKED = {"Int4OpaqueTensor": "opaque"}
PACKAGES = ("torchao.quantization",)
MOST_LOST = 12.0
"""The most dB that a model's floor is below a single layer's, however many layers it has; measured on up to 169 linear layers."""
INFERENCE = ("eval", "call")
Builder = Callable[..., Any]
"""Returns a torchao config, a function that changes a module, or a Pruning. Its arguments are the recipe's options, and `be` if it has
that parameter."""
Floor = float | Callable[..., float]
"""The lowest SQNR in dB that one linear layer may have, or a function that computes it from the recipe's options."""

LACKING = (
    r"could not run", r"no kernel", r"not (yet |a )?(implemented|supported|available|installed|compiled with)", r"unsupported",
    r"only (support(s|ed)?|works?)\b", r"only .{1,60} supported", r"requires? (?!grad|module)", r"divi(si|da)ble", r"multiple of",
    r"compute capability", r"cannot use", r"no module named", r"not_supported", r"_opnamespace", r"module 'torch\S*' has no attribute",
)  # fmt: skip
"""Patterns of torchao's and torch's messages for a missing kernel or package and for unsupported hardware or shapes."""
MISSING = re.compile("|".join(LACKING), re.IGNORECASE)
REFUSING = (AssertionError, AttributeError, RuntimeError, ValueError)


@dataclass(frozen=True)
class Pruning:
    """Sets some weights to zero, then converts the model with `then`: a torchao config, a function, or None to leave it as it is.

    `mask` returns 1 for each weight to keep and 0 for each to set to zero. `pattern` checks whether a weight is pruned correctly, and
    `words` describes that pattern. Answers are compared with those of the pruned model in its plain layout, because these are what a
    sparse kernel must compute. The loss from pruning itself is reported as a separate figure.
    """

    mask: Callable[[Any], Any]
    then: Any = None
    pattern: Callable[[Any], bool] = lambda weight: bool((weight == 0).any())
    words: str = "pruned"

    def __call__(self, model: Any) -> Any:
        """Prune a model in place and convert it with `then`, for scripts that apply recipes themselves."""
        self._prune(model, "pruning")
        return _transformed(model, self.then, linear_layers(model)) if self.then is not None else model

    def applied(self, model: Any, name: str) -> Any:
        """Return a pruned copy of a model."""
        made = copy.deepcopy(model)
        self._prune(made, name)
        return made

    def _prune(self, model: Any, name: str) -> None:
        for layer in linear_layers(model).values():
            if not _is_plain(layer.weight):
                raise Unsupported(f"{name} is for plain weights, not for those of class {type(layer.weight).__name__}")
            layer.weight.data.mul_(self.mask(layer.weight.data).to(layer.weight.dtype))

    def facts(self, model: Any, name: str) -> dict[str, Any]:
        """Return the share of zeros; raise NotApplied if a weight does not have the pattern."""
        weights = [layer.weight.data for layer in linear_layers(model).values()]
        zeros = sum(int((weight == 0).sum()) for weight in weights) / sum(weight.numel() for weight in weights)
        if loose := [weight for weight in weights if not self.pattern(weight)]:
            raise NotApplied(
                f"{name}: {len(loose)} of the {len(weights)} weights are not {self.words}; {zeros:.0%} of all numbers are zero"
            )
        return {"pruned": self.words, "zeros": round(zeros, 4)}


def register_recipe(
    name: str,
    builder: Builder | None = None,
    *,
    params: Mapping[str, Any] | Sequence[Word] = (),
    devices: Sequence[str] = (),
    floor: Floor = LOWEST,
    modes: Sequence[str] = INFERENCE,
) -> Any:
    """Register a recipe under a name for `-V`, experiment files and YAML: `register_recipe("int3wo", build, params={"group": 64})`.

    `params` are the builder's options that can be written after the name, in order, with their defaults; `devices` and `modes` are
    those it supports; `floor` is the lowest SQNR in dB that one linear layer may have. Without a builder, it returns a decorator.
    """
    if builder is None:
        return lambda given: register_recipe(name, given, params=params, devices=devices, floor=floor, modes=modes)
    if [str(step) for step in parse_variants(name)] != [name] or name == IDENTITY:
        raise UsageError(f"{name!r:.60} is not a name for a recipe", do="use letters, digits, '_', '.' and '-'")
    if unknown_modes := [mode for mode in modes if mode not in MODES]:
        raise UsageError(f"recipe {name} has an unknown mode {unknown_modes[0]!r:.40}", do=f"use some of {', '.join(MODES)}")
    if not callable(floor) and not (isinstance(floor, (int, float)) and math.isfinite(floor)):
        raise UsageError(f"the floor of recipe {name} is not a number: {floor!r:.40}", do="give decibels, such as 30")
    words = tuple(_word(key, value) for key, value in params.items()) if isinstance(params, Mapping) else tuple(params)
    defaults = params if isinstance(params, Mapping) else {}
    made = recipe(name, words=words, devices=devices, ours=False, defaults=defaults, floor=floor, modes=modes)(builder)
    return register(made, builder)


def _word(option: str, default: Any) -> Word:
    """Return how an option is written after the recipe's name, by the type of its default."""
    if isinstance(default, bool):
        return Word(option, switch=True)
    return Word(option) if isinstance(default, int) else Word(option, values=(str(default),))


def recipe(
    name: str,
    *,
    floor: Floor,
    words: Sequence[Word] = (),
    devices: Sequence[str] = (),
    modes: Sequence[str] = INFERENCE,
    arithmetic: str = "",
    ours: bool = True,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[[Builder], Variant]:
    """Make a variant of a function that builds a config. A recipe of `ours` that lacks something here is unsupported.

    `arithmetic` is the format that products are computed in, if not the model's own, because each format has its own roof. `facts` are
    added to the record.
    """

    def define(builder: Builder) -> Variant:
        given = [
            item.replace(default=defaults.get(item.name, item.default))
            for item in inspect.signature(builder).parameters.values()
            if item.name != "be"
        ]
        if open_ended := [item.name for item in given if item.default is item.empty]:
            raise UsageError(f"{', '.join(open_ended)} of recipe {name} has no default", do="give it one in params or in the function")

        def apply(task: Task, be: Any, **options: Any) -> Task:
            if devices and be.device not in devices:
                raise Unsupported(f"{name} works on {', '.join(devices)}, not on {be.device}")
            chosen = {item.name: item.default for item in given} | options
            least = floor(**chosen) if callable(floor) else floor
            made = Recipe(name, builder, chosen, ours, least, trains=not set(modes) <= set(INFERENCE)).applied(task, be)
            return replace(made, effective={**made.effective, **facts, **({"arithmetic": arithmetic} if arithmetic else {})})

        head = [inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD) for key in ("task", "be")]
        apply.__signature__ = inspect.Signature([*head, *(item.replace(kind=item.KEYWORD_ONLY) for item in given)])  # type: ignore[attr-defined]
        apply.__wrapped__ = builder  # type: ignore[attr-defined]
        return Variant(name, apply, summary_of(builder), ("torch",), words=tuple(words), rule=RULE, modes=tuple(modes), imports=PACKAGES)

    return define


@dataclass(frozen=True)
class Recipe:
    """One recipe with its options, applied to a copy of a model; `floor` is the lowest SQNR of one layer in dB."""

    name: str
    builder: Builder
    options: Mapping[str, Any]
    ours: bool
    floor: float
    trains: bool = False

    def applied(self, task: Task, be: Any) -> Task:
        """Return the task with a changed copy of its model. The model itself must stay unchanged, because the baseline uses it.

        Products with zero weights need not be computed, so a pruned model has fewer operations to compare with its roof. The model is
        not called here: its first call is the first one that is timed.
        """
        import torch

        model = body_of(task)
        if not isinstance(model, torch.nn.Module):
            raise NotApplicable(f"{self.name} changes the linear layers of a model, and this workload is a function without any")
        layers = linear_layers(model)
        if not layers:
            raise NotApplicable(f"{self.name} changes linear layers, and this model has none")
        config = self._config(be)
        before, size = self._prints(be, model), be.model_bytes(task)
        pruning = config if isinstance(config, Pruning) else None
        start = pruning.applied(model, self.name) if pruning else model
        found = pruning.facts(start, self.name) if pruning else {}
        then = pruning.then if pruning else config
        changed = start if pruning and then is None else self._changed(start, layers, then)
        if self._prints(be, model) != before:
            raise SteelyardError(f"{self.name} changed the model that it was given", why="the baseline is measured on the same model")
        found |= self._found(be, model if then is None else start, changed, pruned=pruning is not None)
        made = replace(
            task, fn=changed, parameters=tuple(changed.parameters()), tolerance=None, any_dtype=True,
            standard=self._standard(task, len(layers), pruning), refused=self._refused,
        )  # fmt: skip
        made = _loosely_trained(made) if self.trains else made
        smaller = be.model_bytes(made)
        facts = {"recipe": self.name, **_facts(then, found["changed"]), **found, "bytes_before": size, "bytes_after": smaller}
        moved, amounts = lighter(task, size, smaller)
        done = task.flops * (1 - found.get("zeros", 0)) if task.flops else task.flops
        return replace(made, flops=done, bytes=moved, amounts=amounts, effective={**task.effective, **facts})

    def _standard(self, task: Task, layers: int, pruning: Pruning | None) -> Standard:
        """Return the required accuracy; after another recipe, the lower of both floors and the pruning of both.

        The errors of consecutive layers add up: with twice as many layers the error has twice the power, which is 3 dB.
        """
        floor = max(self.floor - min(10 * math.log10(layers), MOST_LOST), min(self.floor, LOWEST))
        earlier = task.standard or Standard(math.inf)
        found = replace(earlier, floor=round(min(floor, earlier.floor), 1))
        if pruning is None and not self.trains:
            return found

        def made(plain: Task) -> Task:
            plain = _loosely_trained(earlier.applied(plain)) if self.trains else earlier.applied(plain)
            if pruning is None:
                return plain
            model = pruning.applied(plain.fn, self.name)
            return replace(plain, fn=model, parameters=tuple(model.parameters()))

        found = replace(found, make=made)
        return replace(found, words="the pruned model in its plain layout", loss="sqnr_pruning") if pruning else found

    def _config(self, be: Any) -> Any:
        given = {"be": be} if "be" in inspect.signature(self.builder).parameters else {}
        try:
            return self.builder(**given, **self.options)
        except ImportError as error:
            if not self.ours:
                raise
            raise Unsupported(
                f"{self.name} needs something missing here: {told(error, 200)}", do="pip install 'steelyard[torchao]'"
            ) from error

    def _changed(self, model: Any, layers: Mapping[str, Any], config: Any) -> Any:
        """Return a copy of the model with changed layers. Widths are checked, as torchao silently skips those the group does not divide."""
        group = self.options.get(GROUP)
        odd = [layer.in_features for layer in layers.values() if group and group > 0 and layer.in_features % group]
        if odd:
            widths = ", ".join(map(str, sorted(set(odd))[:4]))
            raise NotApplied(
                f"a group of {group} does not divide K = {widths}: {len(odd)} of {len(layers)} linear layers would stay as they are"
            )
        try:
            return _transformed(copy.deepcopy(model), config, layers)
        except Exception as error:
            if (meant := self._refused(error)) is error:
                raise
            raise meant from error

    def _refused(self, error: Exception) -> Exception:
        """Return Unsupported if torchao reports something missing here, else the error itself. Errors of a compiler fail the case, as they
        do without a recipe.
        """
        compiler = type(error).__module__.startswith("torch._")
        if not self.ours or compiler or out_of_memory(error) or isinstance(error, SteelyardError):
            return error
        known = isinstance(error, (ImportError, NotImplementedError)) or (isinstance(error, REFUSING) and MISSING.search(str(error)))
        return Unsupported(f"{self.name} cannot run here: {told(error, 300)}") if known else error

    def _found(self, be: Any, model: Any, changed: Any, *, pruned: bool) -> dict[str, Any]:
        """Return how many layers were changed, by the class of their weights; raise NotApplied if a layer that must change did not."""
        layers, now = linear_layers(model), dict(changed.named_modules())
        kinds = Counter(_kind(now[path]) for path, layer in layers.items() if path in now and not _same(be, layer, now[path]))
        left, what = len(layers) - sum(kinds.values()), "pruned and not stored as sparse ones" if pruned else "not changed"
        if not kinds:
            many = f"none of the {len(layers)} linear layers was changed" if len(layers) > 1 else "the linear layer was not changed"
            raise NotApplied(f"{self.name}: the weights were {what}" if pruned else f"{self.name}: {many}")
        if left and (self.ours or pruned):
            raise NotApplied(f"{self.name}: {left} of the {len(layers)} linear layers were {what}")
        return {"changed": dict(kinds), **({"unchanged": left} if left else {})}

    def _prints(self, be: Any, model: Any) -> list[Any]:
        return [(name, _print(be, value)) for name, value in model.state_dict(keep_vars=True).items()]


def lighter(task: Task, size: float, smaller: float) -> tuple[float | None, Mapping[str, Amounts]]:
    """Return the bytes that a run and its parts move after the weights changed size; each part reads all weights once."""
    if not task.bytes or task.bytes <= size:
        return task.bytes, task.amounts
    if not task.amounts:
        return task.bytes - size + smaller, task.amounts
    parts = {name: replace(part, bytes=part.bytes - size + smaller) if part.bytes else part for name, part in task.amounts.items()}
    return sum(part.times * (part.bytes or 0.0) for part in parts.values()), parts


def _facts(config: Any, kinds: Mapping[str, int]) -> dict[str, Any]:
    """Return facts about the config: its class, and how it packs weights if their class does not show it."""
    facts = {"config": type(config).__name__} if config is not None else {}
    if packed := [PACKED[kind] for kind in kinds if kind in PACKED]:
        facts["packing"] = packed[0]
    for key in vars(config) if hasattr(config, "__dict__") else ():
        if key.endswith("packing_format"):
            facts["packing"] = str(getattr(getattr(config, key), "value", getattr(config, key)))
    return facts


def _transformed(model: Any, config: Any, layers: Container[str]) -> Any:
    """Return a model changed by a function or a torchao config; torchao cannot replace the outermost module, so we wrap it."""
    import torch

    if callable(config) and not hasattr(config, "__dataclass_fields__"):
        return config(model) or model
    from torchao.quantization import quantize_

    held = torch.nn.Sequential(model)
    quantize_(held, config, filter_fn=lambda layer, path: path != "" and path.partition(".")[2] in layers)
    return held[0]


def _loosely_trained(task: Task) -> Task:
    """Return the task with a tolerance for loss and gradients as loose as the lowest floor; the SQNR rule judges their accuracy."""
    share = share_lost(LOWEST)
    return replace(task, tolerance=(share, share), norm_tolerance=share)


def linear_layers(model: Any) -> dict[str, Any]:
    """The linear layers of a model by their paths."""
    import torch

    return {path: layer for path, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}


def _is_plain(weight: Any) -> bool:
    import torch

    return type(weight) is torch.nn.Parameter and weight.layout is torch.strided


def _kind(layer: Any) -> str:
    """Return the class name that identifies a changed layer: its weight's class, or its own if the weight is plain."""
    weight = getattr(layer, "weight", None)
    return type(layer if weight is None or (_is_plain(weight) and type(layer).__name__ != "Linear") else weight).__name__


def _same(be: Any, old: Any, new: Any) -> bool:
    """Whether a layer is unchanged: its class, its weight's class and its weight's values."""
    if type(old) is not type(new) or type(old.weight) is not type(new.weight):
        return False
    return bool(_print(be, old.weight) == _print(be, new.weight))


def _print(be: Any, value: Any) -> Any:
    """Return a fingerprint of a weight, or of each tensor in a quantized weight."""
    bare = value.detach()
    if not hasattr(bare, "__tensor_flatten__"):
        return be.fingerprint(bare)
    return [(name, _print(be, getattr(bare, name))) for name in bare.__tensor_flatten__()[0]]
