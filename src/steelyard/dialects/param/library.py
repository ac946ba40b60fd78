"""PARAM's library under its own names: options, configs and executors, run by our engine.

Everything runs in the calling process, as in the original. `names.py` makes these definitions importable.
"""

from __future__ import annotations

import copy
import enum
import functools
import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from steelyard.dialects.param import expand, here, lines
from steelyard.dialects.param.flags import MODES, Options
from steelyard.dialects.param.lines import Line
from steelyard.dialects.param.registering import DefaultConfigIterator, config_iterator_map, data_generator_map, registered
from steelyard.dialects.param.watching import ConfigWatch
from steelyard.errors import UsageError, unknown
from steelyard.version import __version__

TYPES = ("int", "long", "float", "double", "bool", "device", "str", "genericlist", "tuple", "tensor")
RANGED = ("int", "long", "float", "double")
BY_NAME = ("warmup", "iteration", "device", "backward", "exec_mode", "et", "resume_id", "stop_id", "run_batch_size", "ncu_bin", "nsys_bin")
"""Options that a helper's config has under our names."""
VERSION = f"steelyard {__version__}"


class ExecutionPass(enum.Enum):
    """Only the forward pass, or both passes."""

    FORWARD = "forward"
    BACKWARD = "backward"


class OpExecutionMode(enum.Enum):
    """How calls are timed."""

    DISCRETE, CONTINUOUS, CONTINUOUS_EVENTS = MODES


class StopBenchmarkException(Exception):
    """Raised by an executor to end the whole run."""


def get_benchmark_options() -> dict[str, Any]:
    """Return all options by the original's names, with their defaults."""
    asked = lines.header(Options(), {}, datetime.now())["run_options"]
    changed = {
        "pass_type": ExecutionPass.FORWARD,
        "op_exec_mode": OpExecutionMode.DISCRETE,
        "cuda_l2_cache": False,
        "out_file_prefix": None,
    }
    return {name: value for name, value in asked.items() if name != "cmd_args"} | changed


def options_of(given: Mapping[str, Any]) -> Options:
    """Convert to our options; tools that run around the whole command are only for the command line."""
    if given.get("run_ncu") or given.get("run_nsys"):
        raise UsageError("ncu and nsys can profile a command, not calls in this process", do="use steelyard as param -c FILE --ncu")
    mode = _word(given.get("op_exec_mode", given.get("op_exe_mode", "discrete")))
    device = str(given.get("device", "cpu"))
    flush = not given.get("cuda_l2_cache", True) and device.startswith("cuda") and mode == "discrete"
    return here.settled({
        "device": device, "warmup": given.get("warmup", 1), "iteration": given.get("iteration", 1), "exec_mode": mode,
        "backward": _word(given.get("pass_type", "forward")) == "backward", "cuda_l2_cache": "off" if flush else "on",
        "resume_id": given.get("resume_op_run_id"), "stop_id": given.get("stop_op_run_id"),
        "pt2_model": bool(given.get("pt2-model")), "cuda_graph": bool(given.get("cuda-graph")),
    })  # fmt: skip


def _word(value: Any) -> str:
    return str(value.value if isinstance(value, enum.Enum) else value)


def create_bench_config(name: str) -> dict[str, Any]:
    """A config of one operator, to be filled in."""
    return {name: create_op_info()}


def create_op_info() -> dict[str, Any]:
    """A config's entry for an operator, to be filled in."""
    open_ones = dict.fromkeys(("build_iterator", "input_iterator", "build_data_generator"))
    return {**open_ones, "input_data_generator": expand.DEFAULT_GENERATOR, "config": [{"build": [], "input": []}]}


def create_op_args(args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of one call or one build."""
    return {"args": args, "kwargs": kwargs}


def create_type(type: str) -> dict[str, Any]:
    """A description of an argument, to be filled in: `int`, `int_range`, `tensor` and so on."""
    if type == "tensor":
        return {"type": type, "dtype": "float", "shape": None}
    ranged = type.removesuffix("_range")
    if ranged != type and ranged in RANGED:
        return {"type": ranged, "value_range": None}
    if type not in TYPES:
        raise unknown("type", type, [*TYPES, *(f"{name}_range" for name in RANGED)])
    return {"type": type, "value": None}


def get_op_run_id(op_name: str, run_id: str) -> str:
    """The id that is unique in a file."""
    return f"{op_name}|{run_id}"


def get_sys_info() -> Line:
    """Return the facts about the system, as in the first line of an output file."""
    from steelyard.backends._torch_fixed import facts

    return lines.machine(facts())


def init_pytorch(run_options: Any = None) -> None:
    """Use one thread, and restart the random numbers."""
    from steelyard.engine.bench import open_backend
    from steelyard.workloads.operators.call import sow

    open_backend("torch")("cpu", threads=1)
    sow(0)


def get_logger() -> logging.Logger:
    """Return the library's logger."""
    return logging.getLogger("param_bench")


def init_logging(level: int = logging.INFO) -> logging.Logger:
    """Set the level of the library's logger, and return it."""
    get_logger().setLevel(level)
    return get_logger()


def load_modules(package: Any) -> None:
    """Does nothing: names in configs are looked up when they are used."""


class OperatorConfig:
    """An operator of a config, with the iterators and generators of its arguments."""

    def __init__(self, name: str, info: Mapping[str, Any], op: Any = None, device: str = "cpu") -> None:
        self.name, self.info, self.device = name, info, device
        self.build_iterator = config_iterator_map.get(info.get("build_iterator") or "", DefaultConfigIterator)
        self.input_iterator = config_iterator_map.get(info.get("input_iterator") or "", DefaultConfigIterator)
        self.build_data_generator = data_generator_map.get(info.get("build_data_generator") or "")
        self.input_data_generator = data_generator_map.get(info.get("input_data_generator") or "")
        if op is not None:
            self.op = op

    @functools.cached_property
    def op(self) -> Any:
        """The operator itself; an unknown name is an error here."""
        from steelyard.workloads.operators import _names

        found = _names.find(self.name, registered().operators).make()
        found.device = self.device
        return found


def make_op_config(op_name: str, op_info: Mapping[str, Any], device: str) -> OperatorConfig:
    """An operator of a config."""
    return OperatorConfig(op_name, op_info, device=device)


class BenchmarkConfig:
    """A config, from a file, a text or data."""

    def __init__(self, run_options: Mapping[str, Any] | str) -> None:
        asked = {**get_benchmark_options(), "device": run_options} if isinstance(run_options, str) else run_options
        self.run_options: Mapping[str, Any] = asked
        self.bench_config: dict[str, Any] = {}
        self.op_configs: list[OperatorConfig] = []

    def load_json_file(self, config_file_name: str) -> None:
        """Load a file."""
        self.load_json(Path(config_file_name).read_text(encoding="utf-8"))

    def load_json(self, config_json: str) -> None:
        """Load a text."""
        self.load(json.loads(config_json))

    def load(self, config: Mapping[str, Any]) -> None:
        """Load data."""
        self.bench_config = copy.deepcopy(dict(config))
        self.op_configs += [make_op_config(name, info, self.run_options.get("device", "cpu")) for name, info in self.bench_config.items()]


class OpExecutor:
    """Runs one operator with given arguments."""

    def __init__(self, name: str, op: Any, run_options: Mapping[str, Any]) -> None:
        self.name, self.op, self.run_options = name, op, run_options

    def run(self, input_args: list[Any], input_kwargs: dict[str, Any], op_run_id: str) -> dict[str, Any]:
        """Return the times of its calls in the form of a record."""
        from steelyard.workloads.operators.call import bound

        forward, args, kwargs, _ = bound(self.op, list(input_args), dict(input_kwargs))
        return here.measure(forward, args, kwargs, f"{self.name}|{op_run_id}", options_of(self.run_options), self.op)


class BuildExecutor:
    """Runs one build of an operator with its inputs; subclasses implement `run`."""

    def __init__(self) -> None:
        self.resume_id: str | None = None

    def run(self, op_config: OperatorConfig, build_input_config: Mapping[str, Any], config_build_id: str) -> Any:
        """Called for every build."""
        raise NotImplementedError


class OpBuildExecutor(BuildExecutor):
    """The default: runs the inputs in order, and writes a line for each to the stream in the options."""

    def __init__(self, run_options: Mapping[str, Any]) -> None:
        super().__init__()
        self.run_options = run_options

    def run(self, op_config: OperatorConfig, build_input_config: Mapping[str, Any], config_build_id: str) -> list[Line]:
        """Run one build and return its records."""
        build, info = build_input_config.get("build"), {**op_config.info, "build_iterator": None}
        entry = {"input": build_input_config["input"], **({} if build is None else {"build": [build] if build else []})}
        found = records({op_config.name: {**info, "config": [entry]}}, self.run_options)
        return written([{**line, "id": f"{config_build_id}|{line['id'].rpartition('|')[2]}"} for line in found], self.run_options)


def records(config: Mapping[str, Any], run_options: Mapping[str, Any]) -> list[Line]:
    """Run a config in this process; keys with null are ignored, as in the original."""
    plain = {name: _settled(info) for name, info in json.loads(json.dumps(config)).items()}
    return here.run(plain, options_of(run_options), own=registered())


def _settled(info: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in info.items() if value is not None}
    if "build_data_generator" not in found:
        found["config"] = [{key: value for key, value in entry.items() if key != "build" or value} for entry in found.get("config", [])]
    return found


def written(made: list[Line], run_options: Mapping[str, Any]) -> list[Line]:
    """Write records to the stream in the options, if there is one, and return them."""
    stream: TextIO | None = run_options.get("out_stream")
    if stream is not None:
        for line in made:
            stream.write(json.dumps(line) + "\n")
            stream.flush()
    return made


class Benchmark:
    """A config run by an executor."""

    def __init__(self, bench_config: BenchmarkConfig, build_executor: Any) -> None:
        self.bench_config, self.run_options = bench_config, bench_config.run_options
        self.build_executor = build_executor(self.run_options)

    def run(self) -> list[Any]:
        """Run the whole config and return the executor's results, by default records."""
        if type(self.build_executor) is OpBuildExecutor:
            return written(records(self.bench_config.bench_config, self.run_options), self.run_options)
        made: list[Any] = []
        try:
            for op_config in self.bench_config.op_configs:
                made += self.run_op(op_config)
        except StopBenchmarkException:
            get_logger().info("stopped by the executor")
        return made

    def run_op(self, op_config: OperatorConfig) -> Iterable[Any]:
        """Run every build of one operator, each with its id."""
        for number, entry in enumerate(op_config.info["config"]):
            builds = list(op_config.build_iterator(entry, "build", self.run_options["device"])) if entry.get("build") else []
            for id, build in builds or [("0", entry.get("build"))]:
                yield self.build_executor.run(op_config, {"build": build, "input": entry["input"]}, f"{number}|{id}")


def make_default_benchmark(bench_config: BenchmarkConfig) -> Benchmark:
    """Return a benchmark that runs a config with the default executor."""
    return Benchmark(bench_config, OpBuildExecutor)


class FileBenchmark:
    """Runs config files one after another, each with its own output file; options are attributes of `config`."""

    def __init__(self, config: Any, logger: logging.Logger | None = None) -> None:
        self.config, self.logger = config, logger or get_logger()

    def eval(self, evaluate_file_path: str) -> dict[str, str]:
        """Run a file in a worker and return the files written, by the original's names."""
        from steelyard.dialects.param import session
        from steelyard.store.runs import Store

        given = {name: getattr(self.config, name) for name in BY_NAME if hasattr(self.config, name)}
        usual = {"profile": getattr(self.config, "profile", True), "append": getattr(self.config, "append", True)}
        tools = {"ncu": getattr(self.config, "run_ncu", False), "nsys": getattr(self.config, "run_nsys", False)}
        prefix = f"{getattr(self.config, 'output_prefix', '')}_{Path(evaluate_file_path).stem}_benchmark.json"
        options = Options.from_plain({**given, **usual, **tools, "output_prefix": prefix})
        made = session.begin(options, Logged(self.logger), store=Store.find())
        made.run(Path(evaluate_file_path))
        return made.files


class Logged(ConfigWatch):
    """Reports to a logger."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger

    def mistake(self, mistake: expand.Mistake) -> None:
        """Called with a mistake in the config."""
        self.logger.error("%s", mistake)

    def warning(self, text: str) -> None:
        """Called with a change that was necessary."""
        self.logger.warning("%s", text)

    def finished(self, line: Line) -> None:
        """Called when a config is measured."""
        self.logger.info("%s %s", lines.full_id(line), lines.status(line))
