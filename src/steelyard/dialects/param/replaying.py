"""`steelyard as param replay`: et_replay's flags, figures and files, from a replay that the engine measures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from steelyard.dialects.commands import ENV, STRICT_EXIT, spelt, with_options
from steelyard.errors import FAILED, PASS, UsageError
from steelyard.terminal import CONTEXT, heed_signals, save, tell

MODES = {"full": "full", "comp": "compute", "comm": "communication"}
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables in which launchers set the number of this process."""
PERCENTILES = (50, 90, 95)
RECORDING = 600.0
"""Time limit for recording an iteration, in seconds."""
IMPORTS, SKIPS = "import modules", "skip nodes"


@dataclass(frozen=True)
class ReplayConfig:
    """PARAM's replay config: modules to import, and operators to leave out with the reason of each."""

    imports: tuple[str, ...] = ()
    skips: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> ReplayConfig:
        """Read a file; unknown keys and values of another kind are mistakes."""
        from steelyard.codec import parsing

        data, _ = parsing.load(path, "json")
        if not isinstance(data, Mapping):
            raise UsageError("a replay config must be an object", where=str(path))
        for key in data:
            if key not in (IMPORTS, SKIPS):
                raise UsageError(f"{str(key)[:60]}: unknown key", do=f"the keys are {IMPORTS!r} and {SKIPS!r}", where=str(path))
        imports, skips = data.get(IMPORTS, []), data.get(SKIPS, {})
        if not isinstance(imports, list) or not all(isinstance(name, str) for name in imports):
            raise UsageError(f"{IMPORTS}: a list of names is expected", where=str(path))
        if not isinstance(skips, Mapping) or not all(isinstance(item, str) for pair in skips.items() for item in pair):
            raise UsageError(f"{SKIPS}: an object of operator names and reasons is expected", where=str(path))
        return cls(tuple(imports), dict(skips))

    def text(self) -> str:
        """Return the file's text, in PARAM's format."""
        return json.dumps({IMPORTS: list(self.imports), SKIPS: dict(self.skips)}, indent=4) + "\n"


OLD = {
    "--rows": "tables of embeddings have the recorded size, and their indices are in its range",
    "--pooling-factor": "bags of embeddings are as recorded", "--alpha": "indices are as recorded, or even over their range",
    "--separate": "a script of a replay contains all its calls",
    "--regenerate-tensors": "tensors are made once, as et_replay does by default",
}  # fmt: skip
"""Flags of older versions that are not supported here, and why."""
OPTIONS = with_options(
    click.option("--input", "input_", metavar="FILE", help="The execution trace, .json or .json.gz."),
    spelt("--trace-path", metavar="FOLDER", help="A folder with rank-N.json of each process; the number is that of this process."),
    click.option("--subgraph", default="", metavar="NAME", help="Replay only the first node whose name contains NAME, with its children."),
    spelt("-m", "--replay-mode", type=click.Choice(list(MODES)), default="full", show_default=True, help="What is replayed."),
    click.option("--compute", is_flag=True, help="Older spelling of -m comp."),
    spelt("--warmup-iter", type=click.IntRange(0), default=5, show_default=True, help="Iterations that are not timed."),
    click.option("--iter", "iterations", type=click.IntRange(1), default=10, show_default=True, help="Timed iterations."),
    click.option("--gpu", "--cuda", "cuda", type=click.IntRange(0), metavar="N", help="Replay on this GPU."),
    click.option("--cpu", is_flag=True, help="Replay on the CPU (default)."),
    click.option("--tf32", is_flag=True, help="Let fp32 products round to TF32."),
    click.option("--debug", is_flag=True, help="Also print the setup time, and percentiles."),
    spelt("--enable-lazy-tensor-allocation", "lazy", is_flag=True, help="Make tensors when they are first needed."),
    spelt(
        "--device-memory-threshold",
        type=click.FloatRange(0, 1),
        help="Below 1: the same as lazy allocation.",
    ),
    spelt("--replay-config", type=click.Path(path_type=Path), metavar="FILE", help="Modules to import and operators to leave out."),
    spelt("--update-replay-config", is_flag=True, help="Try every operator, write those that fail to the replay config, and end."),
    spelt("--profile-replay", is_flag=True, help="Also write a profiler's trace of the replay below the output path."),
    spelt("--profile-memory", is_flag=True, help="Also measure peak memory, and what operators allocate."),
    click.option("--et", is_flag=True, help="Also record an execution trace of the replay below the output path."),
    spelt("--output-path", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder for files."),
    click.option("-g", "generator", is_flag=True, help="Write a Python script of the replay, and do not replay."),
    spelt("--dump-path", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder for the script. Default: the output path."),
    click.option("--dump", is_flag=True, help="With -g: accepted; the script is always written."),
    spelt("--batch-size", type=click.IntRange(1), default=1, show_default=True, help="Items per iteration, for the rate."),
    click.option("--rows", type=click.IntRange(1), help="Not supported: tables of embeddings are as large as recorded."),
    spelt("--pooling-factor", type=click.IntRange(1), help="Not supported: bags of embeddings are as recorded."),
    click.option("--alpha", type=float, help="Not supported: indices are as recorded, or even over their range."),
    click.option("-s", "--separate", is_flag=True, help="Not supported: a script contains all its calls."),
    spelt("--regenerate-tensors", is_flag=True, help="Not supported: tensors are made once, and integers that change are put back."),
    spelt("--delay", type=float, default=0.0, help="Only 0 is supported: one process replays no collectives."),
)


@click.command("param-replay", context_settings=CONTEXT)
@OPTIONS
@ENV
@STRICT_EXIT
def command(**given: Any) -> int:
    """Replay an execution trace with et_replay's flags, and print its figures: milliseconds per iteration, rate, coverage.

    \b
    steelyard as param replay --input step.json --cpu --warmup-iter 5 --iter 10
    steelyard as param replay --input step.json -g --dump-path .
    """
    _refuse(given)
    asked = ReplayAsked.of(given)
    if given["update_replay_config"]:
        return _update(asked, given)
    if given["generator"]:
        return _generate(asked, given)
    return _replay(asked, given)


def _refuse(given: Mapping[str, Any]) -> None:
    """Refuse flags that are not supported here: accepting one without effect would suggest that it worked."""
    if given["delay"]:
        raise UsageError(
            "--delay is not supported", why="it waits at collectives, and one process replays none", do="leave it out",
        )  # fmt: skip
    for flag, why in OLD.items():
        if given[flag.strip("-").replace("-", "_")]:
            raise UsageError(f"{flag} is not supported", why=why, do="leave it out")
    if given["dump"] and not given["generator"]:
        raise UsageError("--dump needs -g", why="it writes the script that -g makes", do="add -g, or leave it out")
    for flag, name in (("--et", "et"), ("--profile-replay", "profile_replay")):
        if given[name] and given["output_path"] is None:
            raise UsageError(f"{flag} has nowhere to write", do="name a folder with --output-path")
        if given[name] and (given["generator"] or given["update_replay_config"]):
            raise UsageError(f"{flag} needs a replay, and none is made", do="leave it out, or -g and --update-replay-config")


@dataclass(frozen=True)
class ReplayAsked:
    """A trace, which part of it is replayed, and on which device."""

    file: Path
    rank: int
    device: str
    words: Mapping[str, Any]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ReplayAsked:
        """Read the flags; the trace is named, or found by this process's number."""
        rank = next((int(os.environ[name]) for name in RANKS if os.environ.get(name, "").isdecimal()), 0)
        file = _trace(given["input_"], given["trace_path"], rank)
        if given["cpu"] and given["cuda"] is not None:
            raise UsageError("--cpu and --cuda exclude each other", do="use one of them")
        config = ReplayConfig()
        if given["replay_config"] and (given["replay_config"].exists() or not given["update_replay_config"]):
            config = ReplayConfig.read(given["replay_config"])
        what = "compute" if given["compute"] else MODES[given["replay_mode"]]
        words = {"what": what, "subgraph": given["subgraph"], "skip": list(config.skips) or None, "imports": list(config.imports) or None}
        return cls(file, rank, f"cuda:{given['cuda']}" if given["cuda"] is not None else "cpu", words)


def _trace(named: str | None, folder: str | None, rank: int) -> Path:
    if named:
        return Path(named)
    if not folder:
        raise UsageError("no trace is named", do="name one with --input FILE or --trace-path FOLDER")
    for ending in (".json", ".json.gz"):
        if (found := Path(folder) / f"rank-{rank}{ending}").is_file():
            return found
    raise UsageError(f"there is no rank-{rank}.json and no rank-{rank}.json.gz", do="name the trace with --input", where=folder)


def _update(asked: ReplayAsked, given: Mapping[str, Any]) -> int:
    from steelyard.engine.replaying import failing_operators

    path = given["replay_config"]
    if path is None:
        raise UsageError("--update-replay-config has no file to write", do="name it with --replay-config")
    before = ReplayConfig.read(path) if path.exists() else ReplayConfig()
    found = failing_operators(asked.file, asked.device, given["env"] or "", asked.words)
    new = {name.partition(".")[0]: why for name, why in found.items()}
    save(path, ReplayConfig(before.imports, {**before.skips, **new}).text())
    tell(f"{len(new)} operator{'' if len(new) == 1 else 's'} cannot be replayed here · saved {path}")
    return PASS


def _generate(asked: ReplayAsked, given: Mapping[str, Any]) -> int:
    from steelyard.engine.replaying import replay_script

    folder = given["dump_path"] or given["output_path"] or Path()
    path = folder / (f"benchmark_{asked.rank}.py" if given["trace_path"] else "benchmark.py")
    words = {**asked.words, "output": path.name, "warmup": given["warmup_iter"], "iterations": given["iterations"]}
    made = replay_script(asked.file, asked.device, given["env"] or "", words)
    save(path, made.text, folder=True)
    tell(f"{made.facts['replayed']} of {made.facts['operators']} operators · saved {path}")
    return PASS


def _replay(asked: ReplayAsked, given: Mapping[str, Any]) -> int:
    from steelyard.engine import conduct
    from steelyard.engine.run import WaitTold
    from steelyard.engine.selection import Request, read_devices
    from steelyard.engine.sinks import Sink
    from steelyard.model.protocol import Fixed
    from steelyard.model.record import Arrays, Record, in_seconds
    from steelyard.store.runs import Store

    kinds, index = read_devices([asked.device])
    lazy = given["lazy"] or given["device_memory_threshold"] not in (None, 1.0)
    axes = {name: (value,) for name, value in asked.words.items()} | ({"allocation": ("lazy",)} if lazy else {})
    passes = {"profile": given["profile_replay"], "peak_memory": given["profile_memory"]}
    allow = tuple(f"import:{name}" for name in asked.words["imports"] or ())
    settings = {"fixed": Fixed(given["warmup_iter"], given["iterations"]), **passes, "allow": allow}
    request = Request(
        selectors=(f"trace:{asked.file}",), axes=axes, device=kinds, device_index=index, settings=settings, env=given["env"] or None,
        variant=("tf32",) if given["tf32"] else (),
    )  # fmt: skip
    store = Store.find()
    ready, taken = conduct.prepare(request, store), list[tuple[Record, list[float]]]()

    class Kept(Sink):
        """Keeps the record and the time of each iteration."""

        def take(self, job: Any, record: Record, arrays: Arrays) -> None:
            taken.append((record, in_seconds(arrays, "forward.measure.time")))

    heed_signals()
    done = conduct.execute(ready, store, click.get_current_context().find_root().obj or (), lambda writer: WaitTold(tell), sink=Kept())
    if not taken:
        return FAILED
    record, seconds = taken[0]
    for line in figures(record, seconds, given):
        click.echo(line)
    for line in _files(done.run, asked, given):
        click.echo(line)
    if given["et"] and record.status in ("ok", "wrong"):
        click.echo(f"Execution trace: {_recorded_again(request, store, asked, given)}")
    code = done.code
    return code if given["strict_exit"] else PASS if record.status in ("ok", "wrong") else 1


def _recorded_again(request: Any, store: Any, asked: ReplayAsked, given: Mapping[str, Any]) -> Path:
    """Record an execution trace of one iteration of the replay, after the timed ones, which recording would slow."""
    from steelyard.engine.capture import capture_case

    place: Path = given["output_path"] / "execution_trace" / f"rank-{asked.rank}.json"
    return capture_case(request, store, place, RECORDING, profile=False, resources=True).trace


def figures(record: Any, seconds: Sequence[float], given: Mapping[str, Any]) -> list[str]:
    """Return the lines that et_replay prints for a replay, with correct units."""
    if not seconds:
        return [f"{record.status}: {record.reason}"]
    mean = sum(seconds) / len(seconds)
    told = []
    for last in range(10, len(seconds) + 1, 10):
        window = seconds[last - 10 : last]
        told.append(f"Current QPS: {10 * given['batch_size'] / sum(window):.2f} (iterations {last - 10} to {last - 1})")
    told += [f"Replay time per iteration: {mean * 1e3:.3f} ms", f"Replay QPS: {given['batch_size'] / mean:.2f}"]
    found = record.effective.get("replay", {})
    shares = found.get("shares", {})
    told.append(f"Operator coverage: {found.get('replayed')} / {found.get('operators')} = {shares.get('operators', 0.0):.4f}")
    told += [f"  skipped {row['count']} x {row['operator']}: {row['why']}" for row in found.get("skipped", ())]
    if given["debug"]:
        ordered = sorted(seconds)
        told.append(f"Setup time: {record.metrics['build_time'].value * 1e3:.3f} ms" if "build_time" in record.metrics else "")
        told += [f"p{share}: {ordered[min(len(ordered) - 1, share * len(ordered) // 100)] * 1e3:.3f} ms" for share in PERCENTILES]
    if "peak_memory" in record.metrics:
        told.append(f"Peak memory: {record.metrics['peak_memory'].value / 2**20:.1f} MiB")
    told += _by_memory(record.effective.get("replay_memory", ()))
    return [line for line in told if line]


def _by_memory(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines for the operators that allocate most; reserved memory is known only on a GPU."""
    told = ["Operators by allocated memory:"] if rows else []
    for row in rows:
        reserved = "" if row["reserved"] is None else f", reserved {row['reserved']} B"
        told.append(f"  {row['operator']} x {row['calls']} ({row['shapes']}): allocated {row['allocated']} B{reserved}")
    return told


def _files(run: Any, asked: ReplayAsked, given: Mapping[str, Any]) -> list[str]:
    """Save the profiler's trace of the last iteration where et_replay puts it; returns a line that names the file."""
    import gzip

    if not given["profile_replay"] or given["output_path"] is None:
        return []
    kept = [item for record in run.records for item in record.attachments if item.kind in ("profile", "trace")]
    traces = [item for item in kept if item.path.endswith((".json", ".json.gz"))]
    if not traces:
        return []
    data = (run.path / traces[-1].path).read_bytes()
    place = given["output_path"] / "profiler_trace" / f"rank-{asked.rank}.pt.json.gz"
    save(place, data if traces[-1].path.endswith(".gz") else gzip.compress(data), folder=True)
    return [f"Profiler trace: {place}"]
