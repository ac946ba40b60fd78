"""What torch gives for a fixed number of calls: a device that is asked whether it still answers, settings left as they were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from steelyard import registry
from steelyard.engine.weigh import weigh_case
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.protocol import Fixed

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("broken", "recovers"), [(False, True), (True, False)])
def test_after_a_failure_the_device_is_asked_whether_it_still_answers(broken: bool, recovers: bool) -> None:
    from steelyard.backends import _torch_fixed

    said: list[str] = []

    def synchronize() -> None:
        said.append("synchronize")
        if broken:
            raise RuntimeError("CUDA error: unknown error")

    api = SimpleNamespace(synchronize=synchronize, empty_cache=lambda: said.append("empty"))
    assert _torch_fixed.recovers(api, "out of memory") is recovers
    assert said == (["synchronize"] if broken else ["synchronize", "empty"])
    said.clear()
    assert not _torch_fixed.recovers(api, "CUDA error: device-side assert triggered\nCUDA kernel errors may be reported later")
    assert said == [] and _torch_fixed.recovers(None, "ValueError: no")


def test_threads_formats_and_recording_are_as_before_whatever_a_case_does() -> None:
    import torch

    from steelyard.backends._torch_state import as_it_was

    before = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    with pytest.raises(ValueError, match="no"), as_it_was():
        torch.set_num_threads(before[0] + 1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(not before[2])
        raise ValueError("no")
    assert (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()) == before


def weighed(case: Case, fixed: Fixed, **words: Any) -> Any:
    settings = Settings(fixed=fixed, **{"verify": False, **words})
    return weigh_case(case, registry.built_ins(), settings, lambda phase, fraction: None)


def test_a_bare_call_may_change_its_argument_and_has_both_passes() -> None:
    tensor = {"type": "tensor", "dtype": "float", "shape": [4]}
    for op, backward in (("torch.neg", True), ("torch.relu_", False)):
        params = (("build", None), ("input", {"args": [tensor]}), ("op", op), ("seed", 1))
        record, arrays = weighed(Case("call/torch", params, "torch", "eager", "call"), Fixed(1, 3, backward=True))
        assert record.status == "ok", record.reason
        assert ("backward_time" in record.metrics) == ("backward.measure.time" in arrays) == backward
        assert ("not_applicable" in record.effective) != backward


def test_any_workload_can_be_timed_so_and_is_verified_afterwards() -> None:
    case = Case("op/softmax", (("cols", 8), ("dtype", "fp32"), ("rows", 4)), "torch")
    known = registry.catalogue().workloads["op/softmax"]["axes"]
    case = Case("op/softmax", tuple(sorted((key, values[0]) for key, values in known.items())), "torch")
    record, arrays = weighed(case, Fixed(2, 5), verify=True)
    assert record.status == "ok" and record.verification is not None and record.verification.status == "passed"
    assert len(arrays["forward.measure.time"][2]) == 5 * 8 and record.metrics["time"].n == 5
