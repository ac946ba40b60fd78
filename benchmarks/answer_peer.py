"""Ten functions timed the bare way in one process; prints where its time went as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

began = time.perf_counter()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "": {"gelu": (131072,), "layer_norm": (256, 512), "rms_norm": (256, 512), "sum": (512, 1024), "softmax": (256, 1024)},
    "h200": {"gelu": (2**28,)} | dict.fromkeys(("layer_norm", "rms_norm", "sum", "softmax"), (32768, 8192)),
}


def functions(device: str, size: str) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The five operators in their usual form, at the sizes that the workloads of the same name have."""
    how: dict[str, Any] = {"device": device, "dtype": torch.bfloat16 if size == "h200" else torch.float32}
    made = {}
    for name, shape in SHAPES[size].items():
        weight, bias = torch.ones(shape[-1:], **how), torch.zeros(shape[-1:], **how)
        extra = {"layer_norm": (weight, bias), "rms_norm": (weight,)}.get(name, ())
        made[name] = (FUNCTIONS[name], (torch.randn(shape, **how), *extra))
    return made


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": F.gelu,
    "layer_norm": lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias),
    "rms_norm": lambda x, weight: F.rms_norm(x, x.shape[-1:], weight),
    "sum": lambda x: x.sum(-1),
    "softmax": lambda x: F.softmax(x, -1),
}


def timed(call: Callable[[], Any], device: str) -> float:
    """Seconds of one call, with a fifth of a second spent on it."""
    if device == "cuda":
        from triton.testing import do_bench

        return float(do_bench(call, warmup=50, rep=200)) * 1e-3
    from torch.utils.benchmark import Timer

    return float(Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.2).median)


def main(device: str, size: str) -> None:
    """Time all of them and say what took how long."""
    spent = {"start": time.perf_counter() - began, "inputs": 0.0, "compile": 0.0, "measuring": 0.0}

    def during(phase: str, work: Callable[[], Any]) -> Any:
        before = time.perf_counter()
        made = work()
        if device == "cuda":
            torch.cuda.synchronize()
        spent[phase] += time.perf_counter() - before
        return made

    torch.set_num_threads(1)
    for fn, args in during("inputs", lambda: functions(device, size)).values():
        torch._dynamo.reset() if "torch._dynamo" in sys.modules else None
        compiled = torch.compile(fn)
        for version in (fn, compiled):
            during("compile" if version is compiled else "inputs", lambda version=version, args=args: version(*args))
            during("measuring", lambda version=version, args=args: timed(lambda: version(*args), device))
    print(json.dumps(spent))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
