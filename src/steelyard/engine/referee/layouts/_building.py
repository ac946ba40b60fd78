"""Load C++ and CUDA sources as functions of this process, built with torch's cpp_extension."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.errors import Unsupported

BUILT = (".cpp", ".cc", ".cxx", ".cu")
FLAGS = {"cflags": "extra_cflags", "cuda_cflags": "extra_cuda_cflags", "ld_flags": "extra_ldflags"}


def build(folder: Path, function: str, options: Mapping[str, Sequence[str]]) -> Callable[..., Any]:
    """Compile the sources in a folder, which bind their functions with pybind11, and return one of these."""
    from torch.utils import cpp_extension

    sources = sorted(str(file) for file in folder.rglob("*") if file.suffix in BUILT)
    if not cpp_extension.is_ninja_available():
        raise Unsupported("sources cannot be compiled here", why="ninja is not installed", do="pip install ninja")
    if not shutil.which(cpp_extension.get_cxx_compiler()):
        raise Unsupported("sources cannot be compiled here", why="there is no C++ compiler", do="install g++, or set CXX")
    if any(name.endswith(".cu") for name in sources) and cpp_extension.CUDA_HOME is None:
        raise Unsupported("sources cannot be compiled here", why="there is no CUDA toolkit", do="install nvcc, and set CUDA_HOME")
    place = folder / "built"
    place.mkdir()
    flags = {FLAGS[key]: list(value) for key, value in options.items() if key in FLAGS}
    made = cpp_extension.load(
        f"steelyard_{folder.name.replace('-', '_')}", sources, extra_include_paths=[str(folder)], build_directory=str(place), **flags
    )
    found: Callable[..., Any] | None = getattr(made, function, None)
    if found is None:
        raise Unsupported(f"the compiled sources have no {function}", do=f'bind it: m.def("{function}", &{function})')
    return found
