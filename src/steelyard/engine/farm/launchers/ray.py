"""Stations as actors of a Ray cluster, one for each node that fits: `--on ray:HOST:PORT`, `ray:auto` or `ray:PROFILE`.

Ray lives in an environment of its own: a small program there (`ray_driver.py`) holds the actors; we talk to it through pipes. Each actor
runs what ssh would run: our code and the ticket travel by its standard input, and the station connects back by itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from steelyard.codec.reading import CheckedFile, expect, is_number
from steelyard.engine import envs
from steelyard.engine.farm import hosting, ray_driver
from steelyard.engine.farm.hosting import Cargo, HostEnded, HostLines, HostTalk
from steelyard.engine.farm.launchers import Invitation, StationPhase, StationState, profiles
from steelyard.errors import UsageError, told
from steelyard.terminal import warn

VARIABLE = "STEELYARD_RAY_PYTHON"
KEYS = ("address", "count", "python", "driver", "variables", "stacks", "cpus", "gpus", "resources", "labels", "bind", "patience")
CONNECT = 60.0
REACH = 10.0
FAREWELL = 40.0
_RESOURCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")
_ADDRESS = re.compile(r"auto|[A-Za-z0-9_.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


@dataclass(frozen=True)
class RayProfile:
    """A cluster, and what a node must have for a station; without `cpus` and `gpus` a station takes all of its node."""

    address: str
    count: int = 0
    python: str = ""
    driver: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    stacks: tuple[str, ...] = ()
    cpus: float = 0
    gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    bind: str = ""
    patience: float = 60.0

    def told(self) -> str:
        """Return what a node must have, in words."""
        asked = [f"{amount:g} {name}" for name, amount in self.resources.items()] + [
            f"label {name}={value}" for name, value in self.labels.items()
        ]
        asked += [f"{amount:g} {name}" for name, amount in (("CPU", self.cpus), ("GPU", self.gpus)) if amount]
        return ", ".join(asked) or "a CPU"


@dataclass
class RayStation:
    """A station on a node, and its state."""

    name: str
    phase: StationPhase = "waiting"
    reason: str = "for a node of the cluster"
    where: str = ""
    heard: queue.SimpleQueue[bytes] = field(default_factory=queue.SimpleQueue)
    gone: str = ""
    placed: threading.Event = field(default_factory=threading.Event)
    """Set once it has a node, or is gone without one."""
    thread: threading.Thread | None = None

    def lose(self, reason: str) -> None:
        """Note that the station is gone."""
        self.gone = self.gone or reason
        self.placed.set()
        self.heard.put(b"")

    def hear(self, patience: float | None) -> bytes:
        """Return the station's next line; an empty one when it has ended."""
        try:
            return self.heard.get(timeout=patience)
        except queue.Empty:
            raise TimeoutError(f"no answer within {patience:.0f} s") from None


class RayDriver:
    """The running program that has Ray, `ray_driver.py`."""

    def __init__(self, profile: RayProfile, *, waits: bool) -> None:
        self.python = interpreter(profile)
        self.process = subprocess.Popen(
            [self.python, "-P", str(ray_driver.__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        assert self.process.stdout and self.process.stderr
        self.lines, self.lock = HostLines(self.process.stdout.fileno()), threading.Lock()
        self.last = ""
        threading.Thread(target=self._listen, args=(self.process.stderr,), daemon=True).start()
        orders = {**asdict(profile), "told": profile.told(), "program": hosting.FETCH, "waits": waits}
        self.say(orders)

    def _listen(self, stream: Any) -> None:
        for line in stream:
            self.last = line.decode(errors="replace").strip()[:300] or self.last

    def say(self, words: Mapping[str, Any], data: bytes = b"") -> None:
        """Send an order, followed by bytes if it has their number."""
        assert self.process.stdin
        try:
            with self.lock:
                self.process.stdin.write(json.dumps(words).encode() + b"\n" + data)
                self.process.stdin.flush()
        except (OSError, ValueError):
            raise HostEnded("the program that holds Ray's actors has ended", why=self.last) from None

    def connected(self, address: str, patience: float) -> Mapping[str, Any]:
        """Wait for the connection; return what the driver found on the cluster."""
        try:
            line = self.lines.next(CONNECT + patience)
        except TimeoutError:
            raise UsageError(f"no Ray cluster answers at {address}", do="see: ray status") from None
        found = json.loads(line) if line.startswith(b"{") else {"error": self.last or "Ray's program has ended"}
        if "error" in found:
            raise UsageError(
                f"cannot use the Ray cluster at {address}", why=str(found["error"])[:300], do=f"check the Ray of {self.python}"
            )
        return dict(found)

    def close(self, patience: float = FAREWELL) -> None:
        """End the driver and its actors."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        with contextlib.suppress(OSError), self.lock:
            self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            warn(f"Ray's actors did not end within {patience:.0f} s; they end when Ray sees that their driver is gone")


class RayLauncher:
    """Runs one driver, and a thread for each station that talks to it through its actor."""

    shares_files = False

    def __init__(self, profile: RayProfile, count: int, bind: str) -> None:
        self.profile, self.count, self.bind = profile, count, bind
        self.stations: dict[str, RayStation] = {}
        self.driver: RayDriver | None = None
        self.cargo: Cargo | None = None
        self.packing = threading.Lock()

    def start(self, count: int, invitation: Invitation) -> None:
        if self.driver is None or self.driver.process.poll() is not None:
            self.driver = RayDriver(self.profile, waits=False)
            threading.Thread(target=self._hear, args=(self.driver,), daemon=True).start()
        for _ in range(count):
            station = RayStation(f"ray-{len(self.stations) + 1}")
            self.stations[station.name] = station
            station.thread = threading.Thread(target=self._serve, args=(station, invitation, self.driver), daemon=True)
            station.thread.start()

    def _hear(self, driver: RayDriver) -> None:
        """Pass each line of the driver to the station it is about."""
        while line := driver.lines.next(None):
            with contextlib.suppress(ValueError):
                words = json.loads(line)
                station = self.stations.get(words.get("station", ""))
                if station and "line" in words:
                    station.heard.put(str(words["line"]).encode())
                elif station and "host" in words:
                    station.where, station.reason = str(words["host"])[:100], "until its node has our code"
                    station.placed.set()
                elif station and "gone" in words:
                    station.lose(str(words["gone"])[:300])
                elif "error" in words:
                    driver.last = str(words["error"])[:300]
        for station in list(self.stations.values()):
            station.lose(f"the program that holds Ray's actors has ended: {driver.last}")

    def _serve(self, station: RayStation, invitation: Invitation, driver: RayDriver) -> None:
        """Run a station from its order to its end."""
        try:
            driver.say({"place": station.name})
            talk = HostTalk(station.hear, partial(self._send, driver, station), partial(setattr, station, "reason"))
            talk.send(hosting.sent_program())
            talk.admit(self._cargo(invitation), lambda: invitation.ticket(station.name))
            station.phase, station.reason = "running", ""
            code = None
            while code is None and (line := station.hear(None)):
                code = hosting.ended(line)
            station.reason = station.gone if code is None else f"the station exited with code {code}"
        except HostEnded as error:
            station.reason = station.gone or told(error, 300)
        except Exception as error:
            station.reason = told(error, 300)
        finally:
            station.phase = "gone"

    def _send(self, driver: RayDriver, station: RayStation, data: bytes) -> None:
        station.placed.wait()
        if station.gone:
            raise HostEnded(station.gone)
        driver.say({"station": station.name, "bytes": len(data)}, data)

    def _cargo(self, invitation: Invitation) -> Cargo:
        with self.packing:
            if self.cargo is None:
                self.cargo = hosting.pack(invitation, self.profile.variables, self.profile.stacks)
            return self.cargo

    def states(self) -> Sequence[StationState]:
        return [StationState(each.name, each.phase, each.reason, each.where) for each in list(self.stations.values())]

    def drop(self, name: str) -> None:
        if self.driver and name in self.stations:
            with contextlib.suppress(HostEnded):
                self.driver.say({"drop": name})

    def end(self) -> None:
        """End the driver, which ends its actors and their stations."""
        if self.driver:
            self.driver.close()
        for station in list(self.stations.values()):
            if station.thread:
                station.thread.join(5)


def interpreter(profile: RayProfile) -> str:
    """Return a Python that has Ray: one that was named, this one, or that of one of our environments."""
    for named in (profile.driver, os.environ.get(VARIABLE, "")):
        if named:
            if not os.access(named, os.X_OK):
                raise UsageError(f"there is no {named}", do="name the interpreter of an environment with Ray")
            return named
    if importlib.util.find_spec("ray"):
        return sys.executable
    ours = [env for env in envs.listing() if not env.trouble and env.version("ray")]
    if not ours:
        raise UsageError(
            "Ray is not installed here",
            why="the cluster's version of Ray and of Python must be the same here, in an environment of its own",
            do=f"steelyard env create ray, or ray-2.50 for another version; or name a Python that has it: {VARIABLE}=/path/to/python",
        )
    return str(ours[0].python)


def ray_address(value: Any) -> str:
    """Read the address of a cluster's head."""
    text = str(value)
    expect(bool(_ADDRESS.fullmatch(text)), "an address such as 10.0.0.5:6379, or auto", value)
    return text


def amount(value: Any) -> float:
    """Read an amount of a resource."""
    expect(is_number(value) and 0 < value <= 1e6, "an amount above zero", value)
    return float(value)


def amounts(value: Any) -> Mapping[str, float]:
    """Read a table of resources and amounts."""
    expect(isinstance(value, dict), "a table of resources, such as { tpu = 1 }", value)
    for name in value:
        expect(bool(_RESOURCE.fullmatch(name)), "the name of a resource", name)
    return {name: amount(each) for name, each in value.items()}


def labels(value: Any) -> Mapping[str, str]:
    """Read the labels that a node must have."""
    expect(
        isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
        'a table of labels, such as { rack = "r1" }',
        value,
    )
    return dict(value)


def read_profile(words: str) -> RayProfile:
    """Read a profile by name or file, or make one for an address."""
    found = None if _ADDRESS.fullmatch(words) else profiles.find("ray", words, KEYS, required=True)
    data, page = found or ({"address": words}, CheckedFile("--on ray", ""))
    usual = RayProfile("auto")
    profile = RayProfile(
        page.read(data, "", "address", ray_address, usual.address),
        page.read(data, "", "count", profiles.count_value, 0),
        page.read(data, "", "python", profiles.interpreter, ""),
        page.read(data, "", "driver", profiles.interpreter, ""),
        page.read(data, "", "variables", profiles.variables, {}),
        page.read(data, "", "stacks", profiles.names, ()),
        page.read(data, "", "cpus", amount, 0.0),
        page.read(data, "", "gpus", amount, 0.0),
        page.read(data, "", "resources", amounts, {}),
        page.read(data, "", "labels", labels, {}),
        page.read(data, "", "bind", profiles.address, ""),
        page.read(data, "", "patience", profiles.seconds, usual.patience),
    )
    page.finish()
    return profile


def reach(address: str) -> None:
    """Raise UsageError if nothing listens at an address; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        why = str(error)
        raise UsageError(f"no Ray cluster answers at {address}", why=why, do="see: ray status; the head's port is usually 6379") from None


def open_launcher(words: str) -> RayLauncher:
    """Read `ray:ADDRESS` or `ray:PROFILE`, connect once, and find the nodes that fit, waiting for the first for a time."""
    if not words:
        raise UsageError("--on ray: names no cluster", do="write it like --on ray:10.0.0.5:6379 or ray:auto, or name a profile")
    profile = read_profile(words)
    if profile.address != "auto":
        reach(profile.address)
    driver = RayDriver(profile, waits=True)
    try:
        found = driver.connected(profile.address, profile.patience)
    finally:
        driver.close(10)
    if not found["nodes"]:
        has = ", ".join(name for name in found["has"] if not name.startswith("node:"))
        raise UsageError(
            f"no node of the Ray cluster has {profile.told()}",
            why=f"looked for {profile.patience:.0f} s; its nodes have {has}", do="request what the nodes have, or set a longer patience",
        )  # fmt: skip
    return RayLauncher(profile, profile.count or len(found["nodes"]), profile.bind or str(found["here"]))
