"""The report's figures for other programs and places: tables as CSV, Parquet and Arrow, everything as JSON, a summary as Markdown.

Names come from files and frameworks. A cell that a spreadsheet would run as a formula gets a quote before it, and no cell
contains a control character.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steelyard.errors import UsageError
from steelyard.report.cells import clean
from steelyard.report.summary import markdown_report

__all__ = ["arrow", "cases_csv", "document_json", "figures_csv", "markdown_report", "parquet", "require_arrow", "table"]

Document = Mapping[str, Any]
Table = tuple[Sequence[str], Sequence[Sequence[Any]]]

RUNNABLE = ("=", "+", "-", "@")
LONGEST_CELL = 32_000
"""The most characters in a cell; spreadsheets refuse longer ones."""
PARTS = ("", " low", " high", " n")
PLACE = ("run", "number", "created", "commit", "machine", "case")
WORDS = ("status", "reason", "workload", "backend", "variant", "mode", "device", "threads", "ranks", "env")
COUNTS = ("number", "n", "threads", "ranks")
DELTA = {"ratio": "ratio", "low": "ratio low", "high": "ratio high", "verdict": "verdict", "effect": "effect"}
LONG = ("run", "number", "case", "status", "metric", "value", "low", "high", "n", "unit", "better", "threads", "noise", "other load")


def cases_csv(document: Document) -> str:
    """The table of cases as CSV."""
    return table(*cases_table(document))


def cases_table(document: Document) -> Table:
    """One row per case; a figure has a column for its value, both ends of its 95 % interval and its count, with the unit in the head."""
    cases, metrics = document["cases"], document["metrics"]
    params = _names(case["params"] for case in cases)
    flags = _names(case["flags"] for case in cases)
    shown = {name: _filled_parts(name, cases) for name in _names(case["metrics"] for case in cases)}
    heads = [*PLACE, *WORDS, *(f"param {name}" for name in params), *(f"flag {name}" for name in flags)]
    heads += [_head(name, part, metrics) for name, parts in shown.items() for part in parts]
    heads += ["noise", "load at start", "other load (CPUs)", "verification", "verification message"]
    heads += ["max absolute error", "max relative error", "check", "measure again"]
    weighed = _weighed_parts(document)
    heads += ["against", *(f"{metric} {part}" for metric in weighed for part in DELTA.values())] if weighed else []
    rows = []
    for case in cases:
        run = document["runs"][case["run"]]
        commit = f"{run['commit']}{' with uncommitted changes' if run['dirty'] else ''}" if run["commit"] else ""
        row = [run["id"], case["number"], run["created"], commit, document["machines"][run["machine"]]["name"], case["id"]]
        row += [case[name] for name in WORDS]
        row += [case["params"].get(name) for name in params] + [case["flags"].get(name) for name in flags]
        row += [case["metrics"][name][part] if name in case["metrics"] else None for name, parts in shown.items() for part in parts]
        check = case["verification"] or {}
        row += [case["noise"], run["load"], case["other_load"], check.get("status"), check.get("message")]
        row += [check.get("max_abs"), check.get("max_rel"), case["check"], case["repeat"]]
        own = [deltas.get(case["id"], {}) for deltas in weighed.values()]
        row += [next((delta["base"] for delta in own if delta), None)] if weighed else []
        row += [delta.get(part) for delta in own for part in DELTA]
        rows.append(row)
    return heads, rows


def _weighed_parts(document: Document) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The first delta of each case, by metric and case; empty if nothing was compared."""
    deltas = (document["comparison"] or {"deltas": ()})["deltas"]
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for delta in deltas:
        found.setdefault(delta["metric"], {}).setdefault(delta["case"], delta)
    return found


def figures_csv(document: Document) -> str:
    """The table of figures as CSV."""
    return table(*figures_table(document))


def figures_table(document: Document) -> Table:
    """One row per figure, in SI units: the form that plotting and statistics programs expect."""
    rows = []
    for case in document["cases"]:
        place = (document["runs"][case["run"]]["id"], case["number"], case["id"], case["status"])
        for name, figure in case["metrics"].items():
            kind = document["metrics"].get(name, {})
            under = (case["threads"], case["noise"], case["other_load"])
            rows.append([*place, name, *figure, kind.get("unit"), kind.get("better"), *under])
    return LONG, rows


def require_arrow() -> None:
    """Raise an error that says what to install, before any other work is done for a Parquet or Arrow file."""
    try:
        importlib.import_module("pyarrow")
    except ImportError as error:
        gone = isinstance(error, ModuleNotFoundError) and error.name == "pyarrow"
        why = "pyarrow is not installed" if gone else f"pyarrow cannot be loaded: {clean(error)}"
        raise UsageError("cannot write Parquet or Arrow", why=why, do="pip install 'steelyard[arrow]', or -o cases.csv") from None


def parquet(found: Table) -> bytes:
    """The table as Parquet."""
    made = io.BytesIO()
    importlib.import_module("pyarrow.parquet").write_table(_columns(found), made)
    return made.getvalue()


def arrow(found: Table) -> bytes:
    """The table as a file of Arrow's IPC format, which is Feather too."""
    made, library = io.BytesIO(), importlib.import_module("pyarrow")
    columns = _columns(found)
    with library.ipc.new_file(made, columns.schema) as writer:
        writer.write_table(columns)
    return made.getvalue()


def _columns(found: Table) -> Any:
    """The table as typed columns, with null for empty cells. No program runs a cell of such a file, so text is not quoted."""
    heads, rows = found
    library = importlib.import_module("pyarrow")
    types = {bool: library.bool_(), int: library.int64(), float: library.float64(), str: library.string()}
    columns = [_alike(head, [row[place] for row in rows]) for place, head in enumerate(heads)]
    return library.table([library.array(values, types[kind]) for kind, values in columns], names=[clean(head) for head in heads])


def _alike(head: str, values: Sequence[Any]) -> tuple[type, list[Any]]:
    """The type of a column, and its values in that type; whole numbers are integers only in columns of counts and parameters."""
    kinds = {type(value) for value in values if value is not None}
    whole = head in COUNTS or head.endswith(" n") or head.startswith("param ")
    if kinds == {bool} or (kinds == {int} and whole and all(value is None or abs(value) < 2**63 for value in values)):
        return kinds.pop(), list(values)
    if kinds and kinds <= {int, float}:
        return float, [None if value is None else float(value) for value in values]
    return str, [None if value is None else clean(value if isinstance(value, str) else json.dumps(value)) for value in values]


def document_json(document: Document) -> str:
    """Everything on the page as JSON, for programs; NaN and infinity are null in it, and it is ASCII, so it cannot control a terminal."""
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV that spreadsheets can read safely, whatever the cells contain."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow([_cell(head) for head in heads])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return made.getvalue().encode("utf-8", "replace").decode("utf-8")


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return value
    text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:LONGEST_CELL]
    return f"'{text}" if text.startswith(RUNNABLE) else text


def _names(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table))


def _filled_parts(name: str, cases: Sequence[Mapping[str, Any]]) -> list[int]:
    """Which of value, low, high and n to show: the value, and those that any case has."""
    figures = [case["metrics"][name] for case in cases if name in case["metrics"]]
    return [part for part in range(len(PARTS)) if part == 0 or any(figure[part] is not None for figure in figures)]


def _head(name: str, part: int, metrics: Mapping[str, Any]) -> str:
    unit = metrics.get(name, {}).get("unit", "")
    return f"{name}{PARTS[part]}" + (f" ({unit})" if unit not in ("", "1") and PARTS[part] != " n" else "")
