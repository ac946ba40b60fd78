"""A made-up device whose clock, queue, throttling and energy are known exactly, behind the interface of torch.cuda."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from steelyard.model.task import Task

if TYPE_CHECKING:
    from steelyard.backends._device import EventTimer

LAUNCH, KERNEL, EVENT, MISS, RATE, WATTS, TICK = 5e-6, 2e-5, 1e-6, 7e-6, 1e9, 300.0, 0.02


class Device:
    """One stream with a clock of its own; launching costs host time, and each event leaves a gap on the stream."""

    def __init__(self) -> None:
        self.now = self.free = self.aside = 0.0
        self.waiting = 0.0
        self.cold = False
        self.recording: list[float] | None = None

        class Event:
            def __init__(event, enable_timing: bool) -> None:
                event.at = 0.0

            def record(event) -> None:
                event.at = self.free = max(self.now, self.free) + EVENT

            def query(event) -> bool:
                return self.now >= event.at

            def synchronize(event) -> None:
                self.now = max(self.now, event.at)

            def elapsed_time(event, end: Any) -> float:
                return (end.at - event.at) * 1e3

        class Graph:
            work = 0.0

            def replay(graph) -> None:
                self.launch(graph.work)

        self.api = SimpleNamespace(
            Event=Event, _sleep=lambda cycles: self.work(cycles / RATE), synchronize=self.synchronize,
            CUDAGraph=Graph, graph=self.capturing,
            Stream=lambda: SimpleNamespace(wait_stream=lambda other: None), stream=nullcontext,
            current_stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            get_device_properties=lambda device: SimpleNamespace(L2_cache_size=64),
        )  # fmt: skip

    def work(self, seconds: float) -> None:
        self.free = max(self.now, self.free) + seconds

    def launch(self, seconds: float) -> None:
        self.now += LAUNCH
        if self.recording is not None:
            self.recording.append(seconds)
            return
        self.work(seconds + (MISS if self.cold else 0.0))
        self.cold = False

    def stray(self, seconds: float) -> None:
        """Launch on another stream, which the first one does not wait for."""
        self.now += LAUNCH
        self.aside = max(self.now, self.aside) + seconds

    def synchronize(self) -> None:
        self.now = max(self.now, self.free, self.aside) + self.waiting

    def capturing(self, graph: Any, stream: object = None) -> Any:
        device = self

        class Capture:
            def __enter__(self) -> None:
                device.recording = []

            def __exit__(self, *error: object) -> None:
                graph.work, device.recording = sum(device.recording or []), None

        return Capture()

    def without(self, *names: str) -> Any:
        return SimpleNamespace(**{name: part for name, part in vars(self.api).items() if name not in names})

    def timer(self, meter: Any = None, kind: type[EventTimer] | None = None, api: Any = None) -> EventTimer:
        from steelyard.backends._device import EventTimer

        return (kind or EventTimer)(api or self.api, "cpu", meter, lambda: self.now)

    def task(self, seconds: float = KERNEL, **more: Any) -> Task:
        return Task(lambda: self.launch(seconds), **more)


class Meter:
    """Throttles and clocks as told; energy moves in ticks, as the real counter does."""

    def __init__(self, device: Device, clock: Callable[[], float] = lambda: 1.7e9) -> None:
        self.device, self.sm_clock = device, clock
        self.asked = self.now_slowed = 0

    def reasons(self) -> int:
        self.asked += 1
        return self.now_slowed

    def energy(self) -> float:
        return WATTS * TICK * math.floor(self.device.now / TICK)


def put_in_use(device: Device, monkeypatch: Any) -> None:
    """Make it the CUDA device that this process has woken, and its time the time that clocks of a call read."""
    import torch

    from steelyard import drop_in
    from steelyard.backends import _device

    class OnItsClock(_device.EventTimer):
        def __init__(self, api: Any, where: Any, meter: Any) -> None:
            super().__init__(api, where, meter, lambda: device.now)

    clock = SimpleNamespace(perf_counter=lambda: device.now, perf_counter_ns=lambda: round(device.now * 1e9))
    buffer = SimpleNamespace(fill_=lambda value: setattr(device, "cold", True))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(_device, "open_api", lambda kind: (device.api, "cpu"))
    monkeypatch.setattr(_device, "EventTimer", OnItsClock)
    monkeypatch.setattr(_device, "torch", SimpleNamespace(empty=lambda *args, **kwargs: buffer, uint8=None))
    monkeypatch.setattr(drop_in, "clocks", clock)
