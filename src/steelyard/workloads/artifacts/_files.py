"""Finds exported programs in files and folders, with what identifies each and what is recorded with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.artifacts import manifest, programs
from steelyard.artifacts.manifest import ArtifactProgram, ArtifactSet
from steelyard.errors import UsageError
from steelyard.model.define import OpenedFile

RUNNABLE = (
    "stablehlo_mlir", "xla_hlo_dump", "linalg_mlir", "tosa_mlir", "tflite_fp32", "tflite_fp32_stablehlo", "tflite_fp16",
    "tflite_dynamic_range_quant", "tflite_int8", "onnx",
)  # fmt: skip
RUNNERS: Mapping[str, tuple[str, ...]] = {
    "stablehlo": ("xla", "iree", "interpreter"), "xla": ("xla", "interpreter"), "linalg": ("iree",), "tosa": ("iree",),
    "tflite": ("litert",), "onnx": ("onnxruntime",),
}  # fmt: skip
"""The backends for a kind of program, by its prefix; the first is the default."""
MOST_FILES = 10_000


@dataclass(frozen=True)
class DescribedProgram:
    """A program with its description in the manifest; `held` and `program` are None if it has no manifest."""

    path: Path
    kind: str
    form: str
    entry: str = "main"
    held: ArtifactSet | None = None
    program: ArtifactProgram | None = None

    @property
    def folder(self) -> Path:
        """The folder of the manifest and its files; without a manifest, that of the program."""
        return self.path.parents[self.program.file.count("/")] if self.program else self.path.parent


def described(path: Path) -> DescribedProgram:
    """Return a program's file with its description, from its manifest if it has one, else from its content."""
    for folder in (path.parent, path.parent.parent):
        if (folder / manifest.NAME).is_file():
            held = manifest.read(folder)
            for program in held.programs:
                if folder / program.file == path:
                    return DescribedProgram(path, program.kind, program.form, program.entry, held, program)
    kind = programs.kind_of(path)
    if kind is None:
        why = "it is neither StableHLO, HLO, TOSA, linalg, TFLite nor ONNX"
        raise UsageError("not an exported program", why=why, do="make some with steelyard artifacts make", where=str(path))
    return DescribedProgram(path, *kind)


def contents(path: Path) -> list[OpenedFile]:
    """Return the programs in a file or folder that a backend can run, from its manifests or from the content of files."""
    if path.is_dir():
        found = list(_in_folder(path, path))
        if not found:
            why = "no manifest in it lists a program that can be run, and no file in it is a program"
            raise UsageError(f"{path} holds no programs", why=why, do="make some with steelyard artifacts make")
        return found
    files.open_named(path, "name an exported program, or a folder of them").close()
    one = described(path)
    return [_opened(one, f"{one.held.name}/{one.program.file}" if one.held and one.program else path.name)]


def _in_folder(folder: Path, root: Path) -> Iterator[OpenedFile]:
    if (folder / manifest.NAME).is_file():
        held = manifest.read(folder)
        for program in held.programs:
            if program.kind in RUNNABLE:
                found = DescribedProgram(folder / program.file, program.kind, program.form, program.entry, held, program)
                yield _opened(found, f"{held.name}/{program.file}")
        return
    with os.scandir(folder) as items:
        entries = sorted(items, key=lambda item: item.name)[:MOST_FILES]
    for entry in entries:
        place = Path(entry.path)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _in_folder(place, root)
        elif entry.is_file() and entry.name.endswith(programs.SUFFIXES) and (kind := programs.kind_of(place)):
            found, name = DescribedProgram(place, *kind), str(place.relative_to(root))
            try:
                yield _opened(found, name)
            except UsageError as error:
                yield OpenedFile(place, name, (*runners(found.kind), "")[0], doc=f"{manifest.KINDS[found.kind]} · {error.what}")


def _opened(found: DescribedProgram, name: str) -> OpenedFile:
    told = [manifest.KINDS[found.kind], manifest.FORMS[found.form].split(",")[0]]
    signature = programs.signature_of(found.path, found.kind, found.form, found.entry) if found.path.is_file() else None
    if found.held is not None and found.program is not None:
        arrays = [[f"{item.dtype}{list(item.shape)}" for item in side] for side in
                  (found.held.arguments_of(found.program), found.held.results_of(found.program))]  # fmt: skip
        shown = f"({', '.join(arrays[0])}) -> ({', '.join(arrays[1])}), recorded"
    else:
        shown = str(signature) if signature else "nothing recorded"
    return OpenedFile(
        found.path, name, (*runners(found.kind), "")[0], doc=" · ".join([*told, shown if len(shown) <= 300 else f"{shown[:297]}…"])
    )


def runners(kind: str) -> tuple[str, ...]:
    """Return the backends that run a kind of program."""
    return next((backends for start, backends in RUNNERS.items() if kind.startswith(start)), ())


def suits(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the backends that run the program of a case."""
    value = params.get("path")
    return runners(described(Path(value["file"])).kind) if isinstance(value, Mapping) else ()


def identify(path: Path) -> str:
    """Return the digest of a program's content, and of its recorded values if it has any. Raise UsageError if a file differs from its
    manifest."""
    found = described(path)
    if found.held is None or found.program is None:
        return files.sha256(path)
    folder, held, program = found.folder, found.held, found.program
    used = {program.file, *(item.file for item in (*held.arguments_of(program), *held.results_of(program)))}
    for name in sorted(used):
        item = held.file_of(name)
        outside = not files.real(folder / name).is_relative_to(files.real(folder))
        if outside or not (folder / name).is_file() or files.sha256(folder / name) != item.sha256:
            trouble = manifest.trouble_of(folder, item) or "has changed"
            raise UsageError(f"{name} {trouble}", why="it is not the file that the manifest describes", do="fetch or make it again",
                             where=str(folder / manifest.NAME))  # fmt: skip
    return manifest.identity(held, program)
