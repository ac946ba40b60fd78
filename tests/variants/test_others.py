"""The variants beside compile: each gives the plain answer, or says why it did not apply."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from steelyard.errors import NotApplicable, NotApplied, Unsupported
from steelyard.measuring import verify
from steelyard.model.record import Verification
from steelyard.model.task import Reading, Task
from steelyard.registry import built_ins

torch = pytest.importorskip("torch")
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.variants.precision import rounds_to_tf32  # noqa: E402

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


def test_channels_last_is_not_applied_to_four_dimensions_that_are_no_image() -> None:
    with pytest.raises(NotApplied, match="other image operation"):
        applied("channels_last", *built("op/sdpa", SDPA))


def test_channels_last_is_not_applied_twice() -> None:
    plain, be = built("op/conv2d", CONV)
    with pytest.raises(NotApplied, match="innermost already"):
        applied("channels_last", applied("channels_last", plain, be), be)


def test_channels_last_is_not_applied_where_the_call_turns_the_image_itself() -> None:
    be = Torch(seed=1)
    last = torch.channels_last
    pool = Task(
        lambda x, mask: (torch.max_pool2d(x.contiguous(memory_format=last), 2), mask + 1), (be.randn(1, 4, 8, 8), be.randn(1, 2, 8, 8))
    )
    with pytest.raises(NotApplied, match="other image operation"):
        applied("channels_last", pool, be)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: torch.max_pool2d(x, 2),
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0),
        lambda x: torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False),
    ],
)
def test_channels_last_reaches_pooling_resizing_and_normalising(work: Any) -> None:
    be = Torch(seed=1)
    task = applied("channels_last", Task(work, (be.randn(2, 4, 8, 8),)), be)
    assert task.effective["channels_last"] is True


def test_channels_last_turns_the_weights_of_a_module_that_takes_no_image() -> None:
    be = Torch(seed=1)
    made = be.module(lambda: torch.nn.Sequential(torch.nn.Unflatten(1, (3, 8, 8)), torch.nn.Conv2d(3, 4, 3)), "fp32")
    task = applied("channels_last", Task(made, (be.randn(2, 192),)), be)
    assert made[1].weight.is_contiguous(memory_format=torch.channels_last) and task.fn is made


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


@pytest.mark.parametrize(("workload", "parameters"), [("op/softmax", SOFTMAX), ("op/sum", {"m": 8, "n": 32}), ("op/copy", {"n": 64})])
def test_autocast_is_not_applied_to_what_it_does_not_cast(workload: str, parameters: dict[str, int]) -> None:
    with pytest.raises(NotApplied, match="no operation that autocast casts"):
        applied("autocast", *built(workload, parameters))


def test_autocast_is_judged_by_what_runs_and_not_by_the_inputs() -> None:
    be = Torch(seed=1)
    weight, x = be.randn(4, 4), be.randn(4, 4)
    closed = Task(lambda tokens: weight[tokens] @ weight, (torch.tensor([0, 1, 2, 3]),))
    assert applied("autocast", closed, be).effective["autocast"] == "bf16"
    own_cast = Task(lambda x: x.bfloat16() @ weight.bfloat16(), (x,))
    with pytest.raises(NotApplied, match="no operation that autocast casts"):
        applied("autocast", own_cast, be)
    with pytest.raises(NotApplied, match="no operation that autocast casts"):
        applied("autocast", *built("op/linear", LINEAR, dtype="fp64"))


def test_a_call_that_fails_says_so_itself() -> None:
    be = Torch(seed=1)
    task = applied("autocast", Task(lambda x: x @ x, (be.randn(2, 3),)), be)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        task()


@pytest.mark.parametrize("first", ["inference_mode", "compile"])
@pytest.mark.parametrize(
    ("name", "options", "workload", "parameters"),
    [("autocast", {}, "op/linear", LINEAR), ("sdpa", {"kernel": "math"}, "op/sdpa", SDPA), ("channels_last", {}, "op/conv2d", CONV)],
)
def test_variants_are_judged_after_others_too(
    first: str, name: str, options: dict[str, Any], workload: str, parameters: dict[str, int]
) -> None:
    """A compiled function is judged as it was written, and compiled afterwards as if nothing had been."""
    Torch.reset()
    plain, be = built(workload, parameters)
    how = {"backend": "eager"} if first == "compile" else {}
    task = applied(name, applied(first, plain, be, **how), be, **options)
    try:
        assert against_plain(be, task, plain).status == "passed"
        assert first == "inference_mode" or (task.inspect is not None and task.inspect()["graphs"] == 1)
        with pytest.raises(NotApplied):
            applied(name, applied(first, *built("op/softmax", SOFTMAX), **how), be, **options)
    finally:
        Torch.reset()


def test_a_wrong_answer_under_autocast_is_still_wrong() -> None:
    plain, be = built("op/linear", LINEAR)
    off = Task(lambda x, weight, bias: torch.nn.functional.linear(x, weight), plain.args, parameters=plain.parameters)
    assert against_plain(be, applied("autocast", off, be), plain).status == "failed"


def test_attention_by_the_named_kernel_gives_the_same_answer() -> None:
    plain, be = built("op/sdpa", SDPA)
    task = applied("sdpa", plain, be, kernel="math")
    assert against_plain(be, task, plain).status == "passed"
    assert task.effective["sdpa"] == "math"


def test_the_attention_kernel_that_is_taken_anyway_is_not_applied() -> None:
    plain, be = built("op/sdpa", SDPA)
    with pytest.raises(NotApplied, match="flash is the default here"):
        applied("sdpa", plain, be, kernel="flash")
    with pytest.raises(NotApplied, match="math is the default here"):
        applied("sdpa", applied("sdpa", plain, be, kernel="math"), be, kernel="math")
    assert applied("sdpa", applied("sdpa", plain, be, kernel="math"), be, kernel="flash").effective["sdpa"] == "flash"


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


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Torch]:
    """The switches for TF32 exist without a GPU; what they switch is not run here."""
    be = Torch(seed=1)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    monkeypatch.setattr(be, "device", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    matmul.allow_tf32, cudnn.allow_tf32 = False, True
    yield be
    matmul.allow_tf32, cudnn.allow_tf32 = before


@pytest.mark.parametrize(
    ("workload", "parameters", "dtype", "on", "reason"),
    [
        ("op/linear", LINEAR, "fp32", True, ""),
        ("op/linear", LINEAR, "fp32", False, "already off here for products"),
        ("op/conv2d", CONV, "fp32", True, "already on here for convolutions"),
        ("op/conv2d", CONV, "fp32", False, ""),
        ("op/softmax", SOFTMAX, "fp32", True, "no fp32 product or convolution runs"),
        ("op/linear", LINEAR, "bf16", True, "no fp32 product or convolution runs"),
    ],
)
def test_tf32_is_applied_where_its_switch_turns_and_fp32_work_follows_it(
    ampere: Torch, workload: str, parameters: dict[str, int], dtype: str, on: bool, reason: str
) -> None:
    task, _ = built(workload, parameters, dtype)
    if not reason:
        assert applied("tf32", task, ampere, on=on).effective["tf32"] is on
        return
    with pytest.raises(NotApplied, match=reason):
        applied("tf32", task, ampere, on=on)


@pytest.mark.parametrize(
    ("workload", "parameters", "dtype", "rounds"),
    [("op/conv2d", CONV, "fp32", True), ("op/conv2d", CONV, "bf16", False), ("op/linear", LINEAR, "fp32", False)],
)
def test_convolutions_alone_round_to_tf32_unasked(
    ampere: Torch, workload: str, parameters: dict[str, int], dtype: str, rounds: bool
) -> None:
    task, plain = built(workload, parameters, dtype)
    assert rounds_to_tf32(task, ampere) is rounds
    assert not rounds_to_tf32(task, plain)


def test_tf32_is_not_applied_twice_nor_below_autocast(ampere: Torch) -> None:
    task, _ = built("op/linear", LINEAR)
    with pytest.raises(NotApplied, match="already on here"):
        applied("tf32", applied("tf32", task, ampere), ampere)
    with pytest.raises(NotApplied, match="no fp32 product"):
        applied("tf32", applied("autocast", task, ampere), ampere)


def test_tf32_is_applied_to_a_kernel_that_the_dispatcher_does_not_see(ampere: Torch) -> None:
    def kernel(x: Any) -> Any:
        return torch.from_numpy(x.numpy() * (2.0 if torch.backends.cuda.matmul.allow_tf32 else 1.0))

    assert applied("tf32", Task(kernel, (ampere.randn(4),)), ampere).effective["tf32"] is True


@pytest.mark.parametrize("name", ["export", "aot_inductor"])
def test_a_program_without_operations_is_not_applied(name: str) -> None:
    be = Torch(seed=1)
    with pytest.raises(NotApplied, match="has no operation"):
        applied(name, Task(lambda x: (x, x), (be.randn(4),)), be)


def test_an_exported_program_gives_the_same_answer_and_counts_its_nodes() -> None:
    plain, be = built("op/linear", LINEAR)
    task = applied("export", plain, be)
    assert against_plain(be, task, plain).status == "passed"
    assert task.effective["exported_nodes"] == 1


@pytest.mark.deep
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
