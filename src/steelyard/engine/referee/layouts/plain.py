"""A reference and its inputs as functions of one Python file, a candidate as a function of another.

The reference's file has `reference(*inputs)`, and `inputs(seed)`, `inputs()` or `get_inputs()`, which returns a tuple or list of
the inputs of one call. The candidate is `candidate`, or the function with the reference's name, or the only public function
of its file. `FILE.py::name` names another. `CONTRACT = {"in_place": True}` in the reference's file declares what a candidate may do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from steelyard import files
from steelyard.engine.referee.layouts import _loading, _reading
from steelyard.engine.referee.layouts._reading import BETWEEN, Outline
from steelyard.engine.referee.posed import Posed, Provisions
from steelyard.errors import UsageError
from steelyard.model.judging import Problem, Submission

NAME = "plain"
LOOKS_FOR = "a .py file with reference(*inputs) and inputs(seed), inputs() or get_inputs(); FILE.py::name names another function"
REFERENCE, CANDIDATE = "reference", "candidate"
MAKERS = ("inputs", "get_inputs")
MAKER = "maker"
"""The option of a problem that names another function for its inputs."""


def recognise(path: str) -> bool:
    """Whether a path is a Python file that makes inputs and has the named function, by default `reference`."""
    file, name = _reading.split(path)
    found = _reading.outlined(file)
    return found is not None and any(found.has(maker) for maker in MAKERS) and found.has(name or REFERENCE)


def problems(path: str, only: Sequence[str] = ()) -> list[Problem]:
    """The one problem of a file."""
    file, given = _reading.split(path)
    found = _reading.outline(file)
    name = found.need(given or REFERENCE, "define reference(*inputs), or write FILE.py::name")
    if not any(found.has(maker) for maker in MAKERS):
        raise UsageError(
            "no function in it makes inputs", do="define inputs(seed), which returns a tuple of the inputs of one call", where=path
        )
    label = file.stem + (f"{BETWEEN}{given}" if given else "")
    problem = Problem(NAME, str(files.real(file)), name, label=label)
    return _reading.chosen([_reading.under_contract(problem, found.contract, str(file))], only, {label: [0], name: [0]})


def made_by(path: str, maker: str, only: Sequence[str] = ()) -> list[Problem]:
    """The one problem of a file with its inputs from another function of it."""
    file, given = _reading.split(path)
    found = _reading.outline(file)
    name = found.need(given or REFERENCE, "define reference(*inputs), or write FILE.py::name")
    found.need(maker, "name a function of this file that returns a tuple of the inputs of one call")
    label = f"{file.stem}{BETWEEN}{given}" if given else file.stem
    problem = Problem(NAME, str(files.real(file)), name, {MAKER: maker}, label=f"{label} {maker}")
    return _reading.chosen([_reading.under_contract(problem, found.contract, str(file))], only, {label: [0], name: [0]})


def submission(path: str, problem: Problem) -> Submission:
    """The candidate in a file: the named function, or the one found by `_candidate`."""
    file, given = _reading.split(path)
    name = given or _candidate(_reading.outline(file), problem.name)
    if given:
        _reading.outline(file).need(given, "name a function of this file")
    return Submission(NAME, str(files.real(file)), name, label=file.stem + (f"{BETWEEN}{given}" if given else ""))


def _candidate(found: Outline, reference: str) -> str:
    for name in (CANDIDATE, reference):
        if name in found.names:
            return name
    public = [name for name in found.functions if not name.startswith("_") and name not in MAKERS]
    if len(public) != 1:
        what = f"{len(public)} public functions, and none is called {CANDIDATE} or {reference}" if public else "no public function in it"
        raise UsageError(what, do=f"define {CANDIDATE}(*inputs), or write {found.path}{BETWEEN}NAME", where=str(found.path))
    return public[0]


def pose(problem: Problem, device: str) -> Posed:
    """Load the reference; every draw seeds all generators and then calls the function that makes inputs."""
    module = _loading.load(problem.file)
    usual = next((name for name in MAKERS if callable(getattr(module, name, None))), MAKERS[0])
    maker = _loading.member(module, str(problem.options.get(MAKER, usual)))
    takes_seed = _takes_seed(maker)

    def draw(seed: int) -> Sequence[Any]:
        made = _loading.seeded(lambda: maker(seed) if takes_seed else maker(), seed)
        inputs = _loading.several(made, f"{maker.__name__}()", problem.file)
        return [_loading.moved(item, device) for item in inputs]

    return Posed(_loading.member(module, problem.name), draw)


def _takes_seed(maker: Callable[..., Any]) -> bool:
    """Whether the function that makes inputs has a positional parameter for the seed."""
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [item for item in inspect.signature(maker).parameters.values() if item.kind in places]
    return bool(found) and (found[0].default is inspect.Parameter.empty or found[0].name == "seed")


def seat(submission: Submission, given: Provisions) -> Callable[..., Any]:
    """Load the candidate's file and return its function."""
    _loading.seed_all(given.seed)
    return _loading.member(_loading.load(submission.file), submission.name)
