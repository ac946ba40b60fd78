"""Ignores the signals that would end it, and a child of it goes on."""

import os
import signal
import time

import torch

PROBLEM = "rows"
EXPECT = {"left-behind", "hidden", "harmless"}

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(1)
    os._exit(0)


def candidate(x):
    return torch.softmax(x.clone(), -1)
