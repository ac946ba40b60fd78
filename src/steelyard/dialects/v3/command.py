"""`steelyard as v3`: check and upload files of the PyTorch OSS benchmark database, and apply HUD's rules to results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.dialects.commands import Names
from steelyard.dialects.v3.policy_command import policy
from steelyard.errors import FAILED, NOTHING, PASS, USAGE, Mistakes, UsageError, parts_of
from steelyard.model.units import number_of
from steelyard.terminal import CONTEXT, emit_json, save, say, tell, warn

if TYPE_CHECKING:
    from steelyard.dialects.v3.upload import Merging

PATHS = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
STRICT = click.option("--strict", is_flag=True, help="Refuse invalid records instead of skipping them with a warning.")
OUTPUT = click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here instead of to stdout.")
METADATA = click.option(
    "--metadata", metavar="JSON|FILE", help="Values from CI: timestamp, repo, head_branch, head_sha, workflow_id, job_id and so on."
)
RUNNERS = click.option("--runners", metavar="JSON|FILE", help="Machines, for records that have no key 'runners'.")
DEPENDENCIES = click.option("--dependencies", metavar="JSON|FILE", help="Versions, for records that have no key 'dependencies'.")


MOST_SHOWN = 50


class DatabaseCommands(Names):
    """Subcommands of `steelyard as v3`."""

    kind = "command of v3"


@click.group("v3", cls=DatabaseCommands, context_settings=CONTEXT)
def v3() -> None:
    """Files of the PyTorch OSS benchmark database, version 3: check, add CI's metadata, upload, judge by HUD's rules.

    \b
    steelyard export latest --to v3 -o results.json
    steelyard as v3 check results.json
    steelyard as v3 upload results --metadata metadata.json
    steelyard as v3 policy hud.toml results
    """


@v3.command("check", context_settings=CONTEXT)
@PATHS
@click.option("--complete", is_flag=True, help="Also require what CI adds, for a file that goes to the database as it is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
def check(paths: tuple[Path, ...], complete: bool, as_json: bool) -> int:
    """Check every record against the database's columns: types, names, sizes. Exits with 2 if anything is wrong, and with 5
    if there is no record.

    A PATH is a file (a JSON array, an object, or lines of either, plain or .gz) or a folder of .json and .json.gz files.

    \b
    steelyard as v3 check results.json
    steelyard as v3 check results --complete
    """
    from steelyard.dialects.v3 import reading, schema

    told: list[dict[str, Any]] = []
    for path in reading.files(paths):
        found = reading.read(path)
        wrong = [str(error) for error in found.trouble]
        for placed in found.found:
            wrong += [f"{placed.where}  {key}: {words}" for key, words in schema.mistakes(placed.record, complete=complete)]
        told.append({"file": str(path), "records": len(found.found), "mistakes": wrong})
    bad, some = any(item["mistakes"] for item in told), any(item["records"] for item in told)
    code = USAGE if bad else PASS if some else NOTHING
    if as_json:
        emit_json({"files": told, "exit_code": code})
    else:
        for item in told:
            facts = [number_of(item["records"], "record")]
            facts += [number_of(len(item["mistakes"]), "mistake")] if item["mistakes"] else []
            say(f"{'✗' if item['mistakes'] else '✓'} {item['file']}  {' · '.join(facts)}")
            for line in item["mistakes"][:MOST_SHOWN]:
                say(line, indent="    ")
            if len(item["mistakes"]) > MOST_SHOWN:
                say(f"… and {len(item['mistakes']) - MOST_SHOWN} more: --json has them all", indent="    ")
    if code == NOTHING:
        tell("no records found" if told else "no files found")
    return code


@v3.command("schema", context_settings=CONTEXT)
@click.option("--complete", is_flag=True, help="Also require what CI adds.")
def print_schema(complete: bool) -> None:
    """Print the JSON Schema of a record."""
    from steelyard.dialects.v3 import schema

    emit_json(schema.schema(complete=complete))


@v3.command("merge", context_settings=CONTEXT)
@PATHS
@METADATA
@RUNNERS
@DEPENDENCIES
@STRICT
@OUTPUT
def merge(
    paths: tuple[Path, ...], metadata: str | None, runners: str | None, dependencies: str | None, strict: bool, output: Path | None
) -> int:
    """Add CI's metadata to every record and write them as one JSON array; a record's own values are kept.

    BENCHMARK_NAME in the environment replaces the name of the benchmark.

    \b
    steelyard as v3 merge results.json --metadata metadata.json -o merged.json
    """
    from steelyard.dialects.v3.converting import written

    merging = _merging(metadata, runners, dependencies)
    made = [record for _, records in _merged(paths, merging, strict=strict, complete=metadata is not None) for record in records]
    if not made:
        raise _nothing(paths)
    _hand_out(written(made), output, number_of(len(made), "record"))
    return PASS


def _merging(metadata: str | None, runners: str | None, dependencies: str | None) -> Merging:
    from steelyard.dialects.v3 import upload

    told = {"metadata": metadata, "runners": runners, "dependencies": dependencies}
    found = {name: upload.given(text, name) for name, text in told.items() if text is not None}
    name = os.environ.get(upload.BENCHMARK_NAME, "")
    return upload.Merging(found.get("metadata", {}), found.get("runners"), found.get("dependencies"), name)


def _merged(paths: Sequence[Path], merging: Merging, *, strict: bool, complete: bool) -> list[tuple[Path, list[dict[str, Any]]]]:
    """The records of every file with CI's metadata; all mistakes of all files are reported at once, before anything is done."""
    from steelyard.dialects.v3 import reading, schema

    made: list[tuple[Path, list[dict[str, Any]]]] = []
    wrong: list[UsageError] = []
    for path in reading.files(paths):
        found = reading.read(path)
        if strict:
            found.refuse()
        for line in found.warnings:
            warn(line)
        records = [merging.into(placed.record) for placed in found.found]
        for placed, record in zip(found.found, records, strict=True):
            try:
                schema.check(record, placed.where, complete=complete)
            except UsageError as error:
                wrong += [part for part in parts_of(error) if isinstance(part, UsageError)]
        made.append((path, records))
    if wrong:
        raise wrong[0] if len(wrong) == 1 else Mistakes(wrong[: schema.MOST_TOLD], more=max(0, len(wrong) - schema.MOST_TOLD))
    return made


def _nothing(paths: Sequence[Path]) -> UsageError:
    return UsageError(f"no records in {', '.join(map(str, paths[:4]))}", why="there is no .json file, or none with a record in it")


def _hand_out(text: str, output: Path | None, count: str) -> None:
    if output is None:
        click.echo(text, nl=False)
    else:
        save(output, text)
        tell(f"{count} · saved {output}")


@v3.command("upload", context_settings=CONTEXT)
@PATHS
@METADATA
@RUNNERS
@DEPENDENCIES
@click.option("--dry-run/--no-dry-run", default=True, help="Only print what would be uploaded and where. Default on.")
@click.option("--url", metavar="URL", help="The upload service; UPLOADER_URL by default.")
@click.option("--to", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Write the packed files below this folder instead.")
@click.option(
    "--if-no-files-found", "if_none", type=click.Choice(["ignore", "error"]), default="ignore", show_default=True,
    help="What to do if there is nothing to upload.",
)  # fmt: skip
@STRICT
def upload_files(
    paths: tuple[Path, ...], metadata: str | None, runners: str | None, dependencies: str | None, dry_run: bool, url: str | None,
    folder: Path | None, if_none: str, strict: bool,
) -> int:  # fmt: skip
    """Merge, check and upload; a dry run by default. Every file goes to v3/REPO/WORKFLOW_ID/JOB_ID/NAME.

    UPLOADER_USERNAME and UPLOADER_PASSWORD in the environment are the credentials of the service; they are never printed or
    saved. Exits with 3 if the service refused a file, and with 5 if there is none and --if-no-files-found=error.

    \b
    steelyard as v3 upload results --metadata metadata.json
    steelyard as v3 upload results --metadata metadata.json --no-dry-run --url https://…
    """
    from steelyard.dialects.v3 import upload

    if folder and url:
        raise UsageError("--to and --url exclude each other", do="leave out one of them")
    url = url or os.environ.get("UPLOADER_URL")
    if not dry_run and not folder:
        if not url:
            raise UsageError("there is no address to upload to", do="use --url, set UPLOADER_URL, or write the files with --to DIR")
        upload.check_address(url)
    files = _merged(paths, _merging(metadata, runners, dependencies), strict=strict, complete=metadata is not None)
    ready = _placed([(path, records) for path, records in files if records])
    if not ready:
        tell("nothing to upload")
        return PASS if if_none == "ignore" else NOTHING
    refused = 0
    for place, records in ready.items():
        count = number_of(len(records), "record")
        if dry_run:
            say(f"would upload {count} to {place} ({len(upload.packed(records))} bytes packed)")
        elif folder:
            say(f"written {count}: {_kept(folder / place, upload.packed(records))}")
        else:
            answer = upload.send(
                url or "", place, upload.lines(records), *(os.environ.get(key, "") for key in (upload.USERNAME, upload.PASSWORD))
            )
            refused += not answer.ok
            say(f"{'✓' if answer.ok else '✗'} {place}  {count} · {answer.words}")
    if dry_run:
        tell("dry run: nothing was sent; --no-dry-run uploads")
    return FAILED if refused else PASS


def _kept(target: Path, content: bytes) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {str(target.parent)!r}", why=error.strerror or str(error), do="name another --to"
        ) from None
    save(target, content)
    return target


def _placed(files: Sequence[tuple[Path, list[dict[str, Any]]]]) -> dict[str, list[dict[str, Any]]]:
    """The records by upload path; a file whose job is unknown is reported and left out, as the upload action does."""
    from steelyard.dialects.v3 import schema, upload

    found: dict[str, list[dict[str, Any]]] = {}
    for path, records in files:
        places = dict.fromkeys(upload.path_of(record, path.name) for record in records)
        place = next(iter(places))
        if not place:
            warn(f"{path} was skipped: its records have no repository (OWNER/NAME), workflow_id and job_id; add them with --metadata")
        elif len(places) > 1:
            raise UsageError(f"the records of {path} are of {len(places)} jobs", why=f"such as {', '.join(list(places)[:2])}",
                             do="upload the records of each job as a separate file")  # fmt: skip
        elif place in found:
            raise UsageError(f"two files would go to {place}", why=f"{path} has the same name as another file", do="rename it")
        else:
            for record in records:
                schema.check(record, str(path), complete=True)
            found[place] = records
    return found


@v3.command("convert", context_settings=CONTEXT)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--to", "form", type=click.Choice(["v3", "torchao", "torchao-seed"]), default="v3", show_default=True,
    help="v3, or TorchAO's CSV with the last version's columns (or those of the original file), or with those of its guide.",
)  # fmt: skip
@OUTPUT
def convert(file: Path, form: str, output: Path | None) -> int:
    """Turn TorchAO's CSV, or another tool's result file such as TritonBench's, into records, and records into TorchAO's CSV.

    A failed case gets a record with its status and no value; it is never written as 0.

    \b
    steelyard as v3 convert results.csv -o results.json
    steelyard as v3 convert results.json --to torchao -o results.csv
    """
    from steelyard.dialects.v3 import reading, torchao_csv
    from steelyard.dialects.v3.converting import records, written

    if form == "v3":
        made = records(file)
        _hand_out(written(made), output, number_of(len(made), "record"))
        return PASS
    found = reading.read(file)
    for line in found.warnings:
        warn(line)
    text = torchao_csv.write([placed.record for placed in found.found], "seed" if form == "torchao-seed" else "")
    _hand_out(text, output, number_of(text.count("\n") - 1, "row"))
    return PASS


v3.add_command(policy)
