"""One run of `as param` from config to output file: expand, check, choose, measure in a worker, write each line as it comes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from steelyard import registry
from steelyard.dialects.param import batch, expand, flags, lines, reading
from steelyard.dialects.param.expand import Config, Mistake, Sheet
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.lines import Line, Output, Recorded
from steelyard.dialects.param.reading import printable
from steelyard.errors import FAILED, NOTHING, PASS, USAGE, SteelyardError, UsageError, did_you_mean, exit_code
from steelyard.model.record import BAD

Source = Path | Mapping[str, Any]
Entries = list[tuple[str, str]]
KINDS = ("operators", "iterators", "generators")
SHIM = "steelyard.dialects.param.shim.perform"
"""What does our jobs in a worker."""
SPOKEN = "config"
"""What a config that is no file is called in messages."""
DRY = "no warm-up and no iteration was asked for"
ABOUT_CONFIGS, RECORD = ("checking", "mistake", "started", "line"), {"op_name", "id", "metric", "steelyard"}
LONGEST_REASON = 600


class Talk(Protocol):
    """A worker, as far as a session needs one; `engine.converse` has the real thing."""

    def ask(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]: ...
    def retire(self) -> None: ...


Talking = Callable[[Sequence[str], Callable[[str], None], float | None], AbstractContextManager[Talk]]
"""Starts a talk that holds the locks of some devices, with someone to tell about waiting, and a limit for silence."""


class Watch:
    """Who looks on; this one sees nothing."""

    def mistake(self, mistake: Mistake) -> None:
        """A config that cannot run, told before anything does."""

    def warning(self, text: str) -> None:
        """Something was changed or left out."""

    def begun(self, count: int) -> None:
        """So many configs are about to be measured."""

    def started(self, id: str) -> None:
        """A config begins."""

    def finished(self, line: Line) -> None:
        """A record is there."""

    def said(self, text: str) -> None:
        """A tool or a worker printed something."""


@dataclass
class Session:
    """What a run holds while it lasts; the caller reads from it how it went."""

    options: Options
    watch: Watch = field(default_factory=Watch)
    strict: bool = False
    """Mistakes stop everything, while failures do not."""
    place: lines.Place | None = None
    entries: Entries = field(default_factory=list)
    recorded: Recorded | None = None
    sheet: Sheet | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    refused: list[Line] = field(default_factory=list)
    """The configs that cannot run, as lines of the output file."""
    statuses: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    _output: Output | None = None
    _queue: batch.Queue | None = None
    _batch_failed: bool = False
    _checked: bool = False
    _lost_with: int = -1

    def run(self, source: Source, talking: Talking) -> int:
        """Do all of it and answer the exit code."""
        try:
            return self._run(source, talking)
        finally:
            if self._output:
                self._output.close()

    def _run(self, source: Source, talking: Talking) -> int:
        options = self.options
        _check_files(options.files)
        batch.check(options)
        if self.place:
            lines.check_writable(self.place.file)
        self._read_back()
        self.entries = packages(source)
        foreign = bool(options.files or self.entries)
        if not foreign:
            left = self._take(expand_here(source, options))
            if options.expands_only or not left:
                return self._without_worker(left)
        with talking(devices(options), self.watch.said, options.timeout) as talk:
            changed = self._read_back()
            if foreign:
                left = self._take(self._expand_there(talk, source))
            elif changed and self.sheet:
                left = self._left(self.sheet)
            if options.expands_only or not left:
                return self._without_worker(left)
            self._measure(talk, left)
        return self._judged()

    def _read_back(self) -> bool:
        """What the file that is continued holds, and whether that is news: whoever measured before us may have written to it."""
        before = self.recorded
        if self.place and self.options.append and self.place.file.exists():
            self.recorded = lines.read(self.place.file)
        return self.recorded != before

    def _take(self, sheet: Sheet) -> list[Config]:
        """Tell what is wrong with a config, and answer what is to be run."""
        self.sheet = sheet
        for mistake in sheet.mistakes:
            self._mistaken(mistake)
            if mistake.op:
                self.refused.append(lines.refused(mistake.op, mistake.id, None, None, mistake.what))
        if not sheet.configs and not sheet.mistakes:
            raise UsageError("there is nothing to run in it", where=sheet.source)
        return self._left(sheet)

    def _mistaken(self, mistake: Mistake) -> None:
        self.mistakes.append(mistake)
        self.watch.mistake(mistake)

    def _left(self, sheet: Sheet) -> list[Config]:
        """From resume to stop id, and not in the file that is continued; nothing where mistakes stop everything."""
        if (self.mistakes and self._stops_at_mistakes) or not sheet.configs:
            return []
        chosen = select(sheet.configs, self.options)
        if self.recorded is None:
            return chosen
        held = [(config, self.recorded.holds(config.op, config.id, config.build, config.input, self.options)) for config in chosen]
        self.statuses = [lines.status(line) for _, line in held if line]
        changed = sum(line is None and self._was_measured(config) for config, line in held)
        if changed:
            self.watch.warning(f"{changed} of the recorded configs have other arguments or options now and are measured again")
        return [config for config, line in held if line is None]

    def _was_measured(self, config: Config) -> bool:
        line = self.recorded.records.get(config.full_id) if self.recorded else None
        return line is not None and lines.status(line) not in lines.UNMEASURED

    @property
    def _stops_at_mistakes(self) -> bool:
        return self.strict or self.options.fail_fast

    def _expand_there(self, talk: Talk, source: Source) -> Sheet:
        job = {**self._job(), "stage": "expand", **({"source": str(source)} if isinstance(source, Path) else {"data": source})}
        said: dict[str, Any] = {}
        for message in talk.ask(job):
            said |= message
        if "sheet" in said:
            return sheet_of(said["sheet"])
        raise UsageError("the worker was lost while it expanded the config", why=said.get("lost", {}).get("reason", "it gave no answer"))

    def _job(self) -> dict[str, Any]:
        return {
            "do": "shim", "shim": SHIM, "options": self.options.plain(), "entries": self.entries,
            "files": [str(Path(name).resolve()) for name in self.options.files],
        }  # fmt: skip

    def _without_worker(self, left: Sequence[Config]) -> int:
        """Nothing is measured: the expanded configs are written, or there was nothing left to do."""
        if left and self.options.expands_only:
            self._open(unasked())
            for config in left:
                self._write(_record(config, status="skipped", reason=DRY))
            self._finish()
        elif self.place and self.recorded and self.statuses:
            self._end_recorded(self.place.file, self.recorded)
        return self._judged()

    def _end_recorded(self, file: Path, recorded: Recorded) -> None:
        """All that was asked for is there already; a run that was ended before it could say so gets its last line."""
        self.files["benchmark_file"] = str(file)
        if not recorded.finished:
            self._output = Output(file, recorded.whole)
        self._finish()

    def _measure(self, talk: Talk, left: list[Config]) -> None:
        """Until all is measured: a worker that is lost costs the config it was at, and the rest goes to a new one."""
        if self.options.batches:
            self._queue = batch.Queue(self.options, entries=self.entries, echo=self.watch.said)
        worker, ended = 0, False
        while left and not ended and not (self.options.fail_fast and self._failed()):
            worker += 1
            left, ended = self._converse(talk, left, worker)
        self._flush()
        if not left and self._checked:
            self._finish()

    def _converse(self, talk: Talk, left: list[Config], worker: int) -> tuple[list[Config], bool]:
        """One worker's share: what it left over, and whether it came to its own end."""
        by_id = {config.full_id: config for config in left}
        stem = self.place.stem if self.place else ""
        job = {
            **self._job(), "configs": [plain(config) for config in left], "checked": self._checked, "strict": self.strict,
            "stem": stem if worker == 1 else f"{stem}_{worker}",
        }  # fmt: skip
        busy = ""
        for message in talk.ask(job):
            if not _is_sound(message, by_id):
                continue
            if "checking" in message:
                busy = str(message["checking"])
            elif "mistake" in message:
                self._refuse([by_id.pop(id) for id in message["mistake"]["ids"]], message["mistake"]["what"])
            elif "machine" in message:
                busy = ""
                self._begin(message["machine"], len(by_id))
            elif "started" in message:
                busy = str(message["started"])
                self.watch.started(busy)
            elif "line" in message:
                config, busy = by_id.pop(lines.full_id(message["line"])), ""
                self._take_line(config, message["line"])
            elif "files" in message:
                self.files |= message["files"]
            elif "retire" in message:
                talk.retire()
                return list(by_id.values()), False
            elif "lost" in message:
                self._after_loss(by_id, busy, message["lost"])
                return list(by_id.values()), False
        return list(by_id.values()), True

    def _after_loss(self, by_id: dict[str, Config], busy: str, lost: Mapping[str, str]) -> None:
        """Whoever ran is to blame; nobody ran while a worker started or ended, and that must not go on for ever."""
        if busy not in by_id:
            again, self._lost_with = len(by_id) == self._lost_with, len(by_id)
            if again or not self._checked:
                raise SteelyardError(lost["reason"], why="it happened between configs, so none of them is to blame")
            return
        config = by_id.pop(busy)
        if self._checked:
            self._take_line(config, _record(config, status=lost["status"], error=lost["reason"]))
        else:
            self._refuse([config], f"checking it ended badly: {lost['reason']}")

    def _refuse(self, configs: Sequence[Config], what: str) -> None:
        """Tell what a worker found wrong with configs of one place, once for all of them."""
        assert self.sheet is not None
        first, *more = configs
        what = printable(what, LONGEST_REASON)
        id = f"{first.id} and {len(more)} more" if more else first.id
        self._mistaken(Mistake(self.sheet.source, first.path, printable(first.op), id, what))
        self.refused += [lines.refused(config.op, config.id, config.build, config.input, what) for config in configs]

    def _take_line(self, config: Config, line: Line) -> None:
        """Keep a record; its arguments are ours, which no pipe has changed. A batch that is due runs while the worker waits."""
        line = {**line, "config": {"build": config.build, "input": config.input}}
        if self._queue and self._queue.due(config):
            self._flush()
        self._write(line)
        if self._queue:
            self._queue.add(config, line)

    def _flush(self) -> None:
        for line in self._queue.flush() if self._queue else ():
            if self._output:
                self._output.write(line)
            if lines.status(line) == "failed":
                self._batch_failed = True
                self.watch.warning(str(line["steelyard"].get("error", "a batch failed")))

    def _begin(self, machine: Mapping[str, Any], count: int) -> None:
        """All is checked, and the first config is about to run; later workers say the same and are not heard."""
        if not self._checked:
            self._checked = True
            self._open(machine)
            self.watch.begun(count)

    def _open(self, machine: Mapping[str, Any]) -> None:
        if self.place:
            self._output = Output(self.place.file, self.recorded.whole if self.recorded else 0)
            self._output.write(lines.header(self.options, machine, datetime.now()))
            for line in self.refused:
                self._output.write(line)
            self.files["benchmark_file"] = str(self.place.file)

    def _write(self, line: Line) -> None:
        if self._output:
            self._output.write(line)
        self.statuses.append(lines.status(line))
        self.watch.finished(line)

    def _finish(self) -> None:
        """The last lines, which say that the run came to its end; the trace is the very last, as tools expect."""
        self.complete = True
        if self._output:
            self._output.write(lines.finish(datetime.now()))
            for key in lines.TRACE_KEYS:
                if key in self.files:
                    self._output.write({key: self.files[key]})

    def _failed(self) -> bool:
        return any(status in BAD for status in self.statuses)

    def _judged(self) -> int:
        """Nothing measured is never green, unless nothing was asked for; what was wrong in the config comes before all else."""
        if self.mistakes and not self.statuses:
            return USAGE
        held = [FAILED] if self.mistakes or self._failed() or self._batch_failed else []
        if not held and not self.options.expands_only and "ok" not in self.statuses:
            held.append(NOTHING)
        return exit_code(held) if held else PASS


def _is_sound(message: Mapping[str, Any], known: Mapping[str, Config]) -> bool:
    """Whether a message is about configs that are known here: an operator that writes to every open file can put anything on the pipe."""
    kind = next((kind for kind in ABOUT_CONFIGS if kind in message), "")
    told = message.get(kind)
    if kind in ("checking", "started"):
        return isinstance(told, str) and told in known
    if not kind or not isinstance(told, dict):
        return not kind
    if kind == "mistake":
        ids = told.get("ids")
        return isinstance(told.get("what"), str) and isinstance(ids, list) and bool(ids) and all(str(id) in known for id in ids)
    return told.keys() >= RECORD and isinstance(told["steelyard"], dict) and lines.full_id(told) in known


def plain(config: Config) -> dict[str, Any]:
    """As the worker reads it."""
    return {part.name: getattr(config, part.name) for part in fields(config)}


def _record(config: Config, **ours: Any) -> Line:
    return lines.record(config.op, config.id, config.build, config.input, {}, **ours)


def _check_files(files: Sequence[str]) -> None:
    for name in files:
        try:
            there, why = Path(name).is_file(), ""
        except OSError as error:
            there, why = False, error.strerror or ""
        if not there:
            raise UsageError("there is no such file", why=why, do="name a .py file with --file", where=name)


def packages(source: Source) -> Entries:
    """Installed operators, iterators and generators that a config names, by the names they are registered under."""
    installed = {kind: registry.entry_points(kind) for kind in KINDS}
    if not any(installed.values()):
        return []
    data = reading.read(source).data if isinstance(source, Path) else source
    used = set(data) | {value for info in data.values() if isinstance(info, Mapping) for value in info.values() if isinstance(value, str)}
    return [(kind, name) for kind, points in installed.items() for name in points if name in used]


def expand_here(
    source: Source,
    options: Options,
    iterators: expand.Iterators = expand.NO_ITERATORS,
    generators: Collection[str] = expand.DEFAULT_GENERATORS,
) -> Sheet:
    """The sheet of a file, or of data that stands for one; without users' code nothing but this process is needed."""
    known: dict[str, Any] = {"device": options.device, "iterators": iterators, "generators": generators}
    return expand.load(source, **known) if isinstance(source, Path) else expand.expand(source, SPOKEN, **known)


def sheet_of(plain: Mapping[str, Any]) -> Sheet:
    """A sheet that came through a pipe."""
    configs = [Config(**{**item, "generators": tuple(item["generators"])}) for item in plain["configs"]]
    return Sheet(plain["source"], tuple(configs), tuple(Mistake(**item) for item in plain["mistakes"]), plain["dropped"])


def select(configs: Sequence[Config], options: Options) -> list[Config]:
    """From the resume id on, up to the stop id; an id that is none is an error, since a run over nothing would look like one."""
    places = {config.full_id: place for place, config in enumerate(configs)}
    first = 0 if options.resume_id is None else _place_of(options.resume_id, places, "resume")
    last = len(configs) if options.stop_id is None else _place_of(options.stop_id, places, "stop")
    if first >= last:
        raise UsageError(f"nothing lies between {options.resume_id or 'the first config'} and the stop id {options.stop_id}")
    return list(configs[first:last])


def _place_of(id: str, places: Mapping[str, int], what: str) -> int:
    if id not in places:
        raise UsageError(
            f"no config has the {what} id {id!r}",
            why=did_you_mean(id, places), do="-w 0 -i 0 writes every config with its id: <op_name>|<id>",
        )  # fmt: skip
    return places[id]


def devices(options: Options) -> list[str]:
    """Names of the locks of a run beside the CPUs'."""
    kind, _, index = options.device.partition(":")
    return [] if kind in ("cpu", "meta") else [f"{kind}{index or 0}"]


def unasked() -> Line:
    """The system as far as it is known without loading torch, under the same names."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = None
    unknown = dict.fromkeys(("pytorch_debug_build", "pytorch_build_config"))
    return lines.host() | {"cuda_available": None, "pytorch_version": torch, **unknown}


def begin(options: Options, watch: Watch, *, to_file: bool = True, strict: bool = False) -> Session:
    """A session with options that make sense; what had to change is told."""
    settled, warnings = flags.settle(options)
    for text in warnings:
        watch.warning(text)
    place = lines.place(settled, os.getpid(), int(time.time())) if to_file else None
    return Session(settled, watch, strict, place)
