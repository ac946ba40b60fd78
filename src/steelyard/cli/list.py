"""`steelyard list`: names that commands accept, and what a file defines, without importing a framework."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import console, emit_json, find_store, json_option, store_option, width
from steelyard.errors import UsageError, did_you_mean, unknown
from steelyard.model.define import FAMILY

if TYPE_CHECKING:
    from rich.text import Text

    from steelyard.model.dialect import Dialect

KINDS = ("workloads", "variants", "recipes", "backends", "suites", "dialects", "metrics", "rules", "runs")
HIDDEN = "fake"


@dataclass(frozen=True)
class Item:
    """One entry of the list: its name, what it is for, what can be set."""

    name: str
    doc: str
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags that `tag:NAME` matches."""
        return tuple(self.data.get("tags", ()))


@click.command("list")
@click.argument("words", metavar="[KIND] [FILE.py]... [PATTERN]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Also show entries that only Steelyard's own tests use.")
@click.option("--probe", "tried", is_flag=True, help="With recipes: try each in a worker, and show accuracy, size and missing packages.")
@click.option("-d", "--device", default="cpu", show_default=True, help="With --probe: the device to try recipes on.")
@click.option("--dtype", default="bf16", show_default=True, help="With --probe: the number format that recipes start from.")
@store_option
@json_option
def command(
    words: tuple[str, ...], everything: bool, tried: bool, device: str, dtype: str, store: Path | str | None, as_json: bool
) -> None:
    """List available names. KIND is workloads (the default), variants, recipes (those variants that change number formats or sparsity),
    backends, suites, dialects, metrics, rules (of verification) or runs. A PATTERN is a name, a folder of names, a glob, or tag:NAME. For a
    FILE, lists all it defines, or only one KIND.

    \b
    steelyard list 'op/*'
    steelyard list tag:smoke
    steelyard list variants
    steelyard list recipes --probe
    steelyard list my_softmax.py
    """
    kind, patterns = (words[0], words[1:]) if words and words[0] in KINDS else ("workloads", words)
    opened = tuple(word for word in patterns if _opens(word))
    files = tuple(word for word in patterns if word.endswith(".py") and word not in opened)
    patterns = tuple(word for word in patterns if word not in (*files, *opened))
    items = of_files(files, words[0] if kind == words[0] else None) if files else collect(kind, store) if patterns or not opened else []
    if not everything:
        items = [item for item in items if item.name.partition("/")[0] != HIDDEN or any(pattern.startswith(HIDDEN) for pattern in patterns)]
    chosen = [*(item for word in opened for item in held_by(word)), *(choose(items, patterns, kind) if patterns else items)]
    if tried:
        if kind != "recipes" or files:
            raise UsageError("--probe is only for recipes", do="use steelyard list recipes --probe")
        _put_trials(chosen, device, dtype, as_json)
        return
    if as_json:
        emit_json([{"name": item.name, **item.data} for item in chosen])
        return
    if not chosen:
        where = f" in {', '.join(files)}" if files else ": measure something first with steelyard run" if kind == "runs" else ""
        click.echo(f"no {kind}{where}", err=True)
        return
    tags = sorted({tag for item in chosen for tag in item.tags})
    console().print(drawn(chosen, f"tags: {', '.join(tags)}" if tags else "", width()))


def collect(kind: str, store: Path | str | None = None) -> list[Item]:
    """Everything of one kind, by name; runs newest first."""
    if kind == "runs":
        return _runs(store)
    from steelyard import registry

    if kind == "suites":
        return [_suite(name, path) for name, path in sorted(registry.suites().items())]
    if kind == "rules":
        from steelyard.measuring import rules

        return [
            Item(name, doc, f"options: {', '.join(options)}" if options else "", {"doc": doc}) for name, doc, options in rules.listing()
        ]
    if kind == "recipes":
        from steelyard.engine.probing import recipes

        return [_recipe(name, info) for name, info in recipes(registry.catalogue().variants).items()]
    if kind == "dialects":
        return [_dialect(dialect) for dialect in sorted(registry.dialects(), key=lambda dialect: dialect.name)]
    tell = {"workloads": _workload, "variants": _variant, "metrics": _metric, "backends": _backend}[kind]
    table: Mapping[str, Mapping[str, Any]] = getattr(registry.catalogue(), kind)
    return [tell(name, info) for name, info in sorted(table.items())]


def _opens(word: str) -> bool:
    """Whether a word is `WORKLOAD:PATH`."""
    from steelyard.engine import opening

    return opening.split(word) is not None


def held_by(word: str) -> list[Item]:
    """Return the cases in a file or folder for a workload that opens files, one item each."""
    from steelyard import registry
    from steelyard.engine import opening

    cases = opening.cases(word, registry.catalogue())
    return [Item(f"{word} {case['name']}", case["doc"], case["sha256"][:12], case) for case in cases]


def _dialect(dialect: Dialect) -> Item:
    """Return what a dialect can read, write or run."""
    read = [words for words, part in (("config files", dialect.config), ("result files", dialect.results)) if part]
    told = [f"steelyard as {program.name}" for program in dialect.commands()]
    told += [f"reads its {' and '.join(read)}"] if read else []
    told += [f"steelyard export --to {dialect.name}"] if dialect.export else []
    parts = {name: getattr(dialect, name) for name in ("doc", "config", "results", "command", "convert", "export")}
    return Item(dialect.name, dialect.doc, " · ".join(told), parts)


def of_files(files: tuple[str, ...], kind: str | None) -> list[Item]:
    """Return what Python files define, or all of one kind in them; a worker loads the files, never this process."""
    tell = {"workloads": _workload, "variants": _variant, "metrics": _metric}
    if kind is not None and kind not in tell:
        raise UsageError(f"files define no {kind}", do=f"name one of {', '.join(tell)}")
    from steelyard.engine.selection import defined
    from steelyard.registry import FOR_CONFIGS

    found = defined(files)
    every = tell | dict.fromkeys(FOR_CONFIGS, _backend)
    own = {name: item for info in found["workloads"].values() for name, item in info["variants"].items()}
    found["variants"] = {**own, **found["variants"]}
    items = []
    for chosen in [kind] if kind else every:
        for name, info in sorted(found[chosen].items()):
            one = chosen.removesuffix("s")
            item = every[chosen](name, {"kind": one, **info})
            prefix = "" if kind or chosen == "workloads" else one
            items.append(replace(item, detail=" · ".join(filter(None, (prefix, item.detail)))))
    return items


def choose(items: list[Item], patterns: tuple[str, ...], kind: str) -> list[Item]:
    """The items that any of the patterns matches; a pattern without a match is an error."""
    found: set[str] = set()
    for pattern in patterns:
        names = {item.name for item in items if matches(item, pattern)}
        if not names:
            raise _nothing(items, pattern, kind)
        found |= names
    return [item for item in items if item.name in found]


def matches(item: Item, pattern: str) -> bool:
    """Whether a pattern (a name, a folder, a glob or a tag) matches this item."""
    if pattern.startswith("tag:"):
        return pattern.removeprefix("tag:") in item.tags
    if item.name.endswith(FAMILY) and fnmatch.fnmatchcase(pattern, item.name):
        return True
    return item.name == pattern or item.name.startswith(pattern.rstrip("/") + "/") or fnmatch.fnmatchcase(item.name, pattern)


def _nothing(items: list[Item], pattern: str, kind: str) -> UsageError:
    one = kind.removesuffix("s")
    if pattern.startswith("tag:"):
        return unknown("tag", pattern.removeprefix("tag:"), {tag for item in items for tag in item.tags})
    if hint := did_you_mean(pattern, KINDS) if kind == "workloads" and "/" not in pattern else "":
        return UsageError(f"no {one} matches {pattern!r}", do=f"{hint}   kinds: {', '.join(KINDS)}")
    return unknown(
        one, pattern, [item.name for item in items], listing="steelyard list" if kind == "workloads" else f"steelyard list {kind}"
    )


def _workload(name: str, info: Mapping[str, Any]) -> Item:
    from steelyard.model.values import value_text

    axes = " ".join(f"{key}={','.join(map(value_text, values))}" for key, values in info.get("axes", {}).items())
    variants = f"variants: {', '.join(['eager', *info['variants']])}" if info.get("variants") else ""
    return Item(name, _clause(info.get("doc", "")), " · ".join(filter(None, (axes, variants))) or _foreign(info), info)


def _variant(name: str, info: Mapping[str, Any]) -> Item:
    options = f"options: {', '.join(info['options'])}" if info.get("options") else ""
    backends = f"on {', '.join(info['backends'])}" if info.get("backends") else ""
    return Item(name, info.get("doc", ""), " · ".join(filter(None, (options, backends))) or _foreign(info), info)


def _recipe(name: str, info: Mapping[str, Any]) -> Item:
    from steelyard.model.words import Word, spelling

    words = [Word.of(word) for word in info.get("words", ())]
    return Item(name, info.get("doc", ""), f"written {spelling(name, words)}" if words else "", info)


def _put_trials(chosen: list[Item], device: str, dtype: str, as_json: bool) -> None:
    """Print a line for each recipe: how to write it, and the result of trying it."""
    from dataclasses import asdict

    from steelyard.engine.probing import probe, spelt
    from steelyard.engine.run import WaitTold
    from steelyard.report.cells import clean, pad
    from steelyard.report.progress import Progress, is_live

    words = [word for item in chosen for word in spelt(item.name, item.data)]
    progress = Progress(len(words), sys.stderr)
    try:
        found = probe(
            words, device, dtype, watch=progress if is_live(sys.stderr) else WaitTold(lambda text: click.echo(clean(text), err=True))
        )
    finally:
        progress.close()
    if as_json:
        emit_json([asdict(trial) for trial in found])
        return
    name, status = (max(len(getattr(trial, key)) for trial in found) for key in ("name", "status"))
    for trial in found:
        told = f"{trial.sqnr:5.1f} dB" if trial.sqnr is not None else " " * 8
        told += f"   weights {trial.smaller:4.2f}x smaller" if trial.smaller is not None else ""
        click.echo(
            f"{pad(trial.name, name)}  {pad(trial.status, status)}  {told}{'  ' + clean(trial.reason) if trial.reason else ''}".rstrip()
        )


def _metric(name: str, info: Mapping[str, Any]) -> Item:
    detail = f"{info['unit'] or 'no unit'}, {info['better']} is better" if "unit" in info else _foreign(info)
    return Item(name, info.get("doc", ""), detail, info)


def _backend(name: str, info: Mapping[str, Any]) -> Item:
    return Item(name, info.get("doc", "") or info.get("origin", ""), "", info)


def _foreign(info: Mapping[str, Any]) -> str:
    origin = str(info.get("origin", ""))
    return "" if origin in ("", "built-in") else f"from {origin}"


def _clause(doc: str) -> str:
    """Return the first clause of a description; `show` prints the rest."""
    return doc.partition(";")[0].partition(". ")[0].rstrip(".")


def _suite(name: str, path: Path) -> Item:
    import tomllib

    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = {}
    doc = str(told.get("description", ""))
    return Item(name, doc, f"steelyard run {name}", {"doc": doc, "path": str(path)})


def _runs(store: Path | str | None) -> list[Item]:
    from steelyard.report.cells import command_line

    found = []
    for info in find_store(store).runs():
        counts = " · ".join(f"{count} {status.replace('_', ' ')}" for status, count in info.counts.items())
        doc = " · ".join(filter(None, (f"{info.created[:16].replace('T', ' ')} UTC", counts or "no records", info.experiment)))
        data = {
            "created": info.created, "sealed": info.sealed, "counts": info.counts, "experiment": info.experiment,
            "machine_key": info.machine_key, "path": info.path, "warning": info.warning, "command": info.command,
        }  # fmt: skip
        state = "" if info.sealed or not info.readable else "unfinished"
        told = " · ".join(filter(None, (command_line(info.command) if info.command else "", info.warning or state)))
        found.append(Item(info.id, doc, told, data))
    return found


def drawn(items: list[Item], footer: str, columns: int) -> Text:
    """The list as text: names in one column, descriptions beside them, settings dimmed below; nothing is truncated."""
    from rich.text import Text

    from steelyard.report.cells import clean, pad
    from steelyard.report.wrap import wrap_text

    items = [replace(item, name=clean(item.name)) for item in items]
    label = min(max(len(item.name) for item in items), columns // 2)
    lines: list[Text] = []
    for item in items:
        told = [(piece, "") for piece in wrap_text(clean(item.doc), columns - label - 3) if piece]
        told += [(piece, "dim") for piece in wrap_text(clean(item.detail), columns - label - 3) if piece]
        if len(item.name) > label or not told:
            lines.append(Text(item.name, "bold"))
        else:
            lines.append(Text.assemble((pad(item.name, label + 3), "bold"), told.pop(0)))
        lines += [Text(" " * (label + 3) + piece, style) for piece, style in told]
    if footer:
        lines += [Text(piece, "dim") for piece in wrap_text(clean(footer), columns)]
    return Text("\n", no_wrap=True, overflow="crop").join(lines)
