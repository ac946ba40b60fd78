"""`steelyard compare`: what changed between two sides of saved results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.cli.output import emit_json, find_store, json_option, plain, put, store_option, trust_option, width
from steelyard.codec.policy import LEAST_ALPHA
from steelyard.errors import NOTHING, PASS, NothingMeasured, UsageError, unknown

if TYPE_CHECKING:
    from steelyard.analyze.compare import Comparison, Confirm, RunsSide
    from steelyard.model.pair import Delta, Pair
    from steelyard.store.runs import Store

OWN = "vs"


@click.command("compare")
@click.argument("base")
@click.argument("head", required=False)
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    help="Compare this metric; may be repeated. By default time; for LLM requests also ttft and itl.",
)
@click.option(
    "--margin",
    "margins",
    metavar="[METRIC=]SHARE",
    multiple=True,
    help="Margin: smaller changes count as the same, such as 2% or time=1%. By default 2%.",
)
@click.option("--floor", metavar="SHARE", help="Noise between runs, if you know it; at least this much is assumed, such as 1%.")
@click.option(
    "--alpha", type=click.FloatRange(LEAST_ALPHA, 0.5), help="Share of reported changes that may be false alarms. By default 0.01.",
)  # fmt: skip
@click.option("--allow-edited", is_flag=True, help="Also compare cases whose workload was edited between the two runs.")
@click.option("--confirm", is_flag=True, help="Measure cases that look changed again, both sides interleaved, before reporting a change.")
@trust_option
@store_option
@json_option
def command(
    base: str, head: str | None, metrics: tuple[str, ...], margins: tuple[str, ...], floor: str | None, alpha: float | None,
    allow_edited: bool, confirm: bool, trust: tuple[str, ...], store: Path | str | None, as_json: bool,
) -> int:  # fmt: skip
    """Compare two sides of saved results, case by case.

    BASE and HEAD are runs (k3f9, latest, latest~3, a path), several of them (a1b2,c3d4 or latest~3..latest), a commit, or a
    file of pyperf, pytest-benchmark, google-benchmark, nvbench, hyperfine, TritonBench, PyTorch/XLA or the PyTorch benchmark database, or a
    folder of such files. With BASE alone, the comparisons measured with --vs inside that run are shown; vs RUN does the same.
    """
    from steelyard.analyze import sides
    from steelyard.analyze.compare import compare, usual_metrics
    from steelyard.model.pair import ALPHA
    from steelyard.model.units import parse_share

    place = find_store(store)
    before = sides.find(place, head or base if base == OWN else base)
    after = before if head is None or base == OWN else sides.find(place, head)
    check_trust(trust, confirm)
    if before.runs == after.runs:
        refuse_unpaired_options({"--alpha": alpha, "--floor": floor, "--allow-edited": allow_edited, "--confirm": confirm})
        return own(after, metrics, margins, as_json)
    asked = metrics or usual_metrics((*before.runs, *after.runs))
    allowed = parse_margins(margins, asked)
    warn_of(before, after)
    found = compare(
        before,
        sides.with_past(place, before, after),
        margins=allowed,
        metrics=asked,
        floor=parse_share(floor) if floor else None,
        alpha=ALPHA if alpha is None else alpha,
        allow_edited=allow_edited,
        confirm=again(before, after, place, trust) if confirm else None,
    )
    return show(found, as_json)


def refuse_unpaired_options(given: Mapping[str, object]) -> None:
    """Reject options about noise between runs, which have no meaning inside one run."""
    named = [option for option, value in given.items() if value not in (None, False)]
    if "--confirm" in named:
        raise UsageError(
            "there is nothing to confirm", why="the comparisons of a run (--vs) are interleaved already", do="leave out --confirm"
        )
    if named:
        raise UsageError(
            f"{' and '.join(named)} cannot be used with one run", why="the comparisons of a run (--vs) were settled when it was measured",
            do="leave it out, or name two runs: steelyard compare BASE HEAD",
        )  # fmt: skip


def own(side: RunsSide, metrics: Sequence[str], margins: Sequence[str], as_json: bool) -> int:
    """Print the comparisons that were measured inside a run; returns the exit code."""
    from steelyard.analyze.compare import OWN_METRICS, own_pairs

    known = {"time", *(name for run in side.runs for pair in run.pairs for name in pair.parts)}
    if other := [metric for metric in metrics if metric not in known]:
        compared = "time alone" if len(known) == 1 else ", ".join(sorted(known))
        raise UsageError(f"{side.name} compares {compared}, not {other[0]}", do="name two runs: steelyard compare BASE HEAD")
    asked = metrics or [name for name in OWN_METRICS if name in known]
    allowed = parse_margins(margins, asked)
    warn_of(side)
    found = own_pairs(side, margins=allowed, metrics=asked)
    if not found.deltas:
        raise NothingMeasured(f"{side.name} has no comparison", do="name two sides, or measure with --vs: steelyard run … --vs eager")
    return show(found, as_json)


def check_trust(trusted: Sequence[str], confirm: bool) -> None:
    """Reject --trust without --confirm: nothing would be executed, so it would have no effect."""
    if trusted and not confirm:
        raise UsageError("--trust needs --confirm", why="without --confirm no code of a saved run is executed")


def again(base: RunsSide, head: RunsSide, store: Store, trusted: Sequence[str] = ()) -> Confirm:
    """The function that measures cases again, interleaved. Code from runs made elsewhere is executed only with --trust."""
    for side in (base, head):
        if side.runs[-1].path.is_file():
            raise UsageError(f"{side.name} cannot be measured again", why="it is another tool's file", do="leave out --confirm")
    from steelyard.engine.confirm import confirm
    from steelyard.engine.consent import Consent

    runs, consent = (base.runs[-1], head.runs[-1]), Consent(store, tuple(trusted))
    consent.check_used(runs)

    def measured(deltas: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        return confirm(*runs, [delta.head for delta in deltas], consent, min(delta.margin for delta in deltas))

    return measured


def parse_margins(texts: Sequence[str], metrics: Sequence[str]) -> dict[str, float]:
    """The margin of each metric, from texts: `2%` for every metric that is compared, `peak_memory=5%` for one."""
    from steelyard.model.units import parse_share

    found: dict[str, float] = {}
    named: dict[str, float] = {}
    for text in texts:
        metric, sign, share = text.rpartition("=")
        if not sign:
            found.update(dict.fromkeys(metrics, parse_share(share)))
        elif metric not in metrics:
            raise unknown("metric that is compared", metric, metrics)
        else:
            named[metric] = parse_share(share)
    return found | named


def warn_of(*sides: RunsSide) -> None:
    """Print warnings about damaged or unfinished result files."""
    from steelyard.cli.show import warn

    for side in sides:
        for run in side.runs:
            warn(run)


def show(found: Comparison, as_json: bool) -> int:
    """Print the comparison as JSON or as a table; returns the exit code."""
    if as_json:
        from steelyard.report.verdict import delta_document

        emit_json({**plain(found), "deltas": [delta_document(delta) for delta in found.deltas]})
    else:
        from steelyard.report.comparison import comparison_table

        put(comparison_table(found, width=width()))
    return PASS if found.comparable else NOTHING
