"""What the operating system is asked for before a worker serves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steelyard.engine.process import stay_awake
from tests.engine.drive import run_json

CALLS, PAGES = 200, 256
COUNT = f"""
import ctypes, resource
from steelyard.engine.process import recycle_memory, settle_allocator
{{settle}}
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def use():
    blocks = [library.malloc({PAGES} * 4096) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, {PAGES} * 4096)
    for block in blocks:
        library.free(block)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({CALLS}):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

MINE = f"""
import resource
import numpy as np
from steelyard import Task, workload

@workload("my/faults", axes={{"n": [{PAGES * 4096}]}}, backend="numpy")
def faults(n, be):
    use = lambda: [np.ones(n, np.uint8) for _ in range(4)]
    use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({CALLS}):
        use()
    return Task(lambda: 1, effective={{"faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before}})
"""


def faults(settle: str) -> int:
    """Pages that the system provides while the same blocks are taken and freed again and again."""
    return int(subprocess.run([sys.executable, "-c", COUNT.format(settle=settle)], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_blocks_stay_with_a_worker_from_its_first_call() -> None:
    assert faults("settle_allocator()") < PAGES < CALLS * PAGES < faults("")
    assert faults("recycle_memory()") < PAGES


def test_something_to_read_is_noticed_without_sleeping_and_waited_for_no_longer_than_asked() -> None:
    reader, writer = os.pipe()
    try:
        began = time.monotonic()
        stay_awake([reader], 0.02)
        assert time.monotonic() - began >= 0.02
        os.write(writer, b"x")
        began = time.monotonic()
        stay_awake([reader], 60.0)
        assert time.monotonic() - began < 30.0
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_worker_that_verified_nothing_has_the_same_allocator(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    record = run_json("mine.py", "--no-verify", "--runs", "1", cwd=tmp_path)["records"][0]
    assert record["effective"]["faults"] < PAGES
