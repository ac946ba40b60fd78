"""Environments of their own for stacks that cannot live beside the others."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, replace
from pathlib import Path

import steelyard
from steelyard.engine.launch import Place
from steelyard.errors import UsageError, unknown


@dataclass(frozen=True)
class Stack:
    """What an environment holds: requirements, and the file with their exact versions."""

    requirements: tuple[str, ...]
    constraints: str
    note: str = ""


STACKS: dict[str, Stack] = {
    "numpy": Stack(("numpy",), "base.txt"),
    "torch": Stack(("numpy", "torch"), "torch.txt"),
    "jax": Stack(("numpy", "jax"), "jax.txt"),
    "tensorflow": Stack(("numpy", "tensorflow-cpu"), "tensorflow.txt"),
    "torch-xla": Stack(("numpy", "torch", "torch_xla"), "torch-xla.txt", "torch_xla needs its own torch"),
}


HOMES: dict[str, tuple[str, str]] = {
    "numpy": ("numpy", "numpy"),
    "torch": ("torch", "torch"),
    "torch_xla": ("torch_xla", "torch-xla"),
}
"""By backend: the package it imports, and the stack whose environment holds that package."""
PJRT = {"cpu": "CPU", "cuda": "CUDA", "tpu": "TPU"}


@dataclass(frozen=True)
class Env:
    """A built environment."""

    name: str
    path: Path
    stack: str
    packages: dict[str, str]

    @property
    def python(self) -> Path:
        """Its interpreter, which runs the worker."""
        return self.path / "bin" / "python"


def home() -> Path:
    """Where environments are kept: per user, not per project, since they are large."""
    chosen = os.environ.get("STEELYARD_ENVS")
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(chosen) if chosen else Path(data) / "steelyard" / "envs"


def constraints(name: str) -> Path:
    """The pins of a stack: in the wheel, or beside the sources in a checkout."""
    inside = Path(steelyard.__file__).parent / "constraints" / name
    return inside if inside.exists() else Path(steelyard.__file__).parents[2] / "constraints" / name


def listing() -> list[Env]:
    """All environments that are complete."""
    found = []
    for note in sorted(home().glob("*/steelyard-env.json")):
        data = json.loads(note.read_text())
        found.append(Env(note.parent.name, note.parent, data["stack"], data["packages"]))
    return found


def find(name: str) -> Env:
    """An environment by name."""
    for env in listing():
        if env.name == name:
            return env
    raise unknown("environment", name, [env.name for env in listing()], listing="steelyard env list; make one: steelyard env create")


def check(stack: str, name: str | None) -> Path:
    """Where an environment would go, if it can be made at all."""
    if stack not in STACKS:
        raise unknown("stack", stack, STACKS)
    path = home() / (name or stack)
    if Path(path.name) != Path(name or stack) or path.name.startswith("."):
        raise UsageError(f"not a name for an environment: {name!r}", do="use letters, digits and '-'")
    if path.exists():
        raise UsageError(f"environment {path.name} exists already", do=f"steelyard env remove {path.name}")
    return path


def create(stack: str, name: str | None = None, extra: tuple[str, ...] = ()) -> Env:
    """Build a pinned virtual environment; a failed one leaves nothing behind."""
    path = check(stack, name)
    recipe = STACKS[stack]
    try:
        path.mkdir(parents=True)
        venv.create(path, with_pip=True, symlinks=True)
        pip = [str(path / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "install", "-q", "-c", str(constraints(recipe.constraints)), *recipe.requirements, *extra], check=True, stdout=sys.stderr
        )
        freeze = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True, text=True)
        packages = {item["name"]: item["version"] for item in json.loads(freeze.stdout)}
        (path / "steelyard-env.json").write_text(json.dumps({"stack": stack, "packages": packages}, indent=1))
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(path, ignore_errors=True)
        raise UsageError(f"could not build environment {path.name}", why=str(error), do="see the installer's message above") from error
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return find(path.name)


def remove(name: str) -> None:
    """Delete an environment; only one that we built."""
    shutil.rmtree(find(name).path)


def place(name: str) -> Place:
    """How to start a worker there: its interpreter, with this package alone on its path."""
    return _within(find(name))


def _within(env: Env) -> Place:
    return Place(python=str(env.python), search_path=str(parcel()))


def place_for(backend: str, place: Place) -> Place:
    """Where a backend starts: in an environment of its stack, if nobody chose another, it is not installed here, and there is one."""
    package, stack = HOMES.get(backend, ("", ""))
    if not package or place.python != Place().python or importlib.util.find_spec(package):
        return place
    fitting = sorted((env for env in listing() if env.stack == stack), key=lambda env: (env.name != stack, env.name))
    if not fitting:
        return place
    found = _within(fitting[0])
    return replace(place, python=found.python, search_path=found.search_path)


def variables(backend: str, device: str, threads: int) -> dict[str, str]:
    """What a backend needs set before its worker starts; a case's own flags come over it, and what is in our own environment does not."""
    if backend != "torch_xla":
        return {}
    count = str(threads)
    return {"PJRT_DEVICE": PJRT.get(device, device.upper()), "PJRT_NPROC": count, "NPROC": count, "XLA_FLAGS": ""}


def saving_graphs(backend: str, form: str, file: Path) -> dict[str, str]:
    """What makes a backend write every graph to a file, in a process where nothing is timed."""
    return {"XLA_SAVE_TENSORS_FILE": str(file), "XLA_SAVE_TENSORS_FMT": form} if backend == "torch_xla" else {}


def parcel() -> Path:
    """A folder that holds this package and nothing else, so that a foreign interpreter sees none of our site-packages."""
    package = Path(steelyard.__file__).parent
    folder = home() / ".parcel"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "steelyard"
    if not link.is_symlink() or link.resolve() != package.resolve():
        fresh = folder / f"steelyard-{os.getpid()}"
        fresh.symlink_to(package, target_is_directory=True)
        fresh.replace(link)
    return folder
