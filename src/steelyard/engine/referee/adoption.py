"""A candidate's process adopts what it has started, and may not give that up: so nothing leaves the tree that is charged and stopped."""

from __future__ import annotations

import ctypes
import errno
import platform
import sys

from steelyard.engine.process import PR_SET_CHILD_SUBREAPER, keep_orphans

CALLS = {"x86_64": (157, 317), "aarch64": (167, 277)}
"""The numbers of prctl and seccomp, by machine."""
NO_NEW_PRIVILEGES, SET_FILTER, WITHOUT_MITIGATION = 38, 1, 4
"""The last flag says that a filtered process needs no slower memory than others: what is timed must not depend on the filter."""
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16
"""Where the kernel lays what a filter looks at."""
REFUSE, ALLOW = 0x00050000 | errno.EPERM, 0x7FFF0000


class FilterStep(ctypes.Structure):
    """One of a filter, as the kernel reads it."""

    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class SystemCallFilter(ctypes.Structure):
    """A filter: how many instructions, and where they are."""

    _fields_ = (("count", ctypes.c_uint16), ("first", ctypes.POINTER(FilterStep)))


def keep_for_good() -> bool:
    """Adopt orphans from now on, with no way back for this process and all that it starts; whether the kernel took the rule."""
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
