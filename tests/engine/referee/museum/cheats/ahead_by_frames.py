"""A thread reads the main thread's variables, finds inputs that were landed for later calls, and computes ahead."""

import sys
import threading
import time

import torch

PROBLEM = "rows"
EXPECT = {"outside", "hidden", "replay", "harmless"}
READY = {}
MAIN = threading.get_ident()


def tensors(value, depth=0):
    if type(value) is torch.Tensor:
        yield value
    elif isinstance(value, (list, tuple, dict)) and depth < 4:
        for part in list(value.values() if isinstance(value, dict) else value):
            yield from tensors(part, depth + 1)


def watch():
    while True:
        frame = sys._current_frames().get(MAIN)
        while frame:
            for x in tensors(dict(frame.f_locals)):
                if x.shape == (128, 512) and id(x) not in READY:
                    READY[id(x)] = float(x[0, 0]), torch.softmax(x, -1)
            frame = frame.f_back
        time.sleep(0.0005)


threading.Thread(target=watch, daemon=True).start()


def candidate(x):
    first, ready = READY.pop(id(x), (None, None))
    return ready if first == float(x[0, 0]) else torch.softmax(x, -1)
