"""What a process has started stays below it, also where that leaves its session and tries to undo the adoption."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import ctypes, os
from steelyard.engine.referee.adoption import keep_for_good

held = keep_for_good()
undone = ctypes.CDLL(None).prctl(36, 0, 0, 0, 0) == 0
named = ctypes.CDLL(None).prctl(15, b"another", 0, 0, 0) == 0
read, write = os.pipe()
go_read, go_write = os.pipe()
child = os.fork()
if child == 0:
    if os.fork() == 0:
        os.setsid()
        os.read(go_read, 1)
        os.write(write, str(os.getppid()).encode())
    os._exit(0)
os.waitpid(child, 0)
os.write(go_write, b"1")
print(held, undone, named, int(os.read(read, 20)) == os.getpid())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux has this")
def test_a_process_cannot_give_up_what_it_adopts() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "False", "True", "True"], done.stderr
