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

    `config` reads the system's config files. It has `recognise(path)`, `kind` for messages, `read(path, files, place, device)`, which
    returns an Experiment, and, if a config can name entry points, `packages(path)`, which returns them. `convert` has `tidy(experiment)`,
    for experiments that are written to a file in another form than they are read, and optionally `of_trace(calls)`, which returns a config
    of the calls of a recorded step. `results` reads result files. It has `lines(content, name)` for files that are not a single JSON
    text, `fits(data)`, and `read(data, path)`, which returns sources as in `analyze.foreign`. `export` writes result files: `text(run)`
    from a saved run, and optionally `text_of(path)` from another tool's result file. `names` has `serve()`, which makes the original's
    import names load our modules, in a process that runs users' files written for the original.

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
