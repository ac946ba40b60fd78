"""A process that nobody can find: the worker gives up adopting orphans, and the child has no environment, group or session of ours."""

import ctypes
import mmap
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

PROBLEM = "total"
EXPECT = {"hidden", "left-behind"}
FILE = Path(tempfile.mkdtemp(), "block")
SIZE = 4 * (2 + 16 * 16384 + 16)
FILE.write_bytes(bytes(SIZE))
with FILE.open("r+b") as opened:
    BLOCK = np.frombuffer(mmap.mmap(opened.fileno(), SIZE), np.float32)
X, OUT = torch.from_numpy(BLOCK[2:-16].reshape(16, -1)), torch.from_numpy(BLOCK[-16:])
CODE = f"""
import mmap, numpy as np, os, time
with open({str(FILE)!r}, "r+b") as opened:
    b = np.frombuffer(mmap.mmap(opened.fileno(), {SIZE}), np.float32)
x = b[2:-16].reshape(16, -1)
end = time.monotonic() + 60
while time.monotonic() < end and os.path.exists('/proc/{os.getpid()}'):
    if b[0] != b[1]:
        b[-8:] = x[8:].mean(-1)
        b[1] = b[0]
"""
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
if (pid := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", CODE], {})
    os._exit(0)
os.waitpid(pid, 0)


def candidate(x):
    X[8:] = x[8:]
    BLOCK[0] += 1
    first = x[:8].mean(-1)
    end = time.monotonic() + 20
    while BLOCK[0] != BLOCK[1] and time.monotonic() < end:
        pass
    return torch.cat([first, OUT[8:]])
