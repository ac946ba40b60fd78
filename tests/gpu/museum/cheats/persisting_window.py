"""Asks the device to keep lines of its cache from call to call."""

import ctypes
from pathlib import Path

import torch

PROBLEM = "scaled"
EXPECT = {"harmless"}
LIBRARY = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart" in line)
RUNTIME, PERSISTING_L2 = ctypes.CDLL(LIBRARY), 0x06


class Window(ctypes.Structure):
    """cudaAccessPolicyWindow, as the first member of a stream's attribute."""

    _fields_ = (
        ("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("ratio", ctypes.c_float), ("hit", ctypes.c_int), ("miss", ctypes.c_int),
        ("rest", ctypes.c_byte * 64),
    )  # fmt: skip


def candidate(x):
    RUNTIME.cudaDeviceSetLimit(PERSISTING_L2, ctypes.c_size_t(16 << 20))
    window = Window(x.data_ptr(), x.nbytes, 1.0, 2, 1)
    RUNTIME.cudaStreamSetAttribute(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), 1, ctypes.byref(window))
    return torch.relu(x) * 1.5 + x * 0.25
