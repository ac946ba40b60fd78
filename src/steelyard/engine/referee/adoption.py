"""A candidate's process adopts its orphans and cannot switch that off, so nothing leaves the process tree that is charged and stopped."""

from __future__ import annotations

import ctypes
import errno
import platform
import sys

from steelyard.engine.process import PR_SET_CHILD_SUBREAPER, keep_orphans

CALLS = {"x86_64": (157, 317), "aarch64": (167, 277)}
"""The numbers of prctl and seccomp, by machine."""
NO_NEW_PRIVILEGES, SET_FILTER, WITHOUT_MITIGATION = 38, 1, 4
"""The last flag keeps the kernel from adding CPU mitigations, which slow memory down, to a filtered process that is timed."""
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16
"""Offsets of the system call's number and first argument in what a filter reads."""
REFUSE, ALLOW = 0x00050000 | errno.EPERM, 0x7FFF0000


class FilterStep(ctypes.Structure):
    """One instruction of a filter, as the kernel reads it."""

    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class SystemCallFilter(ctypes.Structure):
    """A filter: how many instructions, and where they are."""

    _fields_ = (("count", ctypes.c_uint16), ("first", ctypes.POINTER(FilterStep)))


def keep_for_good() -> bool:
    """Adopt orphans from now on, irreversibly for this process and all that it starts; return whether the kernel took the filter."""
    keep_orphans()
    numbers = CALLS.get(platform.machine())
    if sys.platform != "linux" or numbers is None:
        return False
    prctl, seccomp = numbers
    listed = (FilterStep * 6)(
        FilterStep(LOAD, 0, 0, NUMBER),
        FilterStep(JUMP_IF_EQUAL, 0, 3, prctl),
        FilterStep(LOAD, 0, 0, FIRST_ARGUMENT),
        FilterStep(JUMP_IF_EQUAL, 0, 1, PR_SET_CHILD_SUBREAPER),
        FilterStep(RETURN, 0, 0, REFUSE),
        FilterStep(RETURN, 0, 0, ALLOW),
    )
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    program = SystemCallFilter(len(listed), listed)
    return bool(library.syscall(seccomp, SET_FILTER, WITHOUT_MITIGATION, ctypes.byref(program)) == 0)
