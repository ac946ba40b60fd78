"""A program in another form than it is said to be, or of a version that is not read here, is told before a compiler sees it."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.artifacts import forms, manifest
from tests.artifacts.made import small

BYTECODE = forms.HEADER + b"MLIR23.0.0git\x00\x01" + bytes(100)
VERSIONED = forms.HEADER + b"StableHLO_v1.15.0\x00\x01" + bytes(100)
FILES = {
    "text": "module @m {}\n// é\n".encode(), "bytecode": BYTECODE, "vhlo": VERSIONED, "flatbuffer": b"\x1c\0\0\0TFL3" + bytes(50),
    "archive": gzip.compress(b"x"), "protobuf": b"\x08\x0a\x12\x07pytorch\x00\xff",
}  # fmt: skip


@pytest.mark.parametrize("form", manifest.FORMS)
def test_every_form_is_known_by_its_first_bytes(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(FILES[form])
    assert forms.form_of(path) == form
    assert [other for other in manifest.FORMS if not forms.mismatch(path, other)] == [form] + ["protobuf"] * (form == "text")


def test_long_text_is_text_wherever_its_beginning_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for shift in range(3):
        path.write_bytes(b"a" * shift + "é".encode() * forms.BEGIN)
        assert forms.form_of(path) == "text"


def test_bytecode_under_the_name_of_text_is_told_with_its_writer(tmp_path: Path) -> None:
    held = small(tmp_path)
    (tmp_path / "stablehlo.mlir").write_bytes(BYTECODE)
    held = replace(held, files=tuple(manifest.entry(tmp_path, item.path) for item in held.files))
    assert manifest.check(tmp_path, held) == ["stablehlo.mlir: is declared as text, but is bytecode by MLIR 23.0.0git"]


def test_versioned_bytecode_is_read_by_later_versions_and_not_by_earlier_ones(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(VERSIONED)
    assert forms.version_in(path) == "StableHLO 1.15.0"
    assert forms.too_new(path, "1.15.0") == "" and forms.too_new(path, "1.17.0") == "" and forms.too_new(path, "2.0") == ""
    assert forms.too_new(path, "1.9.12") == (
        "it was written for StableHLO 1.15.0, and this library reads up to 1.9.12: use a newer one, or export with an older one"
    )
    path.write_bytes(BYTECODE)
    assert forms.too_new(path, "0.1") == ""
