"""The referee from Python: judge a candidate against a reference, both given as files or as functions defined in files."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import UsageError, unknown
from steelyard.files import read_text
from steelyard.model.units import parse_budget, parse_share

if TYPE_CHECKING:
    from steelyard.engine.referee.options import JudgeOptions
    from steelyard.model.judging import Ruling

CONTRACT = ("in_place", "persistent", "reuses_output", "fills_outputs", "precision")
TOGETHER = '''\
"""Functions of other files as one problem; written for one call of steelyard.judge."""

from pathlib import Path

from steelyard import registry

{loads}
'''
LIKE = '''
import numpy as np

_FILE = Path(__file__).with_name("like.npz")
_KINDS = {kinds!r}


def inputs(seed):
    """Values like those that were given: floats with their mean and spread, whole numbers in another order."""
    draw, made = np.random.default_rng(seed), []
    given = np.load(_FILE, allow_pickle=False)
    for place, kind in enumerate(_KINDS):
        value = given[str(place)]
        if value.dtype.kind == "f":
            value = (draw.standard_normal(value.shape) * (value.std() or 1.0) + value.mean()).astype(value.dtype)
        elif value.ndim:
            value = draw.permutation(value.reshape(-1)).reshape(value.shape)
        if kind == "numpy":
            made.append(value)
        elif kind == "value":
            made.append(given[str(place)].item())
        else:
            import torch

            made.append(torch.from_numpy(np.array(value)).to(getattr(torch, kind)))
    return tuple(made)
'''


def judge(
    reference: str | Path | Callable[..., Any],
    candidate: str | Path | Callable[..., Any],
    *,
    inputs: Callable[..., Any] | Sequence[Any] | None = None,
    only: Sequence[str] = (),
    **options: Any,
) -> Ruling:
    """Judge whether a candidate's answers are right and whether it is faster than the reference; expected answers and the clock are in
    separate processes.

    Both are files (for the layouts see `steelyard judge --help`), `FILE.py::name`, or functions that a file defines. `inputs` is a function
    that makes the inputs of a call from a seed, or one set of inputs, from which similar ones are drawn. Options are those of the command:
    device, budget, margin, timeout, memory, threads, in_place, persistent, reuses_output, precision, rtol, atol, kernels.
    """
    for ruling in judge_all(reference, [candidate], inputs=inputs, only=only, **options):
        return ruling
    raise UsageError("the reference defines no problem")


def judge_all(
    reference: str | Path | Callable[..., Any],
    candidates: Iterable[str | Path | Callable[..., Any]],
    *,
    inputs: Callable[..., Any] | Sequence[Any] | None = None,
    only: Sequence[str] = (),
    **options: Any,
) -> Iterator[Ruling]:
    """Judge many candidates one after another, and yield each ruling when it is ready.

    Each candidate has its own process, and the reference stays warm between them. The next candidate is taken from an iterator
    only after the last ruling, so a search can use each ruling for its next candidate.
    """
    from steelyard.engine.referee import judging

    chosen = judge_options(options)
    folder = Path(tempfile.mkdtemp(prefix="steelyard-judge-"))
    try:
        problem = _problem(reference, inputs, folder)
        named = (_place(item, "the candidate") if callable(item) else str(item) for item in candidates)
        yield from judging.judge_all(problem, list(named) if isinstance(candidates, Sequence) else named, chosen, only)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


def judge_options(given: dict[str, Any]) -> JudgeOptions:
    """Convert options, including those of a contract, to the names the command uses."""
    import dataclasses

    from steelyard.engine.referee.options import BUDGETS, JudgeOptions

    known = {item.name for item in dataclasses.fields(JudgeOptions)} - {"contract"}
    contract = {name: given[name] for name in CONTRACT if name in given}
    rest = {name: value for name, value in given.items() if name not in CONTRACT}
    for name in rest:
        if name not in known:
            raise unknown("option of judge", name, known | set(CONTRACT))
    if isinstance(rest.get("budget"), str):
        rest["budget"] = parse_budget(rest["budget"], BUDGETS)
    if isinstance(rest.get("margin"), str):
        rest["margin"] = parse_share(rest["margin"])
    if "persistent" in contract:
        contract["persistent"] = tuple(contract["persistent"])
    return JudgeOptions(**rest, contract=contract)


def _problem(reference: str | Path | Callable[..., Any], inputs: Any, folder: Path) -> str:
    """The reference as a file that a layout can read; for functions we write a file that loads them from theirs."""
    if inputs is None and not callable(reference):
        return str(reference)
    named = _place(reference, "the reference") if callable(reference) else str(reference)
    file, _, name = named.partition("::")
    loads, sources = [_load("reference", file, name or "reference")], [file]
    if callable(inputs):
        maker, _, called = _place(inputs, "inputs").partition("::")
        loads.append(_load("inputs", maker, called))
        sources.append(maker)
    elif inputs is not None:
        loads.append(_like(tuple(inputs), folder))
    else:
        loads.append(_load("inputs", file, "inputs"))
    if any("torch" in read_text(Path(each)) for each in sources):
        loads.append("import torch  # noqa: F401")
    written = folder / f"{Path(file).stem}.py"
    written.write_text(TOGETHER.format(loads="\n".join(loads)), encoding="utf-8")
    return str(written)


def _load(variable: str, file: str, name: str) -> str:
    return f"{variable} = getattr(registry.load_file({str(Path(file).resolve())!r}), {name!r})"


def _like(values: tuple[Any, ...], folder: Path) -> str:
    """Save the given inputs as plain arrays, and return the source of a function that draws similar ones."""
    import numpy as np

    kept, kinds = {}, []
    for place, value in enumerate(values):
        if isinstance(value, np.ndarray):
            kept[str(place)] = value
            kinds.append("numpy")
        elif hasattr(value, "detach"):
            plain = value.detach().cpu()
            kinds.append(str(plain.dtype).removeprefix("torch."))
            kept[str(place)] = (plain.float() if plain.is_floating_point() and plain.itemsize < 4 else plain).numpy()
        elif isinstance(value, (bool, int, float)):
            kept[str(place)] = np.asarray(value)
            kinds.append("value")
        else:
            raise UsageError(
                f"cannot draw inputs like input {place}, a {type(value).__name__}",
                do="give a function that makes inputs from a seed: inputs=…",
            )
    with (folder / "like.npz").open("wb") as file:
        np.savez(file, allow_pickle=False, **kept)
    return LIKE.format(kinds=kinds)


def _place(function: Callable[..., Any], what: str) -> str:
    """Where a function is defined, as FILE::name, for the process that will load it; an error if it is not at the top level of a file."""
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        file = None
    if file is None or not Path(file).is_file() or "<" in name or "." in name:
        raise UsageError(
            f"{what} is {name}, which is not at the top level of a file", why="candidates and references are loaded by other processes",
            do="put the function into a file, and give that, or FILE.py::name",
        )  # fmt: skip
    return f"{file}::{name}"
