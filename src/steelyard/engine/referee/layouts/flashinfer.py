"""The layout of FlashInfer-Bench's datasets, and of SOL-ExecBench's problems, which have the same form.

A definition (`definitions/**/NAME.json`) has the reference as text with a function `run`, a workload (`workloads/**/NAME.jsonl`, a
line each) the sizes and inputs, a solution (`solutions/**/*.json`) the candidate's sources. So these JSON files contain code. It is
executed, only by workers of `judge`, because the user named this file to be judged, as with a Python file.
Each workload is a problem. A candidate that fills its outputs (`destination_passing_style`) gets new arrays for them in every call.
Python and Triton sources are imported; C++ and CUDA are built if there is a compiler and the binding is torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.engine.referee.layouts import _loading, _reading, _sizes
from steelyard.engine.referee.layouts._traces import trace
from steelyard.engine.referee.posed import Posed, Provisions
from steelyard.errors import Unsupported, UsageError, unknown
from steelyard.model.dtypes import canonical
from steelyard.model.judging import Problem, Submission

__all__ = ["LOOKS_FOR", "NAME", "pose", "problems", "recognise", "seat", "submission", "trace"]

NAME = "flashinfer"
LOOKS_FOR = "a folder with definitions/ and workloads/, a definition in it (JSON), or a folder with definition.json and workload.jsonl"
RUN = "run"
SINGLE = ("definition.json", "workload.jsonl")
KEYS = ("name", "axes", "inputs", "outputs", "reference")
ORIGINS = ("random", "scalar", "safetensors", "custom")
PACKED = "float4_e2m1fn_x2", "float4_e2m1"
RANGES = {"int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}
USUAL_RANGE = (-1024, 1024)


def recognise(path: str) -> bool:
    """Whether a path is a dataset's folder, a definition in one, or the folder of a single problem."""
    file, name = _reading.split(path)
    if name or not file.exists():
        return False
    if file.is_dir():
        return file.joinpath("definitions").is_dir() or file.joinpath(SINGLE[0]).is_file()
    return file.suffix == ".json" and (file.name == SINGLE[0] or "definitions" in files.real(file).parts[:-1])


def problems(path: str, only: Sequence[str] = ()) -> list[Problem]:
    """A problem for each workload; `only` names definitions, workloads by uuid, or `definition/3`."""
    file, _ = _reading.split(path)
    listed: list[Problem] = []
    names: dict[str, list[int]] = {}
    for definition, workloads, root in _definitions(file):
        for number, problem in enumerate(_workloads(definition, workloads, root)):
            told = problem.options
            for name in {told["definition"], told["workload"]["uuid"], f"{told['definition']}/{number}"}:
                names.setdefault(name, []).append(len(listed))
            listed.append(problem)
    if not listed:
        raise UsageError("its definitions have no workloads", do="write workloads/NAME.jsonl, with one workload in each line", where=path)
    return _reading.chosen(listed, only, names)


def _definitions(file: Path) -> Iterator[tuple[Path, list[Path], Path]]:
    """Definitions, the files that may have their workloads, and the folder of the dataset."""
    if file.is_dir() and file.joinpath(SINGLE[0]).is_file():
        file = file / SINGLE[0]
    if file.name == SINGLE[0]:
        yield file, [file.parent / SINGLE[1]], file.parent
        return
    parts = files.real(file).parts
    root = file if file.is_dir() else Path(*parts[: len(parts) - 1 - parts[::-1].index("definitions")])
    workloads = sorted(root.joinpath("workloads").rglob("*.jsonl"))
    for definition in [file] if file.is_file() else sorted(root.joinpath("definitions").rglob("*.json")):
        yield definition, [each for each in workloads if each.stem == definition.stem], root


def _workloads(file: Path, lines: Sequence[Path], root: Path) -> Iterator[Problem]:
    from steelyard.engine.referee.layouts import _documents

    where = str(file)
    definition = _documents.read_json(file)
    for key in KEYS:
        if key not in definition:
            raise UsageError(f"{key} is missing", do=f"write {', '.join(KEYS)} into the definition", where=where)
    name, source = (_documents.text_of(definition, key, where) for key in ("name", "reference"))
    _reading.outline_of(source, file).need(RUN, "define run(…) in the text of reference")
    parts = {key: _documents.table(definition[key], f"{where}: {key}") for key in ("axes", "inputs", "outputs")}
    custom = str(definition.get("custom_inputs_entrypoint") or "")
    for place, line in (item for each in lines for item in _documents.json_lines(each)):
        workload = _documents.table(line.get("workload", line), place)
        if line.get("definition", name) != name:
            continue
        uuid = _documents.text_of(workload, "uuid", place)
        axes = _sizes.resolve(parts["axes"], _documents.table(workload.get("axes") or {}, place), place)
        given = _documents.table(workload.get("inputs") or {}, place)
        inputs, outputs = (_arrays(parts[key], axes, f"{where}: {key}") for key in ("inputs", "outputs"))
        for each in inputs:
            each["origin"] = _origin(each["name"], given.get(each["name"], {"type": "random"}), custom, root, place)
        tolerance = _documents.table(workload.get("tolerance") or {}, place)
        options = {
            "definition": name, "workload": dict(workload), "axes": axes, "inputs": inputs, "outputs": outputs, "custom": custom,
            "sampling": definition.get("op_type") == "sampling", "tolerance": dict(tolerance),
            "unsupported": _unsupported(inputs + outputs),
        }  # fmt: skip
        bounds = [_bound(tolerance, key, place) for key in ("max_rtol", "max_atol")]
        yield Problem(NAME, str(files.real(file)), RUN, options, f"{name} {uuid}", rtol=bounds[0], atol=bounds[1])


def _bound(tolerance: Mapping[str, Any], key: str, where: str) -> float | None:
    value = tolerance.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf")):
        raise UsageError(f"{key} is not a tolerance: {value!r}", where=where)
    return None if value is None else float(value)


def _arrays(listed: Mapping[str, Any], axes: Mapping[str, int], where: str) -> list[dict[str, Any]]:
    found = []
    for name, told in listed.items():
        if not isinstance(told, dict) or not isinstance(told.get("dtype"), str):
            raise UsageError(f"{name} has no dtype", do='write {"shape": ["n"], "dtype": "float32"}', where=where)
        if told["dtype"] not in PACKED:
            try:
                canonical(told["dtype"])
            except UsageError as error:
                raise UsageError(f"{name}: {error.what}", do=error.do, where=where) from None
        found.append({"name": name, "shape": _sizes.shape(told.get("shape"), axes, name, where), "dtype": told["dtype"]})
    return found


def _origin(name: str, told: Any, custom: str, root: Path, where: str) -> dict[str, Any]:
    """Where an input comes from; files must be below the dataset's folder."""
    kind = told.get("type") if isinstance(told, dict) else None
    if kind not in ORIGINS:
        raise unknown("kind of input", str(kind), ORIGINS, where=f"{where}: inputs.{name}")
    if kind == "scalar" and not isinstance(told.get("value"), (int, float, str, bool)):
        raise UsageError(f"inputs.{name} has no value", where=where)
    if kind == "custom" and not custom:
        raise UsageError(f"inputs.{name} is custom, and the definition names no custom_inputs_entrypoint", where=where)
    if kind == "safetensors":
        path = files.real(root / _loading.inside(str(told.get("path", "")).removeprefix("./"), where))
        if not path.is_relative_to(files.real(root)):
            raise UsageError(f"path {told['path']!r} leaves its folder", do="keep arrays below the dataset's folder", where=where)
        return {"type": kind, "path": str(path), "key": str(told.get("tensor_key", name))}
    return {"type": kind, "value": told.get("value")}


def _unsupported(arrays: Sequence[Mapping[str, Any]]) -> str:
    packed = [array["name"] for array in arrays if array["dtype"] in PACKED]
    return f"{packed[0]} is packed in four bits, which is not drawn here" if packed else ""


def submission(path: str, problem: Problem) -> Submission:
    """The candidate in a solution's file."""
    from steelyard.engine.referee.layouts import _documents

    file, _ = _reading.split(path)
    solution = _documents.read_json(file)
    where = str(file)
    name, wanted = (_documents.text_of(solution, key, where) for key in ("name", "definition"))
    if wanted != problem.options["definition"]:
        raise UsageError(f"this is a solution of {wanted}, not of {problem.options['definition']}", where=where)
    spec = _documents.table(solution.get("spec"), f"{where}: spec")
    entry, _, function = _documents.text_of(spec, "entry_point", f"{where}: spec").partition("::")
    sources = solution.get("sources")
    if not isinstance(sources, list) or not all(isinstance(item, dict) and isinstance(item.get("content"), str) for item in sources):
        raise UsageError("sources is not a list of paths and contents", where=where)
    paths = [str(_loading.inside(str(item.get("path", "")), where)) for item in sources]
    if entry not in paths or not function.isidentifier():
        raise UsageError(f"entry_point {spec['entry_point']!r} names nothing in its sources", do='write "main.py::run"', where=where)
    options = {
        "entry": entry, "fills": bool(spec.get("destination_passing_style", True)), "binding": str(spec.get("binding") or ""),
        "flags": spec.get("compile_options") or {}, "outputs": problem.options["outputs"],
    }  # fmt: skip
    return Submission(NAME, str(files.real(file)), function, options, name)


def pose(problem: Problem, device: str) -> Posed:
    """Load the reference from its definition; inputs are drawn as FlashInfer-Bench draws them."""
    if problem.options.get("unsupported"):
        raise Unsupported("this workload cannot be judged", why=str(problem.options["unsupported"]))
    source = json.loads(files.read_text(Path(problem.file), files.SHEET))["reference"]
    module = _loading.load(_loading.written({"reference.py": source}, problem.file) / "reference.py")
    run, names = _loading.member(module, problem.name), [output["name"] for output in problem.options["outputs"]]
    kept = _kept(problem.options["inputs"], device)

    def reference(*inputs: Any) -> Any:
        return _ordered(run(*inputs), names)

    def draw(seed: int) -> Sequence[Any]:
        _loading.seed_all(seed)
        made: Mapping[str, Any] = {}
        if problem.options["custom"]:
            scalars = {each["name"]: each["origin"]["value"] for each in problem.options["inputs"] if each["origin"]["type"] == "scalar"}
            made = _loading.member(module, problem.options["custom"])({**problem.options["axes"], **scalars}, device)
        return [_input(each, made, kept, device, problem.options["sampling"]) for each in problem.options["inputs"]]

    return Posed(reference, draw)


def _kept(inputs: Sequence[Mapping[str, Any]], device: str) -> dict[str, Any]:
    """Read inputs that are stored in files; they are the same in every draw."""
    from steelyard.engine.referee.layouts import _safetensors

    found = {}
    for each in (each for each in inputs if each["origin"]["type"] == "safetensors"):
        tensor = _safetensors.read(Path(each["origin"]["path"]), each["origin"]["key"])
        if list(tensor.shape) != each["shape"] or tensor.dtype != _loading.torch_dtype(each["dtype"]):
            why = f"it contains {list(tensor.shape)} of {tensor.dtype}, but the workload says {each['shape']} of {each['dtype']}"
            raise UsageError(f"{each['name']} does not match its file", why=why, where=each["origin"]["path"])
        found[each["name"]] = tensor.to(device)
    return found


def _input(told: Mapping[str, Any], made: Mapping[str, Any], kept: Mapping[str, Any], device: str, sampling: bool) -> Any:
    kind, name = told["origin"]["type"], told["name"]
    if kind == "scalar":
        return told["origin"]["value"]
    if kind == "safetensors":
        return kept[name].clone()
    if kind == "custom":
        if name not in made:
            raise UsageError(f"the definition's custom_inputs_entrypoint returns no {name!r}", do=f"return it besides {', '.join(made)}")
        return _loading.moved(made[name], device)
    return _drawn(told, device, sampling and name == "probs")


def _drawn(told: Mapping[str, Any], device: str, probabilities: bool) -> Any:
    import torch

    dtype, shape = canonical(told["dtype"]), told["shape"]
    form = _loading.torch_dtype(dtype)
    if dtype.startswith(("fp", "bf")):
        value = torch.randn(shape or [], dtype=torch.float64 if dtype == "fp64" else torch.float32)
        value = (value.clamp(-2, 2) if dtype.startswith("fp8") else value).to(form)
        value = torch.softmax(value, -1) if probabilities else value
    else:
        value = torch.randint(*RANGES.get(dtype, (0, 1024) if dtype.startswith("uint") else USUAL_RANGE), shape or []).to(form)
    return value.item() if shape is None else value.to(device)


def _ordered(output: Any, names: Sequence[str]) -> Any:
    """Return an answer in the order of the definition: one value, or a tuple."""
    if isinstance(output, dict):
        output = [output[name] for name in names]
    if not isinstance(output, (list, tuple)):
        return output
    return output[0] if len(names) == 1 and len(output) == 1 else tuple(output)


def seat(submission: Submission, given: Provisions) -> Callable[..., Any]:
    """Write the candidate's sources to a folder of this process, import or build them, and return its function."""
    sources = {item["path"]: item["content"] for item in json.loads(files.read_text(Path(submission.file), files.SHEET))["sources"]}
    told = submission.options
    if not told["entry"].endswith(".py") and told["binding"] != "torch":
        why = f"its binding is {told['binding'] or 'tvm-ffi'}, and only the binding torch can be built here"
        raise Unsupported("this solution cannot be built", why=why, do='bind its functions with pybind11, and write "binding": "torch"')
    folder = _loading.written(sources, submission.file)
    _loading.seed_all(given.seed)
    if told["entry"].endswith(".py"):
        function = _loading.member(_loading.load(folder / told["entry"]), submission.name)
    else:
        from steelyard.engine.referee.layouts import _building

        function = _building.build(folder, submission.name, told["flags"])
    names = [output["name"] for output in told["outputs"]]
    return _filling(function, told["outputs"], given.device) if told["fills"] else lambda *inputs: _ordered(function(*inputs), names)


def _filling(function: Callable[..., Any], outputs: Sequence[Mapping[str, Any]], device: str) -> Callable[..., Any]:
    import torch

    forms = [(each["shape"] or [], _loading.torch_dtype(each["dtype"])) for each in outputs]

    def call(*inputs: Any) -> Any:
        places = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in forms]
        function(*inputs, *places)
        return places[0] if len(places) == 1 else tuple(places)

    return call
