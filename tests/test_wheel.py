"""Whoever installs the wheel has everything that a checkout has: suites, pins, the page's parts, the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def steelyard(unpacked: Path, cwd: Path, *words: str) -> str:
    """The wheel's own command, in a folder that knows nothing of the checkout."""
    env = os.environ | {"PYTHONPATH": str(unpacked), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-m", "steelyard", *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_wheel_holds_every_file_of_the_package_and_the_pins(unpacked: Path) -> None:
    want = files(ROOT / "src" / "steelyard") | {f"constraints/{name}" for name in files(ROOT / "constraints")}
    assert files(unpacked / "steelyard") == want
    assert "steelyard = steelyard.cli.main:main" in next(unpacked.glob("*.dist-info/entry_points.txt")).read_text()


def test_a_run_and_its_report_need_nothing_of_the_checkout(unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import steelyard\nfrom steelyard import Task, workload\nassert 'unpacked' in steelyard.__file__\n"
        "@workload('own/nothing', axes={'n': [1]}, backend='numpy')\ndef nothing(n, be):\n    return Task(sorted, ([3, 1, 2],))\n"
    )
    steelyard(unpacked, tmp_path, "run", "own.py", "--budget", "20ms")
    steelyard(unpacked, tmp_path, "report", "-o", "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "own/nothing" in page and "vega" in page and "Skip to content" in page


def test_suites_pins_and_the_schema_are_found_in_it(unpacked: Path, tmp_path: Path) -> None:
    assert "quickstart" in steelyard(unpacked, tmp_path, "list", "suites")
    assert len(json.loads(steelyard(unpacked, tmp_path, "run", "quickstart", "--dry-run", "--json"))["cases"]) >= 10
    assert json.loads(steelyard(unpacked, tmp_path, "show", "--schema"))["$id"].startswith("urn:steelyard:record")
    script = "from steelyard.engine import envs\nfor stack in envs.stacks().values():\n    print(envs.constraints(stack.constraints))"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(unpacked)}, capture_output=True, text=True
    )
    pins = [Path(line) for line in found.stdout.splitlines()]
    assert pins and all(path.is_file() and path.is_relative_to(unpacked) for path in pins)
