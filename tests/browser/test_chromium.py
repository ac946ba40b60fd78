"""Where there is no browser the tests say so, and install one only where they may."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks.chromium import programs

SCRIPT = Path(__file__).parents[2] / "scripts" / "chromium.sh"


def ask(folder: Path, user: int, apt: str | None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the script where only these programs exist: bash, `id` for a user, perhaps apt-get."""
    for name in ("bash", "touch", "chmod"):
        (folder / name).symlink_to(shutil.which(name) or "")
    stubs = {"id": f"echo {user}", **({"apt-get": apt} if apt is not None else {})}
    for name, text in stubs.items():
        (folder / name).write_text(f"#!{folder}/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        [folder / "bash", SCRIPT], env={"PATH": str(folder), **env}, capture_output=True, text=True, check=False, timeout=60
    )


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    for name in ("chromium", "chromedriver"):
        (tmp_path / name).write_text(f"#!{tmp_path}/bash\n")
        (tmp_path / name).chmod(0o755)
    done = ask(tmp_path, 0, "echo asked >&2; exit 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_root_gets_it_installed(tmp_path: Path) -> None:
    install = f'[ "$1" = install ] && for name in chromium chromedriver; do touch {tmp_path}/$name; chmod +x {tmp_path}/$name; done'
    done = ask(tmp_path, 0, install)
    assert done.returncode == 0 and "installing chromium chromium-driver" in done.stderr and "warning" not in done.stderr


@pytest.mark.parametrize(
    ("user", "apt", "why"), [(1000, "exit 0", "only root"), (0, None, "no apt-get"), (0, "exit 100", "could not install")]
)
def test_why_it_is_missing_is_said(tmp_path: Path, user: int, apt: str | None, why: str) -> None:
    done = ask(tmp_path, user, apt)
    assert done.returncode == 0 and why in done.stderr and "are skipped" in done.stderr
    assert "apt-get install --no-install-recommends chromium chromium-driver" in done.stderr and "STEELYARD_CHROMIUM" in done.stderr


def test_in_ci_missing_means_failing(tmp_path: Path) -> None:
    assert "browser fail" in ask(tmp_path, 1000, "exit 0", CI="true").stderr


def test_another_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_CHROMIUM", str(tmp_path / "nothing"))
    assert programs() is None
    (tmp_path / "other").write_text("#!/bin/sh\n")
    (tmp_path / "other").chmod(0o755)
    monkeypatch.setenv("STEELYARD_CHROMIUM", str(tmp_path / "other"))
    monkeypatch.setenv("STEELYARD_CHROMEDRIVER", str(tmp_path / "other"))
    assert programs() == (str(tmp_path / "other"),) * 2
