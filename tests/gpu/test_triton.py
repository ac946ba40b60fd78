"""The Triton kernels on a GPU: right at odd sizes and in every format, and weighed against eager as users would."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

ROWS = [(1, 1), (3, 7), (255, 1000), (33, 4097), (5, 16384), (3, 20000), (2, 70001)]
PRODUCTS = [(1, 1, 1), (65, 33, 129), (64, 64, 64), (129, 300, 1001), (300, 264, 1000)]
ROUNDING = {"float32": 1e-5, "bfloat16": 6e-3, "float16": 8e-4}
EXAMPLE = Path(__file__).parents[2] / "examples" / "triton_softmax.py"


def close(got: Any, want: Any, dtype: str) -> None:
    """The whole answer within rounding of the exact one: every element was written, none is NaN."""
    error = (got.double() - want).norm() / want.norm()
    assert got.shape == want.shape
    assert float(error) < ROUNDING[dtype]
    assert bool(got.isfinite().all())


def drawn(*shape: int, dtype: str) -> Any:
    import torch

    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("m", "n"), ROWS)
def test_rows(m: int, n: int, dtype: str) -> None:
    import torch

    from steelyard.workloads.ops import _triton

    x, gain = drawn(m, n, dtype=dtype), drawn(n, dtype=dtype)
    close(_triton.softmax(x, -1), torch.softmax(x.double(), -1), dtype)
    want = torch.nn.functional.rms_norm(x.double(), (n,), gain.double(), 1e-5)
    close(_triton.rms_norm(x, (n,), gain, 1e-5), want, dtype)


def test_a_row_that_begins_with_nothing_but_masked_places() -> None:
    import torch

    from steelyard.workloads.ops import _triton

    x = torch.full((2, 40_000), float("-inf"), device="cuda")
    x[:, 20_000:] = 1.0
    close(_triton.softmax(x, -1), torch.softmax(x.double(), -1), "float32")


def test_inputs_that_are_not_contiguous() -> None:
    import torch

    from steelyard.workloads.ops import _triton

    x = drawn(300, 200, dtype="float32")
    close(_triton.softmax(x.t(), 1), torch.softmax(x.t().double(), 1), "float32")
    a, b = drawn(64, 200, dtype="float16"), drawn(72, 200, dtype="float16")
    close(_triton.matmul(a, b.t()), a.double() @ b.t().double(), "float16")


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(("m", "n", "k"), PRODUCTS)
def test_products(m: int, n: int, k: int, dtype: str) -> None:
    from steelyard.workloads.ops import _triton

    a, b = drawn(m, k, dtype=dtype), drawn(k, n, dtype=dtype)
    close(_triton.matmul(a, b), a.double() @ b.double(), dtype)


def test_fp32_products_follow_the_setting_for_tf32() -> None:
    import torch

    from steelyard.workloads.ops import _triton

    a, b = drawn(256, 256, dtype="float32"), drawn(256, 256, dtype="float32")
    exact = a.double() @ b.double()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        rough = _triton.matmul(a, b)
    finally:
        torch.set_float32_matmul_precision(before)
    errors = [float((got.double() - exact).norm() / exact.norm()) for got in (_triton.matmul(a, b), rough)]
    assert errors[0] < 1e-6 < 1e-5 < errors[1] < 1e-3


def told(folder: Path, *words: str) -> dict[str, Any]:
    (folder / ".steelyard").mkdir(exist_ok=True)
    done = steelyard("run", *words, "-d", "cuda", "-V", "eager,triton", "--vs", "eager", "--budget", "20ms", "--json", cwd=folder)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any], cases: int) -> None:
    """All right, all verified against eager, all weighed."""
    assert [record["status"] for record in found["records"]] == ["ok"] * cases, [record["reason"] for record in found["records"]]
    head = [record for record in found["records"] if record["case"]["variant"] == "triton"]
    assert {(record["verification"]["status"], record["verification"]["against"]) for record in head} == {("passed", "torch eager")}
    assert [pair["head"]["id"] for pair in found["pairs"]] == [record["id"] for record in head]
    assert all(0.01 < pair["low"] <= pair["ratio"] <= pair["high"] < 100 for pair in found["pairs"])


def test_row_kernels_are_verified_and_weighed(tmp_path: Path) -> None:
    found = told(tmp_path, "op/softmax", "op/rms_norm", "-a", "m=129", "-a", "n=[1001]", "-a", "dtype=[fp32,bf16]", "--isolate", "none")
    check(found, 8)
    kernels = {record["effective"].get("kernels") for record in found["records"] if record["case"]["variant"] == "triton"}
    assert len(kernels) == 1 and None not in kernels


def test_the_matrix_product_is_verified_and_weighed(tmp_path: Path) -> None:
    found = told(tmp_path, "op/matmul", "-a", "m=250", "-a", "n=131", "-a", "k=72", "-a", "dtype=[fp32,fp16]")
    check(found, 4)
    eager, triton = found["records"][:2]
    assert triton["metrics"]["peak_allocated"]["value"] <= eager["metrics"]["peak_allocated"]["value"]


def test_a_format_too_fine_for_the_kernel_is_unsupported(tmp_path: Path) -> None:
    found = told(tmp_path, "op/softmax", "-a", "n=64", "-a", "dtype=fp64")
    assert [record["status"] for record in found["records"]] == ["ok", "unsupported"]


def test_the_example_of_a_kernel_of_ones_own(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    check(told(tmp_path, EXAMPLE.name), 4)
