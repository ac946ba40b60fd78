"""Products of eight-bit formats on a GPU: right answers, and peaks above those of half formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.drive import steelyard

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours


def test_eight_bit_products_give_right_answers(tmp_path: Path) -> None:
    words = ["run", "op/int_matmul", "op/scaled_matmul", "-d", "cuda", "-a", "m,n,k=[256,2048]", "--budget", "50ms", "--json"]
    records = json.loads(steelyard(*words, cwd=tmp_path, check=None).stdout)["records"]
    able = torch.cuda.get_device_capability() >= (8, 9)
    for record in records:
        expected = "ok" if able or "int" in record["id"] else "unsupported"
        assert record["status"] == expected, (record["id"], record["reason"])
        assert expected != "ok" or record["verification"]["status"] == "passed", record["id"]


def test_eight_bits_have_peaks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    found = json.loads(steelyard("doctor", "--peaks", "-d", "cuda", "--json", cwd=tmp_path).stdout)["peaks"]
    assert found["compute"]["int8"] > found["compute"]["bf16"]
    assert ("fp8e4m3" in found["compute"]) != ("fp8e4m3" in found["left_out"])
