"""What layouts do in a worker: load users' files, seed what draws, move arrays to the device, write sources to a private folder."""

from __future__ import annotations

import atexit
import importlib
import importlib.machinery
import importlib.util
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from steelyard import registry
from steelyard.errors import UsageError, did_you_mean
from steelyard.model.dtypes import canonical

FACTS = "facts"
"""The attribute of a loaded candidate with facts for its ruling."""
SPELLINGS = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2",
    "fp8e4m3fnuz": "float8_e4m3fnuz", "fp8e5m2fnuz": "float8_e5m2fnuz", "fp8e8m0": "float8_e8m0fnu",
}  # fmt: skip


def load(path: str | Path) -> ModuleType:
    """Load a user's file as a new module of this process, which may import from its folder."""
    return registry.load_file(path, again=True)


class TaskModules:
    """Finds modules of a task by the names that the task gives its files, wherever these are."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The spec of a task's module, for Python's import system; None for other names."""
        return importlib.util.spec_from_file_location(name, self.files[name]) if name in self.files else None


def importable(files: Mapping[str, str]) -> None:
    """Let users' code import these files by name, and no longer those of the last call; Python's own modules and the frameworks
    keep their names."""
    taken = sys.stdlib_module_names | registry.frameworks()
    modules = {name.removesuffix(".py"): path for name, path in files.items() if name.endswith(".py")}
    modules = {name: path for name, path in modules.items() if name.isidentifier() and name not in taken}
    before = [finder for finder in sys.meta_path if isinstance(finder, TaskModules)]
    for name in {*modules, *(name for finder in before for name in finder.files)}:
        sys.modules.pop(name, None)
    sys.meta_path[:] = [TaskModules(modules), *(finder for finder in sys.meta_path if finder not in before)]


def member(module: ModuleType, name: str) -> Callable[..., Any]:
    """A function or class of a loaded file."""
    found = getattr(module, name, None)
    if not callable(found):
        what = f"it has no {name!r}" if found is None else f"{name!r} cannot be called"
        raise UsageError(what, do=did_you_mean(name, vars(module)), where=str(module.__file__))
    called: Callable[..., Any] = found
    return called


def seed_all(seed: int) -> None:
    """Seed every generator that users' inputs come from; torch and numpy only if they are loaded already."""
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed % 2**63)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """What a function draws under a seed; it is called again if its first call imported the library, or woke the device, whose
    generator it uses."""
    before = _generators()
    _seed_awake(seed)
    made = make()
    if before == _generators():
        return made
    seed_all(seed)
    return make()


def _generators() -> list[bool]:
    """Which libraries with generators are loaded, and which devices with generators are awake."""
    torch = sys.modules.get("torch")
    awake = [kind.is_initialized() for kind in (torch.cuda, torch.xpu)] if torch else []
    return [torch is not None, "numpy" in sys.modules, *awake]


def _seed_awake(seed: int) -> None:
    """Seed the generators that are in use."""
    random.seed(seed)
    if "torch" in sys.modules:
        importlib.import_module("steelyard.backends._torch_seeds").seed_awake(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def moved(value: Any, device: str, dtype: Any = None) -> Any:
    """Move tensors to a device, also in tuples, lists and dicts; with `dtype`, floating ones get that format. All else stays as it is."""
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor):
        cast = dtype if dtype is not None and value.is_floating_point() else None
        return value.detach().to(device=device, dtype=cast)
    if isinstance(value, dict):
        return {key: moved(item, device, dtype) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [moved(item, device, dtype) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def several(value: Any, what: str, where: str) -> Sequence[Any]:
    """The inputs of one call, which must come as a tuple or list."""
    if not isinstance(value, (tuple, list)):
        raise UsageError(f"{what} gave {type(value).__name__}", do="return a tuple or list with the inputs of one call", where=where)
    return value


def torch_dtype(name: str) -> Any:
    """Torch's dtype for any usual name."""
    import torch

    plain = canonical(name)
    return getattr(torch, SPELLINGS.get(plain, plain))


def noted(call: Callable[..., Any], **facts: str) -> Callable[..., Any]:
    """Attach facts about how a function was made to it, for the caller."""
    setattr(call, FACTS, facts)
    return call


def written(sources: Mapping[str, str], where: str) -> Path:
    """Write these files to a new folder of this process, which is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="steelyard-sources-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in sources.items():
        file = folder / inside(name, where)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def inside(name: str, where: str) -> PurePosixPath:
    """A path from a file as a relative path; raises if it leaves its folder."""
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise UsageError(f"path {name!r} leaves its folder", do="use a path below the folder, without ..", where=where)
    return path
