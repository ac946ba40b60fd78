"""Exporters for TensorFlow, and for JAX through TensorFlow: StableHLO, SavedModel and five kinds of TFLite."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts import arrays
from steelyard.errors import SteelyardError
from steelyard.exporters.subjects import Exportable, HostArray, split
from steelyard.model.task import Task

SIGNATURE = "serving_default"
QUANTIZED = ("tflite_fp16", "tflite_dynamic_range_quant", "tflite_int8")


def prepare(task: Task, be: Any) -> Exportable:
    """Return a TensorFlow task as a function of its inputs; weights among its arguments become constants of its graph."""
    import tensorflow as tf

    def is_tensor(value: Any) -> bool:
        return isinstance(value, (tf.Tensor, tf.Variable))

    given, arguments = split(task, is_tensor)
    inputs = [id(item) for item in given]

    def constant(value: Any) -> Any:
        """Make a weight a constant: a tensor from outside the graph would become an argument of the program."""
        if isinstance(value, tf.Tensor) and hasattr(value, "numpy") and id(value) not in inputs:
            return tf.constant(value.numpy())
        return value

    def call(*others: Any) -> tuple[Any, ...]:
        args, kwargs = tf.nest.map_structure(constant, arguments(*others))
        found = task.fn(*args, **kwargs) if task.fn else ()
        return tuple(item for item in tf.nest.flatten(found) if is_tensor(item))

    return Exportable(call, tuple(tf.identity(item) for item in given), host, task, be)


def host(value: Any) -> tuple[str, HostArray]:
    """Return the format and the data of a tensor."""
    data = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return arrays.dtype_of(data), data


def _signature(subject: Exportable) -> list[Any]:
    import tensorflow as tf

    return [
        tf.TensorSpec(item.shape, item.dtype, name=name) for name, item in zip(subject.input_names, map(_host, subject.inputs), strict=True)
    ]


def _host(value: Any) -> HostArray:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _graph(subject: Exportable) -> Any:
    """Return the call as a tf.function with named inputs and outputs; a JAX call is converted."""
    import tensorflow as tf

    if "graph" not in subject.kept:
        call: Any = subject.call
        if subject.be.name == "jax":
            from jax.experimental import jax2tf

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = jax2tf.convert(subject.call, with_gradient=False)

        def named(*inputs: Any) -> dict[str, Any]:
            return {f"output_{number}": item for number, item in enumerate(call(*inputs))}

        subject.kept["graph"] = tf.function(named, input_signature=_signature(subject), autograph=False)
    return subject.kept["graph"]


def _frozen(subject: Exportable) -> Any:
    """Return the graph with its variables as constants."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    if "frozen" not in subject.kept:
        found = convert_variables_to_constants_v2(_graph(subject).get_concrete_function(), lower_control_flow=False)
        subject.kept["frozen"] = found
    return subject.kept["frozen"]


def stablehlo_text(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write StableHLO as XLA gets it from TensorFlow, with the weights in it."""
    import tensorflow as tf

    from steelyard.exporters.jax import check_whole

    frozen = _frozen(subject)
    if frozen.captured_inputs:
        raise SteelyardError(f"{len(frozen.captured_inputs)} weights did not become constants", why="TensorFlow could not freeze them")
    outputs = [name for name, _ in sorted(_graph(subject).get_concrete_function().structured_outputs.items())]
    compiled = tf.function(lambda *inputs: tuple(frozen(*inputs)), jit_compile=True, input_signature=_signature(subject), autograph=False)
    text = compiled.experimental_get_compiler_ir(*subject.inputs)(stage="stablehlo")
    check_whole(text)
    if (count := _arguments(text)) != len(subject.inputs):
        raise SteelyardError(
            f"the program takes {count} arguments, not {len(subject.inputs)}", why="XLA left out an input that nothing uses"
        )
    path.write_text(text, encoding="utf-8")
    return {"wrote": f"TensorFlow {tf.__version__}", "results": outputs}


def _arguments(text: str) -> int:
    """Return how many arguments the main function of a text program has."""
    begin = text.index("@main(")
    return len(set(re.findall(r"%arg\d+(?=:)", text[begin : text.index("\n", begin)])))


@contextlib.contextmanager
def _saved(subject: Exportable) -> Iterator[Path]:
    """Yield the folder of a SavedModel, which is saved once for all exporters that need it."""
    import tensorflow as tf

    if "saved" not in subject.kept:
        folder = Path(tempfile.mkdtemp(prefix="steelyard-saved-", dir=subject.kept.get("scratch")))
        module = tf.Module()
        module.call = _graph(subject)
        held = [getattr(subject.task.fn, "__self__", None), *tf.nest.flatten((subject.task.args, dict(subject.task.kwargs)))]
        module.held = [item for item in held if isinstance(item, (tf.Module, tf.Variable))]
        tf.saved_model.save(module, str(folder), signatures={SIGNATURE: module.call})
        subject.kept["saved"] = folder
    yield subject.kept["saved"]


def saved_model(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write a SavedModel as an archive."""
    import tensorflow as tf

    with (
        _saved(subject) as folder,
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for item in (item for item in sorted(folder.rglob("*")) if item.is_file()):
            held = tarfile.TarInfo(str(item.relative_to(folder)))
            held.size = item.stat().st_size
            with item.open("rb") as file:
                archive.addfile(held, file)
    return {"wrote": f"TensorFlow {tf.__version__}", "entry": SIGNATURE}


def lite(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write a TFLite file and return the order of its inputs and outputs, which may differ from the call's."""
    import tensorflow as tf

    with _saved(subject) as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=[SIGNATURE])
        _set(converter, subject, kind)
        content = converter.convert()
    path.write_bytes(content)
    arguments, results = order_in(content)
    return {"wrote": f"TensorFlow {tf.__version__}", "entry": SIGNATURE, "arguments": arguments, "results": results}


def _set(converter: Any, subject: Exportable, kind: str) -> None:
    import tensorflow as tf

    if kind == "tflite_fp32_stablehlo":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.EXPERIMENTAL_STABLEHLO_OPS]
    if kind in QUANTIZED:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "tflite_fp16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "tflite_int8":
        given = {name: _host(item) for name, item in zip(subject.input_names, subject.inputs, strict=True)}
        converter.representative_dataset = lambda: iter([(SIGNATURE, given)])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]


def order_in(content: bytes) -> tuple[list[str], list[str]]:
    """Return the names of a TFLite file's inputs and outputs, in the file's order."""
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAsModel(content, 0)
    graph, signature = model.Subgraphs(0), model.SignatureDefs(0)
    found = []
    for count, at, tensors in (
        (signature.InputsLength(), signature.Inputs, graph.InputsAsNumpy()),
        (signature.OutputsLength(), signature.Outputs, graph.OutputsAsNumpy()),
    ):
        names = {at(number).TensorIndex(): at(number).Name().decode() for number in range(count)}
        if sorted(names) != sorted(int(index) for index in tensors):
            raise SteelyardError("the order of inputs or outputs in the TFLite file is unclear", why="one tensor has several names")
        found.append([names[int(index)] for index in tensors])
    return found[0], found[1]
