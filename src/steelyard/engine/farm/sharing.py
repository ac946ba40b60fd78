"""What stations need, laid out in a folder that their hosts share with us, as `arriving.py` reads it there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from steelyard.engine.farm import arriving, hosting
from steelyard.engine.farm.launchers import Invitation


def lay_out(folder: Path, invitation: Invitation, variables: Mapping[str, str], stacks: Sequence[str], *, foreign: bool) -> None:
    """Our code, the program that keeps a station and its orders; a foreign interpreter gets what it may lack too."""
    cargo = hosting.pack(invitation, variables, stacks, hosting.NEEDED if foreign else ())
    home = folder / "code"
    home.mkdir(mode=0o700)
    for parcel in (cargo.code, *cargo.packages.values()):
        arriving.unpack(home, parcel.digest, parcel.file.read_bytes())
    (folder / "station.pyz").write_bytes(hosting.program())
    (folder / "orders.json").write_text(json.dumps(cargo.offer(str(home))), encoding="utf-8")
