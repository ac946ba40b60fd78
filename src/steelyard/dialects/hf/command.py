"""`steelyard as hf`: the flags of both versions of benchmark_v2, so that the commands of its README run here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from steelyard.dialects.commands import ENV, LOUDNESS, STRICT_EXIT, Listing, Names, status_counts, with_options
from steelyard.errors import INTERRUPTED, UsageError, told
from steelyard.terminal import CONTEXT, heed_signals, tell

FOLDER = click.Path(path_type=Path)
LEVELS = click.Choice([name for name in LOUDNESS if name != "CRITICAL"])


class HFPrograms(Names):
    """The original's programs by name."""

    kind = "program of hf"


@click.group("hf", cls=HFPrograms, context_settings=CONTEXT)
def command() -> None:
    """Hugging Face's benchmark_v2: your own bench files and ours, or levels of generation configs.

    \b
    steelyard as hf run_benchmarks --include mock_benchmark --enable-mock
    steelyard as hf run_benchmarks --model-id gpt2 --preset tiny --variants eager
    steelyard as hf v2 --model-id gpt2 -b 1 -s 128 -n 64 --level 1
    """


_common = with_options(
    click.option("--preset", type=click.Choice(["tiny"]), help="A small model of the same architecture, for tests and small machines."),
    ENV,
    click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads on the CPU."),
    click.option("--seed", type=int, default=0, show_default=True, help="For weights, prompts and the mock."),
    click.option("--timeout", default="1h", show_default=True, metavar="TIME", help="Time limit per scenario."),
    click.option("--no-verify", is_flag=True, help="Do not compare tokens with those of the plain model."),
    click.option("--resume", is_flag=True, help="Continue an interrupted run with the same arguments."),
    STRICT_EXIT,
)
"""Our own flags, which both programs have."""


def settings_of(seed: int, timeout: str, no_verify: bool) -> Any:
    """The settings of all measurements."""
    from steelyard.model.experiment import Settings
    from steelyard.model.units import parse_seconds

    return Settings(seed=seed, timeout=parse_seconds(timeout), verify=not no_verify)


@command.command("run_benchmarks", cls=Listing, context_settings=CONTEXT)
@click.option("--output-dir", type=FOLDER, default="benchmark_results", show_default=True, metavar="DIR", help="Folder of results and log.")
@click.option("--benches-dir", type=FOLDER, metavar="DIR", help="Folder of bench files.  [default: ./benches]")
@click.option("--log-level", type=LEVELS, default="INFO", show_default=True, help="Log level.")
@click.option("--model-id", metavar="ID", help="The model, for benches that take one; offline, its sizes with seeded weights.")
@click.option("--warmup-iterations", type=click.IntRange(0), default=3, show_default=True, help="Untimed generations.")
@click.option("--measurement-iterations", type=click.IntRange(1), default=5, show_default=True, help="Timed generations.")
@click.option("--num-tokens-to-generate", type=click.IntRange(1), default=100, show_default=True, help="New tokens of each.")
@click.option("--include", multiple=True, metavar="PART...", help="Only benches with one of these in their name.")
@click.option("--exclude", multiple=True, metavar="PART...", help="Leave out benches with one of these in their name.")
@click.option("--enable-mock", is_flag=True, help="Run the mock benchmark, which is skipped otherwise.")
@click.option("--variants", multiple=True, metavar="NAME...", help="For the built-in benches: eager, compiled, kernelized.")
@_common
def run_benchmarks(
    output_dir: Path, benches_dir: Path | None, log_level: str, include: tuple[str, ...], exclude: tuple[str, ...],
    env: str, threads: int, seed: int, timeout: str, no_verify: bool, resume: bool, strict_exit: bool, **given: Any,
) -> int:  # fmt: skip
    """Run every bench file of a folder, each in its own process, and ours: llama_benchmark and mock_benchmark.

    \b
    steelyard as hf run_benchmarks --include mock_benchmark --enable-mock
    steelyard as hf run_benchmarks --output-dir my_results --exclude old_benchmark --log-level DEBUG
    """
    from steelyard.dialects.hf import session
    from steelyard.dialects.hf.cases import VARIANTS
    from steelyard.errors import unknown
    from steelyard.store.runs import Store

    for name in given["variants"]:
        if name not in VARIANTS:
            raise unknown("variant", name, VARIANTS)
    kept = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value not in (None, ())}
    options = session.BenchOptions(
        output_dir, benches_dir or Path("benches"), benches_dir is not None, kept, log_level, include, exclude, env, threads,
        settings_of(seed, timeout, no_verify), resume, strict_exit,
    )  # fmt: skip
    typed = click.get_current_context().find_root().obj or ()
    made = session.BenchesRun(options, tell, Store.find(), typed)
    heed_signals()
    try:
        code = made.run()
    except UsageError as error:
        if strict_exit:
            raise
        tell(f"error: {told(error)}")
        return session.FALLEN
    except KeyboardInterrupt:
        tell(f"interrupted: {len(made.outcomes)} benches done; continue: the same command with --resume")
        return INTERRUPTED
    good = sum(outcome.status == "completed" for outcome in made.outcomes.values())
    bad = sum(outcome.status == "failed" for outcome in made.outcomes.values())
    tell(f"{good} ok · {bad} failed · {len(made.outcomes) - good - bad} skipped · saved {output_dir / session.SUMMARY}")
    return code


SIZE = click.IntRange(1)


@command.command("v2", cls=Listing, context_settings=CONTEXT)
@click.option("--output-dir", type=FOLDER, default="benchmark_results", show_default=True, metavar="DIR", help="Folder for results.")
@click.option("--log-level", type=LEVELS, default="WARNING", show_default=True, help="Log level.")
@click.option(
    "--model-id", required=True, metavar="ID", help="A hub id (offline: its sizes, seeded weights), an architecture, a folder, or mock."
)
@click.option("-w", "--warmup", type=click.IntRange(0), default=3, show_default=True, help="Untimed generations.")
@click.option("-i", "--iterations", type=SIZE, default=10, show_default=True, help="Timed generations.")
@click.option("-b", "--batch-size", type=SIZE, multiple=True, metavar="N...", help="Rows of a request.")
@click.option("-s", "--sequence-length", type=SIZE, multiple=True, metavar="N...", help="Tokens of a prompt.")
@click.option("-n", "--num-tokens-to-generate", type=SIZE, multiple=True, metavar="N...", help="New tokens, at least 2.")
@click.option("--level", type=click.IntRange(0, 4), default=1, show_default=True, help="How many configs: 1, 4, 8, 32 or 80.")
@click.option("--config-file", type=FOLDER, metavar="FILE", help="Read configs from a .json or .jsonl file instead of using a level.")
@click.option(
    "-p", "--num-tokens-to-profile", type=click.IntRange(0), default=0, metavar="N", help="Also record a trace of N tokens per config."
)
@click.option("--enable-tp", is_flag=True, help="Tensor parallel; such configs are unsupported here.")
@click.option("--branch-name", default="", help="Written to the file instead of git's.")
@click.option("--commit-id", default="", help="Written to the file instead of git's.")
@click.option("--commit-message", default="", help="Written to the file.")
@click.option("--no-gpu-monitoring", is_flag=True, help="Do not write GPU metrics; names and files say that nothing was monitored.")
@click.option(
    "--push-result-to-dataset",
    "dataset",
    default="",
    metavar="ID",
    help="Write the rows of that dataset to full_results/; nothing is sent.",
)
@_common
def v2(
    output_dir: Path, log_level: str, model_id: str, warmup: int, iterations: int, batch_size: tuple[int, ...],
    sequence_length: tuple[int, ...], num_tokens_to_generate: tuple[int, ...], level: int, config_file: Path | None,
    num_tokens_to_profile: int, enable_tp: bool, branch_name: str, commit_id: str, commit_message: str, no_gpu_monitoring: bool,
    dataset: str, preset: str | None, env: str, threads: int, seed: int, timeout: str, no_verify: bool, resume: bool, strict_exit: bool,
) -> int:  # fmt: skip
    """Measure the configs of a level or of a file in every size, and write a row for each, keyed by its hash.

    \b
    steelyard as hf v2 --model-id mock -b 1 4 -s 64 -n 16 --level 1
    steelyard as hf v2 --model-id meta-llama/Llama-3.1-8B -b 1 32 -s 128 -n 256 --level 2
    """
    from steelyard.dialects.hf import leveled, levels
    from steelyard.store.runs import Store

    leveled.check_sizes({"batch-size": batch_size, "sequence-length": sequence_length, "num-tokens-to-generate": num_tokens_to_generate})
    found, notes = levels.read_configs(config_file) if config_file else (levels.by_level(level), [])
    for note in notes:
        tell(f"warning: {note}")
    same = {"warmup_iterations": warmup, "measurement_iterations": iterations, "gpu_monitoring": not no_gpu_monitoring}
    configs = levels.crossed(
        found, batch_size, sequence_length, num_tokens_to_generate, **same, **({"tp_plan": "auto"} if enable_tp else {})
    )
    options = leveled.LevelOptions(
        model_id, configs, output_dir, branch_name, commit_id, commit_message, num_tokens_to_profile, dataset, env, threads, preset,
        settings_of(seed, timeout, no_verify), resume, strict_exit,
    )  # fmt: skip
    if dataset:
        tell(f"warning: rows for {dataset} are written to {output_dir / 'full_results'}; nothing is sent")
    heed_signals()
    quiet = LOUDNESS[log_level] > LOUDNESS["WARNING"]
    made = leveled.LevelRun(
        options, click.echo, (lambda text: None) if quiet else tell, Store.find(), click.get_current_context().find_root().obj or ()
    )
    try:
        code = made.run()
    except KeyboardInterrupt:
        tell("interrupted; continue: the same command with --resume")
        return INTERRUPTED
    if made.sink:
        tell(f"{' · '.join(status_counts(made.sink.statuses))} · saved {made.sink.results}")
    return code
