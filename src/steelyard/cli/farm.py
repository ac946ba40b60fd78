"""`steelyard farm`: progress of a run on other machines: stations, what each measures, rate, time left."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import CONTEXT, console, emit_json, find_store, json_option, say, store_option, width
from steelyard.errors import PASS, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Group

    from steelyard.engine.farm.overview import FarmOverview

EVERY = 1.0


@click.command("farm", context_settings=CONTEXT)
@click.argument("run", required=False, default="latest")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run ends. Default on a terminal.")
@json_option
@store_option
def command(run: str, follow: bool, as_json: bool, store: Path | str | None) -> int:
    """Show the progress of a run on other machines: its stations, what each measures, the rate, the time left, and excluded hosts. On a
    terminal this is a table, updated until the run ends; elsewhere one line per event.

    \b
    steelyard farm
    steelyard farm k3f9 --follow
    """
    from steelyard.engine.farm.journal import FILE, read_journal
    from steelyard.engine.farm.overview import FarmOverview
    from steelyard.report.progress import is_live
    from steelyard.store.refs import locate

    folder = locate(find_store(store), run)
    if not (folder / FILE).is_file():
        raise _without_journal(run, folder)
    if as_json:
        emit_json(_document(FarmOverview.of(read_journal(folder))))
    elif is_live(sys.stdout):
        _live(folder)
    else:
        _lines(folder, follow=follow)
    return PASS


def _without_journal(run: str, folder: Path) -> UsageError:
    from steelyard.analyze.provenance import head_of

    if farm := head_of(folder).farm:
        why = f"it was made on {farm}, and its journal is on the machine that started it; a shared store keeps only results"
        return UsageError(f"no journal of run {run} here", why=why, do=f"steelyard show {run} has the host of each result")
    do = "name a run that was, or start one: steelyard run … --on local:2"
    return UsageError(f"run {run} was not made on other machines", why="it was measured on the machine that started it", do=do)


def _lines(folder: Path, *, follow: bool) -> None:
    from steelyard.engine.farm.journal import JournalTail
    from steelyard.engine.farm.overview import FarmOverview, told

    tail, found = JournalTail(folder), FarmOverview()
    while True:
        over = found.over
        for event in tail.more():
            say(told(event))
            found.take(event)
        if not follow or found.closed or over:
            break
        time.sleep(EVERY)
    if found.over and not found.closed:
        say(f"the run is not over: {found.over}")


def _live(folder: Path) -> None:
    """Redraw the table until the run ends. Ctrl-C stops the display, not the run."""
    from rich.live import Live

    from steelyard.engine.farm.journal import JournalTail
    from steelyard.engine.farm.overview import FarmOverview

    tail = JournalTail(folder)
    found = FarmOverview.of(tail.more())
    with Live(_drawn(found), console=console(), auto_refresh=False) as live:
        while not found.over:
            time.sleep(EVERY)
            for event in tail.more():
                found.take(event)
            live.update(_drawn(found), refresh=True)


def _drawn(found: FarmOverview) -> Group:
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(line[: width()], no_wrap=True, overflow="ellipsis") for line in lines_of(found, time.time())))


def lines_of(found: FarmOverview, now: float) -> list[str]:
    """The lines of the table."""
    from steelyard.model.units import duration, number_of
    from steelyard.report.cells import clean

    left, rate = found.left(now), found.rate(now)
    ahead = f"about {duration(left)} left" if left is not None and not found.over else found.over or "time left unknown"
    counts = " · ".join(f"{count} {status}" for status, count in sorted(found.statuses.items()))
    lines = [f"on {clean(found.on)} · {found.kept} of {number_of(found.cases, 'case')} · {rate:.2g} per second · {ahead}", counts]
    names = max([len(clean(f"{line.host} ({line.name})")) for line in found.stations.values()], default=0)
    for line in sorted(found.stations.values(), key=lambda line: (line.host, line.name)):
        who = clean(f"{line.host} ({line.name})")
        lines.append(f"{who:<{names}}  {line.state:<9}  {line.done:>6} done  {clean(line.machine)}  {clean(line.reason)}".rstrip())
    lines += [f"refused: {clean(line)}" for line in found.refused]
    lines += [f"late results dropped: {found.dropped}"] if found.dropped else []
    return [line for line in lines if line]


def _document(found: FarmOverview) -> dict[str, Any]:
    now = time.time()
    told = {name: value for name, value in vars(found).items() if not name.startswith("_") and name not in ("stations", "conductor")}
    stations = [station.plain() for station in found.stations.values()]
    return told | {"over": found.over, "stations": stations, "rate": found.rate(now), "left_s": found.left(now)}
