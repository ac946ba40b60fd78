"""`steelyard show`: one run, record, workload or file of workloads in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import output
from steelyard.cli.output import emit_json, find_store, json_option, put, store_option, width
from steelyard.errors import UsageError, unknown

if TYPE_CHECKING:
    from steelyard.store.refs import Ref
    from steelyard.store.runs import Run


@click.command("show")
@click.argument("ref", default="latest")
@click.option("--samples", is_flag=True, help="Print the raw samples instead.")
@click.option("--history", is_flag=True, help="Show the case over all saved runs, and when its time changed.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of records and pairs.")
@store_option
@json_option
def command(ref: str, samples: bool, history: bool, schema: bool, store: Path | str | None, as_json: bool) -> None:
    """Show a run, one of its records, a workload, or what a Python file defines, in full.

    REF is latest, latest~3, a run id such as k3f9, a record of it such as k3f9/2, a case id, a path, another tool's file of
    results or a folder of them (FILE, FILE#2, FILE#2/3), a workload's name, or a .py file.
    """
    if schema:
        from steelyard.codec import record_schema

        emit_json(record_schema())
        return
    if ref.endswith(".py"):
        if samples or history:
            raise UsageError(
                f"{ref} is a file of workloads, which has no samples and no history", do="name a case id, or a record such as latest/1"
            )
        show_file(ref, as_json)
        return
    found = resolve(ref, store)
    if history:
        show_history(found, store, as_json, _named(ref)[0] or ())
    elif isinstance(found, dict):
        if samples:
            raise UsageError(f"{ref} is a workload, which has no samples", do="name a run or a record: steelyard list runs")
        show_workload(found, as_json)
    elif samples:
        show_samples(found, as_json)
    elif found.record is not None:
        show_record(found, as_json)
    else:
        show_run(found.run, as_json, ref if any("tool" in record.effective for record in found.run.records) else "")


def resolve(ref: str, folder: Path | str | None) -> Ref | dict[str, Any]:
    """The saved result that the reference names, else the description of a workload with that name."""
    if other := of_another_tool(ref):
        return other
    from steelyard.store import refs

    store = find_store(folder)
    try:
        return refs.resolve(store, ref)
    except refs.NoSuchRecord:
        raise
    except UsageError:
        if "@" in ref or ref.startswith("latest"):
            raise
        from steelyard import registry

        workloads = registry.catalogue().workloads
        if ref in workloads:
            return {**workloads[ref], "name": ref}
        if "/" in ref:
            raise unknown("run or workload", ref, workloads, listing="steelyard list") from None
        raise


def of_another_tool(ref: str) -> Ref | None:
    """Results in another tool's file: FILE, FILE#2 for one of its runs, FILE/3 or FILE#2/3 for a record; the newest run by default."""
    runs, place = _named(ref)
    if runs is None:
        return None
    from steelyard.report.cells import clean
    from steelyard.store.refs import NoSuchRecord, Ref

    if len(runs) > 1:
        click.echo(f"note: this is the last of {len(runs)} runs; the first is {clean(runs[0].id)}", err=True)
    if place is not None and not 1 <= place <= len(runs[-1].records):
        raise NoSuchRecord(runs[-1], place)
    return Ref(runs[-1], place)


def _named(ref: str) -> tuple[tuple[Run, ...] | None, int | None]:
    """The runs in another tool's file or folder, and the record that the reference names."""
    from steelyard.analyze.foreign import named

    name, _, number = ref.rpartition("/")
    runs = named(ref)
    if runs is None and number.isdecimal() and len(number) < 10:
        return named(name), int(number)
    return runs, None


def show_workload(info: dict[str, Any], as_json: bool) -> None:
    """Print what a workload computes and what can be set."""
    if as_json:
        emit_json(info)
        return
    from steelyard import registry
    from steelyard.report.describe import workload_detail

    put(workload_detail(info, _fitting(info, registry.catalogue().variants), width=width()))


def _fitting(info: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The variants available on a workload's backends."""
    bodies = set(info.get("backends", ()))
    return [name for name, item in variants.items() if not item.get("backends") or bodies & set(item["backends"])]


def show_file(file: str, as_json: bool) -> None:
    """Print every workload, variant and metric that a Python file defines."""
    from steelyard.engine.selection import defined

    found = {kind: items for kind, items in defined([file]).items() if items or kind in ("workloads", "variants", "metrics")}
    if as_json:
        emit_json({"file": file, **found})
        return
    from steelyard import registry
    from steelyard.report.describe import definitions_detail, workload_detail

    known = {**registry.catalogue().variants, **found["variants"]}
    for info in found["workloads"].values():
        put(workload_detail(info, _fitting(info, known), file=file, width=width()))
    rest = {kind: items for kind, items in found.items() if items and kind != "workloads"}
    if rest:
        put(definitions_detail(file, rest, width=width()))
    if not any(found.values()):
        raise UsageError(
            f"{file} defines no workload, variant or metric", do="see docs/howto/own-workload.md, or start with steelyard new workload NAME"
        )


def show_run(run: Run, as_json: bool, ref: str = "") -> None:
    """Print the table of a run as at the end of the run; `ref` is how the user named it, if it comes from another tool's file."""
    warn(run)
    if as_json:
        emit_json({"header": run.header, "records": run.records, "pairs": run.pairs, "seal": run.seal, "warnings": run.warnings,
                   **_prediction(run)})  # fmt: skip
        return
    import shlex

    from steelyard.report.cells import clean
    from steelyard.report.text import run_table

    put(run_table(run.header, run.records, run.pairs, width=width(), ref=clean(shlex.quote(ref)) if ref else ""))


def _prediction(run: Run) -> dict[str, Any]:
    """The predicted step time, if the run's cases were taken from one step of a trace."""
    from steelyard.analyze.prediction import predict

    found = predict(run.records, run.header.weights, run.header.recorded)
    return {"prediction": found} if found else {}


def show_record(ref: Ref, as_json: bool) -> None:
    """Print one record, with its comparisons."""
    warn(ref.run)
    record = ref.record
    assert record is not None
    if as_json:
        pairs = [pair for pair in ref.run.pairs if record.id in (pair.base.id, pair.head.id)]
        emit_json({"run": ref.run.id, "number": ref.number, "record": record, "pairs": pairs})
        return
    from steelyard.report.detail import record_detail

    put(record_detail(record, ref.run, width=width()))


def show_history(found: Ref | dict[str, Any], folder: Path | str | None, as_json: bool, imported: Sequence[Run] = ()) -> None:
    """Print one case over time on the machine of the named record, including runs from other tools' files if those are named."""
    if isinstance(found, dict) or found.record is None:
        raise UsageError("--history needs one case", do="name a case id, or a record such as latest/1")
    from steelyard.analyze.history import histories, histories_of, history

    store, case, key = find_store(folder), found.record.id, found.run.header.machine_key
    series = histories_of(imported).get(case)
    if series is None:
        series = histories(store, [case], key, imported=imported)[case] if imported else history(store, case, key)
    if as_json:
        emit_json(series)
        return
    from steelyard.report.history import history_page

    put(history_page(series, width=width()))


def show_samples(ref: Ref, as_json: bool) -> None:
    """Print raw samples in full precision: of one record, or of a whole run."""
    from steelyard.report.cells import clean

    warn(ref.run)
    wanted = [(record.id, record.samples) for number, record in enumerate(ref.run.records, 1) if ref.number in (None, number)]
    if ref.number is None:
        wanted += [(f"{pair.head.id} vs {pair.base.id}", pair.samples) for pair in ref.run.pairs]
    arrays = [(owner, series, ref.run.array(series).tolist()) for owner, held in wanted for series in held]
    if as_json:
        emit_json([{"of": owner, "name": series.name, "unit": series.unit, "values": values} for owner, series, values in arrays])
        return
    if not arrays:
        click.echo("no raw samples were kept", err=True)
    for owner, series, values in arrays:
        unit = f"in {clean(series.unit)}, " if series.unit not in ("", "1") else ""
        click.echo(f"# {clean(owner)}  {clean(series.name)}  {unit}{series.count} values")
        click.echo("\n".join(map(repr, values)))


def warn(run: Run) -> None:
    """Print notes on a run's file: unfinished, or cases missing."""
    for warning in run.warnings:
        output.warn(warning)
    if run.seal is None:
        missing = len(set(run.header.cases) - {record.id for record in run.records})
        left = f", {missing} cases are missing" if missing else ""
        click.echo(f"note: run {run.id} is unfinished{left}: it was interrupted or is still being measured", err=True)
