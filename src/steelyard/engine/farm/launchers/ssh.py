"""Stations on hosts that ssh reaches, with nothing installed there but Python: `--on ssh:HOST,HOST` or `ssh:PROFILE`.

One ssh per station carries everything: our code and the ticket by its standard input, and the connection back through a tunnel of its own.
The station ends with the connection. STEELYARD_SSH names another ssh, with options, as GIT_SSH_COMMAND does for git.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, cast

from steelyard.codec.reading import CheckedFile, expect
from steelyard.engine.farm import hosting
from steelyard.engine.farm.hosting import Arrived, Cargo, HostEnded, HostLines, HostRefused, HostTalk
from steelyard.engine.farm.launchers import LOOPBACK, Invitation, StationPhase, StationState, profiles
from steelyard.errors import Mistakes, UsageError, told
from steelyard.terminal import warn

VARIABLE = "STEELYARD_SSH"
OPTIONS = (
    "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes",
    "-o", "LogLevel=INFO", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ForwardX11=no", "-o", "ForwardAgent=no",
)  # fmt: skip
KEYS = ("hosts", "python", "variables", "stacks", "patience")
LOST = 255
NO_PROGRAM = (126, 127)
FAREWELL = 20.0
PARTING = 2.0
"""Seconds after which an ssh is killed whose program on the host has ended; it would wait as long as the tunnel is in use."""
LONGEST_WAIT = 60.0
_HOST = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.@:%\[\]-]*")
_SAFE = re.compile(r"~?[A-Za-z0-9_./+-]+")
_PORT = re.compile(rb"Allocated port (\d+) for remote forward")


@dataclass(frozen=True)
class SshProfile:
    """Hosts, and the Python, variables and stacks used on each of them."""

    hosts: tuple[str, ...]
    python: str = "python3"
    variables: Mapping[str, str] = field(default_factory=dict)
    stacks: tuple[str, ...] = ()
    patience: float = 30.0


class Tail(threading.Thread):
    """Reads the error output of an ssh: the port that a tunnel got, and the last lines, which say why it ended."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.stream, self.port, self.lines = stream, 0, [b""]
        self.tunnel = threading.Event()

    def run(self) -> None:
        for line in self.stream:
            if found := _PORT.search(line):
                self.port = int(found[1])
                self.tunnel.set()
            elif line.strip():
                self.lines = [*self.lines[-4:], line.strip()]
        self.tunnel.set()

    @property
    def last(self) -> str:
        """The last line."""
        return self.lines[-1].decode(errors="replace")[:300]


@dataclass
class SshSession:
    """One ssh, and a program at its far end."""

    process: subprocess.Popen[bytes]
    lines: HostLines
    tail: Tail

    @classmethod
    def open(cls, host: str, python: str, forward: str = "") -> SshSession:
        """Connect, and start a one-line program that receives ours and runs it in its place."""
        word = python if _SAFE.fullmatch(python) else shlex.quote(python)
        there = f"exec {word} -c {shlex.quote(hosting.FETCH)}"
        words = [*shlex.split(os.environ.get(VARIABLE, "ssh")), *OPTIONS, *(["-R", forward] if forward else []), "--", host, there]
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )  # fmt: skip
        except OSError as error:
            raise UsageError(
                f"cannot start {words[0]}", why=str(error.strerror), do=f"install OpenSSH, or name another in {VARIABLE}"
            ) from None
        assert process.stdin and process.stdout and process.stderr
        session = cls(process, HostLines(process.stdout.fileno()), Tail(process.stderr))
        session.tail.start()
        return session

    def welcome(self, patience: float, tell: Any = None) -> HostTalk:
        """Send our program, and return the dialogue with it."""
        talk = HostTalk(self.lines.next, self._send, tell or (lambda text: None), patience)
        self._send(hosting.sent_program())
        return talk

    def _send(self, data: bytes) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except (OSError, ValueError):
            raise HostEnded("it ended without any output") from None

    def hang_up(self) -> None:
        """Close our side of the connection, which ends the program on the host."""
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def close(self, patience: float) -> int:
        """Hang up, wait, and kill an ssh that does not end; return its exit code."""
        self.hang_up()
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.tail.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            cast(IO[bytes], stream).close()
        return code

    def reason(self, code: int, python: str) -> str:
        """Return why the ssh ended without any output."""
        if code in NO_PROGRAM:
            return f"there is no {python} there"
        return self.tail.last or f"ssh ended with code {code}"


@dataclass
class SshStation:
    """A station on a host, and its state."""

    name: str
    host: str
    phase: StationPhase = "waiting"
    reason: str = ""
    session: SshSession | None = None
    thread: threading.Thread | None = None
    arrived: Arrived | None = None


class SshLauncher:
    """Runs a thread per station, which holds its ssh."""

    bind = LOOPBACK
    shares_files = False

    def __init__(self, profile: SshProfile) -> None:
        self.profile, self.count = profile, len(profile.hosts)
        self.stations: list[SshStation] = []
        self.failures: Counter[str] = Counter()
        self.ending = threading.Event()
        self.packing = threading.Lock()
        self.cargo: Cargo | None = None

    def check(self) -> None:
        """Reach every host once: hosts that cannot run a station are reported before anything is started."""
        hosts = list(dict.fromkeys(self.profile.hosts))
        with ThreadPoolExecutor(16) as pool:
            wrong = [error for error in pool.map(self._wrong, hosts) if error]
        if len(wrong) == 1:
            raise wrong[0]
        if wrong:
            raise Mistakes(wrong, about="hosts that cannot be used")

    def _wrong(self, host: str) -> UsageError | None:
        session = SshSession.open(host, self.profile.python)
        try:
            session.welcome(self.profile.patience).facts()
        except HostEnded:
            code = session.close(5)
            why, do = session.reason(code, self.profile.python), f"try: ssh {host}"
            if code in NO_PROGRAM:
                do = 'name one of 3.11 or newer in a profile: python = "/usr/bin/python3.12"'
            return UsageError(f"cannot run a station on {host}", why=why, do=do)
        except UsageError as error:
            return UsageError(
                f"cannot run a station on {host}", why="; ".join(part for part in (error.what, error.why) if part), do=error.do
            )
        finally:
            session.close(5)
        return None

    def start(self, count: int, invitation: Invitation) -> None:
        for _ in range(count):
            station = SshStation(f"ssh-{len(self.stations) + 1}", self._least_used())
            station.thread = threading.Thread(target=self._serve, args=(station, invitation), daemon=True)
            self.stations.append(station)
            station.thread.start()

    def _least_used(self) -> str:
        """Return a host with a free place, if any; of several the one that failed least, then the one with the fewest stations."""
        used = Counter(station.host for station in self.stations if station.phase != "gone")
        return min(self.profile.hosts, key=lambda host: (used[host] - self.profile.hosts.count(host) >= 0, self.failures[host], used[host]))

    def _serve(self, station: SshStation, invitation: Invitation) -> None:
        """Run a station from its ssh to its end."""
        if failed := self.failures[station.host]:
            station.reason = f"tried again after {failed} failures"
            self.ending.wait(min(LONGEST_WAIT, 2.0**failed))
        silent = False
        try:
            if not self.ending.is_set():
                self._hold(station, invitation)
        except HostEnded:
            silent = True
        except Exception as error:
            station.reason = told(error, 300)
        finally:
            if station.session:
                code = station.session.close(PARTING)
                if silent:
                    station.reason = station.session.reason(code, self.profile.python)
            self.failures[station.host] = 0 if station.arrived else self.failures[station.host] + 1
            station.phase = "gone"

    def _hold(self, station: SshStation, invitation: Invitation) -> None:
        forward = f"{LOOPBACK}:0:{invitation.host}:{invitation.port}"
        session = station.session = SshSession.open(station.host, self.profile.python, forward)
        talk = session.welcome(self.profile.patience, partial(setattr, station, "reason"))
        station.arrived = talk.admit(self._cargo(invitation), partial(self._ticket, station, invitation, session))
        station.reason, station.phase = "", "running"
        code = None
        while code is None and (line := session.lines.next(None)):
            code = hosting.ended(line)
        why = f": {session.tail.last}" if code and session.tail.last else ""
        station.reason = "the connection was lost" if code is None else f"the station exited with code {code}{why}"

    def _ticket(self, station: SshStation, invitation: Invitation, session: SshSession) -> bytes:
        """Return the ticket, with the far end of the tunnel as the conductor's address."""
        if not session.tail.tunnel.wait(self.profile.patience) or not session.tail.port:
            raise HostRefused("ssh opened no tunnel back to this machine", why=session.tail.last, do="allow remote forwarding in its sshd")
        return invitation.ticket(station.name, LOOPBACK, session.tail.port)

    def _cargo(self, invitation: Invitation) -> Cargo:
        with self.packing:
            if self.cargo is None:
                self.cargo = hosting.pack(invitation, self.profile.variables, self.profile.stacks)
            return self.cargo

    def states(self) -> Sequence[StationState]:
        return [StationState(each.name, each.phase, each.reason, each.host) for each in self.stations]

    def drop(self, name: str) -> None:
        for station in self.stations:
            if station.name == name and station.session:
                station.session.hang_up()

    def end(self) -> None:
        """Hang up every station's connection, which ends the station."""
        self.ending.set()
        for station in self.stations:
            if station.session:
                station.session.hang_up()
        for station in self.stations:
            if station.thread:
                station.thread.join(FAREWELL + 10)
                if station.thread.is_alive() and station.session:
                    station.session.process.kill()
                    warn(f"the station on {station.host} did not end within {FAREWELL:.0f} s; its connection was cut")


def hosts(value: Any) -> tuple[str, ...]:
    """Read hosts as ssh knows them; words that ssh could take for options are refused."""
    found = profiles.texts(value)
    for host in found:
        expect(bool(_HOST.fullmatch(host)), "a host such as box1 or me@box1", host)
    return found


def open_launcher(words: str) -> SshLauncher:
    """Read `ssh:HOST,HOST` or `ssh:PROFILE`, and reach every host once."""
    found = profiles.find("ssh", words, KEYS) if words and "," not in words else None
    if not words:
        raise UsageError("--on ssh: names no host", do="write it like --on ssh:box1,box2, or name a profile")
    data, page = found or ({"hosts": [host.strip() for host in words.split(",")]}, CheckedFile("--on ssh", ""))
    usual = SshProfile(())
    profile = SshProfile(
        page.read(data, "", "hosts", hosts, ()),
        page.read(data, "", "python", profiles.interpreter, usual.python),
        page.read(data, "", "variables", profiles.variables, {}),
        page.read(data, "", "stacks", profiles.names, ()),
        page.read(data, "", "patience", profiles.seconds, usual.patience),
    )
    if not profile.hosts and not page.mistakes:
        page.wrong("hosts", "a profile needs at least one host", 'hosts = ["box1", "box2"]')
    page.finish()
    launcher = SshLauncher(profile)
    launcher.check()
    return launcher
