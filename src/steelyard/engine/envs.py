"""Separate environments for stacks that cannot be installed together."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import steelyard
from steelyard import registry
from steelyard.engine.place import Place
from steelyard.errors import UsageError, unknown
from steelyard.model.case import HERE


@dataclass(frozen=True)
class Stack:
    """What an environment holds: requirements, and the file with their exact versions."""

    requirements: tuple[str, ...]
    constraints: str
    note: str = ""


PLAIN = {
    "transformers": Stack(("numpy", "torch", "transformers", "kernels", "torchao"), "transformers.txt"),
    "torch-mlir": Stack(("numpy", "torch", "torch-mlir", "onnx", "onnxscript"), "torch-mlir.txt", "exports PyTorch as MLIR and ONNX"),
    "tflite": Stack(
        ("numpy", "jax", "tensorflow-cpu", "tosa-converter-for-tflite"), "tflite.txt", "exports JAX and TensorFlow as TFLite and TOSA"
    ),
    "ray": Stack(("ray", "numpy", "msgspec", "click"), "ray.txt", "runs stations on a Ray cluster of the same version"),
    "station": Stack(("numpy", "msgspec", "click"), "base.txt", "what a station of a farm needs on a host with another Python"),
}
"""Stacks that belong to no backend."""


def stacks() -> dict[str, Stack]:
    """Return the stacks that can be built: those of backends, and those of no backend."""
    known = [registry.about_backend(name) for name in registry.backend_names()]
    return {about.stack: Stack(about.requires, about.pins, about.why) for about in known if about.stack} | PLAIN


NOTE, REQUIREMENTS = "steelyard-env.json", "requirements.txt"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RELEASE = re.compile(r"(.+)-([0-9]+(?:\.[0-9]+){0,3})")
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9_.-]*)==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Env:
    """An environment; `trouble` is why nothing can run in it, such as an interrupted build.

    `release` is the requested version of its stack, if it is not the pinned one.
    """

    name: str
    path: Path
    stack: str
    packages: dict[str, str]
    trouble: str = ""
    release: str = ""

    @property
    def python(self) -> Path:
        """Its interpreter, which runs the worker."""
        return self.path / "bin" / "python"

    def version(self, package: str) -> str | None:
        """Return the installed version of a package, in any spelling of its name; None if it is not installed."""
        return next((version for name, version in self.packages.items() if _plain(name) == _plain(package)), None)

    @property
    def remedy(self) -> str:
        """The commands that replace it with a complete environment."""
        asked = f"{self.stack}-{self.release}" if self.release else self.stack
        again = [asked, *([] if self.name == asked else ["--name", self.name])] if self.stack in stacks() else ["STACK"]
        return f"steelyard env remove {self.name}, then steelyard env create {' '.join(again)}"


def home() -> Path:
    """Where environments are kept: per user, not per project, since they are large."""
    chosen = os.environ.get("STEELYARD_ENVS")
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(chosen) if chosen else Path(data) / "steelyard" / "envs"


def constraints(name: str) -> Path:
    """Return the file of a stack's pins: in the wheel, beside the package if it was sent to another host, or beside the sources."""
    places = [folder / "constraints" / name for folder in Path(steelyard.__file__).parents[:3]]
    return next((place for place in places if place.exists()), places[-1])


def listing() -> list[Env]:
    """Return all environments by name, unusable ones with the reason."""
    return [_read(note) for note in sorted(home().glob(f"*/{NOTE}")) if not note.parent.name.startswith(".")]


def _read(note: Path) -> Env:
    name, path = note.parent.name, note.parent
    try:
        data = json.loads(note.read_text(encoding="utf-8"))
        stack, packages = str(data["stack"]), {str(key): str(version) for key, version in (data.get("packages") or {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Env(name, path, "", {}, f"its note {NOTE} cannot be read")
    made = Env(name, path, stack, packages, release=str(data.get("release") or ""))
    if "packages" not in data:
        return replace(made, trouble="it was not built completely")
    return made if os.access(made.python, os.X_OK) else replace(made, trouble="its interpreter is missing")


def moved_pins(env: Env) -> dict[str, tuple[str, str]]:
    """Return the installed and the pinned version of packages that differ from their stack's pins."""
    recipe = stacks().get(env.stack)
    file = constraints(recipe.constraints) if recipe else None
    pins = {_plain(name): pin for name, pin in _PIN.findall(file.read_text(encoding="utf-8"))} if file and file.is_file() else {}
    pins = {name: pin for name, pin in pins.items() if not (env.release and _of_stack(name, env.stack))}
    held = {name: (version, pins.get(_plain(name), "")) for name, version in env.packages.items()}
    return {name: (version, pin) for name, (version, pin) in held.items() if pin and pin not in (version, version.partition("+")[0])}


def _plain(name: str) -> str:
    """Return a package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find(name: str) -> Env:
    """Return an environment by name; an error if nothing can run in it."""
    known = {env.name: env for env in listing()}
    if name == HERE:
        raise UsageError(f"{HERE} is the current environment", do="leave it out; only experiment files need a name for it")
    if name not in known:
        raise unknown("environment", name, known, listing="steelyard env list; make one: steelyard env create")
    if known[name].trouble:
        raise UsageError(f"environment {name} cannot be used", why=known[name].trouble, do=known[name].remedy)
    return known[name]


def split_release(word: str) -> tuple[str, str]:
    """Split a word into a stack and its requested version: `iree-3.12` is the newest 3.12 of iree; empty for the pinned version."""
    found = _RELEASE.fullmatch(word)
    return (found[1], found[2]) if found and word not in stacks() and found[1] in stacks() else (word, "")


def _of_stack(package: str, stack: str) -> bool:
    """Whether a package is released with a stack: `iree-base-runtime` with iree, `jaxlib` with jax."""
    return _plain(package).startswith(_plain(stack))


def _of_release(recipe: Stack, stack: str, release: str) -> tuple[list[str], str]:
    """Return what to install for one version of a stack, and the pins that still apply: those of packages not released with the stack."""
    wanted = [f"{name}=={release}.*" if _of_stack(name, stack) else name for name in recipe.requirements]
    lines = constraints(recipe.constraints).read_text(encoding="utf-8").splitlines()
    return wanted, "\n".join(line for line in lines if not ((pin := _PIN.match(line)) and _of_stack(pin[1], stack)))


def check(stack: str, name: str | None) -> Path:
    """Return the folder of a new environment; an error if it cannot be made."""
    if split_release(stack)[0] not in stacks():
        raise unknown("stack", stack, stacks())
    path = home() / (name or stack)
    if name is not None and not _NAME.fullmatch(name):
        raise UsageError(f"not a name for an environment: {name!r}", do="use letters, digits, '_', '.' and '-'")
    if name == HERE:
        raise UsageError(
            f"{HERE} cannot be the name of an environment", why="in experiment files it means the environment that the run is started in"
        )
    if path.exists():
        raise UsageError(f"environment {path.name} exists already", do=f"steelyard env remove {path.name}")
    return path


def requirement_files(paths: Sequence[Path]) -> list[Path]:
    """Return files of requirements; for a folder, every requirements.txt below it, such as one for each model."""
    found: list[Path] = []
    for path in paths:
        here = sorted(path.rglob(REQUIREMENTS)) if path.is_dir() else [path]
        if not here or not all(file.is_file() for file in here):
            raise UsageError(
                f"no {REQUIREMENTS} in {path}" if path.is_dir() else f"there is no file {path}", do="name another file or folder with -r"
            )
        found += here
    return found


def create(
    stack: str,
    name: str | None = None,
    extra: tuple[str, ...] = (),
    requirements: Sequence[Path] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Env:
    """Build a pinned virtual environment, with further packages and those of requirement files; a failed build leaves nothing behind.

    `tell` is called with each download and installation as it happens.

    `STACK-VERSION` is the stack in that version, such as `iree-3.12` beside `iree`: two compilers to be compared.
    """
    path = check(stack, name)
    stack, release = split_release(stack)
    recipe = stacks()[stack]
    note = {"stack": stack, **({"release": release} if release else {})}
    extra = (*extra, *(word for file in requirement_files(requirements) for word in ("-r", str(file.resolve()))))
    try:
        path.mkdir(parents=True)
        (path / NOTE).write_text(json.dumps(note), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"could not build environment {path.name}", why=f"{path}: {error.strerror}") from error
    try:
        tell("making the environment")
        venv.create(path, with_pip=True, symlinks=True)
        pip = [str(path / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        wanted, pins = list(recipe.requirements), constraints(recipe.constraints)
        if release:
            wanted, kept = _of_release(recipe, stack, release)
            pins = path / "constraints.txt"
            pins.write_text(kept, encoding="utf-8")
        _install([*pip, "install", "--progress-bar", "off", "-c", str(pins), *wanted, *extra], tell)
        freeze = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True, text=True)
        packages = {item["name"]: item["version"] for item in json.loads(freeze.stdout)}
        (path / NOTE).write_text(json.dumps({**note, "packages": packages}, indent=1))
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(path, ignore_errors=True)
        raise UsageError(f"could not build environment {path.name}", why=str(error), do="see the installer's message above") from error
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return find(path.name)


STEPS = {
    "Collecting ": "found",
    "Downloading ": "downloading",
    "Using cached ": "from the cache:",
    "Installing collected packages": "installing",
}
LONGEST_STEP = 100
MOST_KEPT = 40


def _install(command: Sequence[str], tell: Callable[[str], None]) -> None:
    """Run the installer and report its steps to `tell`; if it fails, its last lines go to stderr."""
    said: deque[str] = deque(maxlen=MOST_KEPT)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        try:
            for line in process.stdout or ():
                said.append(line)
                if step := installer_step(line):
                    tell(step)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        sys.stderr.writelines(said)
        raise subprocess.CalledProcessError(process.returncode, list(command))


def installer_step(line: str) -> str:
    """`downloading jax-0.10.2.whl (2.9 MB)` from a line of pip; empty for lines that report no step."""
    text = line.strip()
    for start, word in STEPS.items():
        if text.startswith(start):
            rest = (
                text.removeprefix(start).lstrip(": ").rpartition("/")[2]
                if start == "Downloading "
                else text.removeprefix(start).lstrip(": ")
            )
            return f"{word} {rest}"[:LONGEST_STEP]
    return ""


def remove(name: str) -> Path:
    """Delete an environment, even an incomplete one; only one that Steelyard built."""
    known = {env.name: env for env in listing()}
    if name not in known:
        raise unknown("environment", name, known, listing="steelyard env list")
    shutil.rmtree(known[name].path)
    return known[name].path


def place(name: str, start: Place | None = None) -> Place:
    """Return how to start a worker in an environment: its interpreter, with only this package on its path, and the rest as in `start`."""
    return _within(find(name), start or Place())


def _within(env: Env, start: Place) -> Place:
    return replace(start, python=str(env.python), search_path=str(parcel()))


def place_for(backend: str, place: Place) -> Place:
    """Return where a backend starts: an environment of its stack, if none was chosen, it is not installed here, and one exists."""
    about = registry.about_backend(backend)
    if not about.stack or place.python != Place().python or importlib.util.find_spec(about.package):
        return place
    ours = [env for env in listing() if env.stack == about.stack and not env.trouble]
    fitting = sorted(ours, key=lambda env: (env.name != about.stack, env.name))
    return _within(fitting[0], place) if fitting else place


def place_with(packages: Sequence[Sequence[str]], modules: Sequence[str], place: Place) -> Place | None:
    """Return where several packages, each under one of its names, are installed together: a place itself or an environment; else None.

    `modules` are the names that they are imported by, which are looked up in our own interpreter.
    """

    def holds(held: Mapping[str, str]) -> bool:
        known = {_plain(name) for name in held}
        return all(known & {_plain(name) for name in names} for names in packages)

    here = place.python == Place().python
    if all(importlib.util.find_spec(name) for name in modules) if here else holds(contents(place.python)):
        return place
    fitting = [env for env in listing() if not env.trouble and holds(env.packages)]
    return _within(min(fitting, key=lambda env: (len(env.packages), env.name)), place) if fitting else None


def contents(python: str) -> Mapping[str, str]:
    """Return the packages of the environment that an interpreter belongs to; empty for other interpreters."""
    return next((env.packages for env in listing() if str(env.python) == python), {})


@functools.cache
def installed(python: str) -> Mapping[str, str]:
    """Return the packages that an interpreter has: those of its environment, or for any other interpreter our own."""
    return contents(python) or {item.name: item.version for item in metadata.distributions() if item.name}


def pip_list(python: str) -> str:
    """Return the packages that an interpreter has, as a table like that of `pip list`."""
    rows = sorted(installed(python).items(), key=lambda item: _plain(item[0]))
    width = max([len("Package"), *(len(name) for name, _ in rows)])
    lines = [("Package", "Version"), ("-" * width, "-------"), *rows]
    return "".join(f"{name:{width}} {version}\n" for name, version in lines)


def variables(backend: str, device: str, threads: int) -> dict[str, str]:
    """Return the variables that a backend needs before its worker starts; a case's flags override them, our own environment does not.

    A case's threads are those that compute. If a device computes, the host compiles for it, with all of its cores.
    """
    about = registry.about_backend(backend)
    return about.set(about.variables, device, threads=threads if device == "cpu" else os.cpu_count() or threads)


def saving_graphs(backend: str, form: str, file: Path) -> dict[str, str]:
    """Return the variables that make a backend write every graph to a file, for a process in which nothing is timed."""
    about = registry.about_backend(backend)
    return about.set(about.graphs, file=file, form=form)


def parcel() -> Path:
    """Return a folder that contains only this package, so that a foreign interpreter sees none of our site-packages.

    Each copy of the package has its own folder: two checkouts that run at once must not get each other's code.
    """
    package = Path(steelyard.__file__).resolve().parent
    folder = home() / ".parcel" / hashlib.sha256(str(package).encode()).hexdigest()[:12]
    link = folder / "steelyard"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or link.resolve() != package:
            fresh = folder / f"steelyard-{os.getpid()}"
            fresh.symlink_to(package, target_is_directory=True)
            fresh.replace(link)
    except OSError as error:
        why, do = error.strerror or str(error), "set STEELYARD_ENVS to a folder that you can write to"
        raise UsageError(f"cannot write to {folder}", why=why, do=do) from error
    return folder
