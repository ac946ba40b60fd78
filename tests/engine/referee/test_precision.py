"""Honest algorithms pass whatever order they compute in; coarser arithmetic than was asked for does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard.model.judging import Contract  # noqa: E402
from tests.engine.referee import arithmetic as by  # noqa: E402
from tests.engine.referee.posing import NONCE, examiner, normal, outcomes, uniform  # noqa: E402

pytestmark = pytest.mark.torch
HEADS = ((1, 2, 128, 32),) * 3
Draw = Callable[[Any], Sequence[Any]]


def shifted(source: Any) -> Sequence[Any]:
    return [torch.randn(64, 1024, generator=source) + 3]


HONEST: list[tuple[str, Callable[..., Any], Draw, Callable[..., Any]]] = [
    ("split-K", torch.matmul, normal((64, 2048), (2048, 64)), by.split_k),
    ("running sums", torch.matmul, normal((64, 2048), (2048, 64)), by.one_by_one),
    ("Strassen", torch.matmul, normal((256, 256), (256, 256)), by.strassen),
    ("Strassen on positive numbers", torch.matmul, uniform((256, 256), (256, 256)), by.strassen),
    ("Winograd", by.convolution, normal((2, 32, 16, 16), (32, 32, 3, 3)), by.winograd),
    ("online softmax", by.softmax, normal((64, 4096)), by.online_softmax),
    ("one-pass norm", by.layer_norm, normal((64, 1024)), by.one_pass_norm),
    ("one-pass norm off zero", by.layer_norm, shifted, by.one_pass_norm),
    ("sum by threads", torch.sum, normal((1_000_000,)), by.by_threads),
    ("sum of positive numbers by threads", torch.sum, uniform((1_000_000,)), by.by_threads),
    ("sum by atomics", torch.sum, normal((1_000_000,)), by.by_atomics),
    ("exp2", torch.exp, normal((100_000,)), lambda x: torch.exp2(x * 1.4426950408889634)),
    ("flash attention", by.attention, normal(*HEADS), by.flash),
    ("flash attention bf16", by.attention, normal(*HEADS, dtype="bfloat16"), by.flash),
    ("eager attention bf16", by.attention, normal(*HEADS, dtype="bfloat16"), by.eager_attention),
    ("eager attention fp16", by.attention, normal(*HEADS, dtype="float16"), by.eager_attention),
    ("split-K bf16", torch.matmul, normal((64, 512), (512, 64), dtype="bfloat16"), by.split_k),
    ("running sums in fp64", torch.matmul, normal((64, 512), (512, 64), dtype="float64"), lambda a, b: by.split_k(a, b)),
]  # fmt: skip

COARSE: list[tuple[str, Callable[..., Any], Draw, Callable[..., Any]]] = [
    (f"{name} {word}", function, draw, cheat)
    for name, function, draw in (
        ("matmul", torch.matmul, normal((64, 64), (64, 64))),
        ("long matmul", torch.matmul, normal((64, 4096), (4096, 64))),
        ("matmul of positive numbers", torch.matmul, uniform((256, 256), (256, 256))),
        ("convolution", by.convolution, normal((2, 32, 16, 16), (32, 32, 3, 3))),
        ("softmax", by.softmax, normal((64, 1024))),
        ("layer norm", by.layer_norm, normal((64, 1024))),
        ("exp", torch.exp, normal((100_000,))),
        ("attention", by.attention, normal(*HEADS)),
        ("sum", torch.sum, normal((1_000_000,))),
    )
    for word, cheat in (
        ("tf32", by.tf32(function)), ("bf16", by.through(torch.bfloat16, function)), ("fp16", by.through(torch.float16, function)),
    )
]  # fmt: skip


@pytest.mark.parametrize("name,reference,draw,candidate", HONEST, ids=[row[0] for row in HONEST])
def test_another_honest_algorithm_passes(name: str, reference: Any, draw: Draw, candidate: Any) -> None:
    assert outcomes(examiner(reference, draw), candidate) == ["passed"] * 3


@pytest.mark.parametrize("name,reference,draw,candidate", COARSE, ids=[row[0] for row in COARSE])
def test_coarser_arithmetic_for_single_precision_is_caught(name: str, reference: Any, draw: Draw, candidate: Any) -> None:
    exam = examiner(reference, draw)
    assert "failed" in outcomes(exam, candidate)
    inputs = exam.draw(NONCE, 0)
    found = exam.check(inputs, candidate(*inputs))
    assert found.status == "passed" or (found.code == "precision" and "fp32 arithmetic" in found.message)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("reference", [by.attention, by.layer_norm, by.softmax], ids=["attention", "norm", "softmax"])
def test_fp8_for_a_half_format_is_caught(reference: Any, dtype: str) -> None:
    draw = normal(*HEADS, dtype=dtype) if reference is by.attention else normal((64, 1024), dtype=dtype)

    def in_eight_bits(*inputs: Any) -> Any:
        return reference(*(item.to(torch.float8_e4m3fn).to(item.dtype) for item in inputs))

    assert outcomes(examiner(reference, draw), in_eight_bits) == ["failed"] * 3


def test_bf16_for_fp16_is_caught() -> None:
    exam = examiner(torch.matmul, normal((128, 512), (512, 128), dtype="float16"))
    assert outcomes(exam, by.through(torch.bfloat16, torch.matmul)) == ["failed"] * 3


@pytest.mark.parametrize("admitted,passes", [("tf32", True), ("bf16", True), ("", False), ("fp64", False)])
def test_a_contract_admits_coarser_arithmetic_and_no_finer_one(admitted: str, passes: bool) -> None:
    exam = examiner(torch.matmul, normal((64, 512), (512, 64)), contract=Contract(precision=admitted))
    assert outcomes(exam, by.tf32(torch.matmul)) == ["passed" if passes else "failed"] * 3


def test_what_is_coarser_than_the_contract_admits_is_still_caught() -> None:
    exam = examiner(torch.matmul, normal((64, 512), (512, 64)), contract=Contract(precision="tf32"))
    assert outcomes(exam, by.through(torch.bfloat16, torch.matmul)) == ["failed"] * 3


def test_a_reference_that_rounds_by_itself_admits_as_much_and_not_more() -> None:
    exam = examiner(by.tf32(lambda a, b: torch.matmul(a, b)), normal((128, 512), (512, 128)))
    assert outcomes(exam, by.tf32(by.split_k)) == ["passed"] * 3


def test_the_sum_of_like_numbers_hides_rounding_and_this_is_known() -> None:
    """Errors of a million roundings cancel: the result is as close as that of honest sums, and nobody can tell by it."""
    exam = examiner(torch.sum, uniform((1_000_000,)))
    assert outcomes(exam, by.tf32(torch.sum)) == ["passed"] * 3


def test_figures_tell_the_error_in_shares_of_the_spread_and_of_the_reference() -> None:
    exam = examiner(torch.matmul, normal((64, 512), (512, 64)))
    inputs = exam.draw(NONCE, 0)
    found = exam.check(inputs, by.tf32(torch.matmul)(*inputs))
    assert 1e-4 < found.figures["error"] < 1e-2 and found.figures["own_error"] < 1e-5 and found.figures["times_own"] > 100
    assert found.against == "the reference in fp64"


def test_a_reference_with_formats_of_its_own_is_held_to_itself() -> None:
    def fixed(a: Any, b: Any) -> Any:
        return (a.to(torch.float32) @ b.to(torch.float32)).to(torch.float32)

    exam = examiner(fixed, normal((64, 512), (512, 64)))
    inputs = exam.draw(NONCE, 0)
    found = exam.check(inputs, by.split_k(*inputs))
    assert (found.status, found.against) == ("passed", "the reference in fp32") and "no fp64 form" in found.message
    assert outcomes(exam, by.tf32(torch.matmul)) == ["failed"] * 3


def test_weights_that_a_reference_closes_over_are_doubled_too() -> None:
    layer = torch.nn.Linear(256, 64)

    def reference(x: Any) -> Any:
        with torch.no_grad():
            return layer(x)

    exam = examiner(reference, normal((32, 256)))
    inputs = exam.draw(NONCE, 0)
    assert exam.check(inputs, reference(*inputs)).against == "the reference in fp64"
    assert (
        outcomes(exam, lambda x: torch.nn.functional.linear(by.rounded(x, 10), layer.weight.detach(), layer.bias.detach()))
        == ["failed"] * 3
    )
    assert layer.weight.dtype is torch.float32
