"""`steelyard convert`: another tool's config as an experiment file of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from steelyard.cli.streams import complain
from steelyard.errors import FAILED, PASS, UsageError


@click.command("convert", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here (.toml or .json) instead of to stdout.")
@click.option("--file", "files", multiple=True, metavar="FILE.py", help="Load iterators and generators that the config names from here.")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def command(file: Path, output: Path | None, files: tuple[str, ...], force: bool) -> int:
    """Turn a PARAM config (recognised by content) into an experiment file that 'steelyard run' takes.

    Parts of it that are wrong, unknown operators and shapes that do not fit among them, are named, a line each, and left out; the
    exit code is then 3.

    \b
    steelyard convert gemm.json -o gemm.toml
    """
    from steelyard.cli.check import shape_words
    from steelyard.dialects.param import config, native, reading
    from steelyard.engine import check, conduct
    from steelyard.engine.selection import Request
    from steelyard.store.runs import Store

    if not config.recognise(file):
        reading.read(file)
        raise UsageError(f"cannot tell what {file} is", why="PARAM configs are what can be converted so far", do="see docs/howto")
    sheet = config.sheet(file, tuple(str(Path(name).resolve()) for name in files))
    for mistake in sheet.mistakes:
        complain(str(mistake))
    wrong: dict[str, str] = {}
    if sheet.configs:
        ready = conduct.prepare(Request(selectors=(str(file), *files)), Store.find())
        shapes, wrong = check.misfits(ready)
        for line in dict.fromkeys(wrong.values()):
            complain(line)
        for line in shape_words(shapes):
            click.echo(line, err=True)
        sheet = replace(sheet, configs=tuple(config for config in sheet.configs if config.full_id not in wrong))
    if not sheet.configs:
        raise UsageError(f"nothing in {file} can be converted")
    text = _written(native.gathered(sheet), file, output)
    if output is None:
        click.echo(text, nl=False)
    else:
        _save(text, output, force=force)
        count = f"{len(sheet.configs)} config{'' if len(sheet.configs) == 1 else 's'}"
        click.echo(f"{count} · saved {output}    next: steelyard run {output} --dry-run", err=True)
    return FAILED if sheet.mistakes or wrong else PASS


def _written(experiment: object, file: Path, output: Path | None) -> str:
    import json
    from dataclasses import replace

    from steelyard.codec import toml
    from steelyard.model.experiment import Experiment

    assert isinstance(experiment, Experiment)
    experiment = replace(experiment, name=file.stem, files=())
    if output is not None and output.suffix not in (".toml", ".json"):
        raise UsageError(f"cannot tell the format of {output}", do="experiment files end in .toml or .json")
    if output is None or output.suffix == ".toml":
        return toml.write_experiment(experiment, f"From the PARAM config {file.name}.")
    matrices = [{"workload": one.workload, "axes": one.axes} for one in experiment.matrix]
    return json.dumps({"name": experiment.name, "matrix": matrices}, indent=1) + "\n"


def _save(text: str, output: Path, *, force: bool) -> None:
    from steelyard.cli.output import save

    try:
        if output.exists() and not force:
            raise UsageError(f"{output} exists", do="give another name, or --force to overwrite it")
    except OSError as error:
        raise UsageError(f"cannot write {output}", why=error.strerror or str(error)) from error
    save(output, text)
