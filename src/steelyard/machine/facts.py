"""Facts about this machine that go into every run, so that a reader can judge a number and knows what may be compared."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from steelyard.machine import cpu, nvidia
from steelyard.machine.cpu import ROOT, attempt, number, read
from steelyard.version import __version__

PACKAGES = ("numpy", "torch", "jax", "tensorflow", "triton", "torchao", "transformers")
COMPILERS = ("g++", "gcc", "clang")
PATIENCE_S = 3.0

_UNLIMITED = 2**60
_GUESTS = {
    "kvm": "KVM guest",
    "vmware": "VMware guest",
    "virtualbox": "VirtualBox guest",
    "hyperv": "Hyper-V guest",
    "xen": "Xen guest",
    "wsl": "WSL",
    "unknown": "virtual machine",
}


def collect(cwd: Path | None = None, *, root: Path = ROOT) -> dict[str, Any]:
    """All facts as plain JSON; what cannot be read is null, and nothing here raises or hangs."""
    return {
        "cpu": cpu.collect(root),
        "memory": memory(root),
        "cgroup": cgroup(root),
        "os": system(root),
        "load": attempt(load, root),
        "python": {"version": sys.version.split()[0], "implementation": sys.implementation.name},
        "compilers": {name: attempt(compiler, name) for name in COMPILERS},
        "packages": packages(),
        "gpus": attempt(nvidia.gpus) or [],
        "git": attempt(lambda: git(cwd or Path.cwd())),
    }


def key(facts: dict[str, Any]) -> str:
    """Twelve digits that are equal if two machines may be compared: made only from facts that survive a reboot."""
    chip, ram, gpus = _part(facts, "cpu"), _part(facts, "memory"), facts.get("gpus") or []
    lasting = {
        "model": chip.get("model"),
        "cpus": chip.get("cpus"),
        "cores": chip.get("cores"),
        "caches": chip.get("caches"),
        "virtual": chip.get("virtual"),
        "memory": round(ram["total"] / 2**30) if ram.get("total") else None,
        "kernel": _kernel(facts),
        "gpus": [[gpu.get("name"), gpu.get("driver")] for gpu in gpus],
    }
    text = json.dumps(lasting, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def summary(facts: dict[str, Any]) -> str:
    """One line for the head of a table: `AMD EPYC · 2 cores · Linux 6.18 · KVM guest`."""
    chip = _part(facts, "cpu")
    count, quota = chip.get("cores") or chip.get("cpus"), _part(facts, "cgroup").get("cpu_quota")
    noun = ("core" if chip.get("cores") else "CPU") + ("" if count == 1 else "s")
    parts = [
        *_gpu_names(facts),
        _short(chip.get("model") or chip.get("arch") or "unknown CPU"),
        f"{count} {noun}" if count else "",
        f"quota {quota:g}" if quota else "",
        " ".join(filter(None, (_part(facts, "os").get("system"), _kernel(facts)))),
        _GUESTS.get(chip.get("virtual") or "", ""),
    ]
    return " · ".join(part for part in parts if part)


def memory(root: Path = ROOT) -> dict[str, int | None]:
    """Bytes of memory and swap."""
    lines = (line.partition(":") for line in (read(root, "proc/meminfo") or "").splitlines())
    table = {name.strip(): int(rest.split()[0]) * 1024 for name, _, rest in lines if rest.split() and rest.split()[0].isdigit()}
    total = table.get("MemTotal") or attempt(lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    swap, free = table.get("SwapTotal"), table.get("SwapFree")
    used = swap - free if swap is not None and free is not None else None
    return {"total": total, "available": table.get("MemAvailable"), "swap_total": swap, "swap_used": used}


def cgroup(root: Path = ROOT) -> dict[str, Any]:
    """The limits that a container or service manager set for this process; the tightest of all its groups."""
    quotas, limits, throttles = [], [], []
    for directory in attempt(lambda: list(_groups(root))) or []:
        quotas.append(_quota(directory))
        limits += [number(directory, "memory.max"), number(directory, "memory.limit_in_bytes")]
        throttles.append(_throttling(directory))
    quota = min((value for value in quotas if value is not None), default=None)
    limit = min((value for value in limits if value is not None and 0 <= value < _UNLIMITED), default=None)
    periods, throttled = max((pair for pair in throttles if pair), key=lambda pair: pair[1], default=(None, None))
    return {"cpu_quota": quota, "memory_limit": limit, "periods": periods, "throttled": throttled}


def _groups(root: Path) -> Iterator[Path]:
    mounted = root / "sys/fs/cgroup"
    for line in (read(root, "proc/self/cgroup") or "0::/").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and not {"cpu", "memory"} & set(controllers.split(",")):
            continue
        names = [controllers, *controllers.split(",")] if controllers else ["unified", ""]
        top = next((mounted / name for name in names if (mounted / name).is_dir()), mounted)
        steps = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
        yield from (top.joinpath(*steps[:depth]) for depth in range(len(steps), -1, -1))


def _quota(directory: Path) -> float | None:
    words = (read(directory, "cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    allowed, period = number(directory, "cpu.cfs_quota_us"), number(directory, "cpu.cfs_period_us")
    return allowed / period if allowed and period and allowed > 0 else None


def _throttling(directory: Path) -> tuple[int, int] | None:
    words = (line.split() for line in (read(directory, "cpu.stat") or "").splitlines())
    table = {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}
    return (table["nr_periods"], table["nr_throttled"]) if {"nr_periods", "nr_throttled"} <= table.keys() else None


def system(root: Path = ROOT) -> dict[str, str | None]:
    """Kernel, distribution and C library."""
    return {
        "system": attempt(lambda: os.uname().sysname),
        "kernel": read(root, "proc/sys/kernel/osrelease") or attempt(lambda: os.uname().release),
        "distro": release(root).get("PRETTY_NAME"),
        "libc": attempt(os.confstr, "CS_GNU_LIBC_VERSION") or ("musl" if attempt(lambda: any((root / "lib").glob("ld-musl-*"))) else None),
    }


def release(root: Path = ROOT) -> dict[str, str]:
    """The fields of os-release, which describe the distribution."""
    text = read(root, "etc/os-release") or read(root, "usr/lib/os-release") or ""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, sign, value in pairs if sign}


def load(root: Path = ROOT) -> list[float]:
    """Runnable tasks averaged over 1, 5 and 15 minutes."""
    text = read(root, "proc/loadavg")
    return [float(word) for word in text.split()[:3]] if text else list(os.getloadavg())


def compiler(name: str) -> str | None:
    """The first line of a compiler's `--version`; None if it is not installed."""
    said = ask(name, "--version")
    return said.splitlines()[0].strip() if said else None


def packages() -> dict[str, str | None]:
    """Versions of packages from their metadata, Steelyard's from the running code; importing a framework here would take seconds."""
    return {"steelyard": __version__, **{name: attempt(importlib.metadata.version, name) for name in PACKAGES}}


def git(cwd: Path) -> dict[str, Any] | None:
    """Commit, branch and whether files are changed: one call of git, without locks, hooks or monitors of the repository."""
    options = ["-c", "core.fsmonitor=false", "--no-optional-locks", "-C", str(cwd)]
    said = ask("git", *options, "status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=dirty")
    if said is None:
        return None
    lines = said.splitlines()
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit, branch = heads.get("branch.oid"), heads.get("branch.head")
    return {
        "commit": None if commit == "(initial)" else commit,
        "branch": None if branch == "(detached)" else branch,
        "dirty": any(not line.startswith("#") for line in lines),
    }


def tracked(folder: Path) -> bool:
    """Whether git tracks any file in a folder."""
    return bool(ask("git", "-C", str(folder), "ls-files", "--", "."))


def ask(name: str, *words: str, patience: float = PATIENCE_S) -> str | None:
    """The output of a program; None if it is not installed or fails."""
    tool = shutil.which(name)
    if tool is None:
        return None
    env = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(
        [tool, *words], capture_output=True, text=True, errors="replace", timeout=patience, stdin=subprocess.DEVNULL, env=env, check=False
    )
    return done.stdout if done.returncode == 0 else None


def _part(facts: dict[str, Any], name: str) -> dict[str, Any]:
    return facts.get(name) or {}


def _kernel(facts: dict[str, Any]) -> str | None:
    found = re.match(r"\d+(\.\d+)?", _part(facts, "os").get("kernel") or "")
    return found.group() if found else None


def _gpu_names(facts: dict[str, Any]) -> list[str]:
    names = [str(gpu.get("name")).removeprefix("NVIDIA ") for gpu in facts.get("gpus") or []]
    return [name if names.count(name) == 1 else f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]


def _short(model: str) -> str:
    plain = re.sub(r"\((R|TM|C)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@.*", " ", model)
    return " ".join(plain.split()) or model
