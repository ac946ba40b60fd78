"""Every test measures in a store and under locks of its own, so that tests and real runs never wait for each other.

How long hypothesis takes says how busy the machine is, and decides nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.backends.virtual import Device

GIVEN = os.environ.get("STEELYARD_ENVS")

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Where a shell forbids it, as some CI's do, each of the thousands of programs that tests start would compile all of Steelyard."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell's background job ignores it, as nohup's and some CI's are, and so would the programs that tests interrupt."""


FIRST = (
    "engine/test_faults.py", "engine/test_resume.py", "dialects/torchao/test_as_torchao.py", "dialects/ptxla/test_as_runner.py",
    "docs/test_pages.py", "examples/test_toy_dialect.py", "cli/test_nightly.py", "cli/test_as_ptxla_microbench.py",
    "examples/test_param_examples.py", "engine/test_project.py", "test_param.py", "engine/test_ranks.py", "dialects/param/test_as_param.py",
)  # fmt: skip
"""The files that take longest: a worker gets whole files, and one of these at the end would leave the other worker idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; xdist would begin with those that have the most tests (`--no-loadscope-reorder`)."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))


@pytest.fixture(autouse=True)
def apart(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with its own locks, environments and store."""
    folder = tmp_path_factory.mktemp("apart")
    monkeypatch.setenv("STEELYARD_LOCKS", str(folder / "locks"))
    monkeypatch.setenv("STEELYARD_ENVS", str(folder / "envs"))
    monkeypatch.setenv("STEELYARD_CACHE", str(folder / "cache"))
    monkeypatch.delenv("STEELYARD_STORE", raising=False)
    for name in ("CI", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture(autouse=True, scope="session")
def run_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One key for all runs that tests make, never the user's own."""
    file = tmp_path_factory.mktemp("key") / "run.key"
    file.write_bytes(b"the key of all tests, no secret")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEELYARD_KEY", str(file))
        yield file


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Where the environment of a stack is: in the folder that STEELYARD_ENVS named, if it is there, else built here, once for all tests."""
    folder = tmp_path_factory.mktemp("stacks")
    words = [sys.executable, "-m", "steelyard", "env", "create"]

    def home(stack: str) -> str:
        if GIVEN and (Path(GIVEN) / stack / "steelyard-env.json").is_file():
            return GIVEN
        if not (folder / stack).exists():
            subprocess.run([*words, stack], env=os.environ | {"STEELYARD_ENVS": str(folder)}, check=True, timeout=3000)
        return str(folder)

    yield home
    shutil.rmtree(folder)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A made-up accelerator that torch seems to use."""
    from tests.backends.virtual import Device, put_in_use

    made = Device()
    put_in_use(made, monkeypatch)
    return made
