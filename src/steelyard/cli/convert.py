"""`steelyard convert`: another tool's config as an experiment file of ours."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import click

from steelyard.cli.output import CONTEXT
from steelyard.cli.streams import complain
from steelyard.errors import FAILED, PASS, Mistakes, UsageError, parts_of, unknown
from steelyard.model.experiment import Experiment
from steelyard.model.units import number_of
from steelyard.terminal import hand_out


@click.command("convert", context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here (.toml or .json) instead of to stdout.")
@click.option("--file", "files", multiple=True, metavar="FILE.py", help="Load iterators and generators that the config names from here.")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
@click.option("--to", "form", metavar="DIALECT", help="Of results: whose format to write them in; the examples have one.")
def command(file: Path, output: Path | None, files: tuple[str, ...], force: bool, form: str | None) -> int:
    """Turn another tool's config (recognised by content) into an experiment file that 'steelyard run' takes, or with --to its results into
    those of another tool: TorchAO's CSV, TritonBench's JSON and others into records of the PyTorch OSS benchmark database.

    Parts of it that are wrong, unknown operators and shapes that do not fit among them, are named, a line each, and left out; the
    exit code is then 3.

    \b
    steelyard convert gemm.json -o gemm.toml
    steelyard convert results.csv --to v3 -o results.json
    """
    if form:
        return _results(file, form, output, force=force)
    if file.suffix.lower() == ".csv":
        raise UsageError(
            f"{file} is no config",
            why="a CSV file holds results",
            do="--to DIALECT writes them in another tool's format: steelyard convert --help",
        )
    from steelyard.cli.check import shape_words
    from steelyard.engine import check, conduct, configs
    from steelyard.engine.selection import Request
    from steelyard.store.runs import Store

    try:
        experiment, kind, tidy = configs.converted(file, tuple(str(Path(name).resolve()) for name in files))
    except Mistakes as error:
        for part in parts_of(error):
            complain(str(part))
        raise _nothing(file) from None
    for line in experiment.mistakes:
        complain(line)
    if not (experiment.matrix or experiment.rows):
        raise _nothing(file)
    shapes, wrong = check.misfits(conduct.prepare(Request(selectors=(str(file), *files)), Store.find()))
    for line in dict.fromkeys(wrong.values()):
        complain(line)
    for line in shape_words(shapes):
        click.echo(line, err=True)
    left = tuple(matrix for matrix in experiment.matrix if matrix.label not in wrong)
    if not (left or experiment.rows):
        raise _nothing(file)
    text = _written(tidy(replace(experiment, matrix=left)), f"From the {kind} {file.name}.", file.stem, output)
    _keep_other_files(output, force=force)
    hand_out(text, output, number_of(len(left) + len(experiment.rows), "config"), f"steelyard run {output} --dry-run")
    return FAILED if experiment.mistakes or wrong else PASS


def _results(file: Path, form: str, output: Path | None, *, force: bool) -> int:
    """Another tool's results in a dialect's format."""
    from steelyard import registry

    parts = {dialect.name: importlib.import_module(dialect.export) for dialect in registry.dialects() if dialect.export}
    writers = {name: part.text_of for name, part in parts.items() if hasattr(part, "text_of")}
    if form not in writers:
        raise unknown("dialect that results can be written in", form, writers)
    text: str = writers[form](file)
    _keep_other_files(output, force=force)
    hand_out(text, output, file.name)
    return PASS


def _nothing(file: Path) -> UsageError:
    return UsageError(f"nothing in {file} can be converted")


def _written(experiment: Experiment, comment: str, name: str, output: Path | None) -> str:
    import json

    from steelyard.codec import toml

    experiment = replace(experiment, name=name, files=())
    if output is not None and output.suffix not in (".toml", ".json"):
        raise UsageError(f"cannot tell the format of {output}", do="experiment files end in .toml or .json")
    if output is None or output.suffix == ".toml":
        return toml.write_experiment(experiment, comment)
    return json.dumps(toml.plain_experiment(experiment), indent=1) + "\n"


def _keep_other_files(output: Path | None, *, force: bool) -> None:
    try:
        if output is not None and output.exists() and not force:
            raise UsageError(f"{output} exists", do="give another name, or --force to overwrite it")
    except OSError as error:
        raise UsageError(f"cannot write {output}", why=error.strerror or str(error)) from error
