"""Readings of the GPU during a measurement: clocks, power, temperature, throttling and energy, through NVML.

A thread reads a few times a second; its own cost is measured and stored with the readings. Without NVML
there is no telemetry, and the record says so.
"""

from __future__ import annotations

import importlib
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from steelyard import clocks
from steelyard.model.record import Arrays

EVERY = 0.2
SLOWED = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}
HARMFUL = 0x8 | 0x20 | 0x40 | 0x80
SERIES = {"telemetry_sm_clock": "sm_clock", "telemetry_power": "power"}
UNITS = {"sm_clock": "Hz", "memory_clock": "Hz", "power": "W", "temperature": "degC", "utilisation": "1", "memory_used": "B"}


@dataclass(frozen=True)
class MeterReading:
    """One reading; `reasons` is NVML's bit mask of why clocks are held down."""

    at: float
    sm_clock: float
    memory_clock: float
    power: float
    temperature: float
    utilisation: float
    memory_used: float
    reasons: int


class Meter:
    """Reads one NVIDIA device through NVML."""

    def __init__(self, nvml: Any, device: Any) -> None:
        self.nvml, self.device = nvml, device

    @classmethod
    def open(cls, uuid: str | None, index: int = 0) -> Meter | None:
        """The device by UUID, so that CUDA_VISIBLE_DEVICES cannot mix devices up; None without NVML."""
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid.encode()) if uuid else nvml.nvmlDeviceGetHandleByIndex(index))
        except Exception:
            return None

    def row(self) -> MeterReading:
        """One reading of all quantities."""
        nvml, device = self.nvml, self.device
        return MeterReading(
            at=clocks.monotonic(),
            sm_clock=self.sm_clock(),
            memory_clock=1e6 * _ask(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_MEM),
            power=1e-3 * _ask(nvml.nvmlDeviceGetPowerUsage, device),
            temperature=_ask(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
            utilisation=self.utilisation(),
            memory_used=self.memory_used(),
            reasons=self.reasons(),
        )

    def utilisation(self) -> float:
        """The share of NVML's last sampling period in which a kernel ran."""
        return 0.01 * _ask(lambda: self.nvml.nvmlDeviceGetUtilizationRates(self.device).gpu)

    def memory_used(self) -> float:
        """Bytes of memory that all processes use."""
        return _ask(lambda: self.nvml.nvmlDeviceGetMemoryInfo(self.device).used)

    def sm_clock(self) -> float:
        """Streaming-multiprocessor clock in Hz: a quick read for warm-up."""
        return 1e6 * _ask(self.nvml.nvmlDeviceGetClockInfo, self.device, self.nvml.NVML_CLOCK_SM)

    def reasons(self) -> int:
        """Why clocks are held down right now."""
        value = _ask(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.device)
        return int(value) if value == value else 0

    def energy(self) -> float | None:
        """Joules since the driver was loaded; None if the device does not count them."""
        value = _ask(self.nvml.nvmlDeviceGetTotalEnergyConsumption, self.device)
        return value * 1e-3 if value == value else None


def _ask(question: Callable[..., Any], *args: Any) -> float:
    try:
        return float(question(*args))
    except Exception:
        return float("nan")


@dataclass
class Log:
    """The readings of one measurement, and what taking them cost."""

    rows: list[MeterReading] = field(default_factory=list)
    cost: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Ranges for a record: lowest and highest of each quantity, every reason for slowing seen, the share of a core spent."""
        if not self.rows:
            return {}
        span = max(self.rows[-1].at - self.rows[0].at, EVERY)
        ranges = {name: [min(values), max(values)] for name in UNITS if (values := [getattr(row, name) for row in self.rows])}
        seen = 0
        for row in self.rows:
            seen |= row.reasons
        slowed = [name for bit, name in SLOWED.items() if seen & bit]
        return {**ranges, "slowed_by": slowed, "readings": len(self.rows), "cost": round(self.cost / span, 6)}

    def arrays(self) -> Arrays:
        """Every reading for the record's sidecar, so that slow blocks can be compared with the clock at that time."""
        if not self.rows:
            return {}
        found = {"telemetry_time": ("s", [row.at - self.rows[0].at for row in self.rows])}
        found |= {series: (UNITS[name], [getattr(row, name) for row in self.rows]) for series, name in SERIES.items()}
        return {series: (unit, "<f8", struct.pack(f"<{len(values)}d", *values)) for series, (unit, values) in found.items()}


class Sampler:
    """Reads something at regular intervals in its own thread, and counts the CPU seconds that this takes.

    A failed reading is tried again at the next interval; the number of readings shows what is missing.
    """

    def __init__(self, read: Callable[[], None], every: float, name: str) -> None:
        self.cost, self.failed, self.failed_in_a_row = 0.0, 0, 0
        self._read, self._every, self._stop = read, every, threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            before = clocks.thread_time_ns()
            try:
                self._read()
                self.failed_in_a_row = 0
            except Exception:
                self.failed, self.failed_in_a_row = self.failed + 1, self.failed_in_a_row + 1
            self.cost += (clocks.thread_time_ns() - before) * 1e-9
            if self._stop.wait(self._every):
                return


@contextmanager
def watch(meter: Meter | None, every: float = EVERY) -> Iterator[Log]:
    """Read the device every so many seconds while the body runs."""
    log = Log()
    if meter is None:
        yield log
        return
    sampler = Sampler(lambda: log.rows.append(meter.row()), every, "steelyard-telemetry")
    sampler.start()
    try:
        yield log
    finally:
        sampler.stop()
        log.cost = sampler.cost
