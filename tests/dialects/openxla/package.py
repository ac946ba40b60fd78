"""A package of a user's own, outside of the repository: models of all sorts and their definitions, as the suite's document has them."""

from __future__ import annotations

from pathlib import Path

HEAD = """\
import numpy as np
import torch
from openxla.benchmark.models import model_interfaces, utils


class Base(model_interfaces.InferenceModel):
  def __init__(self, batch_size, data_type="fp32"):
    self.batch_size, self.data_type, self.calls = batch_size, data_type, 0
    self.model = torch.nn.Linear(4, 2)

  def generate_default_inputs(self):
    return "abcd"

  def preprocess(self, text):
    return torch.tensor([[float(ord(char)) for char in text]] * self.batch_size)

  def forward(self, x):
    return self.model(x)

"""
MODELS = {
    "good": "class Made(Base): pass",
    "half": "class Made(Base):\n  def __init__(self, **words):\n    super().__init__(**words)\n    self.model.half()\n"
    "  def preprocess(self, text):\n    return super().preprocess(text).half()",
    "twelve": "class Made(Base):\n  def generate_default_inputs(self):\n    return tuple(range(12))\n"
    "  def preprocess(self, raw):\n    return tuple(np.full((2,), item, np.float32) for item in raw)\n"
    "  def forward(self, *args):\n    assert len(args) == 12\n    return torch.stack(args)[:, 0], args[3] > 2, args[11].to(torch.uint8)",
    "loose": "class Made(Base):\n  def forward(self, x):\n    self.calls += 1\n    return self.model(x), torch.tensor([self.calls * 1.0])",
    "naught": "class Made(Base):\n  def forward(self, x):\n    return self.model(x) * float('nan')",
    "hangs": "import time\nclass Made(Base):\n  def forward(self, x):\n    time.sleep(600)",
    "needs": "import a_package_that_is_nowhere\nclass Made(Base): pass",
    "breaks": "from torch import no_such_name\nclass Made(Base): pass",
    "mute": "class Made:\n  def __init__(self, **words): pass",
}
MAKE = "\n\ndef create_model(**parameters):\n  return Made(**parameters)\n"
DEFINITIONS = """\
from openxla.benchmark import def_types
from openxla.benchmark.comparative_suite import utils

def impl(name):
  return def_types.ModelImplementation(
      name=name.upper(), tags=["mine"], framework_type=def_types.ModelFrameworkType.PYTORCH, module_path=f"my_suite.models.{name}")

def variant(name, batch, data_type="fp32"):
  return def_types.Model(
      name=f"{name.upper()}_{data_type.upper()}_PT_BATCH{batch}", tags=[f"batch-{batch}"], model_impl=impl(name),
      model_parameters={"batch_size": batch, "data_type": data_type})

GOODS = utils.build_batch_models(
    template=utils.ModelTemplate(
        name=utils.BATCH_NAME("GOOD_FP32_PT"), tags=[utils.BATCH_TAG], model_impl=impl("good"),
        model_parameters={"batch_size": utils.BATCH_SIZE_PARAM, "data_type": "fp32"}),
    batch_sizes=[1, 16])
OTHERS = [variant(name, 1) for name in %(names)r]
LIAR = variant("good", 3, "fp16")
HALF = variant("half", 2, "fp16")
LOST = variant("nowhere", 1)
ALL_MODELS = [*GOODS.values(), *OTHERS, LIAR, HALF, LOST]
"""
BENCHMARKS = """\
from openxla.benchmark import def_types, testdata
from openxla.benchmark.comparative_suite import utils
from my_suite import model_definitions

ALL_BENCHMARKS = [
    *utils.build_batch_benchmark_cases(
        batch_models=model_definitions.GOODS, verify_parameters={"absolute_tolerance": 0.1}, batch_sizes=[1, 16]).values(),
    *(def_types.BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
      for model in [*model_definitions.OTHERS, model_definitions.LIAR, model_definitions.HALF, model_definitions.LOST]),
]
"""
MISSPELT = """\
from openxla.benchmark import def_types

ALL_MODELS = [def_types.Model(name="A", tags=[], modle_impl=None, model_parameters={})]
"""
MISTYPED = """\
from openxla.benchmark import def_types, testdata

IMPL = def_types.ModelImplementation(name="TYPO", tags=["t"], framework_type="torch", module_path="my_suite.models.good")
MODEL = def_types.Model(name="TYPO_FP32_PT", tags=[], model_impl=IMPL, model_parameters={})
ALL_BENCHMARKS = [def_types.BenchmarkCase.build(model=MODEL, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)]
"""
HOSTILE = {
    "ends": "import os\nos._exit(3)\n",
    "raises": "class Mute(Exception):\n  def __str__(self):\n    raise RuntimeError\nraise Mute\n",
    "late": "ALL_MODELS = (1 / 0 for _ in [1])\n",
    "cyclic": "from my_suite.model_definitions import variant\nALL_MODELS = [variant('good', 1)]\n"
    "ALL_MODELS[0].model_parameters['self'] = ALL_MODELS[0].model_parameters\n",
    "odd": "class Odd:\n  @property\n  def name(self):\n    raise RuntimeError\nALL_MODELS = [Odd()]\n",
}
HOSTILE_TOLD = {
    "ends": "the process ended while importing it: the worker exited with code 3",
    "raises": "Mute",
    "late": "ZeroDivisionError",
    "cyclic": "it contains itself, or is nested too deeply",
    "odd": "is not of type Model",
}
ESCAPES = """\
from openxla.benchmark import def_types, testdata

IMPL = def_types.ModelImplementation(name="I", tags=[], framework_type=def_types.ModelFrameworkType.PYTORCH, module_path="m")
ALL_MODELS = [def_types.Model(name="\\x1b[31mRED\\x07\\u202e", tags=[], model_impl=IMPL, model_parameters={})]
ALL_BENCHMARKS = [def_types.BenchmarkCase.build(model=ALL_MODELS[0], input_data=testdata.INPUT_DATA_MODEL_DEFAULT)]
"""


def write(folder: Path, names: tuple[str, ...] = ("good",), *, broken: bool = False) -> Path:
    """A folder with the package `my_suite`, its models by name, and definitions for them; some of them wrong, if asked for."""
    package = folder / "my_suite"
    models = package / "models"
    models.mkdir(parents=True)
    for place in (package, models):
        (place / "__init__.py").touch()
    for name in {*names, "good", "half"}:
        (models / f"{name}.py").write_text(HEAD + MODELS[name] + MAKE)
    (package / "model_definitions.py").write_text(DEFINITIONS % {"names": [name for name in names if name != "good"]})
    (package / "benchmark_definitions.py").write_text(BENCHMARKS)
    if broken:
        (package / "misspelt_definitions.py").write_text(MISSPELT)
        (package / "mistyped_definitions.py").write_text(MISTYPED)
    return folder
