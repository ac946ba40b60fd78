"""BackendBench's layout: problems are aten operators with the arguments of a trace, candidates are functions in folders by operator.

A trace has lines `Operator: aten.add.Tensor` and below each `cnt: 156, ((T([1, 512], f16), 2), {})`; every such line is a problem. For
the name of an operator, or a folder of candidates, a small set of built-in shapes is used instead. A candidate is
`<op>__<overload>_kernel_impl(*args, **kwargs)` in `<op>__<overload>/<op>__<overload>_implementation*.py`, the first by name. Tensors are
drawn as in BackendBench: floating ones from 0 to 1, whole ones from -9 to 9. Operators are looked up among those that the dispatcher
knows and that touch only tensors and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.engine.referee.layouts import _loading, _reading, _traced
from steelyard.engine.referee.layouts._times import said, speedup, times
from steelyard.engine.referee.layouts._traced import TracedCall
from steelyard.engine.referee.posed import Posed, Provisions
from steelyard.errors import Unsupported, UsageError, unknown
from steelyard.model.judging import Contract, Problem, Ruling, Submission

NAME = "backendbench"
LOOKS_FOR = "a trace with lines Operator: aten.add.Tensor, an operator's name, or a folder with <op>__<overload>/<same>_implementation*.py"
IMPLEMENTATION, FUNCTION = "_implementation", "_kernel_impl"
BETWEEN = "__"
LOWEST, HIGHEST = -9, 10
UNARY = ("relu", "sigmoid", "tanh", "exp", "gelu", "silu", "abs", "neg", "sqrt", "rsqrt", "log", "reciprocal", "cos", "sin", "erf")
BINARY = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum.default", "minimum.default", "pow.Tensor_Tensor")
SHAPES = ("[256, 1024]", "[32, 128, 256]", "[1000003]")
BUILT_IN: Mapping[str, Sequence[str]] = {
    **{f"{name}.default": [f"((T({shape}, f32),), {{}})" for shape in SHAPES] for name in UNARY},
    **{name: [f"((T({shape}, f32), T({shape}, f32)), {{}})" for shape in SHAPES] for name in BINARY},
    **{name: [f"((T({shape}, f32), [-1]), {{}})" for shape in SHAPES] for name in ("sum.dim_IntList", "mean.dim")},
    "_softmax.default": ["((T([256, 1024], f32), -1, False), {})", "((T([32, 128, 255], f32), -1, False), {})"],
    "mm.default": ["((T([256, 512], f32), T([512, 256], f32)), {})", "((T([127, 65], f32), T([65, 33], f32)), {})"],
    "bmm.default": ["((T([8, 128, 64], f32), T([8, 64, 128], f32)), {})"],
    "addmm.default": ["((T([256], f32), T([128, 512], f32), T([512, 256], f32, stride=(1, 512))), {})"],
}
"""Arguments for operators without a trace; one shape in each row is not a power of two."""


def recognise(path: str) -> bool:
    """Whether a path is a trace, a folder of candidates, or the name of an operator that is not a file."""
    file = files.existing(path)
    if file is None:
        return bool(_traced.operator_name(path))
    if file.is_dir():
        return any(_folders(file))
    try:
        return file.suffix == ".txt" and files.first_line(file).startswith(_traced.OPERATOR.encode())
    except OSError:
        return False


def problems(path: str, only: Sequence[str] = ()) -> list[Problem]:
    """A problem for each line of a trace; `only` names operators, `aten.add.Tensor`, or one of their lines, `aten.add.Tensor/3`."""
    listed: list[Problem] = []
    names: dict[str, list[int]] = {}
    for call, place in _calls(path):
        name = f"aten.{call.operator}"
        number = len(names.setdefault(name, []))
        for word in (name, f"{name}/{number}"):
            names.setdefault(word, []).append(len(listed))
        listed.append(_problem(call, f"{name}/{number} {call.text}", place))
    if not listed:
        raise UsageError("it calls no operator", do=f"write cnt: 1, {_traced.REMEDY[6:]} below Operator: aten.add.Tensor", where=path)
    return _reading.chosen(listed, only, names)


def _calls(path: str) -> Iterator[tuple[TracedCall, str]]:
    file = files.existing(path)
    if file is not None and file.is_file():
        yield from ((call, str(files.real(file))) for call in _traced.calls(files.read_text(file, files.SHEET), str(file)))
        return
    named = [_of_folder(each.name) for each in _folders(file)] if file else [_traced.operator_name(path)]
    for operator in named:
        if operator not in BUILT_IN:
            if file is None or len(named) == 1:
                raise unknown("operator with built-in shapes", operator, BUILT_IN, listing="name a trace with its arguments")
            continue
        yield from ((_traced.call(operator, 0, text, operator), "") for text in BUILT_IN[operator])


def _folders(folder: Path) -> Iterator[Path]:
    """The folders of candidates in a folder, or this one if it is one."""
    for each in [folder, *sorted(item for item in folder.iterdir() if item.is_dir())]:
        if BETWEEN in each.name and next(each.glob(f"{each.name}{IMPLEMENTATION}*.py"), None):
            yield each


def _of_folder(name: str) -> str:
    base, _, overload = name.rpartition(BETWEEN)
    return f"{base}.{overload}"


def _problem(call: TracedCall, label: str, file: str) -> Problem:
    base = call.operator.partition(".")[0]
    contract = Contract(in_place=base.endswith("_") and not base.endswith("__"))
    options = {"args": call.args, "kwargs": call.kwargs, "count": call.count, "unsupported": call.unsupported}
    return Problem(NAME, file, call.operator, options, label, contract)


def submission(path: str, problem: Problem) -> Submission:
    """The candidate for an operator from a folder of folders, its own folder, or a file; `FILE.py::name` names another function."""
    file, given = _reading.split(path)
    own = BETWEEN.join(problem.name.split("."))
    if file.is_dir():
        folder = file if file.name == own else file / own
        found = sorted(folder.glob(f"{own}{IMPLEMENTATION}*.py"))
        if not found:
            raise UsageError(f"no candidate for aten.{problem.name}", do=f"write {own}/{own}{IMPLEMENTATION}_v1.py", where=path)
        file = found[0]
    name = _reading.outline(file).need(given or f"{own}{FUNCTION}", f"define {own}{FUNCTION}(*args, **kwargs)")
    options = {key: problem.options[key] for key in ("args", "kwargs")}
    return Submission(NAME, str(files.real(file)), name, options, file.stem)


def pose(problem: Problem, device: str) -> Posed:
    """Look the operator up; inputs are the tensors among its arguments, and all other arguments stay as written."""
    import torch

    from steelyard.workloads.operators import _aten

    if problem.options.get("unsupported"):
        raise Unsupported("this line cannot be judged", why=str(problem.options["unsupported"]))
    base, overload = _aten.split(f"{_aten.PREFIX}{problem.name}")
    operator = getattr(getattr(torch.ops.aten, base), overload or "default")
    wanted = list(_tensors([problem.options["args"], problem.options["kwargs"]]))

    def draw(seed: int) -> Sequence[Any]:
        _loading.seed_all(seed)
        return [_drawn(shape, dtype, strides, device) for shape, dtype, strides in wanted]

    return Posed(_calling(operator, problem.options, device), draw)


def seat(submission: Submission, given: Provisions) -> Callable[..., Any]:
    """Load the candidate; it is called with the same arguments as the operator."""
    _loading.seed_all(given.seed)
    function = _loading.member(_loading.load(submission.file), submission.name)
    return _calling(function, submission.options, given.device)


def _tensors(value: Any) -> Iterator[Sequence[Any]]:
    if isinstance(value, Mapping) and "tensor" in value:
        yield value["tensor"]
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def _drawn(shape: Sequence[int], dtype: str, strides: Sequence[int] | None, device: str) -> Any:
    import torch

    form = _loading.torch_dtype(dtype)
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) if strides is not None else 0
    sizes = list(shape) if strides is None else [0 if 0 in shape else extent]
    if form == torch.bool:
        data = torch.randint(0, 2, sizes).to(form)
    elif form.is_floating_point or form.is_complex:
        drawn = torch.rand([*sizes, 2]) if form.is_complex else torch.rand(sizes, dtype=torch.float64 if dtype == "fp64" else None)
        data = (torch.view_as_complex(drawn) if form.is_complex else drawn).to(form)
    else:
        data = torch.randint(0 if dtype.startswith("uint") else LOWEST, HIGHEST, sizes).to(form)
    data = data.to(device)
    return data if strides is None else data.as_strided(list(shape), list(strides))


def _calling(function: Callable[..., Any], options: Mapping[str, Any], device: str) -> Callable[..., Any]:
    """A function of only the tensors, which puts each in its place among the arguments."""
    import torch

    places = iter(range(len(list(_tensors([options["args"], options["kwargs"]])))))

    def made(value: Any) -> Callable[[Sequence[Any]], Any]:
        if isinstance(value, list):
            parts = [made(item) for item in value]
            return lambda inputs: [part(inputs) for part in parts]
        if not isinstance(value, Mapping):
            return lambda inputs: value
        (kind, held), *_ = value.items()
        if kind == "tensor":
            place = next(places)
            return lambda inputs: inputs[place]
        if kind == "tuple":
            inner = made(held)
            return lambda inputs: tuple(inner(inputs))
        if kind == "dict":
            named = {key: made(item) for key, item in held.items()}
            return lambda inputs: {key: part(inputs) for key, part in named.items()}
        constant = _constant(kind, held)
        return lambda inputs: constant

    def _constant(kind: str, held: str) -> Any:
        if kind == "dtype":
            return _loading.torch_dtype(held)
        if kind == "device":
            return torch.device(held or device)
        return float(held) if kind == "number" else getattr(torch, held)

    args = [made(item) for item in options["args"]]
    kwargs = {key: made(item) for key, item in options["kwargs"].items()}

    def call(*inputs: Any) -> Any:
        return function(*[part(inputs) for part in args], **{key: part(inputs) for key, part in kwargs.items()})

    return call


def results(rulings: Iterable[Ruling]) -> list[dict[str, Any]]:
    """Rulings as the entries of BackendBench's full_results.json: one on correctness, and one on time, which failed if no time counts.

    A candidate that is not right has no speedup; BackendBench itself records 1.0 for it.
    """
    found = []
    for ruling in rulings:
        name, _, args = ruling.problem.partition(" ")
        about = {"op_name": name.rpartition("/")[0].removeprefix("aten."), "args": args}
        check, kinds = ruling.verification, [trick.kind for trick in ruling.tricks if trick.voids]
        words = "" if ruling.correct else said(ruling) or ruling.status
        found.append({
            **about, "is_correct": ruling.correct, "error_msg": words, "traceback": "", "test_type": "correctness",
            "error_type": "" if ruling.correct else (kinds or [ruling.status])[0],
            "max_abs_error": check.max_abs if check else None, "max_rel_error": check.max_rel if check else None,
        })  # fmt: skip
        mine, other = times(ruling)
        timed = ruling.correct and mine is not None and other is not None
        found.append({
            **about, "speedup": speedup(ruling) if timed else None, "benchmark_time_ms": mine.value * 1e3 if mine and timed else None,
            "reference_time_ms": other.value * 1e3 if other and timed else None, "error_msg": words, "successfully_ran": timed,
            "test_type": "performance",
        })  # fmt: skip
    return sorted(found, key=lambda each: (each["op_name"], each["args"]))
