"""`steelyard report`: saved results as a page, table, picture or site."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from steelyard.cli.output import emit_json, find_store, json_option, save, say, store_option, warn
from steelyard.errors import NOTHING, PASS, UsageError

if TYPE_CHECKING:
    from steelyard.report.web.site import Built
    from steelyard.store.runs import Store

KINDS = {
    ".html": "page", ".csv": "table", ".parquet": "table", ".arrow": "table", ".md": "summary", ".json": "data", ".png": "picture",
    ".svg": "picture",
}  # fmt: skip
COLUMNS = (".parquet", ".arrow")
DEFAULT = Path("report.html")
CHOOSING = ("base", "baseline", "since", "until", "plot", "case", "long", "dark")


@click.command("report")
@click.argument("refs", metavar="[REF]...", nargs=-1)
@click.option(
    "-o", "--output", "outputs", metavar="FILE", multiple=True, type=click.Path(path_type=Path),
    help="Where to write; the suffix decides what: .html .csv .parquet .arrow .md .json .png .svg. Repeatable.  [default: report.html]",
)  # fmt: skip
@click.option("--base", metavar="REF", help="Compare the runs with this one. By default the first REF of several.")
@click.option("--title", default="", metavar="TEXT", help="Page title.")
@click.option("--baseline", metavar="COLUMN", help="The stack over which the matrix gives speedups, such as torch/eager.")
@click.option("--history/--no-history", default=True, help="Show each case's history over all saved runs of the machine. Default on.")
@click.option("--since", metavar="DATE", help="First day of the history, such as 2026-01-31.")
@click.option("--until", metavar="DATE", help="Last day of the history.")
@click.option(
    "--commit-url", default="", metavar="URL",
    help="Link commits on the page to this address, with {commit} in place of the hash. A site remembers it.",
)  # fmt: skip
@click.option("--plot", metavar="NAME", help="Plot for a .png or .svg. Default: the first that has data.")
@click.option("--case", metavar="CASE", help="The case (by id) for plots that show one case.")
@click.option("--dark", is_flag=True, help="Draw pictures dark; pages follow the reader's system setting.")
@click.option("--long", is_flag=True, help="A table (.csv .parquet .arrow) with one row per metric instead of one per case.")
@click.option(
    "--site", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Write a site of all saved runs, incrementally."
)
@store_option
@json_option
def command(
    refs: tuple[str, ...], outputs: tuple[Path, ...], site: Path | None, store: Path | str | None, as_json: bool, **options: Any
) -> int:
    """Make a report of saved results, ours or another tool's: what is fastest, by how much, with what uncertainty, since when.

    REF is what 'steelyard compare' takes: a run, latest~59..latest, a commit, a file of another tool; by default the latest
    run. With several, the first is the base and the last the head of the comparison; with one, the comparisons measured with --vs inside it
    are shown. A .html file is self-contained and works offline.

    \b
    steelyard report
    steelyard report latest~1 latest -o report.html -o cases.csv -o summary.md
    steelyard report latest~59..latest -o history.png --plot history-series
    steelyard report --site public
    """
    place = find_store(store)
    check_commit_url(options["commit_url"])
    if site is not None:
        refuse_beside_site(refs, outputs, options)
        return write_site(place, site, options, as_json)
    chosen = list(dict.fromkeys(outputs or (DEFAULT,)))
    check(chosen, options)
    from steelyard.report.web.gather import ReportRequest, gather

    choices = {name: options[name] for name in ("base", "title", "baseline", "history", "since", "until", "commit_url")}
    made = gather(place, ReportRequest(refs, **choices))
    contents = {path: render(path, made, options) for path in chosen}
    for path, content in contents.items():
        save(path, content)
    tell(contents, made, as_json)
    return PASS if made["cases"] else NOTHING


def check(outputs: Sequence[Path], options: dict[str, Any]) -> None:
    """Check all options and output files before anything is read."""
    for path in outputs:
        if path.suffix.lower() not in KINDS:
            why = f"{str(path)!r} has the suffix {path.suffix!r}" if path.suffix else f"{str(path)!r} has no suffix"
            raise UsageError("unknown kind of report", why=why, do=f"use one of {' '.join(KINDS)}")
        check_place(path)
    kinds = {KINDS[path.suffix.lower()] for path in outputs}
    for option, kind in {"plot": "picture", "case": "picture", "dark": "picture", "long": "table"}.items():
        if options[option] and kind not in kinds:
            forms = " or ".join(suffix for suffix, made in KINDS.items() if made == kind)
            raise UsageError(f"--{option} needs a {kind}", do=f"name one: -o FILE with {forms}")
    if any(path.suffix.lower() in COLUMNS for path in outputs):
        from steelyard.report import export

        export.require_arrow()
    if "picture" in kinds:
        from steelyard.report import plots

        plots.require()
        if options["plot"]:
            plots.check_name(options["plot"])


def check_commit_url(address: str) -> None:
    """Check that the address is http(s) and has {commit}: pages are shared, so a link must not be something that a browser executes."""
    if address and not (address.startswith(("https://", "http://")) and "{commit}" in address):
        raise UsageError(f"not an address for commits: {address!r}", do="write it like https://github.com/me/mine/commit/{commit}")


def check_place(path: Path) -> None:
    """Reject an output path that is a folder, a pipe or a device; only plain files are replaced."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.parent.is_dir():
            return
        why, do = f"there is no folder {str(path.parent)!r}", "make the folder first"
    except (OSError, ValueError) as error:
        why, do = getattr(error, "strerror", None) or str(error), "name another place with -o FILE"
    else:
        if stat.S_ISREG(mode):
            return
        folder = stat.S_ISDIR(mode)
        why = "it is a folder" if folder else "it is a pipe or a device, not a file"
        do = "name a file, or --site DIR for a site" if folder else "name a file"
    raise UsageError(f"cannot write {str(path)!r}", why=why, do=do)


def render(path: Path, made: dict[str, Any], options: dict[str, Any]) -> bytes:
    """The content of one file, by its suffix."""
    suffix = path.suffix.lower()
    if KINDS[suffix] == "picture":
        from steelyard.report.plots import picture

        form: Literal["png", "svg"] = "svg" if suffix == ".svg" else "png"
        return picture(made, form, options["plot"], case=options["case"], dark=options["dark"])[1]
    if suffix == ".html":
        from steelyard.report.web.html import single_page

        return single_page(made).encode()
    from steelyard.report import export

    if suffix in COLUMNS:
        found = export.figures_table(made) if options["long"] else export.cases_table(made)
        return export.parquet(found) if suffix == ".parquet" else export.arrow(found)
    forms = {
        ".csv": export.figures_csv if options["long"] else export.cases_csv,
        ".md": export.markdown_report,
        ".json": export.document_json,
    }
    return forms[suffix](made).encode()


def tell(written: Mapping[Path, bytes], made: dict[str, Any], as_json: bool) -> None:
    """Print what was written and its headline; warnings about the data go to stderr."""
    if as_json:
        files = [{"path": str(path), "kind": KINDS[path.suffix.lower()], "bytes": len(content)} for path, content in written.items()]
        emit_json({"written": files, "banner": made["banner"], "warnings": made["warnings"]})
        return
    for warning in made["warnings"]:
        warn(warning)
    say(made["banner"]["text"])
    for path in written:
        say(f"written: {path}")


def refuse_beside_site(refs: Sequence[str], outputs: Sequence[Path], options: dict[str, Any]) -> None:
    """Reject options that select runs: a site shows every run of the store."""
    named = [*refs, *(["-o"] if outputs else []), *([] if options["history"] else ["--no-history"])]
    named += [f"--{name}" for name in CHOOSING if options[name]]
    if named:
        why = "a site shows every run of the store"
        raise UsageError(f"{named[0]} cannot be used with --site", why=why, do="leave it out, or leave out --site")


def write_site(store: Store, folder: Path, options: Mapping[str, Any], as_json: bool) -> int:
    """Bring a site up to date with its store."""
    from steelyard.report.web.site import build_site

    built: Built = build_site(store, folder, title=options["title"], commit_url=options["commit_url"])
    if as_json:
        emit_json(built)
        return PASS
    for warning in built.warnings:
        warn(warning)
    pages = f"{built.runs} run{'' if built.runs == 1 else 's'}"
    click.echo(f"{pages}: {len(built.written)} files written, {built.kept} pages kept, {len(built.removed)} files removed")
    say(f"written: {built.folder / 'index.html'}")
    return PASS
