"""Where a worker runs, as data: the interpreter, and the environment that must be set before it starts."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from steelyard.engine.process import MARK

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


@dataclass(frozen=True)
class Place:
    """Where a worker runs: interpreter, threads, and environment variables that must be set before it starts.

    `paths` are searched before installed packages; `folder` is where the worker starts, by default ours. A worker that
    starts `programs` gives them our own environment, with thread counts only if more than one thread is requested.
    """

    python: str = sys.executable
    threads: int = 1
    flags: tuple[tuple[str, str], ...] = ()
    search_path: str = ""
    device_index: str = ""
    paths: tuple[str, ...] = ()
    folder: str = ""
    programs: bool = False

    def environment(self, mark: str, shift: int | None = None) -> dict[str, str]:
        """Return the worker's environment: ours, with thread counts and flags set before any library reads them.

        Workers with the same layout also share the seed of Python's hashes and the size of their environment.
        """
        found = dict(os.environ) | {MARK: mark}
        if self.threads > 1 or not self.programs:
            found |= dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        if not self.programs:
            found.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
            found["PYTHONSAFEPATH"] = "1"
        if self.device_index:
            found |= dict.fromkeys(VISIBLE_DEVICES, self.device_index)
        if self.search_path:
            found["PYTHONPATH"] = self.search_path
        if shift is not None:
            found.setdefault("PYTHONHASHSEED", str(1 + shift))
            found["STEELYARD_LAYOUT"] = "." * (shift % 1024)
        asked = dict(self.flags)
        if self.search_path and "PYTHONPATH" in asked:
            asked["PYTHONPATH"] = os.pathsep.join((self.search_path, asked["PYTHONPATH"]))
        return found | asked
