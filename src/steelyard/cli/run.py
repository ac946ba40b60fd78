"""`steelyard run`: measure workloads, save the run, print the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import (
    CONTEXT,
    emit_json,
    find_store,
    json_option,
    put,
    refuse_empty,
    say,
    store_option,
    trust_option,
    warn,
    width,
)
from steelyard.cli.streams import complain
from steelyard.cli.watch import Watched, how_long, typed
from steelyard.errors import INTERRUPTED, UsageError
from steelyard.model.experiment import MOST_SETTLING
from steelyard.model.units import MOST_COUNT, number_of, parse_count

if TYPE_CHECKING:
    from steelyard.analyze.foreseen import Foreseen
    from steelyard.codec.expectations import Expectation
    from steelyard.engine.conduct import RunOutcome
    from steelyard.engine.plan import Plan
    from steelyard.engine.selection import Request
    from steelyard.model.record import Status
    from steelyard.store.runs import RunWriter, Store


USUAL_COUNT = "usual"
TRACE_PARTS, IMPORTS = ("subgraph", "step"), "imports"
"""Parameters of a replay that have options of their own."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from steelyard import registry

    names = [*registry.suites(), *(name.removesuffix("*") for name in registry.catalogue().workloads)]
    return [name for name in names if name.startswith(incomplete) and not name.startswith("fake/")]


def _processes(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Check the optional number of --compile-time: click takes the next word for it if there is one. 0 means the default."""
    if text == USUAL_COUNT:
        return 0
    if text is not None and parse_count(text) is None:
        raise UsageError(
            f"--compile-time takes a whole number of processes, not {text!r}", do="write --compile-time=3, or put it at the end"
        )
    return parse_count(text) if text is not None else None


@click.command(
    "run", short_help="Measure workloads, suites, experiment files, .py files or a command.",
    context_settings=CONTEXT,
)  # fmt: skip
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SELECTOR|FILE]… [-- PROGRAM ARG…]", shell_complete=_complete)
@click.option(
    "-a",
    "--axis",
    "axes",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values of a workload parameter: n=1024, n=[1024,8192], n=256..8192:x2. With programs: values for {n} in the command.",
)
@click.option("--subgraph", metavar="NAME", help="For a recorded trace: only the first node whose name contains NAME, with its children.")
@click.option("--step", type=click.IntRange(0, MOST_COUNT), metavar="N", help="For a recorded trace: the step at this position, from 0.")
@click.option("-V", "--variant", "variants", multiple=True, metavar="LIST", help="Variants: eager,compile or compile[mode=max-autotune].")
@click.option("-B", "--backend", "backends", multiple=True, metavar="LIST", help="Backends: torch,numpy.")
@click.option("-d", "--device", "devices", multiple=True, metavar="LIST", help="Device kinds: cpu, cuda; cuda:1 picks one of several.")
@click.option("--mode", "modes", multiple=True, metavar="LIST", help="eval, train, fwd, bwd.")
@click.option("--threads", multiple=True, metavar="LIST", help="CPU threads; part of the case. Default 1.")
@click.option("--ranks", multiple=True, metavar="LIST", help="Processes that work together; part of the case. Default 1.")
@click.option("--flag", "flags", multiple=True, metavar="NAME=VALUE", help="Environment variable set for the case; part of it.")
@click.option(
    "--vs", metavar="VARIANT",
    help="Compare every case, interleaved, with this variant (torch/eager: on one backend), env:NAME, or flags:'--xla_… NAME=VALUE'.",
)  # fmt: skip
@click.option("--vs-path", metavar="DIR", help="Compare every case, interleaved, with itself in another checkout or build of this folder.")
@click.option("--budget", metavar="TIME", help="Sampling time per case and comparison: quick, normal, thorough or 30s.")
@click.option("--precision", metavar="SHARE", help="Stop when the interval is this narrow: 1%.")
@click.option("--margin", metavar="SHARE", help="With --vs: smaller differences count as the same. Default 2%.")
@click.option(
    "--settle", type=click.FloatRange(0, MOST_SETTLING), metavar="N",
    help="With --vs: go on for up to N more budgets while the margin is not settled. Default 4; 0: stop at the budget.",
)  # fmt: skip
@click.option("--sampling", type=click.Choice(["blocks", "calls"]), help="blocks: medians; calls: also distributions (p90, p99).")
@click.option(
    "--warmup", metavar="TIME|N", help="Fixed warm-up time instead of the trend test; a number alone is that many runs, untimed: 3."
)
@click.option(
    "--prepare",
    "prepares",
    multiple=True,
    metavar="LINE",
    help="Shell command to run before each run of a program, untimed; give one per program, or one for all.",
)
@click.option(
    "-n", "--command-name", "names", multiple=True, metavar="NAME", help="Name of a program in tables; one per program, in order."
)
@click.option("--runs", type=click.IntRange(1, MOST_COUNT), help="Exact number of blocks (or program runs).")
@click.option(
    "--fixed", metavar="CALLS",
    help="A fixed number of warm-ups and repeats instead of a budget: 5+20, 5+20:events, 0+10,calls=5,cold.",
)  # fmt: skip
@click.option("--rtol", type=click.FloatRange(min=0, max=1e9), help="Relative tolerance of verification.")
@click.option("--atol", type=click.FloatRange(min=0, max=1e9), help="Absolute tolerance, as a share of the output's rms.")
@click.option(
    "--verify", is_flag=False, flag_value="usual", type=click.Choice(["usual", "full"]),
    help="Check outputs before and after timing (default); full: also compare large ones on a device with numpy, however long that takes.",
)  # fmt: skip
@click.option("--no-verify", is_flag=True, help="Do not check outputs.")
@click.option(
    "--reference", type=click.Choice(["eager", "fp64", "interpreter"]),
    help="What outputs are compared with: eager (default), fp64, or StableHLO's interpreter for exported programs.",
)  # fmt: skip
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Allow this custom call in an exported program, or triton:NAME (a kernel) or import:NAME (a module) in a trace; may be repeated.",
)
@click.option("--rule", metavar="NAME", help="Verification rule, such as another system's, or none; see 'list rules'.")
@click.option("--seed", type=click.IntRange(0, MOST_COUNT), help="Seed of all data and weights.")
@click.option(
    "--isolate", type=click.Choice(["shared", "case", "workload", "none"]), help="Which cases share a worker process. Default shared."
)
@click.option("--timeout", metavar="TIME", help="Time limit for one case. Default 300s.")
@click.option("--memory", metavar="SIZE", help="Memory limit for a worker and its child processes: 8GiB.")
@click.option(
    "--telemetry/--no-telemetry",
    default=None,
    help="Record machine load and memory, and the GPU's clocks, power and temperature, while measuring. Default on.",
)
@click.option("--peak-memory", is_flag=True, default=None, help="Measure peak memory and model size, each case in a process of its own.")
@click.option("--memory-snapshot", is_flag=True, default=None, help="Like --peak-memory, and save the CUDA allocator's history.")
@click.option("--profile", is_flag=True, default=None, help="Save a trace and a kernel table of a few untimed calls.")
@click.option("--ncu", is_flag=True, default=None, help="Save Nsight Compute's counters of one call (CUDA).")
@click.option("--nsys", is_flag=True, default=None, help="Save Nsight Systems' report of ten calls, and where their time went (CUDA).")
@click.option(
    "--dump-ir", type=click.Choice(["hlo", "stablehlo", "text", "optimized"]),
    help="Save the graphs of one untimed call (XLA backends); optimized: also after compilation, with --vs for both arms.",
)  # fmt: skip
@click.option("--runtime-profile", is_flag=True, default=None, help="Save a profile by the framework's own runtime (torch_xla).")
@click.option("--save-output", type=click.Choice(["answer", "state"]), help="Save the outputs of a call; state: gradients and weights too.")
@click.option(
    "--compile-time", is_flag=False, flag_value=USUAL_COUNT, metavar="[N]", callback=_processes,
    help="Measure compile time, code size and memory of compiled cases in N pairs of fresh processes: cold and warm (default 3), "
    "or with --vs both arms alternating, with a verdict on each (default 8).",
)  # fmt: skip
@click.option("--env", metavar="NAME", help="Run in an environment made by 'steelyard env create'.")
@click.option(
    "-k", "--filter", "filters", multiple=True, metavar="PART",
    help="Only cases whose id matches: softmax, n=8, 'softmax and not n=8', a regex.",
)  # fmt: skip
@click.option("-x", "--exclude", "excludes", multiple=True, metavar="PART", help="Skip cases whose id matches.")
@click.option("--on", metavar="FARM", help="Measure on other machines: local:2, ssh:HOST,HOST, slurm:PROFILE or ray:ADDRESS.")
@click.option("--partition", metavar="I/N", help="Run part I of N; parts are balanced by how long the cases took before.")
@click.option("--expect", metavar="FILE", help="Expected failures: only other failures cause exit 3; new passes are reported.")
@click.option("--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Continue an unfinished run of the same cases.")
@click.option(
    "--retry", multiple=True, metavar="LIST",
    help="Resume, and measure cases with this status again: failed (any way of failing), oom, timeout, crashed, wrong, all (not ok).",
)  # fmt: skip
@click.option("--keep-going/--fail-fast", default=True, help="After a failure continue with the remaining cases (default), or stop.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the cases, what each rule drops, shapes that do not fit, and the estimated time; measure nothing.",
)
@trust_option
@store_option
@json_option
def command(**options: Any) -> int:
    """Measure workloads (op/softmax, 'op/*', tag:smoke), a suite (quickstart), an experiment file, the workloads of a .py file,
    one case by its id, or programs after -- (several, separated by further --, are compared).

    \b
    steelyard run op/softmax -a n=[1024,8192] -V eager,compile --vs eager
    steelyard run my_kernel.py --budget quick
    steelyard run -- ./prog --n 5 -- ./prog2 --n 5
    steelyard run -a n=1..8:1 --prepare 'rm -rf cache' -- ./prog --n {n}
    """
    from steelyard.engine import conduct
    from steelyard.engine.retry import parse_retry

    request = _request(options)
    again, expectations = parse_retry(comma_list(options["retry"])), _expectations(options["expect"])
    store = find_store(options["store"])
    ready = conduct.prepare(request, store)
    _tell_mistakes(ready, stop=not options["keep_going"])
    if options["dry_run"]:
        return _preview(ready, as_json=options["as_json"])
    return _execute(ready, store, options, again, expectations)


def _expectations(file: str | None) -> tuple[Expectation, ...]:
    from pathlib import Path

    from steelyard.codec.expectations import load_expectations

    return load_expectations(Path(file)) if file is not None else ()


def _tell_mistakes(ready: Plan, *, stop: bool) -> None:
    """Print a line for each part of a config that cannot run."""
    lines = ready.experiment.mistakes
    if lines and stop:
        raise UsageError(f"{len(lines)} mistakes", why="\n  ".join(lines), do="without --fail-fast the valid cases are measured")
    for line in lines:
        complain(line)


def _request(options: dict[str, Any]) -> Request:
    from steelyard.engine.filters import Filters
    from steelyard.engine.names import check_modes
    from steelyard.engine.selection import Request, read_devices

    selectors, commands = split_commands(options["words"], typed())
    if not selectors and not commands:
        raise UsageError("nothing named to run", do="try 'steelyard run quickstart', or 'steelyard list' to see what there is")
    refuse_empty(options, "partition", "env", "on")
    modes = comma_list(options["modes"])
    devices, index = read_devices(comma_list(options["devices"]))
    check_modes(modes)
    axes, settings = read_axes(options["axes"]), read_settings(options)
    settings |= _consented(axes.get(IMPORTS, ()), settings)
    parts = {name: options[name] for name in TRACE_PARTS if options[name] is not None}
    if twice := next((name for name in parts if name in axes), ""):
        raise UsageError(f"--{twice} and -a {twice} are both given", do="give one of them")
    return Request(
        selectors=selectors, commands=commands, axes={**axes, **{name: (value,) for name, value in parts.items()}},
        options=tuple(parts), backend=comma_list(options["backends"]),
        variant=comma_list(options["variants"]), mode=modes, device=devices, threads=_whole("threads", options["threads"]),
        ranks=_whole("ranks", options["ranks"]),
        flags=dict(read_flag(text) for text in options["flags"]), settings=settings, env=options["env"], device_index=index,
        filters=Filters(tuple(options["filters"]), tuple(options["excludes"])), part=options["partition"] or "",
        trust=options["trust"], on=options["on"] or "", names=tuple(options["names"]), prepare=tuple(options["prepares"]),
    )  # fmt: skip


def split_commands(words: Sequence[str], argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Split the words into selectors (before the first `--`) and programs (after it). Click drops that first mark, so its place is found in
    the command line as typed."""
    if "--" not in argv:
        return tuple(words), ()
    tail = list(argv[argv.index("--") + 1 :])
    selectors = tuple(words[: len(words) - len(tail)])
    commands: list[list[str]] = [[]]
    for word in tail:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    if not all(commands):
        raise UsageError("an empty command after --", do="write it like: steelyard run -- ./prog --n 5")
    return selectors, tuple(tuple(part) for part in commands)


def comma_list(texts: Sequence[str]) -> tuple[str, ...]:
    """Split comma lists; commas inside brackets belong to the word."""
    found: list[str] = []
    for text in texts:
        depth, word = 0, ""
        for char in text:
            depth += (char == "[") - (char == "]")
            if char == "," and depth == 0:
                found.append(word)
                word = ""
            else:
                word += char
        found.append(word)
    return tuple(word.strip() for word in found if word.strip())


def read_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Axes by name; an axis given twice has the values of both."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, values in map(_axis, texts):
        found[name] = (*found.get(name, ()), *values)
    every = [part for name in found for part in name.split(",")]
    if twice := next((part for part in every if every.count(part) > 1), ""):
        raise UsageError(f"axis {twice} is given alone and with others", do="give it once")
    return found


def _axis(text: str) -> tuple[str, tuple[Any, ...]]:
    from steelyard.model import ranges
    from steelyard.model.values import parse_value

    name, sign, values = text.partition("=")
    name = ",".join(part.strip() for part in name.split(","))
    if not sign or not all(name.split(",")) or not values:
        raise UsageError(f"not an axis: {text!r}", do="write it like -a n=1024, -a n=[1024,8192] or -a n=256..8192:x2")
    if values.startswith("["):
        whole = parse_value(values)
        if isinstance(whole, list):
            if not whole:
                raise UsageError(f"axis {name} has no values", do=f"write it like -a {name}=[1,2]")
            return name, tuple(whole)
    found: list[Any] = []
    for word in comma_list([values]):
        span = ranges.written(word)
        found += [parse_value(word)] if span is None else span
    return name, tuple(found)


def read_flag(text: str) -> tuple[str, str]:
    """Split NAME=VALUE into an environment variable and its value."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"not a flag: {text!r}", do="write it like --flag XLA_FLAGS=--xla_dump_to=out")
    return name, value


def _whole(option: str, texts: Sequence[str]) -> tuple[int, ...]:
    found = []
    for word in comma_list(texts):
        if (number := parse_count(word)) is None:
            raise UsageError(f"--{option} takes whole numbers from 1, not {word[:40]!r}")
        found.append(number)
    return tuple(found)


def _consented(values: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Names allowed because the command line itself names the modules; modules that a file names need --allow."""
    words = [
        word for value in values if value is not None for word in (value if isinstance(value, (list, tuple)) else str(value).split("+"))
    ]
    return {"allow": (*settings.get("allow", ()), *(f"import:{word}" for word in words))} if words else {}


def read_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Settings from the given options; a command may have only some of these options."""
    from steelyard.model.experiment import BUDGETS, PASSES
    from steelyard.model.protocol import parse_fixed
    from steelyard.model.units import parse_budget, parse_bytes, parse_seconds, parse_share

    readers: dict[str, Callable[[str], Any]] = {
        "budget": lambda text: parse_budget(text, BUDGETS),
        "fixed": parse_fixed,
        "precision": parse_share, "margin": parse_share, "warmup": parse_seconds, "timeout": parse_seconds, "memory": parse_bytes,
    }  # fmt: skip
    found: dict[str, Any] = {}
    if options.get("vs_path") is not None:
        if options["vs"] is not None:
            raise UsageError("--vs and --vs-path exclude each other", do="give one of them")
        options = {**options, "vs": f"path:{options['vs_path']}"}
    if options.get("no_verify") and options.get("verify"):
        raise UsageError("--verify and --no-verify contradict each other", do="give one of them")
    if options.get("no_verify") or options.get("verify") == "usual":
        options = {**options, "verify": not options.get("no_verify")}
    if options.get("compile_time") == 0:
        options = {**options, "compile_time": 3 if options.get("vs") is None else 8}
    asked = ("settle", "sampling", "runs", "rtol", "atol", "verify", "reference", "rule", "seed", "isolate", "vs")
    if options.get("allow"):
        found["allow"] = tuple(options["allow"])
    for name in (*asked, "telemetry", *PASSES, *readers):
        if (given := options.get(name)) is not None:
            found[name] = readers[name](given) if name in readers else given
    if parse_count(options.get("warmup") or "", least=0) is not None:
        found["warmup_runs"] = int(options["warmup"])
        del found["warmup"]
    for name in ("budget", "timeout", "memory"):
        if name in found and not found[name] > 0:
            raise UsageError(f"--{name} must be more than 0, not {options[name]!r}")
    return found


def _preview(ready: Plan, *, as_json: bool) -> int:
    from steelyard.cli.check import shape_words
    from steelyard.engine import check, waits
    from steelyard.errors import FAILED

    shapes, expected = check.try_shapes(ready), waits.estimate(ready)
    wrong = [check.told(fit, ready) for fit in shapes.wrong]
    code = FAILED if ready.experiment.mistakes or wrong else 0
    cases = [job.case.id for job in ready.jobs]
    labels = {job.case.id: job.label for job in ready.jobs if job.label}
    dropped = [{"case": item.case.id, "kind": item.kind, "rule": str(item.rule), "reason": item.rule.reason} for item in ready.dropped]
    if as_json:
        found: dict[str, Any] = {
            "cases": cases,
            "dropped": dropped,
            "idle": [str(rule) for rule in ready.idle],
            "estimate_s": expected.about,
        }
        found |= {"longest_s": expected.longest} if expected.longest > expected.about else {}
        found["shapes"] = shapes
        emit_json(found | ({"labels": labels, "mistakes": list(ready.experiment.mistakes)} if labels else {}))
        return code
    widest = max(map(len, labels.values()), default=0)
    for case in cases:
        say(f"{labels.get(case, ''):<{widest}}  {case}" if labels else case)
    for line in [*_left_out(dropped), *(f"fits no case: rule {rule}" for rule in ready.idle), *shape_words(shapes)]:
        say(line, aside=True)
    for line in wrong:
        complain(line)
    told = _words_for(ready, len(cases) - len(wrong)) + (f" would run, {len(wrong)} cannot" if wrong else "")
    click.echo(f"{told} · about {how_long(ready)} · nothing measured", err=True)
    return code


def _left_out(dropped: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A line for every case that a rule drops; cases dropped by filters or in other parts are only counted."""
    counted: dict[str, int] = {}
    for item in dropped:
        if item["kind"] in ("filter", "partition"):
            how = f"dropped by {item['rule']}" if item["kind"] == "filter" else "in other parts"
            counted[how] = counted.get(how, 0) + 1
        else:
            word = "skipped" if item["kind"] == "deny" else "dropped"
            yield f"{word}  {item['case']}  by {item['rule']}" + (f": {item['reason']}" if item["reason"] else "")
    yield from (f"{number_of(count, 'case')} {how}" for how, count in counted.items())


def _words_for(ready: Plan, count: int) -> str:
    """The number of cases in words, with skipped and merged ones."""
    skipped = [f"{len(ready.denied)} skipped by rule"] if ready.denied else []
    named = sum(len(job.label.split()) for job in ready.jobs)
    alike = [f"of {named} configs, as some are alike"] if named > len(ready.jobs) else []
    return " · ".join([" ".join([number_of(count, "case"), *alike]), *skipped, *([f"part {ready.part}"] if ready.part else [])])


def _execute(ready: Plan, store: Store, options: dict[str, Any], again: Collection[Status], expectations: Sequence[Expectation]) -> int:
    from steelyard.engine import conduct
    from steelyard.report.text import run_table

    watch = Watched(ready, lambda left: _words_for(ready, left))
    command, stop = ["steelyard", *typed()], not options["keep_going"]

    def work() -> RunOutcome:
        return conduct.execute(
            ready, store, command, watch, resume=options["resume"], retry_of=again, expectations=expectations, fail_fast=stop
        )

    outcome = watch.through(work, lambda word: _kept(word, watch.writer, ready))
    if outcome is None:
        return INTERRUPTED
    found = outcome.run
    for line in found.warnings:
        if not watch.writer or line not in watch.writer.warnings:
            warn(line)
    if options["as_json"]:
        told = {"run": found.id, "path": str(found.path), "exit_code": outcome.code, "records": found.records, "pairs": found.pairs}
        told |= {"mistakes": list(ready.experiment.mistakes)} if ready.experiment.mistakes else {}
        emit_json(told | ({"expectations": outcome.foreseen} if expectations else {}))
    else:
        put(run_table(found.header, found.records, found.pairs, width=width()))
        for line in _news(outcome.foreseen) if expectations else ():
            say(line)
    return outcome.code


def _news(foreseen: Foreseen) -> Iterator[str]:
    """Lines that say what differs from the list of expected failures, and how many failed as expected."""
    yield from (f"new failure: {remark}" for remark in foreseen.new_failures)
    yield from (f"new pass: {remark}" for remark in foreseen.new_passes)
    yield from (f"expected: {remark}" for remark in foreseen.expected)
    yield from (f"fits no case: {entry}" for entry in foreseen.unused)


def _kept(word: str, writer: RunWriter | None, ready: Plan) -> str:
    if writer is None:
        return ""
    saved = sum(job.case.id in writer.done for job in ready.jobs)
    return f"{word}: {saved} of {len(ready.jobs)} cases are saved in run {writer.id}\n  continue: the same command with --resume"
