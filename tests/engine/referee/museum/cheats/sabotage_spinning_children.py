"""Leaves children that keep every core busy, also while it is not its turn."""

import os
import time

PROBLEM = "product"
EXPECT = {"sabotage", "hidden", "outside", "harmless"}


def spin():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pass


for _ in range(2 * os.cpu_count()):
    if os.fork() == 0:
        os.setsid()
        spin()
        os._exit(0)


def candidate(a, b):
    return a @ b
