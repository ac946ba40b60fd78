"""Stations as tasks of one Slurm array: `--on slurm:PROFILE`, or a partition and how many: `slurm:main:4`.

Code, orders and tickets are in a folder that the nodes share and that only this user can read. A separate thread queries Slurm and
keeps the results for `states`. A task that ends is not requeued: a fresh one takes its place, so recovery does not wait. One that
Slurm requeues anyway, as a profile may request, comes back as another station.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from steelyard.codec.reading import CheckedFile, expect, text_value
from steelyard.engine.farm import arriving
from steelyard.engine.farm.launchers import Invitation, StationPhase, StationState, profiles
from steelyard.engine.farm.launchers.addresses import toward
from steelyard.engine.farm.sharing import lay_out
from steelyard.errors import UsageError, told, unknown
from steelyard.model.units import parse_count
from steelyard.terminal import warn

KEYS = ("partition", "count", "lines", "python", "variables", "modules", "stacks", "bind", "folder", "shared")
OWN = (
    "--array", "--parsable", "--output", "--error", "--input", "--job-name", "--chdir", "--open-mode", "--wrap", "--test-only", "--wait",
    "--help", "--version", "--uid", "--gid", "--export-file", "--no-requeue", "--ignore-pbs", "--clusters",
)  # fmt: skip
"""Options of sbatch that a profile cannot set, because Steelyard sets them or they would run something else."""
LOOK_EVERY = 1.0
PATIENCE = 30.0
FAREWELL = 30.0
AWAY = "Unable to contact slurm controller"
"""sbatch's error if it cannot reach the controller: nothing was submitted, so it is tried again."""
GONE = "Invalid job id"
"""squeue's error for jobs that ended so long ago that Slurm has forgotten them."""
COLUMNS = ("ArrayJobID", "ArrayTaskID", "State", "NodeList", "RestartCnt", "Reason")
ENDS: Mapping[str, str] = {
    "COMPLETED": "its job ended", "FAILED": "its job failed", "CANCELLED": "its job was cancelled", "TIMEOUT": "its job's time was over",
    "NODE_FAIL": "its node failed", "PREEMPTED": "its job was preempted", "BOOT_FAIL": "its node did not boot",
    "OUT_OF_MEMORY": "its job was out of memory", "DEADLINE": "its job's deadline passed", "REVOKED": "its job was revoked",
}  # fmt: skip
RUNNING = frozenset(("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED"))
_LINE = re.compile(r"(--[a-z][a-z0-9-]*)(=[^\x00-\x1f]*)?")
_PARTITION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,-]*")


@dataclass(frozen=True)
class SlurmProfile:
    """The options for sbatch, and what is used on the nodes."""

    partition: str = ""
    count: int = 1
    lines: tuple[str, ...] = ()
    python: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()
    bind: str = ""
    folder: str = ""
    shared: bool = True

    def options(self) -> list[str]:
        """Return the profile's options for sbatch."""
        again = "--requeue" in self.lines
        return [*([f"--partition={self.partition}"] if self.partition else []), *self.lines, *([] if again else ["--no-requeue"])]


@dataclass
class SlurmStation:
    """One run of one task of our arrays; a task that Slurm requeues is a new station."""

    name: str
    index: int
    restarts: int = 0
    job: str = ""
    phase: StationPhase = "waiting"
    reason: str = ""
    where: str = ""

    @property
    def over(self) -> bool:
        return self.phase == "gone"


class SlurmLauncher:
    """Submits, queries and cancels in one thread, so that a slow controller blocks nothing."""

    def __init__(self, profile: SlurmProfile, bind: str) -> None:
        self.profile, self.bind, self.count, self.shares_files = profile, bind, profile.count, profile.shared
        self.stations: list[SlurmStation] = []
        self.jobs: list[str] = []
        self.folder: Path | None = None
        self.trouble = ""
        self._wanted: list[SlurmStation] = []
        self._dropped: list[SlurmStation] = []
        self._ending, self._wake, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._counted = 0

    def check(self) -> None:
        """Have sbatch check the profile without submitting anything."""
        done = slurm("sbatch", "--test-only", *self.profile.options(), script="#!/bin/sh\ntrue\n")
        if done.returncode:
            why = done.stderr.strip().splitlines()
            known = slurm("sinfo", "-h", "-o", "%R").stdout.split()
            if self.profile.partition and known and not set(self.profile.partition.split(",")) <= set(known):
                raise unknown("partition", self.profile.partition, known, listing="sinfo")
            raise UsageError(
                "Slurm refuses the stations", why=why[-1].removeprefix("sbatch: ") if why else "", do="see sinfo and the profile"
            )

    def start(self, count: int, invitation: Invitation) -> None:
        with self._lock:
            fresh = [SlurmStation(f"slurm-{self._counted + 1 + number}", self._counted + 1 + number) for number in range(count)]
            self._counted += count
            self.stations += fresh
            self._wanted += fresh
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(invitation,), name="slurm", daemon=True)
            self._thread.start()
        self._wake.set()

    def states(self) -> Sequence[StationState]:
        with self._lock:
            return [StationState(each.name, each.phase, each.reason or self._doubt(each), each.where) for each in self.stations]

    def _doubt(self, station: SlurmStation) -> str:
        return self.trouble if station.phase == "waiting" else ""

    def _work(self, invitation: Invitation) -> None:
        """Submit requested stations, cancel dropped ones and query Slurm, until the end."""
        while not self._ending.is_set():
            try:
                self._submit(invitation)
                self._cancel_dropped()
                self._look()
                self.trouble = ""
            except Exception as error:
                self.trouble = told(error, 300)
            self._wake.wait(LOOK_EVERY)
            self._wake.clear()

    def _submit(self, invitation: Invitation) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, []
        if not wanted:
            return
        try:
            job = self._submitted(wanted, invitation)
        except Exception as error:
            if AWAY in str(error):
                with self._lock:
                    self._wanted = wanted + self._wanted
                raise
            with self._lock:
                for station in wanted:
                    station.phase, station.reason = "gone", told(error, 300)
            return
        self.jobs.append(job)
        with self._lock:
            for station in wanted:
                station.job = job

    def _submitted(self, wanted: Sequence[SlurmStation], invitation: Invitation) -> str:
        """Write what these tasks need, submit them as one array, and return its job number."""
        folder = self._folder(invitation)
        for station in wanted:
            _write(folder / "tickets" / f"{station.index}.json", invitation.ticket(station.name), 0o600)
        array = f"--array={wanted[0].index}-{wanted[-1].index}"
        words = [
            "--parsable", *self.profile.options(), array, f"--job-name=steelyard-{invitation.run}",
            f"--chdir={Path.cwd() if self.profile.shared else '/'}", f"--output={folder}/out/%a.txt", "--open-mode=append",
        ]  # fmt: skip
        done = slurm("sbatch", *words, script=self._script(folder))
        if done.returncode:
            raise UsageError("sbatch refuses the stations", why=(done.stderr.strip().splitlines() or [""])[-1])
        return done.stdout.strip().partition(";")[0]

    def _script(self, folder: Path) -> str:
        """Return what a task runs: it loads modules, then replaces the shell by the program that supervises the station."""
        modules = [f"module load {shlex.quote(name)} || exit 1" for name in self.profile.modules]
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.profile.variables.items()]
        python = self.profile.python or sys.executable
        words = [shlex.quote(str(part)) for part in (python, folder / "station.pyz", folder / "orders.json")]
        last = f'exec {" ".join(words)} {shlex.quote(str(folder / "tickets"))}/"$SLURM_ARRAY_TASK_ID".json'
        return "\n".join((f"#!/bin/bash{' -l' if modules else ''}", *modules, *exports, last, ""))

    def drop(self, name: str) -> None:
        """Cancel the station's job, unless the profile lets Slurm requeue it."""
        with self._lock:
            found = [each for each in self.stations if each.name == name and each.job and not each.over]
            self._dropped += [] if "--requeue" in self.profile.lines else found
        self._wake.set()

    def _cancel_dropped(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, []
        if dropped:
            slurm("scancel", *(f"{each.job}_{each.index}" for each in dropped))

    def _folder(self, invitation: Invitation) -> Path:
        """Return the folder that the nodes share; it is created when first needed."""
        if self.folder is None:
            home = Path(self.profile.folder) if self.profile.folder else arriving.folder().with_name("slurm")
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            arriving.forget(home)
            self.folder = Path(mkdtemp(prefix=f"{invitation.run}-", dir=home)).resolve()
            for name in ("tickets", "out"):
                (self.folder / name).mkdir(mode=0o700)
            lay_out(self.folder, invitation, self.profile.variables, self.profile.stacks, foreign=bool(self.profile.python))
        return self.folder

    def _look(self) -> None:
        """Query squeue for all our arrays at once; a task that it has forgotten has ended."""
        with self._lock:
            open_jobs = sorted({station.job for station in self.stations if station.job and not station.over})
        if not open_jobs:
            return
        form = ",".join(f"{name}:|" if name != COLUMNS[-1] else name + ":200" for name in COLUMNS)
        done = slurm("squeue", "-h", "-a", "-r", "-t", "all", "-j", ",".join(open_jobs), "-O", form)
        if done.returncode and GONE not in done.stderr:
            raise UsageError("squeue failed", why=(done.stderr.strip().splitlines() or [""])[-1])
        rows = [[part.strip() for part in line.split("|")] for line in done.stdout.splitlines()]
        told = {(row[0], row[1]): row for row in rows if len(row) == len(COLUMNS)}
        with self._lock:
            for station in [each for each in self.stations if each.job in open_jobs and not each.over]:
                self._update(station, told.get((station.job, str(station.index))))

    def _update(self, station: SlurmStation, row: Sequence[str] | None) -> None:
        if row is None:
            station.phase, station.reason = "gone", self._last_words(station) or "Slurm has forgotten its job"
            return
        _, _, state, node, restarts, reason = row
        again = int(restarts) if restarts.isdigit() else 0
        if again > station.restarts:
            station.phase, station.reason = "gone", "Slurm has put its job back into the queue"
            station = SlurmStation(f"slurm-{station.index}-r{again}", station.index, again, station.job)
            self.stations.append(station)
        station.where = node if node not in ("", "N/A") else station.where
        if state in RUNNING:
            station.phase, station.reason = "running", ""
        elif state in ENDS:
            words = self._last_words(station)
            station.phase, station.reason = "gone", f"{ENDS[state]}{f': {words}' if words else ''}"
        elif station.phase == "running":
            station.phase, station.reason = "waiting", f"Slurm has put its job back into the queue ({state.lower()})"
        else:
            station.phase, station.reason = "waiting", reason if reason not in ("", "None") else state.lower()

    def _last_words(self, station: SlurmStation) -> str:
        """Return the last line that a task printed: its own error, or the shell's."""
        with contextlib.suppress(OSError):
            assert self.folder
            lines = (self.folder / "out" / f"{station.index}.txt").read_text(errors="replace")[-4000:].strip().splitlines()
            for line in reversed(lines):
                if found := arriving.error_of(line):
                    return found
                if not line.startswith("{"):
                    return line[:300]
        return ""

    def end(self) -> None:
        """Cancel our jobs, and wait until Slurm has ended them."""
        self._ending.set()
        self._wake.set()
        if self._thread:
            self._thread.join(PATIENCE)
        if self.jobs:
            try:
                self._cancel()
            except UsageError as error:
                warn(f"the stations may still run: {told(error, 200)}; end them: scancel {' '.join(self.jobs)}")
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _cancel(self) -> None:
        slurm("scancel", *self.jobs)
        deadline = time.monotonic() + FAREWELL
        while time.monotonic() < deadline:
            done = slurm("squeue", "-h", "-a", "-r", "-j", ",".join(self.jobs), "-o", "%A")
            left = done.stdout.split()
            if not left and (done.returncode == 0 or GONE in done.stderr):
                return
            time.sleep(0.2)
        count = len(left) or "some"
        warn(f"{count} of the stations did not end within {FAREWELL:.0f} s of being cancelled; see: squeue -j {','.join(self.jobs)}")


def slurm(command: str, *words: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands, with a time limit."""
    try:
        return subprocess.run([command, *words], input=script, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except FileNotFoundError:
        raise UsageError(
            f"there is no {command} here", why="stations are submitted by Slurm's own commands", do="run this on a login node"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command} did not answer within {PATIENCE:.0f} s", do="see scontrol ping") from None


def _write(file: Path, content: bytes, mode: int) -> None:
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
        opened.write(content)


def own_address() -> str:
    """Return this machine's address in the network of Slurm's controller, where the nodes can reach us."""
    found = re.search(r"^SlurmctldHost\S*\s*=\s*([^\s(]+)(?:\(([^)]+)\))?", slurm("scontrol", "show", "config").stdout, re.MULTILINE)
    if not found:
        raise UsageError("Slurm's controller does not answer", do="see scontrol ping")
    return toward(found[2] or found[1])


def options(value: Any) -> tuple[str, ...]:
    """Read options for sbatch, each a single word."""
    found = profiles.texts(value)
    for line in found:
        match = _LINE.fullmatch(line)
        expect(bool(match), "an option such as --gres=gpu:1", line)
        if match and match[1] in OWN:
            raise UsageError(
                f"{match[1]} cannot be set in a profile: Steelyard sets what stations run, where output goes and how many there are",
                do="remove it",
            )
    return found


def partition(value: Any) -> str:
    """Read one partition, or several."""
    text = text_value(value)
    expect(bool(_PARTITION.fullmatch(text)), "a partition", value)
    return text


def flag(value: Any) -> bool:
    """Read true or false."""
    expect(isinstance(value, bool), "true or false", value)
    return bool(value)


def read_profile(words: str) -> SlurmProfile:
    """Read a profile by name or file, or make one for a partition; `:4` at the end is the number of stations."""
    name, _, number = words.rpartition(":")
    count = parse_count(number) if name else None
    if count is None:
        name = words
    found = profiles.find("slurm", name, KEYS) if name else None
    data, page = found or ({"partition": name} if name else {}, CheckedFile("--on slurm", ""))
    usual = SlurmProfile()
    profile = SlurmProfile(
        page.read(data, "", "partition", partition, ""),
        count or page.read(data, "", "count", profiles.count_value, usual.count),
        page.read(data, "", "lines", options, ()),
        page.read(data, "", "python", profiles.interpreter, ""),
        page.read(data, "", "variables", profiles.variables, {}),
        page.read(data, "", "modules", profiles.names, ()),
        page.read(data, "", "stacks", profiles.names, ()),
        page.read(data, "", "bind", profiles.address, ""),
        page.read(data, "", "folder", text_value, ""),
        page.read(data, "", "shared", flag, True),
    )
    page.finish()
    return profile


def open_launcher(words: str) -> SlurmLauncher:
    """Read `slurm:PROFILE` or `slurm:PARTITION:COUNT`, and have Slurm check it."""
    profile = read_profile(words)
    launcher = SlurmLauncher(profile, profile.bind)
    launcher.check()
    launcher.bind = launcher.bind or own_address()
    return launcher
