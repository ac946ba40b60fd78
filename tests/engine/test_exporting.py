"""Folders of programs are made whole or not at all, kept where they are sound, and one exporter's failure is its own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.artifacts import arrays, manifest
from steelyard.artifacts.manifest import ArtifactProgram
from steelyard.engine import conduct, exporting
from steelyard.engine.exporting import ExportOutcome
from steelyard.engine.selection import Request
from steelyard.errors import FAILED, NOTHING, PASS, UsageError
from steelyard.store.runs import Store
from tests.artifacts.made import small

pytestmark = pytest.mark.torch

OWN = """
import os
from steelyard import Task, workload

CALLS = []

@workload("own/two")
def two(be):
    import torch
    x, y, w = be.randn(2, 3), be.integers(0, 9, 4), be.randn(3, 3)
    return Task(lambda x, pair, w: {"b": x @ w, "a": pair[1] + pair[0]}, (x, (y, 2), w), parameters=(w,))

@workload("own/ends")
def ends(be):
    def fn(x):
        CALLS.append(x)
        if len(CALLS) > 1:
            os._exit(7)
        return x + 1
    return Task(fn, (be.randn(3),))

@workload("own/raises")
def raises(be):
    def fn(x):
        raise RuntimeError("no such luck")
    return Task(fn, (be.randn(3),))

@workload("own/infinite")
def infinite(be):
    return Task(lambda x: x / 0, (be.randn(3),))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_ENVS", str(tmp_path / "envs"))
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def made(own: Path, name: str, out: Path, only: Sequence[str] = ("torch_export",), again: bool = False) -> ExportOutcome:
    ready = conduct.prepare(Request((str(own), f"own/{name}")), Store(own.parent / "store"))
    (outcome,) = exporting.make(exporting.targets_of(ready, only), ready, out, lambda *_: None, again=again)
    return outcome


def standing(own: Path, out: Path) -> Path:
    """A sound folder of the case own/two with one program, made without any exporter."""
    ready = conduct.prepare(Request((str(own), "own/two")), Store(own.parent / "store"))
    (target,) = exporting.targets_of(ready)
    held = small(out / target.name, target.name)
    (out / target.name / "model.pt2").write_bytes(gzip.compress(b"a program"))
    program = ArtifactProgram("torch_export", "archive", "model.pt2")
    files = (*held.files, manifest.entry(out / target.name, "model.pt2"))
    producer = replace(held.producer, source=target.job.case.id)
    manifest.write(out / target.name, replace(held, producer=producer, programs=(*held.programs, program), files=files))
    return out / target.name


def test_a_case_becomes_a_folder_that_says_what_it_holds(own: Path, tmp_path: Path) -> None:
    outcome = made(own, "two", tmp_path / "out", ())
    held = manifest.read(outcome.folder)
    assert outcome.status == "made" and outcome.held == held and manifest.check(outcome.folder, held) == []
    assert [(item.name, item.dtype, item.shape) for item in held.inputs] == [("input_0", "fp32", (2, 3)), ("input_1", "int64", (4,))]
    assert [(item.name, item.dtype, item.shape) for item in held.outputs] == [("output_0", "fp32", (2, 3)), ("output_1", "int64", (4,))]
    assert arrays.load(outcome.folder, held.outputs)[1].tolist() == [n + 2 for n in arrays.load(outcome.folder, held.inputs)[1].tolist()]
    assert [(item.kind, item.file) for item in held.programs] == [("torch_export", "model.pt2")]
    assert "torch" in held.producer.versions and held.producer.source.startswith("own/two@torch")
    lacking = {f"{item.kind}:{item.form}": item for item in held.missing}
    assert lacking["linalg_mlir:bytecode"].do == "steelyard env create torch-mlir"
    assert "has no exporter from torch" in lacking["tflite_int8:flatbuffer"].reason
    assert exporting.code_of([outcome]) == PASS
    data = json.loads((outcome.folder / manifest.NAME).read_text())
    assert data["schema"] == 1 and {item["path"] for item in data["files"]} == {"inputs_npy.tgz", "outputs_npy.tgz", "model.pt2"}
    assert made(own, "two", tmp_path / "out", ()).status == "kept"


@pytest.mark.deep
def test_the_program_answers_what_is_recorded(own: Path, tmp_path: Path) -> None:
    import torch

    folder = made(own, "two", tmp_path / "out").folder
    held = manifest.read(folder)
    given = [torch.from_numpy(item) for item in arrays.load(folder, held.inputs)]
    answers = torch.export.load(folder / "model.pt2").module()(*given)
    for answer, expected in zip(answers, arrays.load(folder, held.outputs), strict=True):
        assert torch.equal(answer, torch.from_numpy(expected))


@pytest.mark.deep
def test_what_is_sound_is_kept(own: Path, tmp_path: Path) -> None:
    folder = standing(own, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert made(own, "two", tmp_path / "out").status == "kept"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.deep
def test_what_is_not_sound_is_made_again(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    standing(own, out)
    first = made(own, "two", out)
    assert first.status == "kept"
    (first.folder / "model.pt2").write_bytes(b"damaged")
    again = made(own, "two", out)
    assert again.status == "made" and manifest.check(again.folder, manifest.read(again.folder)) == []
    assert made(own, "two", out, again=True).status == "made"
    assert [path.name for path in out.iterdir()] == [first.name]


@pytest.mark.deep
def test_an_exporter_that_ends_its_process_costs_its_program_alone(own: Path, tmp_path: Path) -> None:
    outcome = made(own, "ends", tmp_path / "out")
    assert outcome.held is not None and outcome.held.programs == ()
    (failed,) = outcome.failures
    assert failed.kind == "torch_export" and "exit" in failed.reason
    assert sorted(path.name for path in outcome.folder.iterdir()) == ["inputs_npy.tgz", manifest.NAME, "outputs_npy.tgz"]
    assert exporting.code_of([outcome]) == NOTHING
    assert made(own, "ends", tmp_path / "out").status == "kept"


@pytest.mark.deep
def test_what_failed_where_there_was_no_room_is_tried_again(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as here:
        here.setattr("steelyard.files.SCARCE", 2**62)
        (failed,) = made(own, "ends", tmp_path / "out").failures
    assert "left: make room, and run the same command again" in failed.do
    assert made(own, "ends", tmp_path / "out").status == "made"


@pytest.mark.deep
@pytest.mark.parametrize(("name", "told"), [("raises", "no such luck"), ("infinite", "not finite")])
def test_a_model_that_cannot_be_called_leaves_no_folder(own: Path, tmp_path: Path, name: str, told: str) -> None:
    """Nor does an earlier process that was killed."""
    ready = conduct.prepare(Request((str(own), f"own/{name}")), Store(own.parent / "store"))
    left = tmp_path / "out" / f".{exporting.targets_of(ready)[0].name}.999999999.part"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    outcome = made(own, name, tmp_path / "out")
    assert outcome.held is None and told in outcome.reason
    assert list((tmp_path / "out").iterdir()) == []
    assert exporting.code_of([outcome]) in (FAILED, NOTHING)


def test_a_folder_of_somebody_else_is_not_replaced(own: Path, tmp_path: Path) -> None:
    folder = standing(own, tmp_path / "out")
    (folder / manifest.NAME).unlink()
    with pytest.raises(UsageError, match="is in the way"):
        made(own, "two", tmp_path / "out")
    assert (folder / "model.pt2").exists()


def test_words_that_name_nothing_are_refused_before_anything_is_made(own: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no kind of program named 'stablehlo'[\s\S]*did you mean stablehlo_mlir"):
        made(own, "two", tmp_path / "out", ("stablehlo",))
    ready = conduct.prepare(Request(("op/softmax",), backend=("numpy",)), Store(tmp_path / "store"))
    with pytest.raises(UsageError, match=r"no exporter supports models of backend numpy[\s\S]*jax, tensorflow, torch"):
        exporting.targets_of(ready)
