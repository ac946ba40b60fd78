"""OpenXLA's import names: `serve()` makes `openxla.benchmark…` mean our definitions and models, so that users' files run unchanged.

Modules that we do not have are imported from the user's folders; a file there also replaces a model or a list of definitions of ours.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
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
FRAMEWORKS = {"pt": "pytorch", "jax": "jax", "tf": "tensorflow", "tflite": "tflite"}
DEVICES = {"devices.gcp_devices": "GCP_", "devices.host_devices": "HOST_", "devices.mobile_devices": "MOBILE_", "devices": ""}
"""The original's modules of machines, and the prefix of the names in each; the last module has all machines."""
MODULES: Mapping[str, str] = {
    **dict.fromkeys(("def_types", "testdata", *DEVICES), DEFINITIONS),
    **dict.fromkeys(("models.model_interfaces", "models.jax.jax_model_interface", "models.utils"), INFERENCE),
    "comparative_suite.utils": TEMPLATES,
}
"""The original's modules, and the modules of ours that have their names."""
MODELS, RENAMED = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8")).values()
"""The original's module with the base model, by our family; and the original's names of things that have another name here."""
FAMILIES = {f"models.{short}.{MODELS[item.module]}": item for short, kind in FRAMEWORKS.items() for item in OURS if item.framework == kind}
LISTS = {f"comparative_suite.{short}.{kind}_definitions": short for short in FRAMEWORKS for kind in ("model", "benchmark")}
PACKAGES = {name[:place] for name in (*MODULES, *FAMILIES, *LISTS) for place, sign in enumerate(name) if sign == "."}
GROUPS = {"BATCH": ("BATCHES", "CASES"), "GEN": ("GENS", "GEN_CASES"), "SEQLEN": ("INPUT_SEQUENCES", "INPUT_SEQUENCE_CASES")}
"""The endings of the original's names for all models, and for all cases, of a model that has several sizes."""


class SuiteFinder(NameServer):
    """Serves the suite's modules that definitions and models import; all other modules are the user's."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module that we serve, or None."""
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
        """Return the contents of a module: a base model, a framework's lists, or definitions, templates and interfaces."""
        below = module.removeprefix(f"{ROOT}.")
        if family := FAMILIES.get(below):
            made = importlib.import_module(family.module_path).create_model
            return {"create_model": functools.partial(made, framework=family.framework)}
        return _lists(FRAMEWORKS[LISTS[below]]) if below in LISTS else _names(below)


def _lists(framework: str) -> dict[str, Any]:
    held = importlib.import_module(SUITE)
    cases = [case for case in held.ALL_BENCHMARKS if case.model.model_impl.framework_type.value.split("_")[0] == framework]
    found: dict[str, Any] = {case.model.name: case.model for case in cases}
    found |= {"ALL_MODELS": [*found.values()], "ALL_BENCHMARKS": cases}
    for case in cases:
        if not (sized := re.fullmatch(rf"(.+)_({'|'.join(GROUPS)})(\d+)", case.model.name)):
            found[f"{case.model.name}_CASE"] = case
            continue
        for word, item in zip(GROUPS[sized[2]], (case.model, case), strict=True):
            found.setdefault(f"{sized[1]}_{word}", {})[int(sized[3])] = item
    return found


def _names(module: str) -> dict[str, Any]:
    ours = vars(importlib.import_module(MODULES[module])) if module in MODULES else {}
    names = {name: name for name in ours if not name.startswith("_")} | {theirs: name for theirs, name in RENAMED.items() if name in ours}
    return {theirs: ours[name] for theirs, name in names.items()} | (_machines(DEVICES[module]) if module in DEVICES else {})


def _machines(start: str) -> dict[str, Any]:
    held = importlib.import_module(DEFINITIONS).ALL_DEVICES
    named = {f"{item.host_type}_{item.name}".removeprefix("unknown_").upper().replace("-", "_"): item for item in held}
    found = {name: item for name, item in named.items() if name.startswith(start)}
    return {**found, "ALL_DEVICES": [*found.values()], "ALL_DEVICE_NAMES": [item.name for item in found.values()]}


serve = SuiteFinder.serve
