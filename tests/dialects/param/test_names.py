"""Scripts written for PARAM's library run unchanged under `python -m steelyard.param_bench`, or with one line more."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.dialects.param import names

PYTHON = "param_bench.train.compute.python"
ONE_OP = f'''
"""One operator, described, run and printed: as the original's own example does it, from an installed package."""
import torch

from {PYTHON}.lib import __version__, pytorch as lib_pytorch
from {PYTHON}.lib.config import make_op_config
from {PYTHON}.lib.init_helper import load_modules
from {PYTHON}.lib.pytorch.config_util import create_bench_config, create_op_args, create_type, ExecutionPass, get_benchmark_options
from {PYTHON}.lib.pytorch.op_executor import OpExecutor
from {PYTHON}.workloads import pytorch as workloads_pytorch

load_modules(lib_pytorch)
load_modules(workloads_pytorch)
bench = create_bench_config("torch.mm")
left, right = create_type("tensor"), create_type("tensor")
left["shape"], right["shape"] = [8, 4], [4, 2]
bench["torch.mm"]["config"][0]["input"].append(create_op_args([left, right], {{}}))
options = get_benchmark_options()
options["pass_type"], options["iteration"] = ExecutionPass.BACKWARD, 3
made = make_op_config("torch.mm", bench["torch.mm"], options["device"])
args, kwargs = made.input_data_generator().get_data(bench["torch.mm"]["config"][0]["input"][0], options["device"])
assert [tuple(item.shape) for item in args] == [(8, 4), (4, 2)] and made.op.forward(*args).shape == (8, 2)
result = OpExecutor("torch.mm", made.op, options).run(args, kwargs, "0:0:0")
print({{name: {{metric: len(values) for metric, values in part.items()}} for name, part in result.items()}})
'''
WHOLE = f"""
import io, json, sys
from {PYTHON}.lib.config import BenchmarkConfig
from {PYTHON}.lib.data import DataGenerator, register_data_generator
from {PYTHON}.lib.iterator import ConfigIterator, register_config_iterator
from {PYTHON}.lib.operator import OperatorInterface, op_map, register_operator, register_operators
from {PYTHON}.lib.pytorch.benchmark import Benchmark, make_default_benchmark
from {PYTHON}.lib.pytorch.build_executor import BuildExecutor, OpBuildExecutor, StopBenchmarkException
from {PYTHON}.lib.pytorch.config_util import get_benchmark_options, get_sys_info, init_pytorch
from {PYTHON}.lib.pytorch.operator_impl import BuildableOp, CallableOp, InPlaceOp
import torch

class Scale(OperatorInterface):
    def build(self, factor):
        self.factor = factor
    def forward(self, x):
        return x * self.factor

class Doubling(ConfigIterator):
    def __init__(self, configs, key, device):
        super().__init__(configs, key, device)
        self.left = [4, 8]
    def __next__(self):
        if not self.left:
            raise StopIteration
        size = self.left.pop(0)
        return size, {{"args": [{{"type": "tensor", "dtype": "float", "shape": [size]}}]}}

class Ones(DataGenerator):
    def get_data(self, config, device):
        return [torch.ones(config["args"][0]["shape"])], {{}}

register_operator("my.scale", Scale)
register_operators({{"my.neg": CallableOp(torch.neg), "my.linear": BuildableOp(torch.nn.Linear), "my.fill_": InPlaceOp("zero_")}})
register_config_iterator("Doubling", Doubling)
register_data_generator("Ones", Ones)
try:
    register_operator("my.scale", Scale)
except ValueError as error:
    print(error)

DATA = "PyTorch:DefaultDataGenerator"
tensor = {{"type": "tensor", "dtype": "float", "shape": [2, 4]}}
numbers = [{{"type": "int", "value": 4}}, {{"type": "int", "value": 3}}]
config = {{
    "torch.add": {{"input_data_generator": DATA, "input_iterator": "RangeConfigIterator", "build_iterator": None, "config": [
        {{"build": [], "input": [{{"args": [{{**tensor, "shape": [[1, 2]], "__range__": ["shape"]}}, {{"type": "int", "value": 1}}]}}]}}]}},
    "my.scale": {{"build_data_generator": DATA, "input_data_generator": "Ones", "input_iterator": "Doubling", "config": [
        {{"build": [{{"args": [{{"type": "float", "value": value}}]}} for value in (2.0, 3.0)], "input": [{{"args": []}}]}}]}},
    "my.neg": {{"input_data_generator": DATA, "config": [{{"input": [{{"args": [tensor]}}]}}]}},
    "my.linear": {{"build_data_generator": DATA, "input_data_generator": DATA, "config": [
        {{"build": [{{"args": numbers}}], "input": [{{"args": [tensor]}}]}}]}},
    "my.fill_": {{"input_data_generator": DATA, "config": [{{"input": [{{"args": [tensor]}}]}}]}},
}}
options = get_benchmark_options()
options.update(iteration=2, out_stream=io.StringIO())
init_pytorch(options)
bench = BenchmarkConfig(options)
bench.load_json(json.dumps(config))
make_default_benchmark(bench).run()
lines = [json.loads(line) for line in options["out_stream"].getvalue().splitlines()]
print([(line["op_name"], line["id"], len(line["metric"]["forward"]["measure.time"])) for line in lines])

class Mine(BuildExecutor):
    def __init__(self, run_options):
        super().__init__()
        self.usual = OpBuildExecutor(run_options)
    def run(self, op_config, build_input_config, config_build_id):
        if op_config.name == "my.neg":
            raise StopBenchmarkException
        print(op_config.name, config_build_id, build_input_config["build"])
        return [line["id"] for line in self.usual.run(op_config, build_input_config, config_build_id)]

options["out_stream"] = None
print(Benchmark(bench, Mine).run())
print(sorted(op_map), get_sys_info()["pytorch_version"] == torch.__version__)
"""
HELPED = f"""
from types import SimpleNamespace
from {PYTHON}.lib.pytorch.benchmark_helper import BenchmarkHelper

files = BenchmarkHelper(SimpleNamespace(output_prefix="out", profile=False, iteration=2)).eval("config.json")
print(files)
"""
OWN = f"""
import steelyard.param_bench
from {PYTHON}.lib.operator import OperatorInterface, register_operator

class Twice(OperatorInterface):
    def forward(self, x):
        return x + x

register_operator("my.twice", Twice)
"""
pytestmark = pytest.mark.torch


def ran(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", ["", "import steelyard.param_bench\n"], ids=["unchanged", "one line"])
def test_a_script_for_one_operator_runs(line: str, tmp_path: Path) -> None:
    (tmp_path / "run_op.py").write_text(line + ONE_OP)
    said = ran(tmp_path, *([] if line else ["-m", "steelyard.param_bench"]), "run_op.py")
    lengths = {"warmup.time": 1, "warmup.gpu.memory": 1, "measure.time": 3, "measure.gpu.memory": 3}
    assert said == f"{ ({'forward': lengths, 'backward': lengths}) }\n"


def test_whole_configs_with_operators_iterators_generators_and_executors_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(WHOLE)
    twice, lines, *mine, made, names = ran(tmp_path, "-m", "steelyard.param_bench", "whole.py").splitlines()
    assert twice == "Duplicate operator registration name: my.scale"
    assert ast.literal_eval(lines) == [
        ("torch.add", "0|0|0_0", 2), ("torch.add", "0|0|0_1", 2), ("my.scale", "0|0|4", 2), ("my.scale", "0|0|8", 2),
        ("my.scale", "0|1|4", 2), ("my.scale", "0|1|8", 2), ("my.neg", "0|0|0", 2), ("my.linear", "0|0|0", 2), ("my.fill_", "0|0|0", 2),
    ]  # fmt: skip
    assert [line.split(" {")[0] for line in mine] == ["torch.add 0|0 []", "my.scale 0|0", "my.scale 0|1"]
    assert ast.literal_eval(made) == [["0|0|0_0", "0|0|0_1"], ["0|0|4", "0|0|8"], ["0|1|4", "0|1|8"]]
    assert names == "['my.fill_', 'my.linear', 'my.neg', 'my.scale'] True"


def test_the_helper_writes_a_file_for_each_config(tmp_path: Path) -> None:
    tensor = {"type": "tensor", "dtype": "float", "shape": [2, 4]}
    info = {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": [{"args": [tensor]}]}]}
    (tmp_path / "config.json").write_text(json.dumps({"torch.neg": info}))
    (tmp_path / "help.py").write_text(HELPED)
    assert ran(tmp_path, "-m", "steelyard.param_bench", "help.py") == "{'benchmark_file': 'out_config_benchmark.json'}\n"
    assert json.loads((tmp_path / "out_config_benchmark.json").read_text().splitlines()[1])["op_name"] == "torch.neg"


def test_a_file_of_operators_for_the_original_serves_the_command_line(tmp_path: Path) -> None:
    tensor = {"type": "tensor", "dtype": "float", "shape": [2, 4]}
    info = {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": [{"args": [tensor]}]}]}
    (tmp_path / "config.json").write_text(json.dumps({"my.twice": info}))
    (tmp_path / "mine.py").write_text(OWN)
    ran(tmp_path, "-m", "steelyard", "as", "param", "-c", "config.json", "--file", "mine.py", "-o", "out.json")
    assert json.loads((tmp_path / "out.json").read_text().splitlines()[1])["steelyard"]["status"] == "ok"


def test_what_is_not_served_is_told_by_name(tmp_path: Path) -> None:
    tried = f"try:\n    import {PYTHON}.tools.et_replay\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    (tmp_path / "other.py").write_text(f"import steelyard.param_bench\n{tried}")
    assert f"{PYTHON}.tools is not served by steelyard.param_bench (served: lib." in ran(tmp_path, "other.py")
    assert "usage:" in subprocess.run([sys.executable, "-m", "steelyard.param_bench"], capture_output=True, text=True, check=False).stderr


def test_every_name_that_is_served_is_there() -> None:
    finder = names.NameFinder()
    for place in names.MODULES:
        spec = finder.find_spec(f"{names.ROOT}.{place}", None)
        assert spec is not None
        module = type(sys)(spec.name)
        finder.exec_module(module)
        assert {*names.MODULES[place], *names.RENAMED.get(place, {})} <= set(vars(module))
    assert finder.find_spec("json", None) is None
