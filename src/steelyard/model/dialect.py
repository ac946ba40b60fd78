"""What the house knows of another system: its name, and where the parts of its translator are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """A translator of another system's configs and results; each part is `package.module`, imported when it is needed, or empty.

    `config` reads its config files: `recognise(path)`, `kind` for messages, `packages(path)` for the entry points that one names,
    and `read(path, files, place, device)`, which gives an Experiment. `results` reads its result files: `lines(content, name)` for
    those that are no single JSON text, `fits(data)`, and `read(data, path)`, which gives sources as `analyze.foreign` has them.
    """

    name: str
    doc: str
    config: str = ""
    results: str = ""
