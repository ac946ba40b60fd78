"""The reports of a night: the page, a summary, a table, the verdict and the figures, all with the commits in question."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steelyard import codec
from steelyard.analyze.gate import SCHEMA
from steelyard.analyze.provenance import commit_of
from steelyard.engine.confirm import COMMIT
from steelyard.engine.nightly.assess import Assessment
from steelyard.engine.nightly.lines import night_of
from steelyard.engine.nightly.since import Since
from steelyard.engine.nightly.standing import WINDOW
from steelyard.errors import FAILED, INCONCLUSIVE, NOTHING, PASS, REGRESSION, SteelyardError, told
from steelyard.machine.cpu import attempt
from steelyard.machine.facts import ask
from steelyard.report import plots
from steelyard.report.cells import clean
from steelyard.report.export import cases_csv, markdown_report
from steelyard.report.history import change_line
from steelyard.report.markdown import MOST_BYTES, code, markdown
from steelyard.report.verdict import verdict_document
from steelyard.report.web.document import Document, document
from steelyard.report.web.html import single_page

MOST_COMMITS = 50
MOST_NAMED = 4
PATIENCE_S = 30
TONES = {PASS: "good", REGRESSION: "bad", FAILED: "bad", NOTHING: "bad", INCONCLUSIVE: "mixed"}


@dataclass(frozen=True)
class Revisions:
    """The commits between two nights, newest first; `more` means that older ones were left out."""

    range: str
    lines: tuple[str, ...] = ()
    more: bool = False


def write(found: Assessment, folder: Path) -> list[str]:
    """Write all reports of a night into a folder; return what could not be written, and why."""
    page, revisions = night_document(found), between(found)
    texts = {
        "report.html": single_page(page), "report.md": summary(found, page, revisions), "cases.csv": cases_csv(page),
        "verdict.json": json.dumps(verdict(found, revisions), indent=2, ensure_ascii=True) + "\n",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(_draw(page, folder / "figures"))


def _draw(page: Document, folder: Path) -> Iterator[str]:
    """Write the charts that have data as SVG; yield what could not be drawn, or one line if no chart can be drawn here."""
    try:
        plots.require()
    except SteelyardError as error:
        yield f"no figures: {told(error)}"
        return
    folder.mkdir()
    for name, chart in plots.charts().items():
        try:
            if rows := chart.rows(page):
                (folder / f"{name}.svg").write_bytes(plots.draw(chart, rows, "svg"))
        except SteelyardError as error:
            yield told(error)


def night_document(found: Assessment) -> Document:
    """Return the page's data: the night's run, the comparison as it was judged, and every series up to this night."""
    header = found.run.header
    title = f"Night of {header.created[:10]}: {header.experiment}{f', {found.commits}' if found.commits else ''}"
    made = document([found.run], base=found.base, series=found.series, comparison=found.comparison, title=title, known=found.known)
    tone = "none" if found.base is None and found.exit_code == PASS else TONES.get(found.exit_code, "mixed")
    words, besides = verdict_words(found), made["banner"]
    made["banner"] = {"tone": tone, "text": f"{words} {besides['text']}", "sentences": [words, *besides["sentences"]]}
    return made


def verdict_words(found: Assessment) -> str:
    """Return the verdict and the night it was compared with, in sentences."""
    said = [f"{found.headline[0].upper()}{found.headline[1:]}."]
    if found.base:
        between_them = f"commits {found.commits}" if ".." in found.commits else "the same commit" if found.commits else "commits unknown"
        said.append(f"Compared with the night of {found.base.name}, {between_them}.")
    if count := len(found.withheld):
        said.append(f"{'1 case stays' if count == 1 else f'{count} cases stay'} compared with an older night until fixed or accepted.")
    if reasons := [item for night in found.before.nights[-WINDOW:] for item in night.acceptances]:
        said.append(f"Accepted by name: {'; '.join(f'{item.pattern}: {item.reason}' for item in reasons[-MOST_NAMED:])}.")
    return clean(" ".join(said))


def summary(found: Assessment, page: Document, revisions: Revisions) -> str:
    """Return the night in Markdown, within a job summary's limits: the verdict, since when, the commits, then everything measured."""
    header = found.run.header
    made = [f"# Night of {header.created[:10]}: {code(header.experiment)}", _measured_at(found)]
    made += [markdown(found.judgement, most=MOST_BYTES // 2).rstrip()] if found.judgement else [f"## {code(found.headline)}"]
    made += [*_waiting(found), *_accepted(found), *_since(found.since), *_commits(revisions)]
    room = MOST_BYTES - sum(len(part.encode()) + 2 for part in made)
    told_besides = page["banner"]["text"].removeprefix(verdict_words(found)).strip()
    rest = {**page, "comparison": None, "title": "What was measured", "banner": {"tone": "none", "text": told_besides}}
    return "\n\n".join([*made, markdown_report(rest, room)])


def _measured_at(found: Assessment) -> str:
    commit, dirty = commit_of(found.run)
    at = f" at {code(commit[:10])}{' with uncommitted changes' if dirty else ''}" if commit else ""
    if found.base is None:
        return f"Run {code(found.run.id)}{at}. There is no good night before it to compare with."
    return f"Run {code(found.run.id)}{at}, compared with {code(found.base.name)}, commits {code(found.commits or 'unknown')}."


def _waiting(found: Assessment) -> Iterator[str]:
    """Yield the cases that tonight is not a base for, with the night they stay compared with."""
    if found.withheld:
        dates = {night.run: f"{night.date} ({night.run})" for night in (*found.before.nights, night_of(found.run, "", 0))}
        yield f"### Compared with an older night until fixed or accepted ({len(found.withheld)})"
        lines = []
        for item in found.withheld[:MOST_COMMITS]:
            since, base = (code(dates.get(run, run)) for run in (item.since, item.base))
            lines.append(f"- {code(item.case, 300)}: {item.why} since {since}, compared with {base}")
        yield "\n".join(lines)
        if more := len(found.withheld[MOST_COMMITS:]):
            yield f"and {more} more: `withheld` in verdict.json"


def _accepted(found: Assessment) -> Iterator[str]:
    """Yield what users accepted in the last nights, and why."""
    words = [(night, item) for night in found.before.nights[-WINDOW:] for item in night.acceptances]
    if words:
        yield f"### Accepted by name ({len(words)})"
        yield "\n".join(
            f"- {code(item.pattern, 300)} as in the night of {code(f'{night.date} ({night.run})')}: {code(item.reason, 300)}"
            for night, item in words[-MOST_COMMITS:]
        )


def _since(since: Sequence[Since]) -> Iterator[str]:
    material = [item for item in since if item.material]
    if material:
        yield f"### Since when ({len(material)})"
        yield "Levels that changed some nights ago and are distinguishable from noise since this night:"
        yield "\n".join(f"- {code(item.case, 300)}: {code(change_line(item.change), 300)}" for item in material[:MOST_COMMITS])
    if small := len(since) - len(material):
        yield f"{small} change{'' if small == 1 else 's'} of level within the margin: `steelyard show CASE --history`."


def _commits(revisions: Revisions) -> Iterator[str]:
    if revisions.lines:
        yield f"### Commits in {code(revisions.range)}"
        more = ["- …"] if revisions.more else []
        yield "\n".join([*(f"- {code(line)}" for line in revisions.lines), *more])


def verdict(found: Assessment, revisions: Revisions) -> dict[str, Any]:
    """Return the content of verdict.json: the gate's document, and the night's own fields."""
    bare = {"outcome": found.outcome, "exit_code": found.exit_code, "base": "", "head": found.run.id, "findings": [], "notes": []}
    judged: dict[str, Any] = verdict_document(found.judgement) if found.judgement else {**bare, "means": {}}
    accepted = [{"run": night.run, **plain(item)} for night in found.before.nights[-WINDOW:] for item in night.acceptances]
    night = {
        "run": found.run.id, "commits": found.commits, "log": list(revisions.lines), "confirmed": found.confirmed,
        "withheld": plain(found.withheld), "accepted": accepted,
    }  # fmt: skip
    own = {"outcome": found.outcome, "exit_code": found.exit_code, "night": night, "since": plain(found.since)}
    return {"schema": SCHEMA, **judged, **own, "headline": found.headline}


def plain(value: Any) -> Any:
    """Return a value as JSON data; values that JSON does not have, such as NaN, become null."""
    return json.loads(codec.encode(value))


def between(found: Assessment) -> Revisions:
    """Return the commits that a change can come from, as far as this checkout has them."""
    if found.base is None:
        return Revisions("")
    ends = [commit_of(run)[0] for run in (*found.base.runs, found.run)]
    whole = Revisions(found.commits)
    if not all(COMMIT.fullmatch(end) for end in ends) or ends[0] == ends[1]:
        return whole
    options = ["-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "--no-optional-locks", "--no-pager"]
    words = ["log", "--no-color", "--format=%h %s", "-n", str(MOST_COMMITS + 1), f"{ends[0]}..{ends[1]}"]
    said = attempt(ask, "git", *options, *words, patience=PATIENCE_S)
    lines = [clean(line) for line in (said or "").splitlines()]
    return replace(whole, lines=tuple(lines[:MOST_COMMITS]), more=len(lines) > MOST_COMMITS)
