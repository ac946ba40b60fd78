"""OpenXLA's import names: `serve()` makes `openxla.benchmark…` mean our definitions and models, so that users' files run as they stand.

A module that we do not have, such as a model of the user's own, is looked for in the user's folders as usual; a file there also goes
before a model or a list of definitions of ours.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from steelyard.dialects.serving import NameServer
from steelyard.workloads.models.families import FAMILIES as OURS

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
MODELS: Mapping[str, str] = {
    "mobilenet": "example.example_model", "bert": "bert.bert_model", "resnet50": "resnet.resnet_model", "t5": "t5.t5_model",
    "t5_generation": "t5.t5_for_conditional_generation", "gpt2": "gpt2.gpt2lmhead_model", "gpt2_pipeline": "gpt2.gpt2_pipeline",
    "vit": "vit.vit_for_classification", "stable_diffusion": "stable_diffusion.stable_diffusion_pipeline",
    "efficientnet": "efficientnet.efficientnet_model",
}  # fmt: skip
"""Families of ours, and the module of theirs that has the base model."""
FAMILIES = {f"models.{short}.{MODELS[item.module]}": item for short, kind in FRAMEWORKS.items() for item in OURS if item.framework == kind}
LISTS = {f"comparative_suite.{short}.{kind}_definitions": short for short in FRAMEWORKS for kind in ("model", "benchmark")}
PACKAGES = {name[:place] for name in (*MODULES, *FAMILIES, *LISTS) for place, sign in enumerate(name) if sign == "."}
RENAMED = {INFERENCE: {"JaxInferenceModel": "FunctionalModel", "canonicalize_to_tuple": "as_tuple"}}


class SuiteFinder(NameServer):
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

    def names_of(self, module: str) -> Mapping[str, Any]:
        """A base model, the lists of a framework, or names of definitions, templates and interfaces."""
        below = module.removeprefix(f"{ROOT}.")
        if family := FAMILIES.get(below):
            made = importlib.import_module(family.module_path).create_model
            return {"create_model": functools.partial(made, framework=family.framework)}
        return _lists(FRAMEWORKS[LISTS[below]]) if below in LISTS else _names(MODULES.get(below, ""))


def _lists(framework: str) -> dict[str, Any]:
    held = importlib.import_module(SUITE)
    models = [model for model in held.ALL_MODELS if model.model_impl.framework_type.value.startswith(framework)]
    cases = [case for case in held.ALL_BENCHMARKS if case.model in models]
    return {"ALL_MODELS": models, "ALL_BENCHMARKS": cases, **{model.name: model for model in models}}


def _names(place: str) -> dict[str, Any]:
    ours = vars(importlib.import_module(place)) if place else {}
    names = {name: name for name in ours if not name.startswith("_")} | RENAMED.get(place, {})
    devices = {name.upper().replace("-", "_"): device for name, device in ours["DEVICES"].items()} if place == DEFINITIONS else {}
    return {theirs: ours[name] for theirs, name in names.items()} | devices


serve = SuiteFinder.serve
