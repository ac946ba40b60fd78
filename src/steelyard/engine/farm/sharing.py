"""Writes what stations need into a folder that their hosts share with us, for `arriving.py` to read there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from steelyard.engine.farm import arriving, hosting
from steelyard.engine.farm.launchers import Invitation


def lay_out(folder: Path, invitation: Invitation, variables: Mapping[str, str], stacks: Sequence[str], *, foreign: bool) -> None:
    """Write our code, the program that supervises a station, and its orders; for a foreign interpreter, also the packages it may lack."""
    cargo = hosting.pack(invitation, variables, stacks, hosting.NEEDED if foreign else ())
    home = folder / "code"
    home.mkdir(mode=0o700)
    for parcel in (cargo.code, *cargo.packages.values()):
        arriving.unpack(home, parcel.digest, parcel.file.read_bytes())
    (folder / "station.pyz").write_bytes(hosting.program())
    (folder / "orders.json").write_text(json.dumps(cargo.offer(str(home))), encoding="utf-8")
