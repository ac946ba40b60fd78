"""Finds the candidates that a user names: files, functions of files, or folders; one that cannot be read gets a ruling too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from steelyard import files
from steelyard.engine.referee import layouts
from steelyard.engine.referee.layouts import _reading, gpumode, kernelbench
from steelyard.engine.referee.options import JudgeOptions
from steelyard.errors import SteelyardError, Unsupported, UsageError
from steelyard.model.judging import Problem, Ruling, Submission
from steelyard.model.record import Status

DIGEST = "digest"
"""The key in a ruling's facts for its digest: problem and candidate, by content."""


def check_named(named: Iterable[str]) -> None:
    """Refuse paths that do not exist before anything is judged."""
    for path in named:
        file = path.partition("::")[0]
        _reading.split(path)
        if files.existing(file) is None:
            raise UsageError("no such candidate", do="name a file, FILE.py::name, or a folder of candidates", where=file)


def spread(path: str, problem: Problem) -> list[str]:
    """Return the candidates for a problem that a path names: the path itself, or those in the folder."""
    folder = files.existing(path)
    if folder is None or not folder.is_dir() or problem.layout == "backendbench":
        return [path]
    if problem.layout == "gpumode":
        own = [folder / gpumode.SUBMISSION] if (folder / gpumode.SUBMISSION).is_file() else sorted(folder.glob(f"*/{gpumode.SUBMISSION}"))
        return _found([*own] or _python(folder), path)
    if problem.layout == "flashinfer":
        return _found([file for file in sorted(folder.rglob("*.json")) if _solves(file, problem)], path, missing=False)
    if problem.layout == "kernelbench" and (run := kernelbench.samples(folder, problem)) is not None:
        return [str(file) for file in run]
    return _found(_python(folder), path)


def _python(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("*.py")) if not file.name.startswith((".", "__"))]


def _found(listed: Sequence[Path], path: str, *, missing: bool = True) -> list[str]:
    if missing and not listed:
        raise UsageError("no candidate in this folder", do="name a folder with Python files", where=path)
    return [str(file) for file in listed]


def _solves(file: Path, problem: Problem) -> bool:
    """Whether a file is a solution of this problem's definition; a file that is not JSON is not."""
    try:
        told = json.loads(files.read_text(file, files.SHEET))
    except (SteelyardError, ValueError, RecursionError):
        return False
    return isinstance(told, dict) and "spec" in told and told.get("definition") == problem.options["definition"]


def entered(paths: Iterable[str], problem: Problem, options: JudgeOptions) -> Iterator[Submission | Ruling]:
    """Yield every candidate; for one whose file cannot be read as a candidate, its ruling."""
    for named in paths:
        for path in spread(named, problem):
            try:
                yield layouts.named(problem.layout).submission(path, problem)
            except (Unsupported, UsageError) as error:
                yield _refused(path, problem, options, error)


def _refused(path: str, problem: Problem, options: JudgeOptions, error: SteelyardError) -> Ruling:
    file, _, name = path.partition("::")
    label = Path(file).stem + (f"::{name}" if name else "")
    status: Status = "unsupported" if isinstance(error, Unsupported) else "failed"
    facts = {"seated": False, DIGEST: digest(problem, Submission(problem.layout, file, name, label=label), options)}
    return Ruling(problem.label or problem.file, label, status, str(error), facts=facts)


def digest(problem: Problem, submission: Submission, options: JudgeOptions) -> str:
    """Return a digest of what a ruling is about: problem and candidate by their content, the contract, the device and the threads."""
    made = hashlib.blake2b(digest_size=16)
    words = {**asdict(problem), **asdict(submission), "reference": problem.name, "device": options.device, "threads": options.threads}
    made.update(json.dumps(words, sort_keys=True, default=str).encode())
    for file in (problem.file, submission.file):
        made.update(_content(file))
    return made.hexdigest()


def content(problem: Problem) -> bytes:
    """Return a digest of the reference's file; for a gpu-mode task, of all Python files in its folder."""
    file = Path(problem.file)
    others = sorted(file.parent.glob("*.py")) if problem.layout == gpumode.NAME else []
    return hashlib.blake2b(b"".join(map(_content, map(str, (file, *others)))), digest_size=16).digest()


def _content(file: str) -> bytes:
    try:
        data = Path(file).read_bytes()
    except OSError:
        return b""
    return len(data).to_bytes(8, "little") + data
