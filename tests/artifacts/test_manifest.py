"""A manifest says what a folder holds, and nothing that a bent one says is believed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.artifacts import manifest
from steelyard.cli.main import main
from steelyard.errors import FAILED, PASS, USAGE, UsageError
from tests.artifacts.made import small


def test_a_program_is_at_most_one_folder_deep_so_that_its_manifest_is_found(tmp_path: Path) -> None:
    held = small(tmp_path)
    [program], [file, *others] = held.programs, held.files
    deep = "a/b/stablehlo.mlir"
    bent = replace(held, programs=(replace(program, file=deep),), files=(replace(file, path=deep), *others))
    with pytest.raises(UsageError, match=r"programs\[0\].file: 'a/b/stablehlo.mlir' is more than one folder deep"):
        manifest.write(tmp_path, bent)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    held = small(tmp_path / "m")
    found = manifest.read(tmp_path / "m")
    assert found == held
    assert manifest.check(tmp_path / "m", found) == []
    (program,) = found.programs
    assert [item.name for item in found.arguments_of(program)] == ["input_0"]
    assert [item.name for item in found.results_of(program)] == ["output_1", "output_0"]
    assert found.tolerance_of(program).atol == 0.5


def test_making_the_same_again_gives_the_same_bytes(tmp_path: Path) -> None:
    assert small(tmp_path / "a").files == small(tmp_path / "b").files


def test_a_folder_without_a_manifest_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no manifest.json[\s\S]*artifacts make"):
        manifest.read(tmp_path)


def _at(data: Any, place: str) -> Any:
    for key in place.split("."):
        data = data[int(key) if key.isdigit() else key]
    return data


BENT: list[tuple[str, str, Any, str]] = [
    ("", "schema", 2, "schema: 2 was written by a newer Steelyard"),
    ("", "schema", True, "schema: must be a whole number"),
    ("", "colour", "red", r"colour: unknown key \(allowed: schema, name"),
    ("inputs.0", "dtype", "fp31", r"inputs\[0\].dtype: no dtype named 'fp31'"),
    ("inputs.0", "dtype", 7, r"inputs\[0\].dtype: must be text"),
    ("inputs.0", "shape", [-1], r"inputs\[0\].shape\[0\]: must be a whole number from 0"),
    ("inputs.0", "file", "../../etc/passwd", r"inputs\[0\].file: '../../etc/passwd' is not a plain name"),
    ("programs.0", "file", "/etc/passwd", r"programs\[0\].file: '/etc/passwd' is not a plain name"),
    ("programs.0", "file", "other.mlir", r"programs\[0\].file: 'other.mlir' is not among the files"),
    (
        "programs.0",
        "kind",
        "stablehlo_mlr",
        r"programs\[0\].kind: no kind of program named 'stablehlo_mlr'[\s\S]*did you mean stablehlo_mlir",
    ),
    ("programs.0", "arguments", ["input_7"], r"programs\[0\].arguments: there is no array 'input_7'"),
    ("programs.0", "results", ["output_0", "output_0"], r"programs\[0\].results: an array is listed twice"),
    ("files.0", "sha256", "beef", r"files\[0\].sha256: must be a sha256"),
    ("files.0", "bytes", 1e9, r"files\[0\].bytes: must be a whole number"),
    ("files.0", "path", "..", r"files\[0\].path: '..' is not a plain name"),
    ("files.0", "path", "manifest.json", "files: manifest.json cannot list itself"),
    ("tolerance", "atol", -1, "tolerance.atol: must be a number of at least 0"),
    ("producer", "versions", {"jax": 3}, "producer.versions.jax: must be text"),
    ("", "name", "a/../b", "name: 'a/../b' is not a plain name"),
]


@pytest.mark.parametrize(("place", "key", "value", "told"), BENT, ids=[f"{place}.{key}={value}" for place, key, value, _ in BENT])
def test_a_mistake_is_named_by_its_key(tmp_path: Path, place: str, key: str, value: Any, told: str) -> None:
    small(tmp_path)
    path = tmp_path / manifest.NAME
    data = json.loads(path.read_text())
    (_at(data, place) if place else data)[key] = value
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=told) as error:
        manifest.read(tmp_path)
    assert error.value.where == str(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"), ("[]", "the manifest: must be a table"), ('{"name": 1, "name": 2}', "name: given twice"),
        ('{"schema": NaN}', "NaN is not a number here"), ("[" * 100_000, "nested more than"), ("[" * 30 + "]" * 30, "nested more than"),
        ('{"schema": 1}', "name: is missing"), ('{"schema": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        manifest.parse(text, "m")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"public", b"Public"))


def _led_out(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("bend", "told"),
    [
        (_cut, "has 102 bytes, not 103"), (_changed, "its sha256 is [0-9a-f]{64}, not"), (Path.unlink, "is missing"),
        (_led_out, "leads out of the folder"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_the_one_meant_is_named(tmp_path: Path, bend: Callable[[Path], None], told: str) -> None:
    held = small(tmp_path)
    assert (tmp_path / "stablehlo.mlir").stat().st_size == 103
    bend(tmp_path / "stablehlo.mlir")
    (trouble,) = manifest.check(tmp_path, held)
    assert re.match(f"stablehlo.mlir: {told}", trouble)
    assert manifest.check(tmp_path, held, ["inputs_npy.tgz"]) == []


def test_a_file_that_no_manifest_names_is_told(tmp_path: Path) -> None:
    held = small(tmp_path)
    (tmp_path / "extra.bin").write_bytes(b"x")
    assert manifest.check(tmp_path, held) == ["extra.bin: is not in manifest.json"]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    held = small(tmp_path)
    (tmp_path / "stablehlo.mlir").unlink()
    os.mkfifo(tmp_path / "stablehlo.mlir")
    assert "cannot be read: it is a pipe or a device" in manifest.check(tmp_path, held, ["stablehlo.mlir"])[0]


def test_a_program_is_known_by_its_content_and_not_by_its_place(tmp_path: Path) -> None:
    first, moved, other = small(tmp_path / "a"), small(tmp_path / "b", "renamed"), small(tmp_path / "c")
    assert manifest.identity(first, first.programs[0]) == manifest.identity(moved, moved.programs[0])
    swapped = replace(other.programs[0], results=("output_0", "output_1"))
    assert manifest.identity(other, swapped) != manifest.identity(first, first.programs[0])


def test_commands_go_on_past_a_folder_whose_manifest_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path / "sound", "sound"), small(tmp_path / "cut", "cut")
    (tmp_path / "cut" / manifest.NAME).write_text("{")
    for command in ("list", "show", "verify"):
        assert main(["artifacts", command, str(tmp_path)]) == FAILED
        said = capsys.readouterr()
        assert "sound" in said.out and f"cut/{manifest.NAME}:1 not valid JSON" in said.out + said.err
        assert main(["artifacts", command, str(tmp_path / "sound")]) == PASS
    assert main(["artifacts", "list", str(tmp_path / "cut")]) == USAGE
