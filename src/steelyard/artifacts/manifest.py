"""The manifest of a folder of exported programs: it lists the contents, so that the programs run without the code that made them.

A folder has the files of one model and `manifest.json`. Only the standard library is used, because workers in any environment read it.
Nothing in a manifest is trusted: names must stay inside the folder, files must match their hashes, and every key is checked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.artifacts.forms import mismatch
from steelyard.errors import StoreError, UsageError, unknown
from steelyard.model.dtypes import SIZES
from steelyard.model.values import deeper_than

SCHEMA = 1
NAME = "manifest.json"
KINDS: Mapping[str, str] = {
    "stablehlo_mlir": "StableHLO", "xla_hlo_dump": "XLA's HLO", "linalg_mlir": "linalg on tensors", "tosa_mlir": "TOSA",
    "tf_savedmodel_v1": "SavedModel of TensorFlow 1", "tf_savedmodel_v2": "SavedModel", "tflite_fp32": "TFLite",
    "tflite_fp32_stablehlo": "TFLite with StableHLO's operations", "tflite_fp16": "TFLite, weights in half precision",
    "tflite_dynamic_range_quant": "TFLite, weights in int8", "tflite_int8": "TFLite in int8", "torch_export": "torch.export",
    "onnx": "ONNX",
}  # fmt: skip
"""Kinds of programs, by the names that other tools use if they have one, and how a message describes them."""
FORMS: Mapping[str, str] = {
    "text": "text, which only versions that print it the same way can read", "bytecode": "MLIR's bytecode",
    "vhlo": "bytecode of versioned StableHLO, which later versions read too", "flatbuffer": "a flatbuffer",
    "archive": "files in an archive", "protobuf": "a protobuf",
}  # fmt: skip
DEEPEST = 12
LARGEST = 2**45
PIECE = 2**20
DIGEST = re.compile(r"[0-9a-f]{64}")
PLAIN_NAME = re.compile(r"[A-Za-z0-9_+@=,][A-Za-z0-9._+@=,-]*(/[A-Za-z0-9_+@=,][A-Za-z0-9._+@=,-]*)*")


@dataclass(frozen=True)
class Producer:
    """What made the programs: the framework, the case or the model's name, the versions of packages, and where the weights are from."""

    framework: str
    source: str
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: str = "seeded"


@dataclass(frozen=True)
class ArtifactFile:
    """A file of the folder; `path` is relative to the folder."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class ArtifactArray:
    """An array and where it is: a member of an archive of .npy files. A format that numpy lacks is stored as its bits."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    member: str
    sha256: str


@dataclass(frozen=True)
class Tolerance:
    """How far results may be from the recorded ones."""

    atol: float = 0.0
    rtol: float = 0.0


@dataclass(frozen=True)
class ArtifactProgram:
    """One program in one form.

    `arguments` and `results` are names of arrays in the program's own order, which an exporter may have changed; an argument may also
    be one of the weights. `wrote` is what wrote the program, with version: other versions may be unable to read its text.
    """

    kind: str
    form: str
    file: str
    entry: str = "main"
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    wrote: str = ""
    tolerance: Tolerance | None = None


@dataclass(frozen=True)
class MissingProgram:
    """A program that could not be made here: why, and what to do about it."""

    kind: str
    form: str
    reason: str
    do: str = ""
    status: str = "unsupported"


@dataclass(frozen=True)
class ArtifactSet:
    """The contents of one folder."""

    name: str
    producer: Producer
    inputs: tuple[ArtifactArray, ...] = ()
    outputs: tuple[ArtifactArray, ...] = ()
    weights: tuple[ArtifactArray, ...] = ()
    programs: tuple[ArtifactProgram, ...] = ()
    missing: tuple[MissingProgram, ...] = ()
    tolerance: Tolerance = Tolerance()
    files: tuple[ArtifactFile, ...] = ()
    schema: int = SCHEMA

    def arguments_of(self, program: ArtifactProgram) -> tuple[ArtifactArray, ...]:
        """The arguments of a program, in its own order."""
        known = {item.name: item for item in (*self.inputs, *self.weights)}
        return tuple(known[name] for name in program.arguments) if program.arguments else self.inputs

    def results_of(self, program: ArtifactProgram) -> tuple[ArtifactArray, ...]:
        """The results that a program should return, in its own order."""
        known = {item.name: item for item in self.outputs}
        return tuple(known[name] for name in program.results) if program.results else self.outputs

    def tolerance_of(self, program: ArtifactProgram) -> Tolerance:
        """The tolerance of a program: its own if it has one (it was quantised), else that of the folder."""
        return program.tolerance or self.tolerance

    def file_of(self, path: str) -> ArtifactFile:
        """The entry of a file, by its name."""
        return next(item for item in self.files if item.path == path)


def write(folder: Path, held: ArtifactSet) -> Path:
    """Write the manifest of a folder, completely or not at all; its text is parsed first, so that it can always be read."""
    text = json.dumps(dataclasses.asdict(held), indent=1, sort_keys=False) + "\n"
    parse(text, str(folder / NAME))
    part = folder / f".{NAME}.part"
    try:
        part.write_text(text, encoding="utf-8")
        return part.replace(folder / NAME)
    except OSError as error:
        why, do = error.strerror or str(error), "free space there, or name another folder"
        raise StoreError(f"cannot write {folder / NAME}", why=why, do=do) from None


def read(folder: Path) -> ArtifactSet:
    """Read the manifest of a folder; `check` checks its files."""
    path = folder / NAME
    if folder.is_dir() and not path.exists():
        raise UsageError(
            f"{folder} has no {NAME}", why="it is not a folder of artifacts", do="make one: steelyard artifacts make SELECTOR -o DIR"
        )
    return parse(files.read_text(path, files.SHEET), str(path))


def parse(text: str, where: str) -> ArtifactSet:
    """A manifest from its text; an error names the key of the mistake."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise UsageError(f"{twice[:60]}: given twice", where=where)
        return found

    try:
        data = json.loads(text, object_pairs_hook=once, parse_constant=_no_number)
    except RecursionError:
        raise UsageError(f"nested more than {DEEPEST} deep", where=where) from None
    except json.JSONDecodeError as error:
        raise UsageError(f"not valid JSON: {error.msg}", where=f"{where}:{error.lineno}") from None
    except ValueError as error:
        raise UsageError(f"not valid JSON: {str(error)[:200]}", where=where) from None
    if deeper_than(data, DEEPEST):
        raise UsageError(f"nested more than {DEEPEST} deep", where=where)
    try:
        found = _artifact_set(data)
        for mistake in _mistakes(found):
            raise _Wrong(mistake)
    except _Wrong as error:
        raise UsageError(str(error), where=where) from None
    return found


def check(folder: Path, held: ArtifactSet, names: Iterable[str] | None = None) -> list[str]:
    """What is wrong with the files of a folder, or with those in `names`: missing, cut, changed, of another form, or not listed.

    Files are read piece by piece, whatever their size.
    """
    wanted = None if names is None else set(names)
    found = [
        f"{item.path}: {trouble}" for item in held.files if wanted is None or item.path in wanted if (trouble := trouble_of(folder, item))
    ]
    sound = [
        item for item in held.programs if (folder / item.file).is_file() and not any(line.startswith(f"{item.file}:") for line in found)
    ]
    found += [
        f"{item.file}: {trouble}"
        for item in sound
        if wanted is None or item.file in wanted
        if (trouble := mismatch(folder / item.file, item.form))
    ]
    if wanted is None:
        known = {NAME, *(item.path for item in held.files)}
        present = (str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink())
        found += [f"{name}: is not in {NAME}" for name in present if name not in known]
    return found


def trouble_of(folder: Path, item: ArtifactFile) -> str:
    """Why a file is not the one that a manifest lists; empty if it is."""
    path = folder / item.path
    if not files.real(path).is_relative_to(files.real(folder)):
        return "leads out of the folder"
    try:
        size, digest = hashed(path, item.bytes)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if size != item.bytes:
        return f"has {size} bytes, not {item.bytes}"
    return "" if digest == item.sha256 else f"its sha256 is {digest}, not {item.sha256}"


def hashed(path: Path, expected: int | None = None) -> tuple[int, str]:
    """The size of a file and its sha256; a file whose size is not the expected one is not read."""
    with files.open_plain(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        if expected is not None and size != expected:
            return size, ""
        digest = hashlib.sha256()
        while piece := file.read(PIECE):
            digest.update(piece)
        return size, digest.hexdigest()


def entry(folder: Path, path: str) -> ArtifactFile:
    """The manifest's entry for an existing file."""
    size, digest = hashed(folder / path)
    return ArtifactFile(path, digest, size)


def identity(held: ArtifactSet, program: ArtifactProgram) -> str:
    """A hash of a program's content and signature: it changes if a file changes, but not if the program is moved."""
    said = [held.file_of(program.file).sha256, program.kind, program.form, program.entry]
    said += [f"{item.name}:{item.dtype}:{item.shape}:{item.sha256}" for item in (*held.arguments_of(program), *held.results_of(program))]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


class _Wrong(Exception):
    """A mistake in a manifest, without the file's name."""


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number here")


def _mistakes(held: ArtifactSet) -> Iterator[str]:
    """Yield mistakes that involve several keys: names given twice, and names that refer to nothing."""
    for what, names in (
        ("files", [item.path for item in held.files]), ("outputs", [item.name for item in held.outputs]),
        ("inputs and weights", [item.name for item in (*held.inputs, *held.weights)]), ("programs", [item.file for item in held.programs]),
    ):  # fmt: skip
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            yield f"{what}: {twice[0]!r} is listed twice"
    known = {item.path for item in held.files}
    if NAME in known:
        yield f"files: {NAME} cannot list itself"
    arrays, answers = {item.name for item in (*held.inputs, *held.weights)}, {item.name for item in held.outputs}
    for place, item in _numbered("inputs", held.inputs, "outputs", held.outputs, "weights", held.weights, "programs", held.programs):
        if item.file not in known:
            yield f"{place}.file: {item.file!r} is not among the files"
    for place, program in _numbered("programs", held.programs):
        if program.file.count("/") > 1:
            yield f"{place}.file: {program.file!r} is more than one folder deep"
        for key, names, names_known in (("arguments", program.arguments, arrays), ("results", program.results, answers)):
            if strange := [name for name in names if name not in names_known]:
                yield f"{place}.{key}: there is no array {strange[0]!r}"
            if len(set(names)) < len(names):
                yield f"{place}.{key}: an array is listed twice"


def _numbered(*lists: Any) -> Iterator[tuple[str, Any]]:
    for name, items in zip(lists[::2], lists[1::2], strict=True):
        yield from ((f"{name}[{number}]", item) for number, item in enumerate(items))


Reader = Callable[[Any, str], Any]


def _fields(data: Any, place: str, readers: Mapping[str, Reader], optional: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _Wrong(f"{place or 'the manifest'}: must be a table")
    dot = f"{place}." if place else ""
    for key in data:
        if key not in readers:
            raise _Wrong(f"{dot}{key[:60]}: unknown key (allowed: {', '.join(readers)})")
    for key in readers:
        if key not in data and key not in optional:
            raise _Wrong(f"{dot}{key}: is missing")
    return {key: readers[key](value, f"{dot}{key}") for key, value in data.items()}


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > 10_000:
        raise _Wrong(f"{place}: must be text")
    return value


def _path(value: Any, place: str) -> str:
    if not PLAIN_NAME.fullmatch(_text(value, place)) or len(value) > 500:
        raise _Wrong(f"{place}: {value!r:.80} is not a plain name below the folder")
    return str(value)


def _digest(value: Any, place: str) -> str:
    if not DIGEST.fullmatch(_text(value, place)):
        raise _Wrong(f"{place}: must be a sha256 in 64 hex digits")
    return str(value)


def _whole(most: int) -> Reader:
    def read(value: Any, place: str) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise _Wrong(f"{place}: must be a whole number from 0 to {most}")
        return value

    return read


def _number(value: Any, place: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e300:
        raise _Wrong(f"{place}: must be a number of at least 0")
    return float(value)


def _word(what: str, known: Iterable[str]) -> Reader:
    def read(value: Any, place: str) -> str:
        if _text(value, place) not in known:
            told = str(unknown(what, value[:60], known)).replace(chr(10), ";")
            raise _Wrong(f"{place}: {told} (known: {', '.join(known)})")
        return str(value)

    return read


def _many(read: Reader) -> Reader:
    def each(value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Wrong(f"{place}: must be a list")
        return tuple(read(item, f"{place}[{number}]") for number, item in enumerate(value))

    return each


def _texts(value: Any, place: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Wrong(f"{place}: must be a table")
    return {_text(key, place): _text(item, f"{place}.{key[:60]}") for key, item in value.items()}


def _array(data: Any, place: str) -> ArtifactArray:
    readers: dict[str, Reader] = {
        "name": _text, "dtype": _word("dtype", SIZES), "shape": _many(_whole(LARGEST)), "file": _path, "member": _path, "sha256": _digest,
    }  # fmt: skip
    return ArtifactArray(**_fields(data, place, readers))


def _tolerance(data: Any, place: str) -> Tolerance:
    return Tolerance(**_fields(data, place, {"atol": _number, "rtol": _number}))


def _program(data: Any, place: str) -> ArtifactProgram:
    def own_tolerance(value: Any, place: str) -> Tolerance | None:
        return None if value is None else _tolerance(value, place)

    readers: dict[str, Reader] = {
        "kind": _word("kind of program", KINDS), "form": _word("form of program", FORMS), "file": _path, "entry": _text,
        "arguments": _many(_text), "results": _many(_text), "wrote": _text, "tolerance": own_tolerance,
    }  # fmt: skip
    return ArtifactProgram(**_fields(data, place, readers, ("entry", "arguments", "results", "wrote", "tolerance")))


def _missing(data: Any, place: str) -> MissingProgram:
    readers: dict[str, Reader] = {
        "kind": _word("kind of program", KINDS), "form": _word("form of program", FORMS), "reason": _text, "do": _text,
        "status": _word("status", ("unsupported", "failed")),
    }  # fmt: skip
    return MissingProgram(**_fields(data, place, readers, ("do", "status")))


def _file(data: Any, place: str) -> ArtifactFile:
    return ArtifactFile(**_fields(data, place, {"path": _path, "sha256": _digest, "bytes": _whole(LARGEST)}))


def _producer(data: Any, place: str) -> Producer:
    return Producer(
        **_fields(data, place, {"framework": _text, "source": _text, "versions": _texts, "weights": _text}, ("versions", "weights"))
    )


def _artifact_set(data: Any) -> ArtifactSet:
    if isinstance(data, dict) and type(data.get("schema")) is int and data["schema"] > SCHEMA:
        raise _Wrong(f"schema: {data['schema']} was written by a newer Steelyard; this one reads up to {SCHEMA}: upgrade it")
    readers: dict[str, Reader] = {
        "schema": _whole(SCHEMA), "name": _path, "producer": _producer, "inputs": _many(_array), "outputs": _many(_array),
        "weights": _many(_array), "programs": _many(_program), "missing": _many(_missing), "tolerance": _tolerance, "files": _many(_file),
    }  # fmt: skip
    return ArtifactSet(**_fields(data, "", readers, ("weights", "missing", "tolerance")))
