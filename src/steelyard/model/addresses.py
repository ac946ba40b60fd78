"""Sources of a model's inputs as text, and the environment variables that say where a worker finds inputs."""

from __future__ import annotations

import re
from pathlib import Path

KEPT, CACHE, OFFLINE = "STEELYARD_INPUTS", "STEELYARD_INPUTS_CACHE", "STEELYARD_NO_DOWNLOAD"
"""Names of environment variables: where inputs are written to, where downloads are kept, and that downloads are off."""
RANDOM = re.compile(r"random:(\d{1,18})")
DIGEST = "#sha256="


def of_file(source: str, sha256: str) -> str:
    """The source text for a file or an http(s) address, with its hash."""
    return f"{source}{DIGEST}{sha256}"


def of_seed(seed: int) -> str:
    """The source text for random numbers like the model's own input."""
    return f"random:{seed}"


def variables(root: Path, *, keep: bool, download: bool) -> tuple[tuple[str, str], ...]:
    """A worker's environment variables for inputs that are kept below a folder; they do not affect results."""
    kept = ((KEPT, str(root)),) if keep else ()
    return ((CACHE, str(root / "inputs")), *kept, *(() if download else ((OFFLINE, "1"),)))
