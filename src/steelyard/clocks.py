"""The clocks of this process, taken before any file of a user is loaded: a file that puts others into `time` times only itself."""

from __future__ import annotations

from time import monotonic, perf_counter, perf_counter_ns, process_time, thread_time_ns

__all__ = ["monotonic", "perf_counter", "perf_counter_ns", "process_time", "thread_time_ns"]
