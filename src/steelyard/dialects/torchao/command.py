"""`steelyard as torchao`: the flags of the original's two runners, its CSV, table and CI records, and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.dialects.commands import status_counts
from steelyard.errors import INTERRUPTED, USAGE, UsageError
from steelyard.terminal import CONTEXT, heed_signals, tell

if TYPE_CHECKING:
    from steelyard.dialects.torchao.session import TorchaoRun

OUTPUT = "benchmark_results.json"
FILE = click.Path(path_type=Path)


@click.command("torchao", context_settings=CONTEXT)
@click.option("--config", type=FILE, metavar="FILE.yml", help="The config file.")
@click.option("--output", type=FILE, default=OUTPUT, show_default=True, metavar="FILE.json", help="File for the CI records.")
@click.option("--csv", type=FILE, metavar="FILE.csv", help="Write the CSV here instead of to OUTPUT_DIR/MODE/results_DATE_TIME.csv.")
@click.option("--output-dir", default="", metavar="DIR", help="Instead of the config's output_dir.")
@click.option(
    "--form", type=click.Choice(["seed", "last"]), default="seed", show_default=True,
    help="Columns and records of TorchAO's documented version, or of its last one, which times rows without and with torch.compile.",
)  # fmt: skip
@click.option("--device", default="", metavar="KIND", help="cpu, cuda, xpu or mps for all rows, instead of the config's.")
@click.option("-k", "--filter", "filters", multiple=True, metavar="PART", help="Only rows with this in their name: int8wo, '(64, 32, 16)'.")
@click.option("--budget", default="normal", show_default=True, metavar="TIME", help="Time per case and comparison: quick, normal, 30s.")
@click.option("--timeout", metavar="TIME", help="Time limit per case.")
@click.option("--file", "files", multiple=True, metavar="FILE.py", help="Your own Python file with recipes or layers; repeatable.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run of the same config.")
@click.option("--strict-exit", is_flag=True, help="Exit with 3 if a row failed and 5 if none was measured, not 0 as the original.")
@click.option("--self-test", is_flag=True, help="Run a tiny built-in config from end to end, and print what works here.")
def command(
    config: Path | None, output: Path, csv: Path | None, output_dir: str, form: str, device: str,
    filters: tuple[str, ...], budget: str, timeout: str | None, files: tuple[str, ...], resume: bool, strict_exit: bool, self_test: bool,
) -> int:  # fmt: skip
    """Run a config of TorchAO's micro-benchmarks: every recipe against its baseline, a row each in a CSV file, a table and records.

    \b
    steelyard as torchao --config microbenchmark_quantization_config.yml --output benchmark_results.json
    steelyard as torchao --config config.yml --form last --device cpu --budget quick
    steelyard as torchao --self-test
    """
    from steelyard.dialects.torchao import lines, selftest, session
    from steelyard.dialects.torchao.reading import DEVICES
    from steelyard.model.experiment import BUDGETS, Settings, device_kind
    from steelyard.model.units import parse_budget, parse_seconds
    from steelyard.store.runs import Store

    if device:
        device_kind(device, DEVICES)
    settings = Settings(budget=parse_budget(budget, BUDGETS), timeout=parse_seconds(timeout) if timeout else Settings.timeout)
    typed, files = click.get_current_context().find_root().obj or (), tuple(str(Path(file).resolve()) for file in files)
    heed_signals()
    if self_test:
        if config:
            raise UsageError("--self-test has a config of its own", do="leave out --config or --self-test")
        return selftest.run(device or "cpu", settings, files, typed)
    if config is None:
        click.echo(click.get_current_context().get_help(), err=True)
        return USAGE
    options = session.TorchaoOptions(config, output, csv, output_dir, form, device, settings, files, filters, resume, strict_exit)
    made = session.TorchaoRun(options, tell, Store.find(), typed)
    try:
        code = made.run()
    except KeyboardInterrupt:
        tell(f"interrupted: {_told(made)}")
        tell("  continue: the same command with --resume")
        return INTERRUPTED
    click.echo(f"\nBenchmark Results:\n{lines.table(made.lines, form)}")
    tell(_told(made))
    return code


def _told(made: TorchaoRun) -> str:
    counted = " · ".join(status_counts([line["status"] for line in made.lines])) or "no row is complete"
    places = [made.sink.path if made.sink else None, made.options.output]
    return f"{counted} · saved {', '.join(str(place) for place in places if place)}"
