"""The variants beside compile: each gives the plain answer, or says why it did not apply."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from steelyard.errors import NotApplicable, NotApplied, Unsupported
from steelyard.measuring import verify
from steelyard.model.record import Verification
from steelyard.model.task import Reading, Task
from steelyard.registry import built_ins

torch = pytest.importorskip("torch")
from steelyard.backends.torch import Torch  # noqa: E402

pytestmark = pytest.mark.torch

CONV = {"batch": 2, "channels": 8, "filters": 4, "side": 9, "kernel": 3, "stride": 1, "groups": 1}
LINEAR = {"tokens": 8, "features": 64, "out": 32}
SDPA = {"batch": 1, "heads": 2, "kv_heads": 2, "seq": 16, "head_dim": 8, "causal": True}
SOFTMAX = {"m": 8, "n": 32}


def built(workload: str, parameters: dict[str, int], dtype: str = "fp32") -> tuple[Task, Torch]:
    be = Torch(seed=1)
    return built_ins().workloads[workload].bodies["torch"](**parameters, dtype=dtype, be=be), be


def applied(name: str, task: Task, be: Torch, **options: Any) -> Task:
    return built_ins().variants[name](task, be, options)


def against_plain(be: Torch, changed: Task, plain: Task) -> Verification:
    """What the engine asks of a variant: the plain answer, within the tolerance that the variant claims."""
    same = not changed.any_dtype
    return verify.compare(be.outputs(changed()), be.outputs(plain()), "plain", own=changed.tolerance, same_dtype=same)


def test_channels_last_turns_images_and_weights_and_keeps_the_answer() -> None:
    plain, be = built("op/conv2d", CONV)
    task = applied("channels_last", plain, be)
    images = [item for item in task.args if isinstance(item, torch.Tensor) and item.ndim == 4]
    assert len(images) == 2
    assert all(item.is_contiguous(memory_format=torch.channels_last) and not item.is_contiguous() for item in images)
    assert against_plain(be, task, plain).status == "passed"
    assert task().is_contiguous(memory_format=torch.channels_last)
    assert plain.args[0].is_contiguous()


def test_channels_last_trains_the_weights_that_it_turned() -> None:
    plain, be = built("op/conv2d", CONV)
    task = applied("channels_last", plain, be)
    assert plain.parameters and len(task.parameters) == len(plain.parameters)
    assert all(any(item is argument for argument in task.args) for item in task.parameters)


def test_channels_last_is_not_applied_without_images() -> None:
    with pytest.raises(NotApplied, match="four dimensions"):
        applied("channels_last", *built("op/softmax", SOFTMAX))


def test_inference_mode_leaves_no_trace_of_autograd() -> None:
    plain, be = built("op/linear", LINEAR)
    task = applied("inference_mode", plain, be)
    assert not plain().is_inference() and task().is_inference()
    assert torch.equal(task(), plain())
    assert task.effective["inference_mode"] is True


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_autocast_computes_in_half_precision_and_passes_at_its_own_tolerance_only(dtype: str, kind: Any) -> None:
    plain, be = built("op/linear", LINEAR)
    task = applied("autocast", plain, be, dtype=dtype)
    assert plain().dtype == torch.float32 and task().dtype == kind
    assert against_plain(be, task, plain).status == "passed"
    strict = verify.compare(be.outputs(task()), be.outputs(plain()), "plain", own=verify.TOLERANCES["fp32"], same_dtype=False)
    assert strict.status == "failed"
    assert task.effective["autocast"] == dtype
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_is_not_applied_to_inputs_in_half_precision() -> None:
    with pytest.raises(NotApplied, match="half precision already"):
        applied("autocast", *built("op/linear", LINEAR, dtype="bf16"))


def test_a_wrong_answer_under_autocast_is_still_wrong() -> None:
    plain, be = built("op/linear", LINEAR)
    off = Task(lambda x, weight, bias: torch.nn.functional.linear(x, weight), plain.args, parameters=plain.parameters)
    assert against_plain(be, applied("autocast", off, be), plain).status == "failed"


def test_attention_by_the_named_kernel_gives_the_same_answer() -> None:
    plain, be = built("op/sdpa", SDPA)
    task = applied("sdpa", plain, be, kernel="math")
    assert against_plain(be, task, plain).status == "passed"
    assert task.effective["sdpa"] == "math"


def test_an_attention_kernel_that_cannot_run_here_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="cudnn attention kernel cannot run"):
        applied("sdpa", *built("op/sdpa", SDPA), kernel="cudnn")


def test_a_choice_of_attention_kernel_needs_attention() -> None:
    with pytest.raises(NotApplied, match="never calls scaled_dot_product_attention"):
        applied("sdpa", *built("op/softmax", SOFTMAX), kernel="math")


@pytest.mark.parametrize("name", ["tf32", "cuda_graph"])
def test_what_needs_an_nvidia_gpu_is_unsupported_on_a_cpu(name: str) -> None:
    with pytest.raises(Unsupported, match="NVIDIA GPU"):
        applied(name, *built("op/linear", LINEAR))


def test_an_exported_program_gives_the_same_answer_and_counts_its_nodes() -> None:
    plain, be = built("op/linear", LINEAR)
    task = applied("export", plain, be)
    assert against_plain(be, task, plain).status == "passed"
    assert task.effective["exported_nodes"] == 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning", "ignore:.*LeafSpec:FutureWarning")
def test_a_program_compiled_ahead_of_time_gives_the_same_answer() -> None:
    plain, be = built("op/softmax", SOFTMAX)
    task = applied("aot_inductor", plain, be)
    try:
        assert against_plain(be, task, plain).status == "passed"
        assert task.effective["aot_inductor"] is True
    finally:
        assert task.cleanup is not None
        task.cleanup()


@pytest.mark.parametrize("name", ["channels_last", "inference_mode", "autocast", "sdpa", "export"])
def test_a_task_that_times_itself_has_nothing_to_change(name: str) -> None:
    with pytest.raises(NotApplicable, match="times itself"):
        applied(name, Task(measure=lambda: Reading(1.0)), Torch())
