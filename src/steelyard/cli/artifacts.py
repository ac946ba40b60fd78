"""`steelyard artifacts`: exported programs with their inputs and outputs, making, listing, publishing and fetching them."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import reduce
from steelyard.cli.output import CONTEXT, emit_json, find_store, json_option, store_option, tell
from steelyard.dialects.commands import Names
from steelyard.errors import FAILED, PASS, SteelyardError, UsageError, told
from steelyard.terminal import put_line

if TYPE_CHECKING:
    from steelyard.artifacts.manifest import ArtifactSet
    from steelyard.engine.exporting import ExportOutcome

FOLDER = click.Path(path_type=Path)


class ArtifactCommands(Names):
    """Subcommands of `steelyard artifacts`."""

    kind = "command of artifacts"


@click.group("artifacts", cls=ArtifactCommands, context_settings=CONTEXT)
def command() -> None:
    """Exported programs: StableHLO, HLO, linalg, TOSA, SavedModel, TFLite, torch.export and ONNX, with inputs and outputs.

    \b
    steelyard artifacts make model/mlp -a size=small -B torch,jax -o exported
    steelyard artifacts verify exported
    """


@command.command("make", context_settings=CONTEXT)
@click.argument("words", nargs=-1, required=True, metavar="SELECTOR…")
@click.option("-o", "--output", type=FOLDER, required=True, metavar="DIR", help="Folder to write to; each case gets a subfolder.")
@click.option("--only", multiple=True, metavar="KIND", help="Only these programs: stablehlo_mlir, tflite_int8, stablehlo_mlir:vhlo, …")
@click.option("-a", "--axis", "axes", multiple=True, metavar="NAME=VALUES", help="Values of an axis, as for run.")
@click.option("-B", "--backend", "backends", multiple=True, metavar="LIST", help="Frameworks: torch, jax, tensorflow.")
@click.option("-V", "--variant", "variants", multiple=True, metavar="LIST", help="Variants; those that compile are left out.")
@click.option("--env", metavar="NAME", help="Make them in this environment, from steelyard env create.")
@click.option("--seed", type=click.IntRange(0), help="Seed of all data and weights.")
@click.option("--timeout", metavar="TIME", default="1h", show_default=True, help="Limit for one program.")
@click.option("--again", is_flag=True, help="Also export programs again that exist and are intact.")
@store_option
@json_option
def make(**options: Any) -> int:
    """Export the cases of SELECTOR… as programs on disk, with the inputs and outputs that they are verified by.

    Files in DIR that match their manifest are kept. If an exporter is missing, the command that installs it is printed.
    """
    from steelyard.cli.run import comma_list, read_axes
    from steelyard.engine import conduct, exporting
    from steelyard.engine.selection import Request
    from steelyard.exporters.ways import check_kinds
    from steelyard.model.units import parse_seconds
    from steelyard.terminal import heed_signals

    only, settings = comma_list(options["only"]), {} if options["seed"] is None else {"seed": options["seed"]}
    check_kinds(only)
    request = Request(
        selectors=options["words"], axes=read_axes(options["axes"]), backend=comma_list(options["backends"]),
        variant=comma_list(options["variants"]), env=options["env"], settings=settings,
    )  # fmt: skip
    ready = conduct.prepare(request, find_store(options["store"]))
    heed_signals()
    targets = exporting.targets_of(ready, only)
    found = []
    for outcome in exporting.make(targets, ready, options["output"], _progress, parse_seconds(options["timeout"]), options["again"]):
        found.append(outcome)
        for line in exporting.told_outcome(outcome) if not options["as_json"] else ():
            put_line(line)
    if options["as_json"]:
        emit_json([as_data(item) for item in found])
    return exporting.code_of(found)


def _progress(name: str, program: str) -> None:
    if program:
        tell(f"  {name}: {program}")


def as_data(outcome: ExportOutcome) -> dict[str, Any]:
    """An outcome as plain data for JSON."""
    from steelyard.terminal import plain

    held = outcome.held
    parts = {"programs": plain(held.programs), "missing": plain(held.missing)} if held else {}
    return {"name": outcome.name, "status": outcome.status, "folder": str(outcome.folder), "reason": outcome.reason, **parts}


def folders_in(place: Path) -> list[Path]:
    """The artifact folders at a place: the folder itself, or its subfolders."""
    from steelyard.artifacts.manifest import NAME
    from steelyard.files import unreadable

    if (place / NAME).exists():
        return [place]
    try:
        found = sorted(path.parent for path in place.glob(f"*/{NAME}") if not path.parent.name.startswith("."))
    except OSError as error:
        raise unreadable(place, error) from None
    if not found:
        what = f"no artifacts in {place}" if place.is_dir() else f"there is no folder {place}"
        raise UsageError(what, do="make some: steelyard artifacts make SELECTOR -o DIR")
    return found


def manifests_in(place: Path) -> dict[Path, ArtifactSet]:
    """The manifest of each folder; a folder whose manifest cannot be read is reported and skipped."""
    from steelyard.artifacts import manifest

    found, broken = dict[Path, Any](), list[SteelyardError]()
    for path in folders_in(place):
        try:
            found[path] = manifest.read(path)
        except SteelyardError as error:
            broken.append(error)
    if broken and not found:
        raise broken[0]
    for trouble in broken:
        tell(f"error: {told(trouble)}")
    return found


def code_of(place: Path, found: Sized) -> int:
    """The exit code; not 0 if a folder's manifest could not be read."""
    return FAILED if len(found) < len(folders_in(place)) else PASS


@command.command("list", context_settings=CONTEXT)
@click.argument("place", type=FOLDER, metavar="DIR")
@json_option
def listing(place: Path, as_json: bool) -> int:
    """List DIR: a line for each model with its kinds of programs."""
    found = manifests_in(place)
    if as_json:
        emit_json([{"folder": str(path), **_summary(held)} for path, held in found.items()])
        return code_of(place, found)
    for held in found.values():
        put_line(f"{held.name}  {held.producer.framework}  {', '.join(_summary(held)['programs']) or 'no programs'}")
    return code_of(place, found)


def _summary(held: ArtifactSet) -> dict[str, Any]:
    return {
        "name": held.name, "framework": held.producer.framework, "source": held.producer.source,
        "programs": [f"{item.kind}:{item.form}" for item in held.programs], "bytes": sum(item.bytes for item in held.files),
    }  # fmt: skip


@command.command("show", context_settings=CONTEXT)
@click.argument("place", type=FOLDER, metavar="DIR")
@json_option
def show(place: Path, as_json: bool) -> int:
    """Print the whole manifest of each model in DIR."""
    from steelyard.engine.exporting import told_programs

    found = manifests_in(place)
    for held in found.values():
        if as_json:
            emit_json(held)
            continue
        put_line(f"{held.name}  {held.producer.source}")
        put_line(f"made by {', '.join(f'{name} {version}' for name, version in held.producer.versions.items())}", "  ")
        for what, items in (("input", held.inputs), ("output", held.outputs), ("weight", held.weights)):
            for item in items:
                put_line(f"{what:28} {item.dtype:10} {'x'.join(map(str, item.shape)) or 'scalar':>10}  {item.name}", "  ")
        for line in told_programs(held):
            put_line(line)
    return code_of(place, found)


@command.command("verify", context_settings=CONTEXT)
@click.argument("place", type=FOLDER, metavar="DIR")
@json_option
def verify(place: Path, as_json: bool) -> int:
    """Check every file in DIR against the hash in its manifest; exit 3 if one is missing, truncated, changed or not listed."""
    from steelyard.artifacts import manifest

    def troubles_of(path: Path) -> list[str]:
        try:
            return manifest.check(path, manifest.read(path))
        except SteelyardError as error:
            return [told(error)]

    troubles = {str(path): troubles_of(path) for path in folders_in(place)}
    if as_json:
        emit_json(troubles)
    for path, lines in troubles.items() if not as_json else ():
        put_line(f"{path}  {'ok' if not lines else f'{len(lines)} wrong'}")
        for line in lines:
            put_line(line, "  ")
    return FAILED if any(troubles.values()) else PASS


@command.command("publish", context_settings=CONTEXT)
@click.argument("place", type=FOLDER, metavar="DIR")
@click.argument("url")
@json_option
def publish(place: Path, url: str, as_json: bool) -> int:
    """Copy DIR to URL: a folder, or an s3 or gs address. Files are verified first; those already there are not sent again."""
    from steelyard.artifacts import remote

    sent = remote.publish(folders_in(place), url, lambda line: tell(f"  {line}"))
    if as_json:
        emit_json(sent)
    for address in sent if not as_json else ():
        put_line(address)
    return PASS


@command.command("fetch", context_settings=CONTEXT)
@click.argument("url")
@click.option("-o", "--output", type=FOLDER, default=Path("artifacts"), show_default=True, metavar="DIR", help="Where folders are put.")
@json_option
def fetch(url: str, output: Path, as_json: bool) -> int:
    """Get artifacts from URL (a folder, http, https, s3, gs) into DIR, every file checked by its hash.

    Files are kept by content (STEELYARD_ARTIFACTS), so that nothing is fetched twice; an interrupted fetch resumes. An archive (.tgz, .zip)
    needs its hash in the URL: URL#sha256=…
    """
    from steelyard.artifacts import remote

    made = remote.fetch(url, output, lambda line: tell(f"  {line}"))
    if as_json:
        emit_json([str(path) for path in made])
    for path in made if not as_json else ():
        put_line(str(path))
    return PASS


command.add_command(reduce.command)
