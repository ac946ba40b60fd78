"""The clocks of this process, imported before any user's file is loaded, so that a file that patches `time` cannot change our times."""

from __future__ import annotations

from time import monotonic, perf_counter, perf_counter_ns, process_time, thread_time_ns

__all__ = ["monotonic", "perf_counter", "perf_counter_ns", "process_time", "thread_time_ns"]
