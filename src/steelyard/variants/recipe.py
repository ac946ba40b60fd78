"""A recipe as a variant: it changes the weights of a model's linear layers, and is checked to have changed them and nothing else."""

from __future__ import annotations

import copy
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from steelyard.errors import NotApplicable, NotApplied, SteelyardError, Unsupported, UsageError, out_of_memory, told
from steelyard.model.case import IDENTITY, parse_variants
from steelyard.model.define import Variant, summary_of
from steelyard.model.task import Task
from steelyard.model.words import Word
from steelyard.variants.wrap import body_of

RULE = "sqnr"
GROUP = "group"
Builder = Callable[..., Any]
"""Gives a config of torchao, or a function that changes a module; its arguments are the recipe's options, and `be` if it asks for it."""


def register_recipe(
    name: str, builder: Builder | None = None, *, params: Mapping[str, Any] | Sequence[Word] = (), devices: Sequence[str] = ()
) -> Any:
    """Make a recipe known under a name, for `-V`, experiment files and YAML: `register_recipe("int3wo", build, params={"group": 64})`.

    `params` are the builder's options that may be written behind the name, in order, with their defaults; `devices` are those it
    works on. Without a builder it decorates one.
    """
    if builder is None:
        return lambda given: register_recipe(name, given, params=params, devices=devices)
    if [str(step) for step in parse_variants(name)] != [name] or name == IDENTITY:
        raise UsageError(f"{name!r:.60} is no name for a recipe", do="use letters, digits, '_', '.' and '-'")
    words = tuple(_word(key, value) for key, value in params.items()) if isinstance(params, Mapping) else tuple(params)
    made = recipe(name, words=words, devices=devices, ours=False, defaults=params if isinstance(params, Mapping) else {})(builder)
    sys._getframe(1).f_globals[f"_recipe_{len(name)}_{name}"] = made
    return made


def _word(option: str, default: Any) -> Word:
    """How an option is written, by its default."""
    if isinstance(default, bool):
        return Word(option, switch=True)
    return Word(option) if isinstance(default, int) else Word(option, values=(str(default),))


def recipe(
    name: str,
    *,
    words: Sequence[Word] = (),
    devices: Sequence[str] = (),
    arithmetic: str = "",
    ours: bool = True,
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[[Builder], Variant]:
    """Make a variant of a function that builds a config; what goes wrong with one of `ours` is what the package lacks here.

    `arithmetic` is the format that products are computed in, where it is not the model's own: its roof is another.
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
            made = Recipe(name, builder, {item.name: item.default for item in given} | options, ours).applied(task, be)
            return replace(made, effective={**made.effective, "arithmetic": arithmetic}) if arithmetic else made

        head = [inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD) for key in ("task", "be")]
        apply.__signature__ = inspect.Signature([*head, *(item.replace(kind=item.KEYWORD_ONLY) for item in given)])  # type: ignore[attr-defined]
        apply.__wrapped__ = builder  # type: ignore[attr-defined]
        return Variant(name, apply, summary_of(builder), ("torch",), fresh=True, words=tuple(words), rule=RULE)

    return define


class Recipe:
    """One recipe with its options, applied to a copy of a model."""

    def __init__(self, name: str, builder: Builder, options: Mapping[str, Any], ours: bool) -> None:
        self.name, self.builder, self.options, self.ours = name, builder, dict(options), ours

    def applied(self, task: Task, be: Any) -> Task:
        """The task with a changed copy of its model; the model itself must be untouched, since the baseline is made of it."""
        import torch

        from steelyard.measuring.rules.sqnr import FLOOR

        model = body_of(task)
        if not isinstance(model, torch.nn.Module):
            raise NotApplicable(f"{self.name} changes the linear layers of a model, and this workload is a function without any")
        layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
        if not layers:
            raise NotApplicable(f"{self.name} changes linear layers, and this model has none")
        config = self._config(be)
        before, size = self._prints(be, model), be.model_bytes(task)
        changed = self._changed(model, layers, config)
        if self._prints(be, model) != before:
            raise SteelyardError(f"{self.name} changed the model that it was given", why="the baseline is measured on that one")
        found = self._found(be, layers, changed)
        made = replace(
            task, fn=changed, parameters=tuple(changed.parameters()), whole_tolerance=10 ** (-FLOOR / 20), tolerance=None, any_dtype=True,
        )  # fmt: skip
        self._try(made)
        smaller = be.model_bytes(made)
        facts = {"recipe": self.name, **self._facts(config), **found, "bytes_before": size, "bytes_after": smaller}
        moved = task.bytes - size + smaller if task.bytes and task.bytes > size else task.bytes
        return replace(made, bytes=moved, effective={**task.effective, **facts})

    def _config(self, be: Any) -> Any:
        given = {"be": be} if "be" in inspect.signature(self.builder).parameters else {}
        try:
            return self.builder(**given, **self.options)
        except (ImportError, AttributeError) as error:
            if not self.ours:
                raise
            raise Unsupported(f"{self.name} needs what is not here: {told(error, 200)}", do="pip install 'steelyard[torchao]'") from error

    def _changed(self, model: Any, layers: Mapping[str, Any], config: Any) -> Any:
        """The copy, with its layers changed; torchao leaves those alone whose width the group does not divide, and says nothing."""
        group = self.options.get(GROUP)
        odd = [layer.in_features for layer in layers.values() if group and group > 0 and layer.in_features % group]
        if odd:
            widths = ", ".join(map(str, sorted(set(odd))[:4]))
            raise NotApplied(
                f"a group of {group} does not divide K = {widths}: {len(odd)} of {len(layers)} linear layers would stay as they are"
            )
        changed = copy.deepcopy(model)
        try:
            if callable(config) and not hasattr(config, "__dataclass_fields__"):
                return config(changed) or changed
            from torchao.quantization import quantize_

            quantize_(changed, config, filter_fn=lambda layer, path: path in layers)
        except Exception as error:
            raise self._refused(error) from error
        return changed

    def _refused(self, error: Exception) -> Exception:
        """What torchao says when it cannot do something here is what is missing, and no fault of the workload."""
        if not self.ours or out_of_memory(error) or isinstance(error, SteelyardError):
            return error
        return Unsupported(f"{self.name} cannot run here: {told(error, 300)}")

    def _try(self, task: Task) -> None:
        """One call, since kernels are looked for when they are needed."""
        import torch

        try:
            with torch.no_grad(), task.scope() if task.scope else nullcontext():
                task()
        except Exception as error:
            raise self._refused(error) from error

    def _found(self, be: Any, layers: Mapping[str, Any], changed: Any) -> dict[str, Any]:
        """How many weights are now of which class; a copy whose weights are as they were was not changed."""
        now = dict(changed.named_modules())
        kinds = Counter(
            type(getattr(now[path], "weight", now[path])).__name__
            for path, layer in layers.items()
            if path in now and not _same(be, layer, now[path])
        )
        if not kinds:
            many = f"none of the {len(layers)} linear layers was" if len(layers) > 1 else "the linear layer was not"
            raise NotApplied(f"{self.name}: {many} changed")
        left = len(layers) - sum(kinds.values())
        if left and self.ours:
            raise NotApplied(f"{self.name}: {left} of the {len(layers)} linear layers were not changed")
        return {"changed": dict(kinds), **({"unchanged": left} if left else {})}

    def _prints(self, be: Any, model: Any) -> list[Any]:
        return [(name, _print(be, value)) for name, value in model.state_dict(keep_vars=True).items()]

    def _facts(self, config: Any) -> dict[str, Any]:
        """What the config says of itself: its class, and how weights are packed."""
        facts = {"config": type(config).__name__}
        for key in vars(config) if hasattr(config, "__dict__") else ():
            if key.endswith("packing_format"):
                facts["packing"] = str(getattr(getattr(config, key), "value", getattr(config, key)))
        return facts


def _same(be: Any, old: Any, new: Any) -> bool:
    """Whether a layer is what it was: of the same class, with a weight of the same class and the same numbers."""
    if type(old) is not type(new) or type(old.weight) is not type(new.weight):
        return False
    return bool(_print(be, old.weight) == _print(be, new.weight))


def _print(be: Any, value: Any) -> Any:
    """A fingerprint of a weight, or of the parts that a quantized one is made of."""
    bare = value.detach()
    if not hasattr(bare, "__tensor_flatten__"):
        return be.fingerprint(bare)
    return [(name, _print(be, getattr(bare, name))) for name in bare.__tensor_flatten__()[0]]
