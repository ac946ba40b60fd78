"""PARAM's output file, line by line: header, a record per config, finish; written as results come, and read back to continue."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from steelyard.dialects.param.flags import BATCH_COMMAND, Options
from steelyard.errors import StoreError, UsageError

Line = dict[str, Any]
LONGEST_LINE = 256 << 20
TRACE_KEYS = ("et_file", "trace_file")
KEYS = frozenset({"run_options", "op_name", "ncu_file", "nsys_file", "finish_time", *TRACE_KEYS})
"""Every line of such a file has one of these."""
UNMEASURED = frozenset({"skipped"})


@dataclass(frozen=True)
class Place:
    """Where results go: the file itself, and the beginning of the names of what is written beside it."""

    file: Path
    stem: str


def place(options: Options, pid: int, seconds: int) -> Place:
    """`<prefix>_<pid>_<seconds>.json`, which is always new, or exactly the file that was named."""
    exact = options.output_prefix.endswith(".json")
    stem = f"{options.output_prefix.removesuffix('.json') if exact else options.output_prefix}_{pid}_{seconds}"
    return Place(Path(options.output_prefix if exact else f"{stem}.json"), stem)


def header(options: Options, machine: Mapping[str, Any], started: datetime) -> Line:
    """The first line: what was asked for under the names PARAM has for it, and what it runs on."""
    asked = {
        "device": options.device, "pass_type": "backward" if options.backward else "forward",
        "warmup": options.warmup, "iteration": options.iteration, "op_exec_mode": options.exec_mode,
        "cuda_l2_cache": options.cuda_l2_cache == "on", "time_unit": "millisecond",
        "out_file_prefix": options.output_prefix, "out_stream": None,
        "run_ncu": options.ncu, "ncu_bin": options.ncu_bin or "ncu", "ncu_args": _text_of(options.ncu_args_file),
        "ncu_warmup": options.ncu_warmup, "ncu_iteration": options.ncu_iteration,
        "run_nsys": options.nsys, "nsys_bin": options.nsys_bin or "nsys", "nsys_args": _text_of(options.nsys_args_file),
        "nsys_warmup": options.nsys_warmup, "nsys_iteration": options.nsys_iteration,
        "run_batch_size": options.run_batch_size, "batch_cuda_device": options.batch_cuda_device,
        "batch_cmd": options.batch_cmd or BATCH_COMMAND,
        "resume_op_run_id": options.resume_id, "stop_op_run_id": options.stop_id,
        "pt2_model": options.pt2_model, "cuda_graph": options.cuda_graph,
    }  # fmt: skip
    return {
        "run_options": {**asked, "cmd_args": options.plain()},
        "sys_info": dict(machine),
        "start_time": started.isoformat(timespec="seconds"),
    }


def _text_of(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read a file of options", why=str(error), where=path) from None


def record(op: str, id: str, build: Any, input: Mapping[str, Any], metric: Mapping[str, Any], **ours: Any) -> Line:
    """One config: PARAM's four keys, then what only we know."""
    return {"op_name": op, "id": id, "metric": metric, "config": {"build": build, "input": input}, "steelyard": ours}


def finish(ended: datetime) -> Line:
    """Written only when the run came to its end."""
    return {"finish_time": ended.isoformat(timespec="seconds")}


def full_id(line: Mapping[str, Any]) -> str:
    """The id that is unique in a file, which is what resume and stop ids are."""
    return f"{line['op_name']}|{line['id']}"


def status(line: Mapping[str, Any]) -> str:
    """What became of a config; a file that PARAM itself wrote has only measured ones."""
    ours = line.get("steelyard")
    told = ours.get("status") if isinstance(ours, Mapping) else None
    return str(told or ("ok" if line.get("metric") else "skipped"))


@dataclass(frozen=True)
class Recorded:
    """What an output file holds already: its records by full id, and how many of its bytes are whole lines."""

    records: Mapping[str, Line]
    whole: int

    def holds(self, op: str, id: str, build: Any, input: Any) -> Line | None:
        """The record of this very config, if it was run; the same id over other arguments is another config."""
        found = self.records.get(f"{op}|{id}")
        if found is None or status(found) in UNMEASURED or found.get("config") != {"build": build, "input": input}:
            return None
        return found


def read(path: Path) -> Recorded:
    """Read an output file back, PARAM's or ours; a last line that was cut off is tolerated, anything else that is no line of it is not."""
    records: dict[str, Line] = {}
    whole = 0
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    break
                line = _parsed(text, path, number)
                whole += len(text)
                if line and "op_name" in line:
                    records[full_id(line)] = line
    except OSError as error:
        raise StoreError("cannot read the output file", why=error.strerror or str(error), where=str(path)) from None
    if not whole and path.stat().st_size:
        raise _foreign(path, 1)
    return Recorded(records, whole)


def _parsed(text: bytes, path: Path, number: int) -> Line | None:
    if not text.strip():
        return None
    try:
        line = json.loads(text) if len(text) <= LONGEST_LINE else None
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict) or not KEYS & line.keys() or ("op_name" in line and not isinstance(line.get("id"), str)):
        raise _foreign(path, number)
    return line


def _foreign(path: Path, number: int) -> StoreError:
    return StoreError(
        "is not an output file of this benchmark", why="the line is none that it writes", do="name another file with -o",
        where=f"{path}:{number}",
    )  # fmt: skip


class Output:
    """The file being written: each line whole and at once, so that a run that is killed keeps what it measured."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        """Keep the first so many bytes of a file that is there, and none by default."""
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(descriptor, keep)
            self._file: IO[str] = os.fdopen(descriptor, "a", encoding="utf-8")
        except OSError as error:
            raise unwritable(path, error) from None

    def write(self, line: Mapping[str, Any]) -> None:
        """One line, flushed."""
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            raise unwritable(self.path, error) from None

    def close(self) -> None:
        """Nothing is left to flush."""
        self._file.close()


def check_writable(path: Path) -> None:
    """Say before anything runs that results could not be kept; whatever else a file holds is never overwritten."""
    if path.is_dir():
        raise UsageError("is a folder, not a file", do="name a file with -o", where=str(path))
    folder = path.parent
    if not folder.is_dir():
        raise UsageError("there is no such folder", do="make it, or name another with -o", where=str(folder))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError("cannot be written", do="name another file with -o", where=str(path))
    if path.exists():
        read(path)


def unwritable(path: Path, error: OSError) -> StoreError:
    """What was written before stays."""
    return StoreError("cannot write the output file", why=error.strerror or str(error), do="name another with -o", where=str(path))
