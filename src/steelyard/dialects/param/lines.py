"""PARAM's output file, line by line: header, a record per config, finish; written as results come, and read back to continue."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from steelyard.dialects.param.flags import BATCH_COMMAND, Options
from steelyard.errors import StoreError, UsageError
from steelyard.files import lines, open_plain, read_text
from steelyard.store.rowfile import unwritable
from steelyard.version import __version__

Line = dict[str, Any]
LONGEST_LINE = 256 << 20
TRACE_KEYS = ("et_file", "trace_file")
KEYS = frozenset({"run_options", "op_name", "ncu_file", "nsys_file", "finish_time", *TRACE_KEYS})
"""Every line of such a file has one of these."""
UNMEASURED = frozenset({"skipped"})
CONDITIONS = (
    "device", "backward", "warmup", "iteration", "cuda_l2_cache", "exec_mode", "pt2_model", "cuda_graph", "seed", "threads",
)  # fmt: skip
"""Options that affect a record: one measured with other values does not count for a config."""
BEGINNING = b'{"run_options": '


@dataclass(frozen=True)
class OutputPlace:
    """Where results go: the file, and the prefix of the names of files beside it."""

    file: Path
    stem: str


def place(options: Options, pid: int, seconds: int) -> OutputPlace:
    """`<prefix>_<pid>_<seconds>.json`, which is always new, or exactly the file that was named."""
    exact = options.output_prefix.endswith(".json")
    stem = f"{options.output_prefix.removesuffix('.json') if exact else options.output_prefix}_{pid}_{seconds}"
    return OutputPlace(Path(options.output_prefix if exact else f"{stem}.json"), stem)


def header(options: Options, machine: Mapping[str, Any], started: datetime) -> Line:
    """The first line: the options under PARAM's names, and the system."""
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
        "pt2-model": options.pt2_model, "cuda-graph": options.cuda_graph,
    }  # fmt: skip
    return {
        "run_options": {**asked, "cmd_args": options.plain()},
        "sys_info": dict(machine),
        "start_time": started.isoformat(timespec="seconds"),
    }


def host() -> Line:
    """Return the header's facts about the system that need no framework."""
    return {
        "hostname": socket.gethostname(), "pid": os.getpid(), "cwd": str(Path.cwd()),
        "python_version": platform.python_version(), "param_train_compute_version": f"steelyard {__version__}",
    }  # fmt: skip


def machine(facts: Mapping[str, Any]) -> Line:
    """Return the header's facts about the system, including the framework's, under PARAM's names."""
    found = host() | {"cuda_available": bool(facts.get("cuda_available"))}
    if found["cuda_available"]:
        names = {
            "cuda": "cuda", "cuda_device_driver": "driver", "cuda_gencode": "gencode", "cuda_device_id": "device_id",
            "cuda_device_name": "device_name", "cuda_device_property": "properties", "cudnn": "cudnn", "cudnn_enabled": "cudnn_enabled",
        }  # fmt: skip
        found |= {name: facts.get(key) for name, key in names.items()}
    built = {"pytorch_debug_build": facts.get("debug"), "pytorch_build_config": facts.get("build")}
    return {**found, "pytorch_version": facts.get("torch"), **built}


def _text_of(path: str | None) -> str:
    return "" if path is None else read_text(Path(path)).strip()


def record(op: str, id: str, build: Any, input: Any, metric: Mapping[str, Any], **ours: Any) -> Line:
    """Return the line of one config: PARAM's four keys, then our own facts."""
    return {"op_name": op, "id": id, "metric": metric, "config": {"build": build, "input": input}, "steelyard": ours}


def refused(op: str, id: str, build: Any, input: Any, error: str) -> Line:
    """Return the line of a config that cannot run; a run that continues the file tries it again."""
    return record(op, id, build, input, {}, status="skipped", error=error)


def finish(ended: datetime) -> Line:
    """Return the last line, which is written only if the run was completed."""
    return {"finish_time": ended.isoformat(timespec="seconds")}


def full_id(line: Mapping[str, Any]) -> str:
    """Return the id that is unique in a file; resume and stop ids have this form."""
    return f"{line['op_name']}|{line['id']}"


def status(line: Mapping[str, Any]) -> str:
    """Return the status of a config; in a file that PARAM itself wrote, all are measured."""
    return str(_ours(line).get("status") or ("ok" if line.get("metric") else "skipped"))


def _ours(line: Mapping[str, Any]) -> Line:
    """Return our own facts in a line; lines written by PARAM itself have none."""
    found = line.get("steelyard")
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Recorded:
    """The content of an output file: its records by full id, the options with which each was measured, how many bytes are complete
    lines, and whether the last of these says that a run was completed."""

    records: Mapping[str, Line]
    whole: int
    asked: Mapping[str, Line] = field(default_factory=dict)
    finished: bool = False

    def holds(self, op: str, id: str, build: Any, input: Any, options: Options | None = None) -> Line | None:
        """Return the record of exactly this config, if it was run; the same id with other arguments or options is another config."""
        found = self.records.get(f"{op}|{id}")
        if found is None or status(found) in UNMEASURED or _text(found.get("config")) != _text({"build": build, "input": input}):
            return None
        return found if options is None or self._same_way(f"{op}|{id}", options) else None

    def _same_way(self, id: str, options: Options) -> bool:
        before, now = self.asked.get(id, {}), options.plain()
        return options.expands_only or all(before.get(key, now[key]) == now[key] for key in CONDITIONS)


def _text(config: Any) -> str:
    """Return a config as text for comparisons: as data, NaN would not equal itself."""
    return json.dumps(config, sort_keys=True)


def read(path: Path) -> Recorded:
    """Read an output file back, PARAM's or ours; a last line that was cut off is tolerated, other invalid lines are errors."""
    records: dict[str, Line] = {}
    asked: dict[str, Line] = {}
    options: Line = {}
    whole, finished, text = 0, False, b""
    try:
        with open_plain(path) as file:
            for number, text in enumerate(lines(file, str(path)), 1):
                if not text.endswith(b"\n"):
                    break
                line = _parsed(text, path, number)
                whole += len(text)
                if line is None:
                    continue
                finished = bool(line.keys() & {"finish_time", *TRACE_KEYS})
                if "run_options" in line:
                    options = _asked(line)
                elif "op_name" in line and not (status(line) in UNMEASURED and full_id(line) in records):
                    records[full_id(line)], asked[full_id(line)] = line, options
                elif "ncu_file" in line:
                    _lay_counters(line, records)
    except OSError as error:
        raise StoreError("cannot read the output file", why=error.strerror or str(error), where=str(path)) from None
    if not whole and text and not text.startswith(BEGINNING):
        raise _foreign(path, 1)
    return Recorded(records, whole, asked, finished)


def _asked(header: Line) -> Line:
    """Return the options in a header, by the names of the command line; other programs may write fewer."""
    told = header["run_options"].get("cmd_args") if isinstance(header["run_options"], dict) else None
    return told if isinstance(told, dict) else {}


def _lay_counters(batch: Line, records: Mapping[str, Line]) -> None:
    """Add ncu's counters to records: a record is written before its batch runs, so they are in the line of the batch, by id."""
    config, counted = batch.get("config"), _ours(batch).get("ncu")
    if isinstance(config, dict) and isinstance(counted, dict):
        for id, counters in counted.items():
            _ours(records.get(f"{config.get('op_name')}|{id}", {}))["ncu"] = counters


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
        "is not an output file of this benchmark", why="PARAM does not write such a line", do="name another file with -o",
        where=f"{path}:{number}",
    )  # fmt: skip


def check_writable(path: Path) -> None:
    """Raise an error, before anything runs, if results could not be saved; other content of a file is never overwritten."""
    try:
        there, plain, folder = path.exists(), path.is_file(), path.parent.is_dir()
    except OSError as error:
        raise unwritable(path, error) from None
    if there and not plain:
        raise UsageError("is a folder, a pipe or a device, not a file", do="name a file with -o", where=str(path))
    if not folder:
        raise UsageError("there is no such folder", do="create it, or name another with -o", where=str(path.parent))
    if not os.access(path if there else path.parent, os.W_OK):
        raise UsageError("cannot be written", do="name another file with -o", where=str(path))
    if there:
        read(path)
