"""The layout of gpu-mode's tasks: a folder with task.yml and reference.py, candidates as submission.py.

`reference.py` has `generate_input(**case)`, `ref_kernel(data)` and `check_implementation(data, output)`, which is used besides our
own check; `submission.py` has `custom_kernel(data)`. Every case under `tests` and `benchmarks` of task.yml is a problem, with one input:
the task's `data`, whatever is nested in it. The seed of a draw is mixed into that of the case as in gpu-mode. A candidate may write into
its data, as there, because in many tasks the memory for the answer is there. Files of a task are found by the names that task.yml
gives them, and must be in its folder or in the one around it, where the tasks of a set keep shared files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.engine.referee.layouts import _loading, _reading
from steelyard.engine.referee.layouts._times import said, times
from steelyard.engine.referee.posed import Posed, Provisions
from steelyard.errors import Unsupported, UsageError, told, unknown
from steelyard.model.judging import Contract, Problem, Ruling, Submission

NAME = "gpumode"
LOOKS_FOR = "a folder with task.yml (tests, benchmarks) and reference.py (generate_input, ref_kernel, check_implementation)"
TASK, REFERENCE, SUBMISSION = "task.yml", "reference.py", "submission.py"
CANDIDATE, OURS = "custom_kernel", "@SUBMISSION@"
NEEDED = ("generate_input", "ref_kernel", "check_implementation")
KINDS = {"tests": "test", "benchmarks": "benchmark"}
KEYS = (
    "name", "files", "lang", "config", "description", "templates", "libraries", *KINDS, "test_timeout", "benchmark_timeout",
    "ranked_timeout", "ranking_by", "seed", "multi_gpu", "gpus",
)  # fmt: skip
LABEL = re.compile(r"(?:.* )?(test|benchmark)\.(\d+) (.*)", re.DOTALL)
LARGEST_SEED = 2**31
"""A seed as large as this still fits 64 bits when it is mixed with that of a case."""
NS = 1e9


def recognise(path: str) -> bool:
    """Whether a path is a folder with a task in it, or the task's file."""
    file, name = _reading.split(path)
    return not name and _folder(file).joinpath(TASK).is_file()


def _folder(file: Path) -> Path:
    return file.parent if file.name in (TASK, REFERENCE) else file


def problems(path: str, only: Sequence[str] = ()) -> list[Problem]:
    """A problem for each test and each benchmark; `only` names some: `test`, `benchmark`, `test.0`, `benchmark.2`."""
    from steelyard.engine.referee.layouts import _documents

    folder = _folder(_reading.split(path)[0])
    file = folder / TASK
    task = _documents.table(_documents.read_yaml(file), str(file))
    for key in task:
        if key not in KEYS:
            raise unknown("key of a task", key, KEYS, where=str(file))
    sources = _sources(task.get("files", []), folder, str(file))
    reference = Path(sources.get(REFERENCE, folder / REFERENCE))
    found = _reading.outline(reference)
    for name in NEEDED:
        found.need(name, "define generate_input, ref_kernel and check_implementation in the task's reference.py")
    shared = {"files": sources, "unsupported": _unsupported(task)}
    listed: list[Problem] = []
    names: dict[str, list[int]] = {}
    for kind, number, case in _cases(task, str(file)):
        for name in (kind, f"{kind}.{number}"):
            names.setdefault(name, []).append(len(listed))
        label = f"{files.real(folder).name} {kind}.{number} {_spec(case)}"
        options = {**shared, "case": case}
        listed.append(Problem(NAME, str(files.real(reference)), NEEDED[1], options, label, Contract(in_place=True)))
    if not listed:
        raise UsageError("it has no tests and no benchmarks", do="list cases under tests: or benchmarks:", where=str(file))
    return [_reading.under_contract(each, found.contract, str(reference)) for each in _reading.chosen(listed, only, names)]


def _cases(task: Mapping[str, Any], where: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for key, kind in KINDS.items():
        cases = task.get(key) or []
        if not isinstance(cases, list):
            raise UsageError(f"{key} is not a list", do=f"write {key}: and a line - {{n: 16, seed: 1}} for each", where=where)
        for number, case in enumerate(cases):
            if not isinstance(case, dict) or not all(isinstance(name, str) and name.isidentifier() for name in case):
                raise UsageError(f"{key}[{number}] is not a table of arguments", do="write - {n: 16, seed: 1}", where=where)
            for name, value in case.items():
                if not all(item is None or isinstance(item, (str, int, float)) for item in (value if isinstance(value, list) else [value])):
                    raise UsageError(f"{key}[{number}].{name} is not text, a number or a list of these", where=where)
            if "seed" in case and type(case["seed"]) is not int:
                raise UsageError(f"{key}[{number}].seed is not a whole number", where=where)
            yield kind, number, dict(case)


def _spec(case: Mapping[str, Any]) -> str:
    """A case in one line, as gpu-mode writes it."""
    return "; ".join(f"{key}: {tuple(value) if isinstance(value, list) else value}" for key, value in case.items())


def _sources(listed: Any, folder: Path, where: str) -> dict[str, str]:
    """The files of a task by the names that it gives them, without the candidate's."""
    if not isinstance(listed, list) or not all(isinstance(item, dict) and {"name", "source"} == set(item) for item in listed):
        raise UsageError("files is not a list of names and sources", do='write - {name: "task.py", source: "task.py"}', where=where)
    home = files.real(folder)
    found = {}
    for item in listed:
        name, source = str(_loading.inside(str(item["name"]), where)), str(item["source"])
        if source == OURS:
            continue
        path = files.real(folder / source)
        if Path(source).is_absolute() or not path.is_relative_to(home.parent):
            raise UsageError(
                f"source {source!r} of files leaves the task's set", do="name a file in its folder or in the one around it", where=where
            )
        if not path.is_file():
            raise UsageError(f"source {source!r} of files does not exist", where=where)
        found[name] = str(path)
    return found


def _unsupported(task: Mapping[str, Any]) -> str:
    if str(task.get("lang", "py")) != "py":
        return f"lang: {task['lang']} is a separate program that times itself, and has no function to call"
    return "multi_gpu: a task of several processes is not judged" if task.get("multi_gpu") else ""


def submission(path: str, problem: Problem) -> Submission:
    """The candidate in a file or in a folder with submission.py; `FILE.py::name` names a function other than custom_kernel."""
    file, name = _reading.split(path)
    file = file / SUBMISSION if file.is_dir() else file
    if file.suffix in (".cu", ".cuh", ".cpp", ".hip"):
        raise Unsupported(
            f"{file.name} is not Python", why="a task calls custom_kernel(data)", do="compile it with load_inline in a submission.py"
        )
    found = _reading.outline(file).need(name or CANDIDATE, f"define {CANDIDATE}(data)")
    return Submission(NAME, str(files.real(file)), found, {"files": problem.options.get("files", {})}, file.stem)


def pose(problem: Problem, device: str) -> Posed:
    """Load the task's reference; its own check is used as well."""
    if problem.options.get("unsupported"):
        raise Unsupported("this task cannot be judged", why=str(problem.options["unsupported"]))
    _loading.importable(problem.options.get("files", {}))
    module = _loading.load(problem.file)
    make, reference, check = (_loading.member(module, name) for name in (NEEDED[0], problem.name, NEEDED[2]))
    case = {key: tuple(value) if isinstance(value, list) else value for key, value in problem.options["case"].items()}

    def draw(seed: int) -> Sequence[Any]:
        own = {"seed": mixed(problem.options["case"]["seed"], seed)} if "seed" in case else {}
        try:
            data = _loading.seeded(lambda: make(**{**case, **own}), seed)
        except (RuntimeError, AssertionError) as error:
            if device == "cpu" and "cuda" in str(error).lower():
                raise Unsupported("this task makes its inputs on a GPU", why=told(error, 200), do="judge it with -d cuda:0") from error
            raise
        return [_loading.moved(data, device)]

    return Posed(reference, draw, check=lambda inputs, output: _wrong(check(inputs[0], output)))


def mixed(own: int, seed: int) -> int:
    """The seed of a case and that of a draw as one number, by Cantor's pairing, as gpu-mode's runner does it."""
    both = own + seed % LARGEST_SEED
    return own + both * (both + 1) // 2


def _wrong(found: Any) -> str:
    """The message of a task's check, empty if it passed: newer ones return whether it passed and a message, older ones a message if not."""
    if isinstance(found, tuple) and len(found) == 2:
        return "" if found[0] else str(found[1] or "check_implementation rejected it")
    return str(found) if found and found is not True else "check_implementation rejected it" if found is False else ""


def seat(submission: Submission, given: Provisions) -> Callable[..., Any]:
    """Load the candidate, which may import the task's files, as in gpu-mode."""
    _loading.importable(submission.options.get("files", {}))
    _loading.seed_all(given.seed)
    return _loading.member(_loading.load(submission.file), submission.name)


def lines(rulings: Sequence[Ruling]) -> list[str]:
    """Rulings on one candidate as the lines that gpu-mode's runner writes; times in nanoseconds, best and worst are the ends of the
    mean's 95 % interval, because calls are timed in blocks."""
    told = [(LABEL.fullmatch(ruling.problem), ruling) for ruling in rulings]
    written = []
    for kind in KINDS.values():
        mine = [(words[3], ruling) for words, ruling in told if words and words[1] == kind]
        written += [f"{kind}-count: {len(mine)}"] if mine else []
        for place, (spec, ruling) in enumerate(mine):
            found = {"spec": spec, **(_verdict(ruling) if kind == "test" or not ruling.correct else _stats(ruling))}
            written += [f"{kind}.{place}.{key}: {value}" for key, value in found.items()]
    passed = bool(told) and all(words and ruling.correct for words, ruling in told)
    return [*written, f"check: {'pass' if passed else 'fail'}"]


def _verdict(ruling: Ruling) -> dict[str, str]:
    return {"status": "pass"} if ruling.correct else {"status": "fail", "error": " ".join((said(ruling) or ruling.status).split())}


def _stats(ruling: Ruling) -> dict[str, Any]:
    time, _ = times(ruling)
    if time is None:
        return {"status": "fail", "error": "it was not timed"}
    count = time.n or 1
    low, high = (time.value if end is None else end for end in (time.low, time.high))
    err = (high - low) / 2 / 1.96
    return {
        "runs": count, "mean": time.value * NS, "std": err * count**0.5 * NS, "err": err * NS, "best": low * NS, "worst": high * NS,
    }  # fmt: skip
