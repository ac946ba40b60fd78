"""Run by the interpreter of an environment: build families at the smallest size, and save what each answers.

python family_answers.py FRAMEWORK FILE [MODULE:DATA_TYPE ...]
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import numpy as np

from steelyard.workloads.models.families import FAMILIES


def main(framework: str, file: str, *wanted: str) -> None:
    """For each family its answer as float64, and in JAX the number of weights that the full size has."""
    found: dict[str, Any] = {}
    for word in wanted:
        module, _, data_type = word.partition(":")
        name = next(family.models[0] for family in FAMILIES if family.module == module and family.framework == framework)
        make = importlib.import_module(f"steelyard.workloads.models.families.{module}").create_model
        model = make(framework=framework, batch_size=2, data_type=data_type, model_name=name, preset="tiny")
        given = model.preprocess(model.generate_default_inputs())
        answer = compiled(framework, model)(*(given if isinstance(given, tuple) else (given,)))
        model.postprocess(answer)
        found[word] = np.asarray(answer).astype(np.float64)
        found[f"{word}.format"] = np.asarray(str(getattr(answer.dtype, "name", answer.dtype)))
        if framework == "jax" and data_type == "fp32":
            found |= {f"{module}.{full}": weights(make, framework, full) for full in models(module, framework)}
    np.savez(file, **found)


def models(module: str, framework: str) -> tuple[str, ...]:
    """The names that a family has."""
    return next(family.models for family in FAMILIES if family.module == module and family.framework == framework)


def weights(make: Any, framework: str, name: str) -> Any:
    """How many the full size has; none of them is made."""
    shapes = make(framework=framework, model_name=name).shapes
    return np.asarray(sum(math.prod(shape) for part, shape in shapes.items() if "running_" not in part))


def compiled(framework: str, model: Any) -> Any:
    """As the tools call it."""
    if framework == "jax":
        import jax

        return jax.jit(model.forward)
    import tensorflow as tf

    return tf.function(model.forward, jit_compile=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
