"""One run of `as param` from config to output file: expand, choose, have the engine measure, write each line as it comes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from steelyard import registry
from steelyard.dialects.param import batch, config, flags, lines, native
from steelyard.dialects.param.expand import Config, Sheet, Source
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.lines import Line, Recorded
from steelyard.dialects.param.sink import Mistaken, Writing
from steelyard.dialects.param.watching import ConfigWatch
from steelyard.engine import conduct, plan
from steelyard.engine.place import Place
from steelyard.engine.run import WaitTold
from steelyard.errors import FAILED, NOTHING, PASS, USAGE, UsageError, did_you_mean, exit_code
from steelyard.model.record import BAD
from steelyard.store.runs import Store

RAISED = 1
"""Python's exit code after a traceback, which is how PARAM reports a failed call."""
DRY = "no warm-up and no iteration was requested"


@dataclass
class Session:
    """A run in progress; afterwards the caller reads its outcome."""

    options: Options
    watch: ConfigWatch = field(default_factory=ConfigWatch)
    strict: bool = False
    """Mistakes stop everything, while failures do not."""
    place: lines.OutputPlace | None = None
    store: Store | None = None
    """The folder for the engine's run; a temporary one if there is no store."""
    command: Sequence[str] = ()
    sink: Writing | None = None
    complete: bool = False

    @property
    def mistakes(self) -> list[object]:
        """What is wrong with the config."""
        return list(self.sink.mistakes) if self.sink else []

    @property
    def statuses(self) -> list[str]:
        """The status of each config, those of the continued file included."""
        return self.sink.statuses if self.sink else []

    @property
    def files(self) -> dict[str, str]:
        """The files written, by PARAM's names."""
        return dict(reversed(self.sink.files)) if self.sink else {}

    def run(self, source: Source) -> int:
        """Run everything and return the exit code."""
        try:
            return self._run(source)
        finally:
            if self.sink:
                self.sink.close()

    def _run(self, source: Source) -> int:
        options = self.options
        _check_files(options.files)
        batch.check(options)
        if self.place:
            lines.check_writable(self.place.file)
            if self.place.file.exists() and self.place.file.stat().st_size and not options.append:
                self.watch.warning(f"{self.place.file} has older results, which are overwritten; -a would add to them")
        files = [str(Path(name).resolve()) for name in options.files]
        sheet, recorded = config.sheet(source, files, _place(options), options.device, lenient=not self.strict), self._recorded()
        if not sheet.configs and not sheet.mistakes:
            raise UsageError("there is nothing to run in this config", where=sheet.source)
        chosen = select(sheet.configs, options) if sheet.configs else []
        sink = self.sink = Writing(options, self.watch, sheet, chosen, self.place, recorded, self.strict, config.packages(source))
        self._tell_mistakes(sheet, sink)
        left = self._left(chosen, recorded)
        if (sink.mistakes and (self.strict or options.fail_fast)) or not chosen:
            return self._judged(sink)
        if options.expands_only or not left:
            return self._without_engine(left, chosen, recorded, sink)
        return self._measure(sheet, chosen, files, sink)

    def _recorded(self) -> Recorded | None:
        """The content of the continued file."""
        there = self.place and self.options.append and self.place.file.exists()
        return lines.read(self.place.file) if self.place and there else None

    def _tell_mistakes(self, sheet: Sheet, sink: Writing) -> None:
        for odd in sheet.warnings:
            self.watch.warning(f"{replace(odd, do='')}; PARAM runs it anyway")
        for mistake in sheet.mistakes:
            sink.mistaken(mistake)
            if mistake.op:
                sink.refused_lines.append(lines.refused(mistake.op, mistake.id, None, None, mistake.what))

    def _left(self, chosen: Sequence[Config], recorded: Recorded | None) -> list[Config]:
        """The configs that the continued file lacks."""
        if recorded is None:
            return list(chosen)
        left = [item for item in chosen if recorded.holds(item.op, item.id, item.build, item.input, self.options) is None]
        measured = [line for item in left if (line := recorded.records.get(item.full_id)) and lines.status(line) not in lines.UNMEASURED]
        if measured:
            self.watch.warning(f"{len(measured)} of the recorded configs have other arguments or options now and are measured again")
        return left

    def _without_engine(self, left: Sequence[Config], chosen: Sequence[Config], recorded: Recorded | None, sink: Writing) -> int:
        """Write the expanded configs, or count those already recorded; nothing is measured."""
        held = [line for item in chosen if recorded and (line := recorded.holds(item.op, item.id, item.build, item.input, self.options))]
        sink.statuses += [lines.status(line) for line in held]
        if left and self.options.expands_only:
            sink.open(unasked())
            for item in left:
                sink.dry(item, DRY)
            self._finish(sink)
        elif self.place and held:
            sink.files.append(("benchmark_file", str(self.place.file)))
            self._finish(sink)
        return self._judged(sink)

    def _measure(self, sheet: Sheet, chosen: Sequence[Config], files: Sequence[str], sink: Writing) -> int:
        experiment = native.asked(sheet, chosen, self.options, files)
        ready = plan.expand(experiment, registry.catalogue(), place=_place(self.options), entries=tuple(sink.entries))
        told = WaitTold(self.watch.waiting)
        with tempfile.TemporaryDirectory(prefix="steelyard-") as folder:
            store = self.store or Store(Path(folder))
            try:
                conduct.execute(ready, store, self.command, lambda writer: told, fail_fast=self.options.fail_fast, sink=sink)
            except Mistaken:
                return self._judged(sink)
        sink.flush()
        if len(sink.statuses) >= len(chosen) - sink.refusals:
            self._finish(sink)
        return self._judged(sink)

    def _finish(self, sink: Writing) -> None:
        self.complete = True
        sink.finish()

    def _judged(self, sink: Writing) -> int:
        """Return the exit code: success needs something measured, unless nothing was requested; mistakes come first."""
        if sink.mistakes and not sink.statuses:
            return USAGE
        failed = sink.mistakes or sink.batch_failed or any(status in BAD for status in sink.statuses)
        held = [FAILED] if failed else []
        if not held and not self.options.expands_only and "ok" not in sink.statuses:
            held.append(NOTHING)
        return exit_code(held) if held else PASS

    def original_code(self, code: int) -> int:
        """Return PARAM's exit code in place of ours: 1 after a failed call, else 0, also if configs were skipped."""
        if code == USAGE:
            return code
        return RAISED if any(status not in lines.UNMEASURED and status != "ok" for status in self.statuses) else PASS


def _place(options: Options) -> Place:
    return Place(threads=options.threads, device_index=options.device.partition(":")[2])


def _check_files(files: Sequence[str]) -> None:
    for name in files:
        try:
            there, why = Path(name).is_file(), ""
        except OSError as error:
            there, why = False, error.strerror or ""
        if not there:
            raise UsageError("there is no such file", why=why, do="name a .py file with --file", where=name)


def select(configs: Sequence[Config], options: Options) -> list[Config]:
    """Return the configs from the resume id up to the stop id; an unknown id is an error, because the run would be empty."""
    places = {config.full_id: place for place, config in enumerate(configs)}
    first = 0 if options.resume_id is None else _place_of(options.resume_id, places, "resume")
    last = len(configs) if options.stop_id is None else _place_of(options.stop_id, places, "stop")
    if first >= last:
        raise UsageError(f"there is no config between {options.resume_id or 'the first config'} and the stop id {options.stop_id}")
    return list(configs[first:last])


def _place_of(id: str, places: Mapping[str, int], what: str) -> int:
    if id not in places:
        raise UsageError(
            f"no config has the {what} id {id!r}",
            why=did_you_mean(id, places), do="-w 0 -i 0 writes every config with its id: <op_name>|<id>",
        )  # fmt: skip
    return places[id]


def unasked() -> Line:
    """Return the header's facts about the system that are known without loading torch."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = None
    unknown = dict.fromkeys(("pytorch_debug_build", "pytorch_build_config"))
    return lines.host() | {"cuda_available": None, "pytorch_version": torch, **unknown}


def begin(
    options: Options,
    watch: ConfigWatch,
    *,
    to_file: bool = True,
    strict: bool = False,
    store: Store | None = None,
    command: Sequence[str] = (),
) -> Session:
    """Start a session with consistent options; changes are reported."""
    settled, warnings = flags.settle(options)
    for text in warnings:
        watch.warning(text)
    place = lines.place(settled, os.getpid(), int(datetime.now().timestamp())) if to_file else None
    return Session(settled, watch, strict, place, store, command)
