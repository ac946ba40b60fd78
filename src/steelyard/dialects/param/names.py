"""PARAM's import names: `serve()` makes `param_bench.train.compute.python…` mean our library, whether PARAM is installed or not."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from steelyard.dialects.serving import NameServer

LIBRARY = ("steelyard.dialects.param.library", "steelyard.dialects.param.registering")
ROOT = "param_bench.train.compute.python"
OPTIONS = ("ExecutionPass", "OpExecutionMode", "get_benchmark_options")
EXECUTORS = ("BuildExecutor", "OpBuildExecutor", "StopBenchmarkException")
MODULES: Mapping[str, Sequence[str]] = {
    "lib": (), "lib.pytorch": (), "workloads": (), "workloads.pytorch": (),
    "lib.config": ("BenchmarkConfig", "OperatorConfig", "make_op_config"),
    "lib.data": ("register_data_generator", "data_generator_map"),
    "lib.init_helper": ("get_logger", "init_logging", "load_modules"),
    "lib.iterator": ("ConfigIterator", "DefaultConfigIterator", "RangeConfigIterator", "register_config_iterator", "config_iterator_map"),
    "lib.operator": ("OperatorInterface", "register_operator", "register_operators", "op_map"),
    "lib.pytorch.benchmark": ("Benchmark", "make_default_benchmark", "OpExecutor", *EXECUTORS, *OPTIONS),
    "lib.pytorch.benchmark_helper": (),
    "lib.pytorch.build_executor": (*EXECUTORS, "OpExecutor"),
    "lib.pytorch.config_util": (
        *OPTIONS, "create_bench_config", "create_op_args", "create_op_info", "create_type", "get_op_run_id", "get_sys_info", "init_pytorch",
    ),
    "lib.pytorch.data_impl": ("DefaultDataGenerator",),
    "lib.pytorch.op_executor": ("OpExecutor",),
    "lib.pytorch.operator_impl": ("BuildableOp", "CallableOp", "InPlaceOp"),
}  # fmt: skip
"""What can be imported, by module below the root."""
RENAMED: Mapping[str, Mapping[str, str]] = {
    "lib": {"__version__": "VERSION"}, "lib.data": {"DataGenerator": "ArgumentGenerator"},
    "lib.pytorch.config_util": {"create_data": "create_type"}, "lib.pytorch.operator_impl": {"UnaryOp": "InPlaceOp"},
    "lib.pytorch.benchmark_helper": {"BenchmarkHelper": "FileBenchmark"},
}  # fmt: skip
"""Old names of our objects, as older scripts use them."""


class NameFinder(NameServer):
    """Answers for every module of PARAM's library; one that we do not have is reported as missing, even if PARAM is installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Return our module for a name; None for other names."""
        if fullname != ROOT.partition(".")[0] and not fullname.startswith(f"{ROOT.partition('.')[0]}."):
            return None
        if not f"{ROOT}.".startswith(f"{fullname}.") and fullname.removeprefix(f"{ROOT}.") not in MODULES:
            known = ", ".join(name for name in MODULES if name.count("."))
            raise ModuleNotFoundError(f"{fullname} is not served by steelyard.param_bench (served: {known})", name=fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def names_of(self, module: str) -> Mapping[str, Any]:
        """Return our library's objects by the names in one of PARAM's modules; some are renamed."""
        place = module.removeprefix(f"{ROOT}.")
        ours = {name: value for library in LIBRARY for name, value in vars(importlib.import_module(library)).items()}
        names = {**{name: name for name in MODULES.get(place, ())}, **RENAMED.get(place, {})}
        return {theirs: ours[name] for theirs, name in names.items()}


serve = NameFinder.serve
