"""OpenXLA's import names: `serve()` makes `openxla.benchmark…` mean our definitions, so that users' files run as they stand.

A module below these packages that we do not have, such as a model of the user's own, is looked for in the user's folders as usual.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = "openxla"
DEFINITIONS, TEMPLATES = "steelyard.dialects.openxla.definitions", "steelyard.dialects.openxla.templates"
INFERENCE, SUITE = "steelyard.workloads.models.inference", "steelyard.dialects.openxla.suite"
FRAMEWORKS = ("jax", "pt", "tf", "tflite")
MODULES: Mapping[str, str] = {
    "benchmark.def_types": DEFINITIONS,
    "benchmark.testdata": DEFINITIONS,
    "benchmark.devices": DEFINITIONS,
    "benchmark.devices.gcp_devices": DEFINITIONS,
    "benchmark.devices.host_devices": DEFINITIONS,
    "benchmark.devices.mobile_devices": DEFINITIONS,
    "benchmark.models.model_interfaces": INFERENCE,
    "benchmark.models.jax.jax_model_interface": INFERENCE,
    "benchmark.models.utils": INFERENCE,
    "benchmark.comparative_suite.utils": TEMPLATES,
}
"""Modules of theirs, and where their names are ours."""
PACKAGES = ("benchmark", "benchmark.models", "benchmark.comparative_suite", "benchmark.devices", "benchmark.models.jax")
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
        if fullname != ROOT and (below == fullname or below not in (*MODULES, *PACKAGES)):
            return None
        spec = ModuleSpec(fullname, self, is_package=True)
        folders = (Path(entry, *fullname.split(".")) for entry in sys.path)
        spec.submodule_search_locations = [str(folder) for folder in folders if folder.is_dir()]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As usual."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give it its names."""
        place = MODULES.get(module.__name__.removeprefix(f"{ROOT}."))
        if place is None:
            return
        ours = vars(importlib.import_module(place))
        names = {name: name for name in ours if not name.startswith("_")} | RENAMED.get(place, {})
        vars(module).update({theirs: ours[name] for theirs, name in names.items()})
        if place == DEFINITIONS:
            vars(module).update({name.upper().replace("-", "_"): device for name, device in ours["DEVICES"].items()})
