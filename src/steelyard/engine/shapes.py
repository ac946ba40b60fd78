"""The worker's part of a check: each case is built and called once on tensors without data, and nothing is timed."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steelyard import registry
from steelyard.engine import opening
from steelyard.engine.messages import Fit
from steelyard.errors import Unsupported
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.task import clean_up

if TYPE_CHECKING:
    from steelyard.engine.bench import Bench

TORCH, WITHOUT_DATA = "torch", "steelyard.backends._shapes"
SIGN_OF_LIFE = 0.1
"""Seconds."""


def perform(cases: Sequence[Case], loaded: registry.Loaded) -> Iterator[Fit]:
    """Yield an answer for each case; the framework's own variants change no shapes, so they share one answer."""
    known: dict[str, tuple[str, str]] = {}
    for case in cases:
        if loaded.workloads[case.workload].examine is not None:
            yield Fit(case.id, *_examined(case, loaded))
            continue
        bench = _bench(case, loaded)
        key = json.dumps([case.workload, dict(case.params), bench.case.backend, case.mode, case.ranks, bench.case.variant], default=str)
        if key not in known:
            known[key] = _try(bench)
        yield Fit(case.id, *known[key])


def noteworthy(fits: Iterable[Fit]) -> Iterator[Fit]:
    """Yield the cases that cannot run, and now and then another as a sign of life: thousands of small cases need no message each."""
    last = time.monotonic()
    for fit in fits:
        if fit.wrong or time.monotonic() - last > SIGN_OF_LIFE:
            last = time.monotonic()
            yield fit


def _bench(case: Case, loaded: registry.Loaded) -> Bench:
    """The case as it is tried: on torch if its backend runs torch's form, and with only the variants of the workload itself.

    Kernels of such a variant may reject the device without data with their own messages, so an error of only a variant is not a mistake.
    """
    from steelyard.engine.bench import Bench

    workload = loaded.workloads[case.workload]
    own = [step for step in case.chain if step.name in workload.variants and not workload.variants[step.name].fresh]
    speaks_torch = case.backend == TORCH or case.backend not in workload.bodies
    tried = replace(case, backend=TORCH if speaks_torch else case.backend, device="cpu", variant="+".join(map(str, own)) or "eager")
    chain = tuple((workload.variants[step.name], dict(step.options)) for step in own)
    return Bench(tried, workload, chain, None, Settings(), loaded)


def _try(bench: Bench) -> tuple[str, str]:
    case, workload = bench.case, bench.workload
    if case.backend != TORCH:
        return "", f"backend {case.backend} has no tensors without data"
    if TORCH not in workload.bodies:
        return "", f"{workload.name} has no form for torch"
    if case.mode not in workload.modes:
        return "", f"{workload.name} has no mode {case.mode}; it has {', '.join(workload.modes)}"
    try:
        without_data = importlib.import_module(WITHOUT_DATA)
    except ImportError as error:
        return "", _uninstalled(error)
    found = _called(replace(bench, chain=()), without_data)
    if any(found) or not bench.chain:
        return found
    wrong, unchecked = _called(bench, without_data)
    return "", f"variant {case.variant}: {wrong or unchecked}" if wrong or unchecked else ""


def _called(bench: Bench, without_data: Any) -> tuple[str, str]:
    """Build and call once; tensors that the workload makes itself are also on the device without data."""
    try:
        with without_data.META:
            _, task = replace(bench, backend=without_data.EmptyTensors).build()
            try:
                if task.fn is None:
                    raise Unsupported("it times itself, so there is no call to try")
                task()
            finally:
                clean_up([task])
    except (Exception, SystemExit) as error:
        found: tuple[str, str] = without_data.verdict(error)
        return found
    return "", ""


def _examined(case: Case, loaded: registry.Loaded) -> tuple[str, str]:
    """The answer of the workload's own check."""
    examine = loaded.workloads[case.workload].examine
    assert examine is not None
    params = opening.given(loaded.workloads[case.workload], dict(case.params))
    if loaded.workloads[case.workload].opens:
        return examine(params, loaded)
    try:
        importlib.import_module(WITHOUT_DATA)
    except ImportError as error:
        return "", _uninstalled(error)
    return examine(params, loaded)


def _uninstalled(error: ImportError) -> str:
    return "torch is not installed, pip install 'steelyard[torch]'" if error.name == "torch" else f"torch cannot be loaded: {error}"
