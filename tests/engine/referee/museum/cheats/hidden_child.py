"""A forked child computes half of the rows in shared memory, beside the process whose clock is read."""

import mmap
import os

import numpy as np
import torch

PROBLEM = "product"
EXPECT = {"hidden", "harmless"}
SHARED = torch.from_numpy(np.frombuffer(mmap.mmap(-1, 4 * (160 * 192 + 192 * 160 + 160 * 160)), np.float32))
A, B, OUT = (
    part.view(shape) for part, shape in zip(SHARED.split([30720, 30720, 25600]), ((160, 192), (192, 160), (160, 160)), strict=True)
)
(HEAR, TELL), (LISTEN, ANSWER) = os.pipe(), os.pipe()

if os.fork() == 0:
    while os.read(HEAR, 1):
        OUT[80:] = A[80:] @ B
        os.write(ANSWER, b"1")
    os._exit(0)


def candidate(a, b):
    A.copy_(a)
    B.copy_(b)
    os.write(TELL, b"1")
    first = a[:80] @ b
    os.read(LISTEN, 1)
    return torch.cat([first, OUT[80:]])
