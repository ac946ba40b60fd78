"""A dialect: the name of another system, and where the parts of its translator are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A command below `steelyard as`: its name there, its line of help, and the click command as `package.module:attribute`."""

    name: str
    doc: str
    command: str


@dataclass(frozen=True)
class Dialect:
    """A translator of another system's configs and results; each part is `package.module`, imported when it is needed, or empty.

    `config` reads its config files: `recognise(path)`, `kind` for messages, `read(path, files, place, device)`, which gives an
    Experiment, and, if one can name entry points, `packages(path)` for those. `convert` has `tidy(experiment)`, for a dialect whose
    experiments are to be written into a file in another way than they are read, and, if it can, `of_trace(calls)`, which is a config of
    the calls of a recorded step. `results` reads its result files:
    `lines(content, name)` for those that are no single JSON text, `fits(data)`, and `read(data, path)`, which gives sources as
    `analyze.foreign` has them. `export` writes a saved run as such a file: `text(run)`, and, if it can,
    what lies in another tool's result file: `text_of(path)`. `names` has `serve()`, which makes the original's import names ours in a
    process that runs users' files written for it.

    `command` is the click command or group behind `steelyard as NAME`, as `package.module:attribute`; `programs` are further ones
    with names of their own.
    """

    name: str
    doc: str
    config: str = ""
    results: str = ""
    command: str = ""
    convert: str = ""
    export: str = ""
    names: str = ""
    programs: tuple[Program, ...] = ()

    def commands(self) -> Iterator[Program]:
        """The commands below `steelyard as` that the dialect adds."""
        if self.command:
            yield Program(self.name, self.doc, self.command)
        yield from self.programs
