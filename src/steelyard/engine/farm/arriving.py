"""The first program on a station's host: it receives our code, finds or makes an interpreter that can run it, and supervises the station
until it ends. It is sent as one file, so it uses only the standard library, and reports a Python that is too old. The other end
is `hosting.py`: each line is JSON, and a line with a number of bytes is followed by that many.

    here   {"facts": {"python": "3.11.2", …}}
    there  {"code": DIGEST, "packages": {"numpy": {"digest": DIGEST, "fits": "cpython-311-x86_64-linux-gnu"}}, …}
    here   {"want": [DIGEST, …]}          there  {"bytes": 123456} and the bytes, for each
    here   {"started": 4711, …}           there  the station's ticket; the end of the input ends the station
    here   {"ended": 0}
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import io
import json
import os
import platform
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, cast

OLDEST = (3, 11)
SUBREAPER, DEATH_SIGNAL = 36, 1
FAREWELL = 15.0
UNUSED = 30 * 86400.0
"""Seconds after which code that no station has used is removed."""


def main(words: list[str]) -> int:
    """Serve one station: its orders come by standard input, or from files in a shared folder."""
    try:
        if words:
            offer = json.loads(Path(words[0]).read_text(encoding="utf-8"))
            digests, lacking = chosen(offer)
            return begin(offer, digests, lacking, time.monotonic(), renamed(Path(words[1]).read_bytes()))
        Path(sys.argv[0]).unlink()
        source = cast(BinaryIO, io.BufferedReader(io.FileIO(0, closefd=False), 1))
        say(facts=facts())
        line = source.readline()
        return serve(json.loads(line.decode()), source) if line else 0
    except Unfit as error:
        return fail(str(error), error.do)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        return fail(f"{type(error).__name__}: {error}")


class Unfit(Exception):
    """This host cannot run a station; `do` is the remedy."""

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__(what)
        self.do = do


def say(**words: object) -> None:
    """Send one line to the conductor's host."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


def fail(what: str, do: str = "") -> int:
    """Report why no station can run here; return the exit code."""
    say(error=what, do=do)
    return 2


def error_of(line: str) -> str:
    """Return the failure in a line of `fail`; empty for another line."""
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict) and found.get("error"):
            return "; ".join(str(part)[:300] for part in (found["error"], found.get("do")) if part)
    return ""


def facts() -> dict[str, Any]:
    """Return facts about this interpreter for the conductor's host."""
    return {"python": platform.python_version(), "old": sys.version_info[:2] < OLDEST, "executable": sys.executable, "fits": fits(),
            "host": socket.gethostname()}  # fmt: skip


def fits() -> str:
    """Return the platform that compiled packages must be made for."""
    return f"{sys.implementation.cache_tag}-{sysconfig.get_config_var('MULTIARCH') or sysconfig.get_platform()}"


def chosen(offer: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the parcels that this interpreter uses, and the missing packages to install because the parcels do not fit it."""
    if sys.version_info[:2] < OLDEST:
        raise Unfit(f"its Python is {platform.python_version()}, and 3.11 or newer is needed", "name a newer one: python = …")
    lacking = [name for name in offer["packages"] if importlib.util.find_spec(name) is None]
    carried = [offer["packages"][name] for name in lacking]
    if any(item["fits"] not in ("any", fits()) for item in carried):
        return [offer["code"]], lacking
    return [offer["code"], *(item["digest"] for item in carried)], []


def serve(offer: dict[str, Any], source: BinaryIO) -> int:
    """Receive the missing parcels, then start the station and supervise it until it ends."""
    began = time.monotonic()
    digests, lacking = chosen(offer)
    offer["home"] = offer.get("home") or str(folder())
    home = Path(offer["home"])
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    forget(home)
    wanted = [digest for digest in digests if not (home / digest).is_dir()]
    say(want=wanted)
    for digest in wanted:
        unpack(home, digest, taken(source, json.loads(source.readline().decode())["bytes"]))
    return begin(offer, digests, lacking, began)


def folder() -> Path:
    """Return the user's folder in which code is kept between stations."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steelyard"
    return Path(os.environ.get("STEELYARD_CACHE") or cache) / "stations"


def forget(home: Path) -> None:
    """Remove code that was not used for weeks."""
    for path in home.iterdir():
        with contextlib.suppress(OSError):
            if path.is_dir() and time.time() - path.stat().st_mtime > UNUSED:
                shutil.rmtree(path, ignore_errors=True)


def taken(source: BinaryIO, size: int) -> bytes:
    """Read exactly this many bytes of the input."""
    data = source.read(size)
    if len(data) != size:
        raise EOFError("the connection ended while code was sent")
    return data


def unpack(home: Path, digest: str, data: bytes) -> None:
    """Unpack a parcel into its folder, completely or not at all; a copy that another process unpacked meanwhile is kept."""
    if hashlib.sha256(data).hexdigest()[: len(digest)] != digest:
        raise ValueError("a parcel was damaged on its way")
    fresh = home / f".{digest}-{os.getpid()}"
    with zipfile.ZipFile(io.BytesIO(data)) as parcel:
        parcel.extractall(fresh)
    try:
        fresh.rename(home / digest)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)


def renamed(ticket: bytes) -> bytes:
    """Return the ticket, with a new name if Slurm has restarted the job: no two stations of a run may have the same name."""
    again = os.environ.get("SLURM_RESTART_COUNT", "0")
    words = json.loads(ticket)
    return json.dumps({**words, "name": words["name"] + (f"-r{again}" if again != "0" else "")}).encode() + b"\n"


def begin(offer: dict[str, Any], digests: list[str], lacking: list[str], began: float, ticket: bytes | None = None) -> int:
    """Start the station with its parcels on the path, and supervise it."""
    home = Path(offer["home"])
    paths = [str(home / digest) for digest in digests]
    for path in paths:
        os.utime(path)
    given = {**os.environ, **(offer.get("variables") or {})}
    given["PYTHONPATH"] = os.pathsep.join([*paths, *([given["PYTHONPATH"]] if given.get("PYTHONPATH") else [])])
    python = sys.executable
    if lacking:
        say(phase="building", packages=lacking)
        python = create(home, given, "station", f"station-{sysconfig.get_config_var('py_version_nodot')}")
    for stack in offer.get("stacks") or []:
        say(phase="building", packages=[stack])
        create(home, given, stack, stack)
    return keep([python, *offer["command"]], given, time.monotonic() - began, ticket)


CREATE = """import sys
from steelyard.engine import envs
stack, name = sys.argv[1:]
print(next((env for env in envs.listing() if env.name == name and not env.trouble), None) or envs.create(stack, name), file=sys.stderr)
print(envs.find(name).python)
"""


def create(home: Path, given: dict[str, str], stack: str, name: str) -> str:
    """Return an environment's interpreter; create it as `steelyard env create` does if it does not exist, once for all stations."""
    with (home / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([sys.executable, "-P", "-c", CREATE, stack, name], env=given, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise Unfit(
            f"environment {stack} could not be built there (see above)",
            "it needs python3-venv and a package registry; or name a Python that has numpy, msgspec and click: python = …",
        )
    return done.stdout.decode().strip().splitlines()[-1]


def keep(command: list[str], given: dict[str, str], seconds: float, ticket: bytes | None) -> int:
    """Run the station and adopt the processes it leaves behind; end them all when it ends, our input ends, or a signal comes."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    ends, told = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(told, b"x"))
    stdin = None if ticket is None else subprocess.PIPE
    station = subprocess.Popen(command, env=given, stdin=stdin, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
    if station.stdin and ticket:
        with contextlib.suppress(BrokenPipeError):
            station.stdin.write(ticket)
            station.stdin.flush()
    say(started=station.pid, seconds=seconds, host=socket.gethostname())
    watched = select.poll()
    watched.register(ends, select.POLLIN)
    watched.register(os.pidfd_open(station.pid), select.POLLIN)
    if ticket is None:
        watched.register(0, select.POLLHUP | select.POLLRDHUP)
    leaving = 0.0
    while station.poll() is None and not (leaving and time.monotonic() > leaving):
        for fd, _ in watched.poll(1000 if leaving else None):
            watched.unregister(fd)
            leaving = leaving or time.monotonic() + FAREWELL
            if fd == ends:
                station.terminate()
    if station.poll() is None:
        station.kill()
    code = station.wait()
    end_rest()
    say(ended=code)
    return code if code >= 0 else 128 - code


def die_with_parent() -> None:
    """Make sure that the station ends with this process."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def end_rest() -> None:
    """Kill and reap all our descendants, repeatedly while new ones appear."""
    for _ in range(1000):
        found = below(os.getpid())
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(-1, 0)


def below(root: int) -> list[int]:
    """Return the descendants of a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found - {root})
        found |= more


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
