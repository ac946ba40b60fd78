"""`steelyard as param comm-replay`: comm_replay's flags, figures and files, from a replay that the engine measures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from steelyard.dialects.commands import ENV, STRICT_EXIT, spelt, with_options
from steelyard.errors import FAILED, PASS, UsageError, unknown
from steelyard.terminal import CONTEXT, heed_signals, save, tell
from steelyard.traces.comms import COLLECTIVES, KINDS, kind_of, rank_files, read_comms

DEVICES = {"gloo": "cpu", "nccl": "cuda"}
PLACE = Path("replayed_trace")
MICRO = 1e6
COLUMNS = ("total", "max", "min", "avg", "p50", "p95")
IDLE = {"--colls-per-batch": "every call is timed by itself", "--enable-profiler": "no profile is made of several ranks"}
"""Flags that are accepted with a warning and have no effect here."""

OPTIONS = with_options(
    spelt("--trace-path", metavar="PATH", required=True, help="A folder with rank-N.json of each rank, or one trace."),
    spelt("--trace-type", type=click.Choice(["et"]), default="et", show_default=True, help="Execution traces."),
    spelt("--dry-run", is_flag=True, help="Only print how often each kind of call was made and how large its messages are."),
    click.option("-b", "--blocking", is_flag=True, help="Wait for each call before the next. Default: wait where the recording waited."),
    spelt("--num-replays", type=click.IntRange(1), default=5, show_default=True, help="Timed replays."),
    spelt("--warmup-iter", type=click.IntRange(0), default=2, show_default=True, help="Replays that are not timed."),
    spelt("--max-msg-cnt", type=click.IntRange(0), default=0, help="Only this many calls from the start; 0 means all."),
    spelt("--allow-ops", default="", metavar="LIST", help="Only these kinds of calls, separated by commas."),
    spelt("--use-one-trace", is_flag=True, help="All ranks read one trace: the named one, or that of rank 0."),
    spelt("--auto-shrink", is_flag=True, help="Leave out recorded ranks that this replay does not have."),
    spelt("--use-timestamp", is_flag=True, help="Begin each call at its recorded time."),
    spelt("--rebalance-policy", type=click.Choice(["", "equal"]), default="", help="equal: make the parts of uneven exchanges equal."),
    spelt("--reuse-tensors", is_flag=True, help="All calls of one format share their memory."),
    click.option("--c", "--check", "check", type=click.IntRange(0, 1), default=0, help="1: check the received data."),
    spelt("--data-accuracy-mode", type=click.Choice(["", "save", "check"]), default="", help="Either value checks the received data."),
    spelt("--bitwidth", type=int, default=32, help="Only 32: messages are not quantized."),
    spelt("--colls-per-batch", type=int, default=-1, help="Accepted; every call is timed by itself."),
    spelt("--enable-profiler", is_flag=True, help="Accepted; no profile is made of several ranks."),
    spelt("--output-ranks", default="", metavar="LIST", help="Write the calls of these ranks, or of all, to a file each."),
    spelt("--output-path", type=click.Path(path_type=Path), default=Path(), metavar="FOLDER", help="Folder for those files."),
    click.option("--backend", type=click.Choice(["gloo", "nccl", "mpi", "xla"]), default="gloo", show_default=True, help="The transport."),
    click.option(
        "--ranks", type=click.IntRange(1), help="Number of processes. Default: as the launcher says (WORLD_SIZE), else one per trace."
    ),
    click.option("--timeout", default="5min", show_default=True, help="Time limit for the replay."),
)


@click.command("comm-replay", context_settings=CONTEXT)
@OPTIONS
@ENV
@STRICT_EXIT
def command(**given: Any) -> int:
    """Replay the communication of an execution trace with comm_replay's flags, and print its figures for each kind of call.

    \b
    steelyard as param comm-replay --trace-path traces --dry-run
    steelyard as param comm-replay --trace-path traces -b --num-replays 10 --output-ranks all
    """
    asked = CommAsked.of(given)
    for flag, why in IDLE.items():
        if given[flag.strip("-").replace("-", "_")] not in (None, False, -1):
            tell(f"{flag} changes nothing: {why}")
    if asked.follows:
        tell("rank 0 starts the ranks of the replay itself, so this process has nothing to do")
        return PASS
    return _dry(asked) if given["dry_run"] else _replay(asked, given)


@dataclass(frozen=True)
class CommAsked:
    """A trace or a folder of them, how many ranks replay it, and how."""

    path: Path
    ranks: int
    words: Mapping[str, Any]
    written: tuple[int, ...] = ()
    follows: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CommAsked:
        """Options from flags; impossible ones are errors before anything is read."""
        if given["bitwidth"] != 32:
            raise UsageError(f"--bitwidth is {given['bitwidth']}", why="messages are not quantized here", do="leave it out")
        if given["backend"] not in DEVICES:
            raise UsageError(f"--backend is {given['backend']}", why="ranks are connected by gloo or NCCL here", do="use gloo or nccl")
        path, started = Path(given["trace_path"]), int(size) if (size := os.environ.get("WORLD_SIZE", "")).isdecimal() else 0
        recorded = rank_files(path) if path.is_dir() else {}
        if path.is_dir() and not recorded:
            raise UsageError("there is no rank-N.json and no rank-N.json.gz", do="name a folder with traces, or one trace", where=str(path))
        ranks = given["ranks"] or started or len(recorded) or 1
        written = _written(given["output_ranks"], ranks)
        if given["use_one_trace"] and recorded:
            path, recorded = recorded[0], {}
        words = {
            "blocking": given["blocking"], "check": bool(given["check"] or given["data_accuracy_mode"]), "reuse": given["reuse_tensors"],
            "rebalance": given["rebalance_policy"] == "equal", "timestamps": given["use_timestamp"], "shrink": given["auto_shrink"],
            "most": given["max_msg_cnt"] or None, "allow": _kinds(given["allow_ops"]), "last": given["num_replays"],
        }  # fmt: skip
        return cls(path, ranks, words, written, follows=started > 1 and os.environ.get("RANK", "0") != "0")


def _written(text: str, ranks: int) -> tuple[int, ...]:
    """The ranks of which files are written: `all`, or numbers with commas between them."""
    if text.strip() == "all":
        return tuple(range(ranks))
    words = [part.strip() for part in text.split(",") if part.strip()]
    for word in words:
        if not word.isdecimal() or len(word) > 9 or int(word) >= ranks:
            raise UsageError(
                f"--output-ranks has {word[:40]!r}", why=f"the ranks are 0 to {ranks - 1}", do="name some of them, such as 0,1, or all"
            )
    return tuple(dict.fromkeys(map(int, words)))


def _kinds(text: str) -> str | None:
    """Convert PARAM's names of kinds of calls to ours, joined by `+`."""
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        kind = kind_of(word)
        if kind is None:
            raise unknown("kind of call", word, [*KINDS, *COLLECTIVES])
        found.append(kind)
    return "+".join(dict.fromkeys(found)) or None


def _dry(asked: CommAsked) -> int:
    """Print message sizes by rank and kind; reads only the traces."""
    files = rank_files(asked.path) if asked.path.is_dir() else {0: asked.path}
    allowed = set((asked.words["allow"] or "").split("+")) - {""}
    for rank, file in files.items():
        found = read_comms(file)
        click.echo(f"rank {rank}: {len(found.calls)} calls, {found.world or '?'} ranks recorded")
        for row in found.messages():
            if not allowed or row["kind"] in allowed:
                click.echo(
                    f"  {row['kind']:<22}{row['calls']:>6} calls   sent {row['sent_bytes']} B   received {row['received_bytes']} B   "
                    f"message {row['smallest']} / {row['median']} / {row['largest']} B (min / p50 / max)"
                )
        for name, count in found.unread.items():
            click.echo(f"  not known: {name} ({count} calls)")
    return PASS


def _replay(asked: CommAsked, given: Mapping[str, Any]) -> int:
    from steelyard.engine import conduct
    from steelyard.engine.run import WaitTold
    from steelyard.engine.selection import Request
    from steelyard.engine.sinks import Sink
    from steelyard.model.protocol import Fixed
    from steelyard.model.record import Arrays, Record
    from steelyard.model.units import parse_seconds
    from steelyard.store.runs import Store

    settings = {"fixed": Fixed(given["warmup_iter"], given["num_replays"]), "timeout": parse_seconds(given["timeout"])}
    axes = {name: (value,) for name, value in asked.words.items()}
    request = Request(
        selectors=(f"comms:{asked.path}",), axes=axes, device=(DEVICES[given["backend"]],), ranks=(asked.ranks,), settings=settings,
        env=given["env"] or None,
    )  # fmt: skip
    store, taken = Store.find(), list[Record]()

    class KeptRecord(Sink):
        """Keeps the record."""

        def take(self, job: Any, record: Record, arrays: Arrays) -> None:
            taken.append(record)

    ready = conduct.prepare(request, store)
    heed_signals()
    done = conduct.execute(
        ready, store, click.get_current_context().find_root().obj or (), lambda writer: WaitTold(tell), sink=KeptRecord()
    )
    if not taken:
        return FAILED
    record = taken[0]
    for line in figures(record):
        click.echo(line)
    for path, rows in _files(record, asked.written, given["output_path"]):
        save(path, json.dumps(rows, indent=2) + "\n", folder=True)
        click.echo(f"Replayed calls: {path}")
    return done.code if given["strict_exit"] else PASS if record.status == "ok" else 1


def figures(record: Any) -> list[str]:
    """Return the lines that comm_replay prints: microseconds of each kind of call on the slowest rank."""
    rows: Sequence[Mapping[str, Any]] = record.effective.get("communication_times", ())
    if record.status not in ("ok", "wrong") or not rows:
        return [f"{record.status}: {record.reason}"]
    told = [f"{'collective':<22}{'calls':>7}{'bytes':>14}" + "".join(f"{f'{name} (us)':>14}" for name in COLUMNS) + f"{'busbw (GB/s)':>14}"]
    for row in rows:
        rate = f"{row['bus_bandwidth'] * 1e-9:>14.4f}" if "bus_bandwidth" in row else f"{'-':>14}"
        told.append(
            f"{row['kind']:<22}{row['calls']:>7}{row['message_bytes']:>14}"
            + "".join(f"{row[name] * MICRO:>14.2f}" for name in COLUMNS)
            + rate
        )
    told.append(f"Replay time per iteration: {record.metrics['time'].value * 1e3:.3f} ms (slowest rank)")
    for why, count in record.effective["communication"]["left_out"].items():
        told.append(f"  left out {count} calls: {why}")
    if record.status == "wrong":
        told.append(f"Data check failed: {record.reason}")
    elif record.verification and record.verification.status == "passed":
        told.append("Data check passed")
    return told


def _files(record: Any, wanted: Sequence[int], folder: Path) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Yield the calls of the requested ranks, as comm_replay writes them."""
    ranks: Sequence[Sequence[Mapping[str, Any]]] = record.effective.get("communication_ranks", ())
    for rank in wanted:
        if rank < len(ranks):
            yield folder / PLACE / f"replayedCommsPerf.rank-{rank}.json", [_row(row) for row in ranks[rank]]


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "comms": row["kind"], "req": row["request"], "in_msg_size": row["sends"], "out_msg_size": row["receives"], "dtype": row["dtype"],
        "pg_id": int(row["group"]) if row["group"].isdecimal() else 0, "world_size": row["ranks"], "et_id": row["node"],
        "latency_us": row["time"] * MICRO, "global_latency_us": row["slowest"] * MICRO,
    }  # fmt: skip
