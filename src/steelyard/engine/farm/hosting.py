"""Our end of starting a station on another host: the code to send, and the dialogue with the first program there.

`arriving.py` is the other end. A parcel is named by a digest of its content, so it is not sent again to a host that has it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import select
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import steelyard
from steelyard.engine.farm import arriving
from steelyard.engine.farm.launchers import Invitation
from steelyard.errors import UsageError

NEEDED = ("numpy", "msgspec", "click")
"""Packages that a station imports besides the standard library and Steelyard."""
DIGITS = 16
STAMP = (2020, 1, 1, 0, 0, 0)
FETCH = (
    "import io,os,sys,tempfile;s=io.BufferedReader(io.FileIO(0,closefd=False),1);f=tempfile.NamedTemporaryFile(suffix='.pyz',delete=False);"
    "f.write(s.read(int(s.readline())));f.close();os.execv(sys.executable,[sys.executable,f.name])"
)
"""A one-line program that reads `program()` from its input and runs it in its place."""


class HostRefused(UsageError):
    """A host reported that it cannot run a station."""


class HostEnded(HostRefused):
    """A host was lost without an explanation."""


@dataclass(frozen=True)
class Parcel:
    """A zip file to be sent to hosts; `fits` is the platform of its compiled parts."""

    digest: str
    file: Path
    fits: str = "any"


@dataclass(frozen=True)
class Cargo:
    """What a station is started with: our code, the packages that it may lack, its command line and variables."""

    code: Parcel
    packages: Mapping[str, Parcel]
    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    stacks: Sequence[str] = ()

    def offer(self, home: str = "") -> dict[str, Any]:
        """Return the offer from which the other host chooses what it needs."""
        packages = {name: {"digest": parcel.digest, "fits": parcel.fits} for name, parcel in self.packages.items()}
        told = {"code": self.code.digest, "packages": packages, "command": list(self.command), "variables": dict(self.variables)}
        return {**told, "stacks": list(self.stacks), "home": home}

    def bytes_of(self, digest: str) -> bytes:
        """Return the content of a requested parcel."""
        known = {parcel.digest: parcel.file for parcel in (self.code, *self.packages.values())}
        if digest not in known:
            raise HostRefused("it requested code that is not on offer")
        return known[digest].read_bytes()


@dataclass(frozen=True)
class Arrived:
    """A station that was started."""

    host: str
    python: str
    seconds: float
    """From our offer to its start, with sending and unpacking code and, if needed, building an environment."""
    sent: int


def pack(invitation: Invitation, variables: Mapping[str, str], stacks: Sequence[str] = (), packages: Sequence[str] = NEEDED) -> Cargo:
    """Prepare everything that a launcher's stations may need, once for all of them."""
    command = invitation.command("python")[1:]
    return Cargo(code(invitation.parcel), {name: package(name) for name in packages}, command, variables, stacks)


def code(given: Path | None) -> Parcel:
    """Return the steelyard package in its present state."""
    if given is not None:
        return Parcel(hashlib.sha256(given.read_bytes()).hexdigest()[:DIGITS], given)
    root = Path(steelyard.__file__).parent
    files = {f"steelyard/{path.relative_to(root)}": path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    pins = root.parents[1] / "constraints"
    files |= {f"constraints/{path.name}": path for path in pins.glob("*.txt")}
    return _kept("steelyard", _zipped(files))


@cache
def package(name: str) -> Parcel:
    """Return an installed package with its compiled parts; packed once and kept, since packing numpy takes seconds."""
    found = metadata.distribution(name)
    files = {str(file): Path(str(found.locate_file(file))) for file in found.files or []}
    files = {place: path for place, path in files.items() if not place.startswith("..") and path.is_file() and path.suffix != ".pyc"}
    fits = arriving.fits() if any(path.suffix == ".so" for path in files.values()) else "any"
    known = sorted(_home().glob(f"{name}-{found.version}-{fits}-*.zip"))
    if known:
        return Parcel(known[0].stem.rpartition("-")[2], known[0], fits)
    if not files:
        raise UsageError(
            f"the installed {name} cannot be sent to hosts", why="it does not list its files", do=f"pip install --force-reinstall {name}"
        )
    return _kept(f"{name}-{found.version}-{fits}", _zipped(files), fits)


def _zipped(files: Mapping[str, Path]) -> bytes:
    """Return a zip file that is the same for the same content."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as parcel:
        for place, path in sorted(files.items()):
            entry = zipfile.ZipInfo(place, STAMP)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            parcel.writestr(entry, path.read_bytes(), compresslevel=1)
    return whole.getvalue()


def _kept(name: str, content: bytes, fits: str = "any") -> Parcel:
    digest = hashlib.sha256(content).hexdigest()[:DIGITS]
    file = _home() / f"{name}-{digest}.zip"
    if not file.exists():
        fresh = file.with_name(f".{file.name}.{digest}")
        fresh.write_bytes(content)
        fresh.replace(file)
    return Parcel(digest, file, fits)


def _home() -> Path:
    folder = arriving.folder().with_name("parcels")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@cache
def program() -> bytes:
    """Return the first program on a host, as one file that Python runs."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo("__main__.py", STAMP), Path(str(arriving.__file__)).read_bytes())
    return whole.getvalue()


def sent_program() -> bytes:
    """Return what FETCH reads: the size of the first program, and the program."""
    return b"%d\n" % len(program()) + program()


@dataclass
class HostLines:
    """Lines from a file descriptor, with limits for waiting and for their length; an empty line means the end."""

    fd: int
    buffer: bytes = b""
    longest: int = 1 << 20

    def next(self, patience: float | None) -> bytes:
        """Return the next line; TimeoutError if none comes within this many seconds."""
        deadline = None if patience is None else time.monotonic() + patience
        watched = select.poll()
        watched.register(self.fd, select.POLLIN)
        while b"\n" not in self.buffer and len(self.buffer) < self.longest:
            left = None if deadline is None else 1000 * max(0.0, deadline - time.monotonic())
            if not watched.poll(left):
                raise TimeoutError(f"no answer within {patience:.0f} s")
            data = os.read(self.fd, 65536)
            if not data:
                return b""
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line + b"\n"


def ended(line: bytes) -> int | None:
    """Return the exit code of a station, if this line reports it."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    code = found.get("ended") if isinstance(found, dict) else None
    return code if isinstance(code, int) else None


@dataclass
class HostTalk:
    """The dialogue with the first program on a host: `hear` returns its next line within some seconds, `send` sends at once."""

    hear: Callable[[float], bytes]
    send: Callable[[bytes], None]
    told: Callable[[str], None] = lambda text: None
    patience: float = 30.0
    building: float = 1200.0

    def facts(self) -> Mapping[str, Any]:
        """Return facts about the host's interpreter; one that is too old is refused."""
        facts: Mapping[str, Any] = self._line(self.patience).get("facts") or {}
        if not facts:
            raise HostRefused("it did not identify itself")
        if facts["old"]:
            what = f"its {facts['executable']} is Python {facts['python']}"
            raise HostRefused(what, why="3.11 or newer is needed", do="name a newer one")
        return facts

    def admit(self, cargo: Cargo, ticket: Callable[[], bytes], home: str = "") -> Arrived:
        """Send the parcels that the host lacks, wait until its station has started, and send the ticket."""
        facts, sent = self.facts(), 0
        self._say(cargo.offer(home))
        for digest in self._line(self.patience).get("want") or []:
            content = cargo.bytes_of(str(digest))
            self._say({"bytes": len(content)})
            self.send(content)
            sent += len(content)
        while "started" not in (line := self._line(self.building)):
            if line.get("phase") == "building":
                self.told(f"builds an environment with {', '.join(map(str, line.get('packages', ())))}")
        self.send(ticket())
        return Arrived(str(facts["host"]), str(facts["executable"]), float(line["seconds"]), sent)

    def _say(self, words: Mapping[str, Any]) -> None:
        self.send(json.dumps(words).encode() + b"\n")

    def _line(self, patience: float) -> dict[str, Any]:
        """Return the next line of our program; output of login scripts is skipped."""
        while True:
            try:
                text = self.hear(patience)
            except TimeoutError as error:
                raise HostRefused("it does not answer", why=str(error)) from None
            if not text:
                raise HostEnded("it ended without any output")
            if text.startswith(b"{"):
                try:
                    found = json.loads(text)
                except ValueError:
                    continue
                if "error" in found:
                    raise HostRefused(str(found["error"])[:500], do=str(found.get("do", ""))[:200])
                return dict(found)
