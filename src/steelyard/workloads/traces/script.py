"""A replay as a Python script that needs only PyTorch: one line per call, for machines without Steelyard."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from steelyard.traces.nodes import TensorRef, TraceArgument

MOST_LISTED = 4096
"""The most integers that are written out; for a longer tensor only the least and the greatest are kept."""
HEAD = '''\
"""Replay of an execution trace, written by Steelyard: {operators} operators; {skipped} recorded ones are left out.

python {name} [--device cuda] [--warmup 5] [--iterations 10] [--threads 1]
"""

import argparse
import statistics
import time

import torch
{imports}
OPS = torch.ops


def normal(count, scale, dtype, positive):
    """Random numbers of the scale of weights and activations."""
    drawn = torch.randn(count) * scale
    return (drawn.abs() + {least} if positive else drawn).to(dtype)


def whole(count, low, high, dtype):
    """Random whole numbers from low to high."""
    return torch.randint(low, high + 1, (count,)).to(dtype)


def over(whole, dtype, offset, shape, strides):
    """A tensor in the memory of another one; not a view, because a view cannot be changed in all ways."""
    return torch.empty(0, dtype=dtype, device=whole.device).set_(whole.untyped_storage(), offset, shape, strides)


def with_grad(operator, *args, **kwargs):
    """Call an operator with gradients enabled, because its result depends on that."""
    with torch.enable_grad():
        return operator(*args, **kwargs)

'''
TAIL = '''

def main():
    """Time the replay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default={device!r})
    parser.add_argument("--warmup", type=int, default={warmup})
    parser.add_argument("--iterations", type=int, default={iterations})
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    device, wait = torch.device(asked.device), torch.cuda.synchronize if asked.device.startswith("cuda") else lambda: None
    took = []
    with torch.no_grad():
        tensors = given(device)
        for number in range(asked.warmup + asked.iterations):
            wait()
            start = time.perf_counter()
            step(device, *tensors)
            wait()
            if number >= asked.warmup:
                took.append(time.perf_counter() - start)
    print(f"{{statistics.median(took) * 1e3:.3f}} ms per iteration, median of {{len(took)}}")


if __name__ == "__main__":
    main()
'''


def perform(words: Mapping[str, Any], loaded: Any, send: Callable[[Mapping[str, Any]], None], gate: Callable[[], None]) -> None:
    """Send the script of a trace, or its operators that cannot be called here; the conductor requests it, as it has no torch."""
    from steelyard.workloads.traces._trial import ASKED
    from steelyard.workloads.traces.replay import prepared

    made = prepared(
        str(words["file"]), {key: words.get(key) for key in ("what", "subgraph", "step", "skip", "imports")}, str(words["device"])
    )
    if words.get("failing"):
        skipped = made.coverage.facts()["skipped"]
        send({"failing": {row["operator"]: row["why"] for row in skipped if not row["why"].startswith(ASKED)}})
        return
    send({"script": script_of(made, words), "facts": made.facts()})


def script_of(made: Any, words: Mapping[str, Any]) -> str:
    """Return the script. Names of operators were found in the dispatcher, and everything else of the trace is written as data."""
    program, source = made.fitted.program, made.source(0)
    imports = "".join(f"import {name}\n" for name in words.get("imports") or ())
    text = HEAD.format(
        operators=len(program.calls), skipped=len(program.skipped), name=Path(str(words.get("output") or "replay.py")).name,
        imports=imports, least=0.02,
    )  # fmt: skip
    lines = ["", "def given(device):", '    """Tensors that no call makes; those of one storage share memory."""']
    lines += [f"    {line}" for line in _given(made, source)]
    names = [f"t{item.slot}" for item in program.given]
    lines += [f"    return [{', '.join(names)}]", "", "", f"def step({', '.join(['device', *names])}):", '    """Make recorded calls."""']
    lines += [f"    {line}" for line in _calls(made)] or ["    pass"]
    tail = TAIL.format(device=str(made.device), warmup=int(words.get("warmup", 5)), iterations=int(words.get("iterations", 10)))
    return text + "\n".join(lines) + "\n" + tail


def _given(made: Any, source: Any) -> Iterator[str]:
    from steelyard.workloads.traces import _data
    from steelyard.workloads.traces._program import reach

    tensors = dict(zip((item.slot for item in made.fitted.program.given), source.tensors(made.fitted.program, made.bounds), strict=True))
    for number, group in enumerate(_data.groups_of(made.fitted.program)):
        whole = max(group, key=lambda item: reach(item.ref))
        dtype = _data.DTYPES[whole.ref.dtype]
        base, count = tensors[whole.slot], -(-reach(whole.ref) // dtype.itemsize)
        yield f"g{number} = {_values(base, whole.ref, dtype, count, made.bounds.get(whole.slot))}"
        place = _device(whole.ref.device, source.device_of)
        yield f"g{number} = g{number}.to({place})"
        for item in group:
            ref = item.ref
            strides = tuple(ref.strides or _data.contiguous(ref.shape))
            yield f"t{item.slot} = over(g{number}, {_data.DTYPES[ref.dtype]}, {ref.offset}, {tuple(ref.shape)}, {strides})"


def _values(base: Any, ref: TensorRef, dtype: Any, count: int, wanted: Any) -> str:
    import torch

    from steelyard.workloads.traces._data import scale_of

    if dtype.is_floating_point or dtype.is_complex:
        return f"normal({count}, {scale_of(ref):.6g}, {dtype}, {bool(wanted and wanted.positive)})"
    flat = torch.empty(0, dtype=dtype).set_(base.untyped_storage().cpu())[:count] if dtype != torch.bool else base.untyped_storage().cpu()
    listed = [int(value) for value in flat.tolist()][:count]
    if dtype == torch.bool or count <= MOST_LISTED or (wanted and (wanted.total, wanted.parts) != (None, None)):
        same = len(set(listed)) == 1
        return f"torch.full(({count},), {listed[0]}, dtype={dtype})" if same else f"torch.tensor({json.dumps(listed)}, dtype={dtype})"
    return f"whole({count}, {min(listed)}, {max(listed)}, {dtype})"


def _calls(made: Any) -> Iterator[str]:
    from steelyard.workloads.traces import _data
    from steelyard.workloads.traces._operators import fitted, in_order
    from steelyard.workloads.traces._play import result_paths

    device_of = _data.places(made.device, made.recorded_on)
    for call in made.fitted.program.calls:
        for slot, alias in call.before:
            strides = tuple(alias.ref.strides or _data.contiguous(alias.ref.shape))
            yield f"t{slot} = torch.as_strided(t{alias.source}, {tuple(alias.ref.shape)}, {strides}, {alias.ref.offset})"
        found = made.fitted.found[call.node.id]
        by_place, by_name = in_order(fitted(call.node, found))
        words = [_text(call.arguments[place], device_of) for place in by_place]
        words += [f"{name}={_text(call.arguments[place], device_of)}" for name, place in by_name.items()]
        space, _, rest = found.name.partition("::")
        base, _, overload = rest.partition(".")
        made_text = f"OPS.{space}.{base}.{overload or 'default'}({', '.join(words)})"
        if found.with_grad:
            made_text = f"with_grad(OPS.{space}.{base}.{overload or 'default'}, {', '.join(words)})"
        results = [(slot, path) for slot, path in zip(call.results, result_paths(call.node), strict=True) if slot is not None]
        if not results:
            yield made_text
        elif len(results) == 1 and not results[0][1]:
            yield f"t{results[0][0]} = {made_text}"
        else:
            yield f"made = {made_text}"
            for slot, path in results:
                yield f"t{slot} = made{''.join(f'[{place}]' for place in path)}"
            yield "del made"
        if call.over:
            yield f"del {', '.join(f't{slot}' for slot in call.over)}"


def _text(argument: Any, device_of: Callable[[str], Any]) -> str:
    """Return an argument as Python source."""
    from steelyard.workloads.traces._program import Several, Slot

    if isinstance(argument, Slot):
        return f"t{argument.number}"
    if isinstance(argument, Several):
        return f"[{', '.join(_text(item, device_of) for item in argument.items)}]"
    if not isinstance(argument, TraceArgument) or argument.value is None:
        return "None"
    if argument.kind == "device":
        return _device(str(argument.value), device_of)
    if isinstance(argument.value, float) and not math.isfinite(argument.value):
        return f'float("{argument.value}")'
    return repr(argument.value)


def _device(name: str, device_of: Callable[[str], Any]) -> str:
    """Return the source for a device: the requested one, or the host if the recording had both."""
    found, elsewhere = device_of(name), device_of("cuda:0")
    return "device" if found == elsewhere else f"torch.device({str(found)!r})"
