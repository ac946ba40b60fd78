"""`steelyard gate`: decides whether a change may pass: an exit code for CI, and the findings behind it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import emit_json, find_store, json_option, put, save, store_option, trust_option, warn, width
from steelyard.errors import UsageError

if TYPE_CHECKING:
    from steelyard.analyze.gate import Judgement

SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_SUMMARY = 1 << 20
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("gate")
@click.argument("base")
@click.argument("head", required=False)
@click.option("--policy", metavar="FILE", type=_FILE, help="Margins, noise floor, allowed and expected failures, as TOML.")
@click.option("--strict", is_flag=True, help="Exit with 6 if a comparison is not settled, not confirmed or not possible.")
@click.option("--confirm", is_flag=True, help="Measure cases that look slower again, interleaved, before they count.")
@trust_option
@click.option("--allow-edited", is_flag=True, help="Also compare cases whose workload was edited between the two runs.")
@click.option("-o", "--output", metavar="FILE", type=_FILE, help="Write the verdict with all findings as JSON, such as verdict.json.")
@click.option("--markdown", metavar="FILE", type=_FILE, help="Write a summary as Markdown.")
@click.option("--summary/--no-summary", default=True, help=f"Append the Markdown to the job summary if {SUMMARY} is set. Default on.")
@store_option
@json_option
def command(base: str, head: str | None, **options: Any) -> int:
    """Judge HEAD against BASE: exit with 4 on a regression, 3 if cases fail that passed before, 5 if nothing is comparable.

    BASE and HEAD are what 'steelyard compare' takes: a run, latest~3, a commit, a file. With only one RUN, its pairs
    (from 'steelyard run --vs') are judged. A regression is a change whose whole interval is beyond the margin, measured interleaved.
    Changes between separate runs are listed as not confirmed; --confirm measures them again.

    \b
    steelyard gate latest~1 latest --policy gate.toml
    steelyard gate latest
    """
    from steelyard.analyze import gate, sides
    from steelyard.cli.compare import again, check_trust, warn_of
    from steelyard.codec.known import load_known
    from steelyard.codec.policy import Policy, load_policy
    from steelyard.report.verdict import verdict_document, verdict_page

    policy = load_policy(options["policy"]) if options["policy"] else Policy()
    store = find_store(options["store"])
    policy = replace(policy, known=load_known(store.root))
    before = sides.find(store, base)
    after = sides.find(store, head) if head else before
    check_trust(options["trust"], options["confirm"])
    if before.runs == after.runs:
        for option in ("confirm", "allow_edited"):
            if options[option]:
                why = "the pairs of one run were measured interleaved, with the code as it was then"
                raise UsageError(f"--{option.replace('_', '-')} needs BASE and HEAD", why=why)
    warn_of(*((before, after) if head else (before,)))
    confirm = again(before, after, store, options["trust"]) if options["confirm"] else None
    after = after if before.runs == after.runs else sides.with_past(store, before, after)
    judgement = gate.gate(before, after, policy, strict=options["strict"], allow_edited=options["allow_edited"], confirm=confirm)
    if options["as_json"]:
        emit_json(verdict_document(judgement))
    else:
        put(verdict_page(judgement, width=width()))
    _write(judgement, options)
    return judgement.exit_code


def _write(judgement: Judgement, options: dict[str, Any]) -> None:
    """Write the verdict to files, after it was printed, so that a failing write does not lose it."""
    from steelyard.report.markdown import markdown
    from steelyard.report.verdict import verdict_document

    if options["output"]:
        save(options["output"], json.dumps(verdict_document(judgement), indent=2, ensure_ascii=True) + "\n")
    if options["markdown"]:
        save(options["markdown"], markdown(judgement))
    if options["summary"] and os.environ.get(SUMMARY):
        append_summary(Path(os.environ[SUMMARY]), markdown(judgement))


def append_summary(path: Path, text: str) -> None:
    """Append to the job summary; a failure is only a warning, because the verdict does not depend on it."""
    try:
        with path.open("a", encoding="utf-8") as file:
            if file.tell() + len(text.encode()) > MOST_SUMMARY:
                warn(f"the job summary is full, nothing was added to {SUMMARY}")
                return
            file.write(text)
    except OSError as error:
        warn(f"cannot write the job summary: {error.strerror or error}")
