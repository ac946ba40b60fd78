"""A walk through the museum without a referee: every candidate is called plainly, each in a process of its own.

`python -m tests.engine.referee.walk FOLDER` prints a line of JSON for each exhibit: what its first call gave, and how many of its
first calls were wrong.
"""

from __future__ import annotations

import copy
import ctypes
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tests.engine.referee.exhibits import MUSEUM, Exhibit, exhibits

CALLS = 40
SUBREAPER = 36
LIMIT = 20
BASE = torch._C.TensorBase
PLAIN = torch._C.DisableTorchFunctionSubclass
NUMPY, DETACH, NORM = BASE.numpy, BASE.detach, np.linalg.norm
Raw = list[Any]


def load(file: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(problem: Any, seed: int) -> list[Any]:
    """The inputs of a call."""
    if hasattr(problem, "inputs"):
        return list(problem.inputs(seed))
    torch.manual_seed(seed)
    return list(problem.get_inputs())


def known(problem: Any) -> tuple[Any, dict[str, Any]]:
    """The reference of either layout, and its weights."""
    if hasattr(problem, "reference"):
        return problem.reference, {}
    torch.manual_seed(42)
    model = problem.Model(*problem.get_init_inputs())
    return model.forward, model.state_dict()


def candidate(module: Any, problem: Any, weights: dict[str, Any]) -> Any:
    """The candidate of either layout."""
    if hasattr(module, "candidate"):
        return module.candidate
    model = module.ModelNew(*problem.get_init_inputs())
    model.load_state_dict(weights, strict=False)
    return model.forward


def raw(value: Any) -> Raw:
    """The values that lie in memory, whatever class they are of."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in raw(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in raw(item)]
    if isinstance(value, BASE):
        with PLAIN():
            return [np.array(NUMPY(BASE.to(DETACH(value), torch.float64)))]
    if isinstance(value, np.ndarray):
        return [np.array(np.ndarray.view(value, np.ndarray), np.float64)]
    raise TypeError(f"{type(value).__name__} is no array")


def near(got: Raw, want: Raw) -> bool:
    """Whether answers agree by 2 %, and are infinite or no number in the same places."""
    return len(got) == len(want) and all(_near(*pair) for pair in zip(got, want, strict=True))


def _near(got: Any, want: Any) -> bool:
    if got.shape != want.shape:
        return False
    odd = ~np.isfinite(want)
    if not np.array_equal(got[odd], want[odd], equal_nan=True):
        return False
    return bool(NORM(got[~odd] - want[~odd]) <= 0.02 * NORM(want[~odd]) + 1e-30)


def call_plainly(exhibit: Exhibit) -> dict[str, Any]:
    """Call one candidate with the inputs of several draws."""
    problem: Any = load(exhibit.problem)
    fn, weights = known(problem)
    draws = [draw(problem, seed) for seed in range(1, CALLS + 1)]
    contract = getattr(problem, "CONTRACT", {})
    lasting = {number: draws[0][number] for number in contract.get("persistent", ())}
    draws = [[lasting.get(place, item) for place, item in enumerate(given)] for given in draws]
    wanted = [raw(fn(*copy.deepcopy(given))) for given in draws]
    found: dict[str, Any] = {"name": exhibit.name, "first": "raises", "wrong": 0}
    with torch.no_grad():
        try:
            called = candidate(load(exhibit.file), problem, weights)
            for number, (given, want) in enumerate(zip(draws, wanted, strict=True)):
                args = [item if place in lasting else copy.deepcopy(item) for place, item in enumerate(given)]
                args += [torch.full(tuple(want[0].shape), 0.25)] if contract.get("fills_outputs") else []
                right = near(raw(called(*args)), want)
                found["wrong"] += not right
                if not number:
                    found["first"] = "right" if right else "wrong"
                    if exhibit.expect and exhibit.expect != {"replay"}:
                        break
        except BaseException as error:
            found["error"] = repr(error)
    return found


def in_a_child(exhibit: Exhibit, folder: Path) -> dict[str, Any]:
    """The same in a process of its own, which is ended with all that it started. It has no pipe of anyone's, since some
    write to every pipe, and answers by a file."""
    answer = folder / f"{exhibit.name}.json"
    child = os.fork()
    if child == 0:
        os.closerange(3, 4096)
        signal.alarm(LIMIT)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        os.environ["TMPDIR"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        torch.set_num_threads(1)
        answer.write_text(json.dumps(call_plainly(exhibit)), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    end_orphans()
    if not answer.exists():
        return {"name": exhibit.name, "first": "raises", "wrong": 0, "error": "it ended its process"}
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found


def end_orphans() -> None:
    """End what a child has left: orphans come to this process, which has asked for them."""
    while left := Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split():
        for pid in map(int, left):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main(folder: Path) -> None:
    """Walk through both halls of a copy, since some write beside themselves."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    museum = shutil.copytree(MUSEUM, folder / "museum", ignore=shutil.ignore_patterns("__pycache__"))
    walked = [(hall, exhibit) for hall in ("cheats", "honest") for exhibit in exhibits(hall, museum)]
    for hall, exhibit in walked:
        print(json.dumps({"hall": hall, **in_a_child(exhibit, folder)}), flush=True)
    for left in Path("/dev/shm").glob("steelyard-museum-*"):
        left.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
