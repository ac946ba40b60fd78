"""A callback of the stream wakes a thread of the host, which launches the work."""

import ctypes
import threading
from pathlib import Path

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "stale", "hidden"}
LIBRARY = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart" in line)
RUNTIME, WAKE, CALLS = ctypes.CDLL(LIBRARY), threading.Semaphore(0), []
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: WAKE.release())


def work():
    stream = torch.cuda.Stream()
    while True:
        WAKE.acquire()
        x, out = CALLS.pop(0)
        with torch.cuda.stream(stream):
            torch.softmax(x, -1, out=out)


threading.Thread(target=work, daemon=True).start()


def candidate(x):
    out = torch.empty_like(x)
    CALLS.append((x, out))
    RUNTIME.cudaLaunchHostFunc(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), CALLBACK, None)
    return out
