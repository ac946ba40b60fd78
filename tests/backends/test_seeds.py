"""Generators that are in use are seeded as torch itself does it, without notes for devices that are not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from steelyard.backends import _torch_seeds  # noqa: E402


@pytest.mark.parametrize("seed", [0, 5, 2**63 + 5])
def test_the_host_draws_what_torch_would_draw(seed: int) -> None:
    torch.manual_seed(seed % 2**63)
    wanted = torch.rand(4).tolist()
    _torch_seeds.seed_awake(seed)
    assert torch.rand(4).tolist() == wanted


def test_nothing_is_noted_for_devices_that_are_not_in_use() -> None:
    if torch.cuda.is_initialized():
        pytest.skip("the device is in use")
    before = len(torch.cuda._queued_calls)
    for _ in range(5):
        _torch_seeds.seed_awake(1)
    assert len(torch.cuda._queued_calls) == before
