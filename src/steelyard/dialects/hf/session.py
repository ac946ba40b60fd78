"""One run of `as hf run_benchmarks`: bench files are found, filtered and run in workers; log and summary are written on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steelyard.dialects.commands import LOUDNESS, make_folder
from steelyard.dialects.hf import files
from steelyard.dialects.hf.cases import device_here
from steelyard.engine import conduct
from steelyard.engine.messages import Found
from steelyard.engine.run import WaitTold
from steelyard.engine.sinks import RepeatedLines, Sink
from steelyard.errors import PASS, UsageError, told
from steelyard.files import existing, read_text
from steelyard.model.experiment import Experiment, Settings, UserScript
from steelyard.model.record import Record
from steelyard.store.runs import RunWriter, Store
from steelyard.terminal import save

BENCHES = Path(__file__).parent / "benches"
SHIM = "steelyard.hf"
FALLEN = 1
"""The original's exit code for any failure."""
SUMMARY = "benchmark_summary.json"


@dataclass(frozen=True)
class BenchOptions:
    """The options: the original's flags first, then ours."""

    output_dir: Path = Path("benchmark_results")
    benches_dir: Path = Path("benches")
    named_dir: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    log_level: str = "INFO"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    env: str = ""
    threads: int = 1
    settings: Settings = field(default_factory=Settings)
    resume: bool = False
    strict_exit: bool = False


@dataclass
class BenchOutcome:
    """The outcome of one bench: completed, skipped, no_runner or failed, with the number of its scenarios by status."""

    status: str
    reason: str = ""
    path: str = ""
    run: str = ""
    scenarios: dict[str, int] = field(default_factory=dict)

    @property
    def result(self) -> str | None:
        """The entry for the original's summary, without skipped benches."""
        return self.path or {"completed": "completed", "skipped": "skipped", "no_runner": "skipped"}.get(self.status)


class BenchSink(Sink):
    """Passes on the log of a bench; lines repeated because its file is run again after a crash are printed only once."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self.log, self.facts = log, dict[str, Any]()
        self.lines = RepeatedLines()
        self.again = self.lines.again  # type: ignore[method-assign]

    def found(self, found: Found) -> None:
        line = (str(found.facts.get("level", "INFO")), str(found.facts.get("log")))
        if "log" not in found.facts:
            self.facts |= dict(found.facts)
        elif self.lines.new(line):
            self.log(*line)

    def printed(self, text: str) -> None:
        self.log("DEBUG", f"the worker printed: {text}")


def discover(options: BenchOptions) -> dict[str, Path]:
    """The chosen bench files by name: those of the folder, and ours unless it has a file of that name, after the filters."""
    folder = options.benches_dir
    if options.named_dir and not folder.is_dir():
        raise UsageError(f"there is no folder {str(folder)!r}", do="name the folder of bench files with --benches-dir")
    built_in = {path.stem: path for path in sorted(BENCHES.glob("*.py"))}
    own = {path.stem: path.resolve() for path in sorted(folder.glob("*.py"))} if folder.is_dir() else {}
    found = {stem: path for stem, path in sorted({**built_in, **own}.items()) if not stem.startswith("__")}
    chosen = {stem: path for stem, path in found.items() if not options.include or any(part in stem for part in options.include)}
    return {stem: path for stem, path in chosen.items() if not any(part in stem for part in options.exclude)}


@dataclass
class BenchesRun:
    """A run in progress."""

    options: BenchOptions
    say: Callable[[str], None]
    store: Store
    command: Sequence[str] = ()
    outcomes: dict[str, BenchOutcome] = field(default_factory=dict)
    log_file: Path | None = None

    def run(self) -> int:
        """Run all benches, one after the other, and return the exit code; a failure in one does not stop the rest."""
        options = self.options
        found = discover(options)
        make_folder(options.output_dir)
        self.log_file = files.free(options.output_dir / f"benchmark_run_{datetime.now().strftime(files.STAMP)}.log")
        self.log_file.touch()
        if not found:
            self.log("ERROR", "--include and --exclude leave no benchmark")
            return self._code()
        self.log("INFO", f"{len(found)} benchmarks: {', '.join(found)}")
        held = self._held() if options.resume else {}
        try:
            for number, (stem, file) in enumerate(found.items(), 1):
                self.log("INFO", f"[{number}/{len(found)}] {stem}")
                self.outcomes[stem] = held.get(stem) or self._bench(stem, file)
                self._tell(stem, self.outcomes[stem])
                self._summary(complete=False)
        finally:
            self._summary(complete=len(self.outcomes) == len(found))
        return self._code()

    def log(self, level: str, text: str) -> None:
        """Write a line to the file, and to the terminal if its level is high enough."""
        if LOUDNESS.get(level, 1) < LOUDNESS[self.options.log_level]:
            return
        assert self.log_file is not None
        with self.log_file.open("a", encoding="utf-8") as file:
            file.write(f"[{level} - {datetime.now():%Y-%m-%d %H:%M:%S}] {text}\n")
        self.say(f"{level.lower()}: {text}" if LOUDNESS.get(level, 1) > LOUDNESS["INFO"] else text)

    def _bench(self, stem: str, file: Path) -> BenchOutcome:
        options = self.options
        own = file.parent == BENCHES
        if own and stem.startswith("mock") and not options.given.get("enable_mock"):
            return BenchOutcome("skipped", "the mock is skipped unless --enable-mock is given")
        words = json.dumps({**options.given, "output_dir": str(options.output_dir), "log_level": options.log_level}, sort_keys=True)
        backend = "fake" if own and stem.startswith("mock") else "torch"
        device = device_here("cuda") if backend == "torch" else "cpu"
        script = UserScript(SHIM, str(file), (words,), backend, device, options.threads)
        sink = BenchSink(self.log)
        try:
            ready = conduct.from_experiment(Experiment(f"hf {stem}", script=script, settings=options.settings), options.env)
            done = conduct.execute(ready, self.store, self.command, self._watched, resume="" if options.resume else None, sink=sink)
        except UsageError as error:
            return BenchOutcome("failed", told(error))
        return _judged(done.run.id, done.run.records, sink.facts)

    def _watched(self, writer: RunWriter) -> WaitTold:
        for text in writer.warnings:
            self.log("WARNING", text)
        return WaitTold(lambda text: self.log("INFO", text))

    def _tell(self, stem: str, outcome: BenchOutcome) -> None:
        counted = ", ".join(f"{count} {status}" for status, count in outcome.scenarios.items())
        told_of = [outcome.status, *filter(None, [outcome.reason, counted, outcome.path])]
        self.log({"failed": "ERROR", "no_runner": "WARNING"}.get(outcome.status, "INFO"), f"{stem}: {' · '.join(told_of)}")

    def _arguments(self) -> dict[str, Any]:
        return {**self.options.given, "benches_dir": str(self.options.benches_dir), "env": self.options.env}

    def _summary(self, *, complete: bool) -> None:
        found = self.outcomes
        good = [stem for stem, outcome in found.items() if outcome.status == "completed"]
        bad = [stem for stem, outcome in found.items() if outcome.status == "failed"]
        made = {
            "run_metadata": {
                "timestamp": datetime.now(UTC).isoformat(), "total_benchmarks": len(found), "successful_benchmarks": len(good),
                "failed_benchmarks": len(bad), "skipped_benchmarks": len(found) - len(good) - len(bad), "complete": complete,
                "arguments": self._arguments(),
            },
            "benchmark_results": {stem: outcome.result for stem, outcome in found.items()},
            "output_directory": str(self.options.output_dir),
            "details": {stem: asdict(each) for stem, each in found.items()},
        }  # fmt: skip
        save(self.options.output_dir / SUMMARY, json.dumps(made, indent=2) + "\n")

    def _held(self) -> dict[str, BenchOutcome]:
        """The benches that an interrupted run with the same arguments has completed."""
        path = existing(str(self.options.output_dir / SUMMARY))
        try:
            data = json.loads(read_text(path)) if path else {}
            before = data.get("run_metadata", {})
            if before.get("complete", True) or before.get("arguments") != self._arguments():
                return {}
            return {stem: BenchOutcome(**each) for stem, each in data["details"].items() if each["status"] == "completed"}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UsageError("cannot read the summary to continue from", do="run without --resume", where=str(path)) from None

    def _code(self) -> int:
        """The exit code: the original's (0 if all ran, else 1), or ours."""
        statuses = {outcome.status for outcome in self.outcomes.values()}
        scenarios = {status for outcome in self.outcomes.values() for status in outcome.scenarios}
        if not self.options.strict_exit:
            return FALLEN if not self.outcomes or "failed" in statuses else PASS
        return conduct.code_of(scenarios, failed="failed" in statuses)


def _judged(run: str, records: Sequence[Record], facts: Mapping[str, Any]) -> BenchOutcome:
    """The outcome of a bench; it failed if it raised, or if none of its scenarios was measured."""
    own = next((record for record in records if record.case["workload"] == "script"), None)
    scenarios: dict[str, int] = {}
    for record in records:
        if record is not own:
            scenarios[record.status] = scenarios.get(record.status, 0) + 1
    made = BenchOutcome(str(facts.get("outcome", "failed")), str(facts.get("reason", "")), str(facts.get("path", "")), run, scenarios)
    if own is not None:
        made.status, made.reason = "failed", "; ".join(part.strip() for part in own.reason.splitlines())
    elif made.status == "completed" and scenarios and not {"ok", "wrong"} & scenarios.keys():
        first = next(record for record in records if record.status not in ("ok", "wrong"))
        made.status, made.reason = "failed", f"no scenario could be measured; the first: {first.status}: {first.reason}"
    elif made.status == "failed":
        made.reason = made.reason or "it reported no outcome"
    return made
