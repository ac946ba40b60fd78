"""What a case does to the settings of its process is undone before the next one."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor.config

from steelyard.backends._torch_state import wholly_as_it_was

BACKENDS = torch.backends


def _inductor(value: bool) -> None:
    torch._inductor.config.max_autotune = value


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "precision of products": (lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision),
    "tf32, the old way": (lambda: setattr(BACKENDS.cuda.matmul, "allow_tf32", True), lambda: BACKENDS.cuda.matmul.allow_tf32),
    "tf32, the new way": (lambda: setattr(BACKENDS.cuda.matmul, "fp32_precision", "tf32"), lambda: BACKENDS.cuda.matmul.allow_tf32),
    "tf32 of convolutions": (lambda: setattr(BACKENDS.cudnn, "allow_tf32", False), lambda: BACKENDS.cudnn.allow_tf32),
    "reduction": (
        lambda: setattr(BACKENDS.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
        lambda: BACKENDS.cuda.matmul.allow_bf16_reduced_precision_reduction,
    ),
    "cudnn": (lambda: setattr(BACKENDS.cudnn, "benchmark", True), lambda: BACKENDS.cudnn.benchmark),
    "attention": (lambda: BACKENDS.cuda.enable_flash_sdp(False), BACKENDS.cuda.flash_sdp_enabled),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.is_autocast_enabled("cpu")),
    "autocast's format": (lambda: torch.set_autocast_dtype("cuda", torch.bfloat16), lambda: torch.get_autocast_dtype("cuda")),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True, warn_only=True), torch.are_deterministic_algorithms_enabled),
    "default format": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "gradients": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    "the compiler": (lambda: _inductor(True), lambda: torch._inductor.config.max_autotune),
    "a variable": (lambda: os.environ.update(STEELYARD_TEST_STATE="1"), lambda: os.environ.get("STEELYARD_TEST_STATE")),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_is_as_it_was(name: str) -> None:
    change, read = CHANGES[name]
    before = read()
    with wholly_as_it_was() as changed:
        assert changed() == []
        change()
        assert changed()
    assert read() == before


def test_everything_at_once_and_after_an_error() -> None:
    before = [read() for _, read in CHANGES.values()]
    with pytest.raises(ValueError), wholly_as_it_was():
        for change, _ in CHANGES.values():
            change()
        raise ValueError
    assert [read() for _, read in CHANGES.values()] == before


def test_random_numbers_go_on_as_if_nothing_had_been_drawn() -> None:
    def drawn() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    with wholly_as_it_was():
        first = drawn()
    with wholly_as_it_was():
        torch.manual_seed(5)
        random.seed(5)
        drawn()
    with wholly_as_it_was():
        assert drawn() == first
