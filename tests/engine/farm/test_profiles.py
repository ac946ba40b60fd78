"""Profiles of launchers are read whole, and what is wrong in one is said before anything is started."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.engine.farm.launchers import Invitation, profiles, ray, slurm, ssh
from steelyard.engine.farm.launchers.addresses import check_ours
from steelyard.errors import UsageError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes farm.toml where profiles are looked up; nobody's own file counts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return lambda text: profiles.places()[0].write_text(text) and None


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name that is found before all others."""
    place = folder / name
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_profile_says_all_there_is_to_say(file: Callable[[str], None]) -> None:
    file(
        """
        [slurm.nightly]
        partition = "gpu"
        count = 4
        lines = ["--gres=gpu:1", "--constraint=a|b"]
        modules = ["cuda/12.8"]
        variables = { HF_HOME = "/shared/hf", N = 3 }
        shared = false
        """
    )
    found = slurm.read_profile("nightly")
    assert (found.partition, found.count, found.shared) == ("gpu", 4, False)
    assert found.options() == ["--partition=gpu", "--gres=gpu:1", "--constraint=a|b", "--no-requeue"]
    assert found.variables == {"HF_HOME": "/shared/hf", "N": "3"}
    assert slurm.read_profile("nightly:2").count == 2
    other = slurm.read_profile("main:3")
    assert (other.partition, other.count) == ("main", 3)
    assert "--no-requeue" not in slurm.SlurmProfile(lines=("--requeue",)).options()


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (slurm.read_profile, 'lines = ["--wrap=rm"]', "--wrap cannot be set in a profile"),
        (slurm.read_profile, 'lines = ["-p gpu"]', "expected an option such as --gres=gpu:1"),
        (slurm.read_profile, 'lines = ["--comment=a\\nb"]', "control characters|expected"),
        (slurm.read_profile, "count = 0", "expected a number from 1 to"),
        (slurm.read_profile, 'variables = { "A B" = "x" }', "expected the name of a variable"),
        (slurm.read_profile, 'modules = ["a; rm"]', "expected a name"),
        (slurm.read_profile, 'partition = "--all"', "expected a partition"),
        (slurm.read_profile, 'partitoin = "gpu"', "unknown key"),
        (ray.read_profile, 'address = "ray://x"', "expected an address"),
        (ray.read_profile, "resources = { tpu = 0 }", "expected an amount above zero"),
        (ray.read_profile, "labels = { rack = 3 }", "expected a table of labels"),
        (ray.read_profile, 'patience = "0s"', "expected a duration"),
        (ray.read_profile, 'bind = "head"', "expected an address of this machine"),
        (slurm.read_profile, 'bind = "0.0.0.0"', "expected an address of this machine"),
    ],
)
def test_what_is_wrong_in_one_is_said_with_its_line(
    read: Callable[[str], Any], text: str, says: str, tmp_path: Path, file: Callable[[str], None]
) -> None:
    (tmp_path / "own.toml").write_text(f"\n{text}\n")
    with pytest.raises(UsageError, match=says) as caught:
        read(str(tmp_path / "own.toml"))
    assert caught.value.where.startswith(str(tmp_path / "own.toml"))


@pytest.mark.parametrize(
    ("words", "says"),
    [("a,-oProxyCommand=x", "expected a host"), ("", "names no host"), ("a,,b", "expected text"), ("a b", "expected a host")],
)
def test_a_host_is_never_taken_for_an_option(words: str, says: str, file: Callable[[str], None]) -> None:
    with pytest.raises(UsageError, match=says):
        ssh.open_launcher(words)


def test_a_profile_that_is_not_there_is_told_with_those_that_are(file: Callable[[str], None]) -> None:
    file('[ray.h100]\naddress = "127.0.0.1:6379"\n')
    assert ray.read_profile("h100").address == "127.0.0.1:6379"
    with pytest.raises(UsageError, match="no ray profile named 'h10'") as caught:
        ray.read_profile("h10")
    assert "did you mean h100?" in caught.value.do


def test_a_cluster_that_is_not_there_is_an_error_before_anything_is_measured(
    tmp_path: Path, file: Callable[[str], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for on, says in (
        ("slurm:main", "there is no sbatch here"), ("ssh:box1", "cannot start ssh"), ("ray:127.0.0.1:9", "no Ray cluster answers"),
        ("slrum:x", "did you mean slurm?"),
    ):  # fmt: skip
        assert main(["run", "fake/work", "--on", on]) == 2
        assert says in capsys.readouterr().err
    assert not (tmp_path / ".steelyard" / "runs").exists()


def test_slurms_own_refusal_is_told(tmp_path: Path, file: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid partition name' >&2; exit 1", monkeypatch)
    program(tmp_path, "sinfo", "echo main; echo gpu", monkeypatch)
    with pytest.raises(UsageError, match="no partition named 'gpus'") as caught:
        slurm.open_launcher("gpus:2")
    assert "did you mean gpu?" in caught.value.do
    with pytest.raises(UsageError, match="Slurm refuses the stations") as caught:
        slurm.open_launcher("main:2")
    assert "Invalid partition name" in caught.value.why


@pytest.mark.parametrize(
    ("shell", "says"),
    [
        ("exit 127", "there is no python3 there"),
        ("echo 'ssh: Could not resolve hostname box1' >&2; exit 255", "Could not resolve hostname"),
        ("""echo '{"facts": {"python": "3.9.2", "old": true, "executable": "/usr/bin/python3"}}'; cat > /dev/null""", "is Python 3.9.2"),
        ("echo 'Welcome to box1'", "ssh ended with code 0"),
    ],
)
def test_a_host_that_cannot_run_a_station_says_why(
    shell: str, says: str, tmp_path: Path, file: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "ssh", shell, monkeypatch)
    with pytest.raises(UsageError, match="cannot run a station on box1") as caught:
        ssh.open_launcher("box1")
    assert says in str(caught.value)


def test_an_address_that_is_not_ours_is_told_before_anything_is_measured() -> None:
    check_ours("127.0.0.1")
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1"):
        check_ours("192.0.2.1")


def test_stations_that_slurm_could_not_be_asked_for_are_asked_for_again(
    tmp_path: Path, file: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    launcher = slurm.SlurmLauncher(slurm.SlurmProfile(count=2), "127.0.0.1")
    launcher._wanted = launcher.stations = [slurm.SlurmStation(f"slurm-{number}", number) for number in (1, 2)]
    invitation = Invitation("run", "127.0.0.1", 1, b"s" * 32)
    program(tmp_path, "sbatch", f"echo 'sbatch: error: {slurm.AWAY} (connect failure)' >&2; exit 1", monkeypatch)
    with pytest.raises(UsageError, match="sbatch refuses"):
        launcher._submit(invitation)
    assert [state.phase for state in launcher.states()] == ["waiting"] * 2
    program(tmp_path, "sbatch", f"echo $* > {tmp_path}/words; echo 17", monkeypatch)
    launcher._submit(invitation)
    assert launcher.jobs == ["17"] and "--array=1-2" in (tmp_path / "words").read_text()
