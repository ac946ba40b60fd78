"""Proof that a run was written by this user and not changed since, so that users need not confirm their own runs. A run file can come from
anywhere, and holds things that can be executed: programs, users' files, environment variables. Every seal therefore carries a keyed digest
of the lines before it. The key is never in a store, which may be copied or shared.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from pathlib import Path

VARIABLE = "STEELYARD_KEY"
FILE = "run.key"
LEAST, MOST = 16, 4096


def place() -> Path:
    """The path of the key file: STEELYARD_KEY, which machines that share an archive set, else a file of this user's own."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "steelyard" / FILE


def sign(digest: str) -> str:
    """The proof of a digest; empty if no key can be saved, in which case the run needs consent like any other."""
    key = _key(make=True)
    return hmac.digest(key, digest.encode(), "sha256").hex() if key else ""


def holds(digest: str, proof: str) -> bool:
    """Whether a proof was made with our key."""
    key = _key() if digest and proof else b""
    return bool(key) and hmac.compare_digest(hmac.digest(key, digest.encode(), "sha256").hex().encode(), proof.encode("utf-8", "replace"))


def _key(make: bool = False) -> bytes:
    try:
        file = place()
        if make and not os.environ.get(VARIABLE) and not file.exists():
            _make(file)
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as held:
            found = held.read(MOST)
    except (OSError, RuntimeError):
        return b""
    return found if len(found) >= LEAST else b""


def _make(file: Path) -> None:
    """Make a key for the first run; of two processes that make one at once, the first wins, and no reader sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as held:
            held.write(secrets.token_bytes(32))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)
