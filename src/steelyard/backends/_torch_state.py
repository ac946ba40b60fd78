"""Saves and restores torch's process-wide settings, so that what one case changes does not reach the next."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

Switch = tuple[Callable[[], Any], Callable[[Any], Any]]
CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
MISSING = object()


def _attribute(owner: Any, name: str) -> Switch:
    def read() -> Any:
        return getattr(owner, name)

    read.__name__ = name
    return read, lambda value: setattr(owner, name, value)


USUAL: tuple[Switch, ...] = (
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
)


def _precisions() -> Iterator[Switch]:
    """Yield the switches for precisions, algorithms and autocast; those that change other switches come first."""
    backends, cuda, cudnn = torch.backends, torch.backends.cuda, torch.backends.cudnn
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    yield from (_attribute(owner, "allow_tf32") for owner in (cuda.matmul, cudnn))
    owners = (backends, cuda.matmul, cudnn, *(getattr(cudnn, name, None) for name in ("conv", "rnn")))
    mkldnn = getattr(backends, "mkldnn", None)
    owners += (mkldnn, *(getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn")))
    yield from (_attribute(owner, "fp32_precision") for owner in owners if owner is not None)
    yield from (_attribute(cuda.matmul, f"allow_{name}_reduced_precision_reduction") for name in ("fp16", "bf16"))
    yield from (_attribute(cudnn, name) for name in ("enabled", "benchmark", "deterministic"))
    for name in ("allow_fp16_accumulation", "allow_splitk"):
        if hasattr(cuda.matmul, name):
            yield _attribute(cuda.matmul, name)
    yield torch.is_anomaly_enabled, torch.set_anomaly_enabled
    yield gc.isenabled, lambda value: gc.enable() if value else gc.disable()
    yield np.geterr, lambda value: np.seterr(**value)
    yield os.getcwd, os.chdir
    yield torch.get_default_device, lambda value: torch.set_default_device(None if value.type == "cpu" else value)
    yield lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()), _deterministic
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        yield getattr(cuda, f"{name}_sdp_enabled"), getattr(cuda, f"enable_{name}_sdp")
    for kind in ("cpu", "cuda"):
        yield functools.partial(torch.is_autocast_enabled, kind), functools.partial(torch.set_autocast_enabled, kind)
        yield functools.partial(torch.get_autocast_dtype, kind), functools.partial(torch.set_autocast_dtype, kind)


def _deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _name(switch: Switch) -> str:
    """Return a setting's name, from the function that reads it."""
    read = switch[0].func if isinstance(switch[0], functools.partial) else switch[0]
    name = getattr(read, "__name__", "")
    return "a setting" if not name or name == "<lambda>" else name.removeprefix("get_").removeprefix("is_")


def _read(switch: Switch) -> Any:
    """Return a setting's value; MISSING if it cannot be read, as when precisions were set in both the old and the new way."""
    try:
        return switch[0]()
    except (RuntimeError, AttributeError):
        return MISSING


def _random_state() -> tuple[Any, ...]:
    made = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), made


def _restore_random(state: tuple[Any, ...]) -> None:
    """Restore the random number generators; a device that was initialized meanwhile is seeded anew."""
    python, numpy, host, devices = state
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(host)
    with contextlib.suppress(RuntimeError):
        if devices:
            torch.cuda.set_rng_state_all(devices)
        elif torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(torch.initial_seed())


def values() -> tuple[Any, ...]:
    """Return the current value of every switch, in order."""
    return tuple(_read(switch) for switch in (*USUAL, *_precisions()))


@contextlib.contextmanager
def in_state(wanted: tuple[Any, ...]) -> Iterator[None]:
    """Set every switch to earlier values, and afterwards back to the present ones."""
    switches = (*USUAL, *_precisions())
    with as_it_was(switches):
        for (read, write), value in zip(switches, wanted, strict=True):
            if value is not MISSING and _read((read, write)) != value:
                write(value)
        yield


@contextlib.contextmanager
def as_it_was(switches: Iterable[Switch] = USUAL) -> Iterator[Callable[[], list[str]]]:
    """Restore torch's threads, default format and gradient recording at the end, for the next case or for user code in this process. The
    value is a function that returns what has been changed so far.
    """
    before = [(switch, _read(switch)) for switch in switches]

    def changed() -> Iterator[tuple[Switch, Any, Any]]:
        for switch, value in before:
            if value is not MISSING and (now := _read(switch)) != value:
                yield switch, value, now

    try:
        yield lambda: [f"{_name(switch)}: {now} in place of {value}" for switch, value, now in changed()]
    finally:
        for (_, write), value, _ in changed():
            with contextlib.suppress(RuntimeError):
                write(value)


@contextlib.contextmanager
def wholly_as_it_was() -> Iterator[Callable[[], list[str]]]:
    """Restore precisions, random numbers, compiler settings and environment variables too, at the end; this takes half a millisecond."""
    numbers, variables = _random_state(), dict(os.environ)
    configs = {name: sys.modules[name].get_config_copy() for name in CONFIGS if name in sys.modules}

    def others() -> list[str]:
        """Return changed compiler settings and environment variables."""
        found = [f"other settings in {name}" for name, config in configs.items() if sys.modules[name].get_config_copy() != config]
        return found + ([] if dict(os.environ) == variables else ["other environment variables"])

    try:
        with as_it_was((*USUAL, *_precisions())) as changed:
            yield lambda: changed() + others()
    finally:
        for name, config in configs.items():
            now = sys.modules[name].get_config_copy()
            with contextlib.suppress(Exception):
                sys.modules[name].load_config({key: value for key, value in config.items() if key not in now or now[key] != value})
        _restore_random(numbers)
        if dict(os.environ) != variables:
            os.environ.clear()
            os.environ.update(variables)
