"""One run of `as torchao`: read the config, have the engine measure, write each row as it arrives, then profiles and records."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, count, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from steelyard.codec.torchao import PEAK, SPEEDUPS
from steelyard.dialects.devices import arches, has_device
from steelyard.dialects.torchao import config, lines
from steelyard.dialects.torchao.layers import LayerRow
from steelyard.dialects.torchao.lines import Line
from steelyard.dialects.torchao.reading import read_rows
from steelyard.engine import conduct
from steelyard.engine.messages import Unweighed
from steelyard.engine.run import WaitTold
from steelyard.engine.sinks import MeasuredCase, RowSink
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.experiment import Experiment, Settings
from steelyard.model.pair import Pair, weigh
from steelyard.model.record import Record
from steelyard.store.runs import RunWriter, Store
from steelyard.terminal import save

STATS = {"peak_allocated": PEAK, "peak_active": "active_bytes.all.peak", "peak_reserved": "reserved_bytes.all.peak",
         "peak_memory": "peak_memory"}  # fmt: skip
"""The original's names for the peaks of a device's memory; on a CPU there is only the peak of the process."""
MEGA = 1e6
VIEWER = "https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/MemoryViz.js"
PAGE = """<!DOCTYPE html>
<title>{name}</title>
<script type="module">
  import {{add_local_files}} from "{viewer}"
  add_local_files([{{name: "{name}", base64: "{data}"}}], "Active Memory Timeline")
</script>
"""
"""A page that shows a memory snapshot in PyTorch's viewer, which the page loads from the network, as the original's does."""


@dataclass(frozen=True)
class TorchaoOptions:
    """The options; the first two are the original's."""

    config: Path
    output: Path | None = Path("benchmark_results.json")
    csv: Path | None = None
    output_dir: str = ""
    form: str = "seed"
    device: str = ""
    settings: Settings = field(default_factory=Settings)
    files: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    resume: bool = False
    strict_exit: bool = False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A context whose write errors name the file and the reason."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}", why=error.strerror or str(error), do="name another folder with --output-dir") from None


class LayerSink(RowSink):
    """Writes rows to the CSV file in the order of the config; a finished row waits until all rows before it are finished."""

    def __init__(self, layers: Sequence[LayerRow], path: Path, form: str, show: Callable[[str, Line], None]) -> None:
        super().__init__([row.result_row for row in layers if not row.trouble], path)
        self.layers, self.form, self.show, self.run = layers, form, show, ""
        self.ready: dict[str, Line] = {}
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self.save()

    def opened(self, run: Path) -> None:
        self.run = run.name

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Pair | Unweighed]) -> Mapping[str, Any]:
        row = next(row for row in self.layers if row.key == key)
        records = dict(zip(row.cases, (case.record for case in cases), strict=True))
        weighed = [pair.reason if isinstance(pair, Unweighed) else weigh(pair) for pair in pairs]
        line = lines.measured(row, records, dict(zip(row.pairs, weighed, strict=True)), self.run)
        self._put(key, line)
        return line

    def _put(self, key: str, line: Line) -> None:
        """Keep a finished row, and write all rows that are next in order, including those that need no measuring."""
        self.ready[key] = line
        for row in self.layers[len(self.done) :]:
            due = self.ready.get(row.key) or (lines.untried(row) if row.trouble else None)
            if due is None:
                break
            self.ready[row.key] = due
            self.done.append(due)
            with writing(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(lines.csv_text([due], self.form, header=False))
            self.show(f"[{len(self.done)}/{len(self.layers)}] {row.key}", due)

    def finish(self) -> None:
        """Write the rows without results, with a reason; called after measuring."""
        for row in self.layers:
            if row.key not in self.ready:
                self._put(row.key, lines.untried(replace(row, trouble=row.trouble or "it was not measured")))

    def save(self) -> None:
        """Write the whole file again, since rows have changed; after an early end it includes rows that waited for earlier ones."""
        self.done = [self.ready[row.key] for row in self.layers if row.key in self.ready]
        save(self.path, lines.csv_text(self.done, self.form))


@dataclass
class TorchaoRun:
    """A run in progress; afterwards the caller reads its outcome."""

    options: TorchaoOptions
    say: Callable[[str], None]
    store: Store
    command: Sequence[str] = ()
    sink: LayerSink | None = None
    files: set[Path] = field(default_factory=set)
    """The profiles that this run has written."""

    @property
    def lines(self) -> list[Line]:
        """The rows so far."""
        return self.sink.done if self.sink else []

    def run(self) -> int:
        """Run everything and return the exit code: 0, as in the original, unless --strict-exit was given."""
        options = self.options
        found, warnings = read_rows(options.config, lenient=True, form=options.form, device=options.device, output_dir=options.output_dir)
        rows = self._placed(found)
        told = [f"{row.place}: {row.note}" if row.note else row.trouble for row in rows if row.note or row.trouble]
        for text in [*warnings, *(f"{options.config}  {text}" for text in dict.fromkeys("\n".join(told).splitlines()))]:
            self.say(f"warning: {text}")
        if options.output and not options.output.absolute().parent.is_dir():
            raise UsageError(f"cannot write {options.output}", why="there is no such folder", do="name another place with --output")
        path = options.csv or _free(Path(rows[0].output_dir) / datetime.now().strftime("results_%d%m%Y_%H%M%S.csv"))
        sink = self.sink = LayerSink(rows, path, options.form, self._show)
        try:
            if able := [row for row in rows if not row.trouble]:
                self._execute([row.result_row for row in able], options.settings, sink)
            sink.finish()
            self._profile(sink, [row for row in able if sink.ready[row.key]["status"] == "ok"])
        finally:
            sink.save()
            if options.output:
                save(options.output, lines.ci_text(self.lines, options.form, arches({line["device"] for line in self.lines})))
        return self._judged()

    def _placed(self, rows: list[LayerRow]) -> list[LayerRow]:
        """Return the rows with their names looked up; if a row's device is missing here, it runs on the CPU, as in the original."""
        for device in dict.fromkeys(row.device for row in rows):
            if not self.options.device and not has_device(device):
                self.say(f"warning: there is no {device} here, so the CPU is used, as in the original")
                rows = [replace(row, device="cpu") if row.device == device else row for row in rows]
        found, filters = config.checked(rows, config.catalogue(self.options.files)), self.options.filters
        kept = [row for row in found if not filters or any(part in row.key for part in filters)]
        if not kept:
            raise NothingMeasured("no row matches --filter", why=f"the first row is {found[0].key}", do="give a part of such a line")
        return kept

    def _show(self, place: str, line: Line) -> None:
        speedups = [f"{line[name]:.2f}x {said.replace('_', ' ')}" for said, name in SPEEDUPS.items() if line[name] is not None]
        told = [line["status"], str(line["reason"])[:500]] if line["status"] != "ok" else []
        self.say("  ".join([place, *told, *speedups]))

    def _execute(self, rows: Iterable[Any], settings: Settings, sink: LayerSink | None = None, **words: Any) -> conduct.RunOutcome:
        name, files = f"torchao {self.options.config.name}", self.options.files
        experiment = Experiment(name, rows=tuple(rows), settings=settings, files=files, **words)
        resume = "" if self.options.resume and sink else None
        return conduct.execute(conduct.from_experiment(experiment), self.store, self.command, self._watched, resume=resume, sink=sink)

    def _watched(self, writer: RunWriter) -> WaitTold:
        for text in writer.warnings:
            self.say(f"warning: {text}")
        return WaitTold(self.say)

    def _profile(self, sink: LayerSink, rows: Iterable[LayerRow]) -> None:
        """Make the profiles that rows ask for, in a run of their own after the timing; also memory peaks if the records need them."""
        sized = self.options.form == "last" and self.options.output is not None
        asked = attrgetter("profiler", "memory_profiler")
        for (traced, history), group in groupby(sorted(rows, key=asked), asked):
            if not (traced or history or sized):
                continue
            members = list(group)
            settings = replace(
                self.options.settings, runs=1, warmup=0.0, verify=False, telemetry=False, profile="stacks" if traced else False,
                peak_memory=history or sized, memory_snapshot=history,
            )  # fmt: skip
            done = self._execute((), settings, include=tuple(dict.fromkeys(row.subject for row in members)))
            records = {record.id: record for record in done.run.records}
            for row in members:
                self._keep_profiles(row, sink.ready[row.key], records[sink.rows[row.key].cases[-1].id], done)

    def _keep_profiles(self, row: LayerRow, line: Line, record: Record, done: conduct.RunOutcome) -> None:
        folder, notes = Path(row.output_dir), list[str]()
        memory, name = folder / "memory_profiler", f"{row.file_stem}_memory_profile"
        for kept in record.attachments:
            if kept.kind in (("trace",) if row.profiler else ()) + (("memory",) if row.memory_profiler else ()):
                content = done.run.attachment(kept).read_bytes()
                if kept.kind == "trace":
                    line["profiler_json_path"] = self._written(folder / "profiler" / f"{row.file_stem}_profile.json", content)
                else:
                    page = PAGE.format(name=name, viewer=VIEWER, data=b64encode(content + bytes(-len(content) % 3)).decode())
                    line["memory_profile_path"] = self._written(memory / "pickle" / f"{name}.pickle", content)
                    line["memory_visualization_path"] = self._written(memory / "html" / f"{name}.html", page.encode())
        for setting, asked in (("profile", row.profiler), ("memory_snapshot", row.memory_profiler), ("peak_memory", row.memory_profiler)):
            if asked and isinstance(said := record.effective.get(setting), str):
                notes.append(f"{setting.replace('_', ' ')}: {said}")
        if record.status not in ("ok", "wrong"):
            notes.append(f"no profile: {record.status}: {record.reason}")
        peaks = {theirs: record.metrics[name].value / MEGA for name, theirs in STATS.items() if name in record.metrics}
        line["memory_stats"], line["notes"] = peaks or None, "; ".join(filter(None, [row.note, *notes])) or None
        for note in notes:
            self.say(f"warning: {row.key}: {note}")

    def _written(self, path: Path, content: bytes) -> str:
        """Write a file to the original's place, with a number if the name is taken by another row, and return its path."""
        path = _free(path, self.files.__contains__)
        self.files.add(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return str(path)

    def _judged(self) -> int:
        statuses = {line["status"] for line in self.lines} if self.options.strict_exit else {"ok"}
        return conduct.code_of(statuses)


def _free(path: Path, taken: Callable[[Path], bool] = Path.exists) -> Path:
    """Return this path, or one with a number if it is taken."""
    others = (path.with_stem(f"{path.stem}_{number}") for number in count(2))
    return next(found for found in chain([path], others) if not taken(found))
