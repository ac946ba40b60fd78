"""A certificate for one run, made by the `openssl` program: connections to other machines are encrypted, and stations trust only it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from steelyard.errors import UsageError

DAYS = "30"


def made_for(address: str) -> tuple[str, str]:
    """Return a self-signed certificate and its key, both as PEM; the key is on the disk for a moment, in a private folder."""
    program = shutil.which("openssl")
    if program is None:
        raise UsageError(
            "connections beyond this machine need a certificate", why="there is no openssl", do="install it: apt-get install openssl"
        )
    with tempfile.TemporaryDirectory(prefix="steelyard-") as folder:
        key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
        words = [
            program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS,
            "-subj", "/CN=steelyard", "-addext", f"subjectAltName=IP:{address}", "-keyout", str(key), "-out", str(certificate),
        ]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise UsageError("no certificate could be made", why=done.stderr.strip()[-300:], do="check the openssl of this machine")
        return certificate.read_text(encoding="ascii"), key.read_text(encoding="ascii")
