"""Fake /proc and /sys trees, so that machines we do not have can be read."""

from __future__ import annotations

from pathlib import Path

XEON = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz
cpu MHz\t\t: {mhz}
physical id\t: 0
core id\t\t: 0
flags\t\t: sse2 avx2 amx_bf16{more}

processor\t: 1
model name\t: Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz
cpu MHz\t\t: {mhz}
physical id\t: 0
core id\t\t: 0
flags\t\t: sse2 avx2 amx_bf16{more}
"""
MEMINFO = "MemTotal: 16384000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n"
CPUS = "sys/devices/system/cpu"


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write the files of a fake machine under a root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def xeon(root: Path, *, mhz: str = "2000.000", available: int = 8192000, load: str = "0.10 0.20 0.30 1/100 1", more: str = "") -> Path:
    """One core with two threads on bare metal, or a guest with `more=" hypervisor"`."""
    return plant(
        root,
        {
            "proc/cpuinfo": XEON.format(mhz=mhz, more=more),
            "proc/meminfo": MEMINFO.format(available=available),
            "proc/loadavg": load,
            "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
            "etc/os-release": 'ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
            f"{CPUS}/online": "0-1\n",
            f"{CPUS}/smt/active": "1\n",
            f"{CPUS}/cpu0/cache/index0/level": "1\n",
            f"{CPUS}/cpu0/cache/index0/type": "Data\n",
            f"{CPUS}/cpu0/cache/index0/size": "48K\n",
            f"{CPUS}/cpu0/cache/index1/level": "1\n",
            f"{CPUS}/cpu0/cache/index1/type": "Instruction\n",
            f"{CPUS}/cpu0/cache/index1/size": "32K\n",
            f"{CPUS}/cpu0/cache/index2/level": "2\n",
            f"{CPUS}/cpu0/cache/index2/type": "Unified\n",
            f"{CPUS}/cpu0/cache/index2/size": "2M\n",
        },
    )
