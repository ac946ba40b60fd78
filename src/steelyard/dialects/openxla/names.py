"""OpenXLA's import names: `serve()` makes `openxla.benchmark…` mean our definitions and models, so that users' files run as they stand.

A module that we do not have, such as a model of the user's own, is looked for in the user's folders as usual; a file there also goes
before a model or a list of definitions of ours.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = "openxla.benchmark"
DEFINITIONS, TEMPLATES = "steelyard.dialects.openxla.definitions", "steelyard.dialects.openxla.templates"
INFERENCE, SUITE = "steelyard.workloads.models.inference", "steelyard.dialects.openxla.suite"
FRAMEWORKS = {"pt": "pytorch", "jax": "jax", "tf": "tensorflow"}
MODULES: Mapping[str, str] = {
    **dict.fromkeys(("def_types", "testdata", "devices.gcp_devices", "devices.host_devices", "devices.mobile_devices"), DEFINITIONS),
    **dict.fromkeys(("models.model_interfaces", "models.jax.jax_model_interface", "models.utils"), INFERENCE),
    "comparative_suite.utils": TEMPLATES,
}
"""Modules of theirs, and where their names are ours."""
BERT, RESNET, T5 = ("bert.bert_model", "bert"), ("resnet.resnet_model", "resnet50"), ("t5.t5_model", "t5")
PIPELINE = ("gpt2.gpt2_pipeline", "gpt2_pipeline")
MODELS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "pt": (("example.example_model", "mobilenet"), BERT, RESNET),
    "jax": (
        BERT, RESNET, T5, ("t5.t5_for_conditional_generation", "t5_generation"), ("gpt2.gpt2lmhead_model", "gpt2"), PIPELINE,
        ("vit.vit_for_classification", "vit"), ("stable_diffusion.stable_diffusion_pipeline", "stable_diffusion"),
    ),
    "tf": (BERT, RESNET, T5, ("efficientnet.efficientnet_model", "efficientnet"), PIPELINE),
}  # fmt: skip
"""Base models by their framework: theirs, and the family of ours."""
FAMILIES = {f"models.{short}.{theirs}": (FRAMEWORKS[short], ours) for short, listed in MODELS.items() for theirs, ours in listed}
LISTS = {f"comparative_suite.{short}.{kind}_definitions": short for short in FRAMEWORKS for kind in ("model", "benchmark")}
PACKAGES = {name[:place] for name in (*MODULES, *FAMILIES, *LISTS) for place, sign in enumerate(name) if sign == "."}
RENAMED = {INFERENCE: {"JaxInferenceModel": "FunctionalModel", "canonicalize_to_tuple": "as_tuple"}}


def serve() -> None:
    """From here on these imports in this process are answered by us."""
    if not any(isinstance(finder, SuiteFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SuiteFinder())


class SuiteFinder(MetaPathFinder, Loader):
    """Answers for the modules of the suite that definitions and models import; all others are the user's."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Ours, or nothing that concerns us."""
        below = fullname.removeprefix(f"{ROOT}.")
        if fullname not in ("openxla", ROOT) and (below == fullname or below not in {*MODULES, *PACKAGES, *FAMILIES, *LISTS}):
            return None
        places = [Path(entry, *fullname.split(".")) for entry in sys.path]
        if below in (*FAMILIES, *LISTS) and any(place.with_suffix(".py").is_file() for place in places):
            return None
        spec = ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = [str(place) for place in places if place.is_dir()]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As usual."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give it its names."""
        vars(module).update(names_of(module.__name__.removeprefix(f"{ROOT}.")))


def names_of(below: str) -> dict[str, Any]:
    """What a module of theirs has."""
    if below in FAMILIES:
        framework, family = FAMILIES[below]
        made = importlib.import_module(f"steelyard.workloads.models.families.{family}").create_model
        return {"create_model": functools.partial(made, framework=framework)}
    if below in LISTS:
        held, kind = importlib.import_module(SUITE), FRAMEWORKS[LISTS[below]]
        models = [model for model in held.ALL_MODELS if model.model_impl.framework_type.value.startswith(kind)]
        cases = [case for case in held.ALL_BENCHMARKS if case.model in models]
        return {"ALL_MODELS": models, "ALL_BENCHMARKS": cases, **{model.name: model for model in models}}
    place = MODULES.get(below, "")
    ours = vars(importlib.import_module(place)) if place else {}
    names = {name: name for name in ours if not name.startswith("_")} | RENAMED.get(place, {})
    devices = {name.upper().replace("-", "_"): device for name, device in ours["DEVICES"].items()} if place == DEFINITIONS else {}
    return {theirs: ours[name] for theirs, name in names.items()} | devices
