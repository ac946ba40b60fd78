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


CLOSED = """
import os, pathlib
from steelyard.engine.process import close_to_others

ready, told = os.pipe()
done, go = os.pipe()
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
child = os.fork()
if child == 0:
    close_to_others()
    os.write(told, b"1")
    os.read(done, 1)
    os._exit(0)
os.read(ready, 1)
for name in ("mem", "fd/0", "stat"):
    try:
        with open(f"/proc/{child}/{name}", "rb") as opened:
            print("open")
    except PermissionError:
        print("closed")
os.write(go, b"1")
os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux has this")
def test_others_of_the_same_user_cannot_look_into_a_closed_process() -> None:
    done = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout.split() == ["closed", "closed", "open"], done.stderr
