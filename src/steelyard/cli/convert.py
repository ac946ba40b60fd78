"""`steelyard convert`: another tool's config as a Steelyard experiment file."""

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

CONFIG = "config"


@click.command("convert", context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here (.toml or .json) instead of to stdout.")
@click.option(
    "--file", "files", multiple=True, metavar="FILE.py", help="Python file with the iterators and generators that the config names."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--to", "form", metavar="FORM", help="For results: the format to write. For a trace: 'config' writes an experiment file.")
@click.option("--step", type=int, metavar="N", help="For a trace: the step at this position, from 0.")
@click.option(
    "--subgraph", default="", metavar="NAME", help="For a trace: only the first node whose name contains NAME, with its children."
)
def command(file: Path, output: Path | None, files: tuple[str, ...], force: bool, form: str | None, step: int | None, subgraph: str) -> int:
    """Turn another tool's config (recognised by content) into an experiment file that 'steelyard run' takes, or with --to convert results
    to another tool's format: TorchAO's CSV, TritonBench's JSON and others to records of the PyTorch OSS benchmark database. Parts that
    cannot be converted (unknown operators, shapes that do not fit) are listed, one line each, and left out; the exit code is then 3. From
    an execution trace it writes each distinct call of a step once, weighted by how often it occurs; running that file predicts how long the
    step takes.

    \b
    steelyard convert gemm.json -o gemm.toml
    steelyard convert results.csv --to v3 -o results.json
    steelyard convert trace.json --to config -o step.toml
    """
    from steelyard.traces.reading import is_trace

    if is_trace(file):
        return _trace(file, form or CONFIG, output, step, subgraph, force=force)
    if step is not None or subgraph or form == CONFIG:
        raise UsageError(f"{file} is not an execution trace", why="--step, --subgraph and --to config are for traces", do="leave them out")
    if form:
        return _results(file, form, output, force=force)
    if file.suffix.lower() == ".csv":
        raise UsageError(
            f"{file} is not a config",
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


def _trace(file: Path, form: str, output: Path | None, step: int | None, subgraph: str, *, force: bool) -> int:
    """Write the calls of a step as a Steelyard experiment or a dialect's config; calls that a config cannot express are listed."""
    from steelyard import registry
    from steelyard.traces import benchmarks
    from steelyard.traces.steps import read_trace

    parts = {dialect.name: importlib.import_module(dialect.convert) for dialect in registry.dialects() if dialect.convert}
    writers = {name: part.of_trace for name, part in parts.items() if hasattr(part, "of_trace")}
    if form != CONFIG and form not in writers:
        raise unknown("format for traces", form, [CONFIG, *writers])
    trace = read_trace(file, step, subgraph)
    calls, left_out = benchmarks.callable_calls(trace)
    for line in left_out:
        complain(line)
    if not calls:
        raise _nothing(file)
    if form != CONFIG:
        text = writers[form](calls)
    else:
        experiment = benchmarks.experiment(trace, calls)
        comment = f"From the execution trace {file.name}: {experiment.description}"
        text = _written(replace(experiment, description=""), comment, file.name.removesuffix(".gz").removesuffix(".json"), output)
    _keep_other_files(output, force=force)
    hand_out(text, output, f"{number_of(len(calls), 'call')} of {sum(call.count for call in calls)}", f"steelyard run {output}")
    return FAILED if left_out else PASS


def _results(file: Path, form: str, output: Path | None, *, force: bool) -> int:
    """Write another tool's results in a dialect's format."""
    from steelyard import registry

    parts = {dialect.name: importlib.import_module(dialect.export) for dialect in registry.dialects() if dialect.export}
    writers = {name: part.text_of for name, part in parts.items() if hasattr(part, "text_of")}
    if form not in writers:
        raise unknown("format for results", form, writers)
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
            raise UsageError(f"{output} exists", do="choose another name, or --force to overwrite it")
    except OSError as error:
        raise UsageError(f"cannot write {output}", why=error.strerror or str(error)) from error
