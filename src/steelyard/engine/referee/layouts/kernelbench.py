"""KernelBench's layout: `Model`, `get_inputs` and `get_init_inputs` in the reference's file, `ModelNew` in the candidate's.

Both models are built under one seed, as in KernelBench, and the reference's weights are also copied to the candidate
if it has parameters of the same names and shapes. Models are called as they were built, which is in training mode, and without
gradients: this is how KernelBench calls them, so batch normalisation does the same here; the option `eval` asks for eval mode.
With the option `precision`, weights and floating inputs are in that format; integer inputs stay integers. An answer may be a tuple.
Each file is a separate module, so constants and functions that a candidate defines again change nothing in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.engine.referee.layouts import _loading, _reading
from steelyard.engine.referee.layouts._times import said, seated, times
from steelyard.engine.referee.posed import Posed, Provisions
from steelyard.errors import UsageError
from steelyard.model.dtypes import canonical
from steelyard.model.judging import Problem, Ruling, Submission
from steelyard.model.record import Figure

NAME = "kernelbench"
LOOKS_FOR = "a .py file with class Model, get_inputs() and get_init_inputs(), or a folder of such files (level1/, or the folder of levels)"
MODEL, CANDIDATE, INPUTS, INIT = "Model", "ModelNew", "get_inputs", "get_init_inputs"
SEED = 42
NUMBERED = re.compile(r"(\d+)_.*\.py")
SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
LABEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)")
OPTIONS = ("seed", "precision", "eval")
"""The options of a problem that its candidates get as well."""


def recognise(path: str) -> bool:
    """Whether a path is a file with a model and its inputs, or a folder of numbered ones."""
    file, name = _reading.split(path)
    if file.is_dir():
        first = next(iter(_numbered(file)), None)
        return first is not None and recognise(str(first))
    found = _reading.outlined(file)
    return not name and found is not None and found.has(MODEL, INPUTS) and not found.open


def problems(path: str, only: Sequence[str] = ()) -> list[Problem]:
    """The problem of a file, or those of a folder; `only` names them by number, by file name, or as `level1/7`."""
    file, _ = _reading.split(path)
    found = _numbered(file) if file.is_dir() else [file]
    if not found:
        raise UsageError("no problem in this folder", do="name a folder with files such as 1_Softmax.py", where=path)
    names: dict[str, list[int]] = {}
    for place, each in enumerate(found):
        number = NUMBERED.fullmatch(each.name)
        for name in {each.stem, *([number[1], f"{each.parent.name}/{number[1]}"] if number else [])}:
            names.setdefault(name, []).append(place)
    return _reading.chosen([_problem(each) for each in found], only, names)


def _numbered(folder: Path) -> list[Path]:
    """The problems in a folder and in the levels below it, by number."""
    levels = sorted(folder.glob("level*"), key=lambda level: (len(level.name), level.name))
    places = [folder, *(level for level in levels if level.is_dir())]
    return [file for place in places for _, file in sorted((int(told[1]), file) for file, told in _matching(place, NUMBERED))]


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
    for file in sorted(folder.iterdir()):
        if (told := pattern.fullmatch(file.name)) and file.is_file():
            yield file, told


def _problem(file: Path) -> Problem:
    found = _reading.outline(file)
    for name, do in ((MODEL, "define class Model(nn.Module)"), (INPUTS, "define get_inputs(), which returns a list")):
        found.need(name, do)
    parent = f"{file.parent.name}/" if file.parent.name.startswith("level") else ""
    problem = Problem(NAME, str(files.real(file)), MODEL, label=f"{parent}{file.stem}")
    return _reading.under_contract(problem, found.contract, str(file))


def submission(path: str, problem: Problem) -> Submission:
    """The candidate in a file; `FILE.py::Name` names a class other than ModelNew."""
    file, name = _reading.split(path)
    found = _reading.outline(file).need(name or CANDIDATE, f"define class {CANDIDATE}(nn.Module)")
    options = {key: value for key, value in problem.options.items() if key in OPTIONS}
    label = file.stem.removesuffix("_kernel") if SAMPLE.fullmatch(file.name) else file.stem
    return Submission(NAME, str(files.real(file)), found, options, label)


def batch(folder: str, references: str) -> list[tuple[Problem, Submission]]:
    """The candidates of a run, `level_L_problem_P_sample_S_kernel.py`, each with its problem from the folder of levels."""
    root, place = Path(references), Path(folder)
    if not place.is_dir() or not (told := list(_matching(place, SAMPLE))):
        raise UsageError("no candidates in this folder", do="name one with level_1_problem_1_sample_0_kernel.py", where=folder)
    known: dict[tuple[int, int], Problem] = {}
    found = []
    for file, words in sorted(told, key=lambda item: [int(word) for word in item[1].groups()]):
        level, number = int(words[1]), int(words[2])
        if (level, number) not in known:
            known[level, number] = _problem(_reference(root, level, number))
        problem = known[level, number]
        found.append((problem, submission(str(file), problem)))
    return found


def samples(folder: Path, problem: Problem) -> list[Path] | None:
    """The candidates for a problem in the folder of a run; None if it is not such a folder."""
    told = list(_matching(folder, SAMPLE))
    file = Path(problem.file)
    number, level = NUMBERED.fullmatch(file.name), re.fullmatch(r"level(\d+)", file.parent.name)
    if not told:
        return None
    mine = [(int(words[3]), each) for each, words in told if number and words[2] == number[1] and (not level or words[1] == level[1])]
    return [each for _, each in sorted(mine)]


def _reference(root: Path, level: int, number: int) -> Path:
    places = [root / f"level{level}", root] if root.name != f"level{level}" else [root]
    for place in (place for place in places if place.is_dir()):
        for file, told in _matching(place, NUMBERED):
            if int(told[1]) == number:
                return file
    raise UsageError(
        f"no reference for problem {number} of level {level}", do=f"name a folder with level{level}/{number}_….py", where=str(root)
    )


def pose(problem: Problem, device: str) -> Posed:
    """Build the reference's model under the seed; each draw calls get_inputs under its own seed."""
    module, seed, dtype = _loading.load(problem.file), _seed(problem.options), _dtype(problem.options)
    make = _loading.member(module, INPUTS)
    _loading.seed_all(seed)
    made = _loading.member(module, INIT)() if hasattr(module, INIT) else ()
    init = [_loading.moved(item, device, dtype) for item in _loading.several(made, f"{INIT}()", problem.file)]
    model = _built(_loading.member(module, problem.name), init, seed, device, problem.options)

    def draw(number: int) -> Sequence[Any]:
        inputs = _loading.several(_loading.seeded(make, number), f"{INPUTS}()", problem.file)
        return [_loading.moved(item, device, dtype) for item in inputs]

    return Posed(_call(model), draw, init, _weights(model))


def seat(submission: Submission, given: Provisions) -> Callable[..., Any]:
    """Build the candidate's model like the reference's, with the same weights; `facts["weights"]` says how it got them."""
    kind = _loading.member(_loading.load(submission.file), submission.name)
    init = [_loading.moved(item, given.device) for item in given.init]
    model = _built(kind, init, _seed(submission.options), given.device, submission.options)
    return _loading.noted(_call(model), weights=_carry(given.weights, model))


def _built(kind: Callable[..., Any], init: Sequence[Any], seed: int, device: str, options: Mapping[str, Any]) -> Any:
    import torch

    _loading.seed_all(seed)
    with torch.no_grad():
        model = kind(*init)
    model = model.to(device=device, dtype=_dtype(options))
    return model.eval() if options.get("eval") else model


def _call(model: Any) -> Callable[..., Any]:
    import torch

    def call(*inputs: Any) -> Any:
        with torch.no_grad():
            return model(*inputs)

    return call


def _weights(model: Any) -> dict[str, Any]:
    import torch

    return {name: value.detach().clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def _carry(weights: Mapping[str, Any], model: Any) -> str:
    """Copy weights into a model that has a place for each of them, and return what was done in words."""
    import torch

    own = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    if not weights:
        return "the reference has none"
    strange = [name for name, value in weights.items() if name not in own or own[name].shape != value.shape]
    if strange:
        count = f"{len(strange)} of {len(weights)} have no place of the same name and shape, such as {strange[0]}"
        return f"drawn under the reference's seed: {count}"
    if all(torch.equal(own[name], value.to(own[name])) for name, value in weights.items()):
        return "equal under the reference's seed"
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)
    return "carried from the reference by name"


def _seed(options: Mapping[str, Any]) -> int:
    return int(options.get("seed", SEED))


def _dtype(options: Mapping[str, Any]) -> Any:
    name = options.get("precision")
    return _loading.torch_dtype(canonical(str(name))) if name else None


def result(ruling: Ruling) -> dict[str, Any]:
    """A ruling with the fields of KernelBench's KernelExecResult; times in milliseconds, -1 if nothing was timed."""
    mine, other = times(ruling)
    where = {key: str(ruling.facts.get(key, "")) for key in ("hardware", "device")}
    found: dict[str, Any] = dict(where)
    if not ruling.correct:
        key = "correctness_issue" if ruling.status == "wrong" else "runtime_error" if seated(ruling) else "compilation_error"
        found[key] = said(ruling) or ruling.status
    if ruling.tricks:
        found["tricks"] = [{"kind": trick.kind, "words": trick.words, "voids": trick.voids} for trick in ruling.tricks]
    return {
        "compiled": seated(ruling), "correctness": ruling.correct, "metadata": found,
        "runtime": _ms(mine), "runtime_stats": _stats(mine, where), "ref_runtime": _ms(other), "ref_runtime_stats": _stats(other, where),
    }  # fmt: skip


def results(rulings: Iterable[Ruling]) -> dict[str, list[dict[str, Any]]]:
    """The content of KernelBench's eval_results.json for a batch: problem id -> its samples."""
    found: dict[str, list[dict[str, Any]]] = {}
    for ruling in rulings:
        words = LABEL.fullmatch(ruling.candidate)
        if words is None:
            what = f"{ruling.candidate!r} is not a candidate of a KernelBench run"
            raise UsageError(what, why="its results are listed by problem and sample", do="judge level_1_problem_1_sample_0_kernel.py")
        found.setdefault(words[2], []).append({"sample_id": int(words[3]), **result(ruling)})
    return found


def _ms(time: Figure | None) -> float:
    return -1.0 if time is None else float(f"{time.value * 1e3:.3g}")


def _stats(time: Figure | None, where: Mapping[str, str]) -> dict[str, Any]:
    """Statistics of a time: calls are timed in blocks, so there is an interval of the mean, but no shortest and longest call."""
    if time is None:
        return {}
    ends = {name: float(f"{end * 1e3:.3g}") for name, end in (("low", time.low), ("high", time.high)) if end is not None}
    return {"mean": _ms(time), **ends, "num_trials": time.n or 0, **where}
