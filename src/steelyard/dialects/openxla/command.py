"""`steelyard as openxla`: the tools of OpenXLA's comparative benchmarks with their flags, and commands that list and check definitions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.dialects.commands import ENV, STRICT_EXIT, Names, spelt, status_counts, with_options
from steelyard.errors import FAILED, INTERRUPTED, PASS, UsageError, unknown
from steelyard.terminal import CONTEXT, heed_signals, put_line, tell

if TYPE_CHECKING:
    from steelyard.dialects.openxla.session import ToolOptions

FILE, LEAST_0, LEAST_1 = click.Path(path_type=Path), click.IntRange(min=0), click.IntRange(min=1)
TOOLS = ("jax", "pytorch", "tensorflow")
GPU, CPU = ["a2-highgpu-1g", "host-gpu"], ["c2-standard-16", "c2-standard-60", "host-cpu"]
NIGHTLY = {
    "jax": (("RESNET50", "BERT_LARGE", "T5_LARGE", "T5_4CG_LARGE", "GPT2LMHEAD"), "JAX", 5),
    "pytorch": (("RESNET50", "BERT_LARGE"), "PT", 20),
    "tensorflow": (("RESNET50", "BERT_LARGE", "T5_LARGE", "EFFICIENTNETB7"), "TF", 5),
}
"""What `benchmark-all` runs with each tool: families in fp32, the framework's part of their names, and iterations on a CPU."""
CPU_BATCHES = {"BERT_LARGE": "1|32|64", "T5_LARGE": "1|16|32", "T5_4CG_LARGE": "1|16|32"}
STARTED = {
    "hlo": ("--hlo-tool",), "iree": ("--iree-run-module-path", "--iree-benchmark-module-path"), "tflite": ("--tflite-benchmark-binary",),
}  # fmt: skip
"""The original's flags for the programs that its compiler-level tools start; they are accepted and ignored."""
GPU_ITERATIONS, CPU_BATCH = 50, "1|64|128"


class Tools(Names):
    """The original's tools by name."""

    kind = "tool of openxla"


@click.group("openxla", cls=Tools, context_settings=CONTEXT)
def command() -> None:
    """OpenXLA's comparative benchmarks: the suite's models in JAX, PyTorch and TensorFlow, and your own with --definitions.

    \b
    steelyard as openxla pytorch -name "models/EXAMPLE_FP32_PT_BATCH.+" -device host-cpu -o results.json --generate-artifacts
    steelyard as openxla list --definitions my_suite
    """


def definitions(text: str) -> Callable[[Any], Any]:
    """Return the flag that names folders of definitions; `text` is its help."""
    return click.option("--definitions", multiple=True, type=FILE, metavar="DIR", help=text)


DEFINITIONS = definitions("Folder or file of your definitions, instead of the suite's; repeatable.")
OFFLINE = spelt("--no-download", "offline", is_flag=True, help="Download no inputs and no artifacts.")
COMMON = (
    spelt("--run-in-process", "in_process", is_flag=True, help="Run all cases in one process instead of one process each."),
    spelt("--root-dir", "root", type=FILE, metavar="DIR", help="Folder for inputs.  [default: TMPDIR/openxla-benchmark]"),
    spelt("--generate-artifacts", "artifacts", is_flag=True, help="Write the inputs of each model to DIR/MODEL/inputs_npy.tgz."),
    OFFLINE,
    spelt("--verbose", is_flag=True, help="Print each result as it arrives."),
    DEFINITIONS,
    spelt("--preset", type=click.Choice(["tiny", "small", "full"]), default="full", show_default=True, help="Size of the suite's models."),
    ENV,
    spelt("--timeout", type=float, default=3600.0, show_default=True, metavar="SECONDS", help="Time limit per case."),
    STRICT_EXIT,
)


def tool_command(tool: str) -> click.Command:
    """Return the command of one tool, with the original's flags and defaults."""
    from steelyard.dialects.openxla.definitions import DEVICES
    from steelyard.dialects.openxla.session import COMPILERS

    @click.command(tool, context_settings=CONTEXT, help=f"Run benchmarks of models in {tool} and add their results to a JSON file.")
    @with_options(
        spelt("-o", "--output", type=FILE, required=True, metavar="FILE.json", help="File to add results to."),
        spelt("-name", "--benchmark-name", "name", required=True, metavar="REGEX", help="Must match a whole name, such as models/BERT.+"),
        spelt("-device", "--target-device", "device", required=True, type=click.Choice([*DEVICES]), help="Machine name in the results."),
        spelt("-w", "--warmup-iterations", "warmup", type=LEAST_0, default=5, show_default=True, help="Warm-up calls."),
        spelt("-iter", "--iterations", type=LEAST_1, default=100, show_default=True, help="Timed calls."),
        spelt("-c", "--compiler", type=click.Choice(COMPILERS[tool]), default=COMPILERS[tool][0], show_default=True, help="Compiler."),
        *COMMON,
    )
    def run(name: str, **given: Any) -> int:
        return perform([_options(tool=tool, names=(name,), **given)])

    made: click.Command = run
    return made


def _options(offline: bool, preset: str, root: Path | None, **given: Any) -> ToolOptions:
    from steelyard.dialects.openxla.session import ToolOptions

    words: dict[str, Any] = {"root": root, **given} if root else given
    return ToolOptions(download=not offline, preset="" if preset == "full" else preset, **words)


def perform(several: Sequence[ToolOptions]) -> int:
    """Run tools one after another and return the exit code; results written so far are kept if a later tool fails."""
    from steelyard.dialects.openxla.compiled import CompilerOptions, CompilerRun
    from steelyard.dialects.openxla.session import SuiteRun
    from steelyard.errors import exit_code
    from steelyard.store.runs import Store

    heed_signals()
    codes, statuses = list[int](), list[str]()
    for options in several:
        kind = CompilerRun if isinstance(options, CompilerOptions) else SuiteRun
        made = kind(options, tell if options.verbose else _loud, Store.find(), sys.argv)
        try:
            codes.append(made.run())
        except KeyboardInterrupt:
            codes.append(INTERRUPTED)
        statuses += made.statuses.values()
        if INTERRUPTED in codes:
            break
    tell(f"{' · '.join(status_counts(statuses)) or 'nothing was run'} · {several[0].output}")
    return exit_code(codes)


def _loud(text: str) -> None:
    """Print a line if it reports a failure, which is all that is shown without --verbose."""
    if text.startswith("error") or ": " in text.partition("  ")[2]:
        tell(text)


def nightly(tool: str, device: str) -> tuple[tuple[str, ...], int]:
    """Return a tool's name patterns and iterations on a device; a device without a list is an error."""
    families, mark, iterations = NIGHTLY[tool]
    if device in GPU:
        return tuple(rf"models/{family}_FP32_{mark}_.+" for family in families), GPU_ITERATIONS
    if device not in CPU:
        raise unknown("device with a list of benchmarks", device, [*GPU, *CPU])
    return tuple(rf"models/{one}_FP32_{mark}_.+_BATCH({CPU_BATCHES.get(one, CPU_BATCH)})/.+" for one in families), iterations


@command.command("benchmark-all", context_settings=CONTEXT)
@click.argument("device", default=lambda: os.environ.get("OOBI_TARGET_DEVICE", ""), metavar="[DEVICE]")
@click.argument("output", type=FILE, default=lambda: os.environ.get("OOBI_OUTPUT", ""), metavar="[OUTPUT]")
@click.option("--tool", "tools", multiple=True, type=click.Choice(TOOLS), help="Only this tool; repeatable.")
@click.option("--iterations", type=LEAST_1, help="Default: 50 on a GPU; on a CPU 20 for PyTorch and 5 for the other tools.")
@with_options(*COMMON)
def benchmark_all(device: str, output: Path, tools: tuple[str, ...], iterations: int | None, **given: Any) -> int:
    """Run each tool's nightly benchmarks on DEVICE and add the results to OUTPUT; defaults: OOBI_TARGET_DEVICE and OOBI_OUTPUT."""
    from steelyard.dialects.openxla.session import COMPILERS

    if not device or str(output) in ("", "."):
        raise UsageError("benchmark-all needs a device and a file", do="steelyard as openxla benchmark-all host-cpu results.json")
    several = []
    for tool in tools or TOOLS:
        names, usual = nightly(tool, device)
        asked: dict[str, Any] = {"tool": tool, "names": names, "device": device, "output": output, "compiler": COMPILERS[tool][0]}
        several.append(_options(**asked, iterations=iterations or usual, **given))
    return perform(several)


@command.command("list", context_settings=CONTEXT)
@DEFINITIONS
def listing(definitions: tuple[Path, ...]) -> int:
    """List all benchmarks by tool, with the reason if one is expected to fail; those that no tool here runs come last."""
    from steelyard.dialects.openxla.catalogue import gathered, tool_of
    from steelyard.dialects.openxla.suite import EXPECTED

    held = gathered(definitions)
    for case in sorted(held.cases, key=lambda case: [*TOOLS, ""].index(tool_of(case))):
        put_line("  ".join(filter(None, [f"{tool_of(case) or '-':11}", case.name, "" if definitions else EXPECTED.get(case.name)])))
    for trouble in held.troubles:
        tell(f"error: {trouble}")
    return FAILED if held.troubles else PASS


@command.command("lint", context_settings=CONTEXT)
@DEFINITIONS
def lint(definitions: tuple[Path, ...]) -> int:
    """Find mistakes in definitions: wrong tags, names used twice, cases that no tool runs, artifacts that no exporter makes."""
    from steelyard.dialects.openxla.catalogue import gathered
    from steelyard.dialects.openxla.lint import findings

    held = gathered(definitions)
    found = findings(held)
    for item in found:
        put_line(str(item))
    tell(f"{len(held.models)} models · {len(held.cases)} cases · {len(found)} findings")
    return FAILED if any(not item.doubt for item in found) else PASS


@command.command("make-artifacts", context_settings=CONTEXT)
@click.argument("framework", type=click.Choice([*TOOLS, "tflite"]))
@click.argument("more", nargs=-1, metavar="[REGEX…]")
@with_options(
    spelt("-o", "--output-dir", "output", type=FILE, metavar="DIR", help="Folder for the models' folders.  [default: a new one in TMPDIR]"),
    spelt("-f", "--filter", "names", multiple=True, metavar="REGEX…", help="One must match a model's whole name. Default: all models."),
    spelt("--iree-ir-tool", "ir_tool", type=FILE, metavar="PROGRAM", help="Write StableHLO only as bytecode; the program is not used."),
    spelt("--auto-upload", "upload", is_flag=True, help="Publish each folder to GCS_UPLOAD_DIR (any fsspec address), then delete it."),
    spelt("--only", multiple=True, metavar="KIND", help="Only these kinds of programs, such as stablehlo_mlir."),
    *COMMON[5:],
)
def make_artifacts(framework: str, more: tuple[str, ...], output: Path | None, ir_tool: Path | None, upload: bool, **given: Any) -> int:
    """Export the suite's models of FRAMEWORK, with inputs and outputs, into folders that the compiler tools read."""
    from steelyard.dialects.openxla import exported
    from steelyard.engine.exporting import code_of
    from steelyard.exporters.ways import check_kinds

    if upload and not os.environ.get(exported.UPLOAD):
        raise UsageError(f"--auto-upload needs {exported.UPLOAD}", do=f"export {exported.UPLOAD}=s3://bucket/folder")
    check_kinds(given["only"])
    heed_signals()
    given |= {"names": (*given["names"], *more) or (".*",), "preset": given["preset"].replace("full", "")}
    given |= {"output": output or Path(), "bytecode": ir_tool is not None, "upload": os.environ.get(exported.UPLOAD, "") if upload else ""}
    asked = exported.ModelExport(framework, **given)
    out, found = exported.make(asked, lambda name, what: tell(f"  {name}: {what}"), tell)
    tell(f"{' · '.join(status_counts([item.status for item in found]))} · {out}")
    return code_of(found) if asked.strict_exit else PASS


def compiler_command(tool: str) -> click.Command:
    """Return the command of a compiler-level tool with the original's flags; those that name programs are accepted and ignored."""
    from steelyard.dialects.openxla.compiled import BOUND, ITERATIONS, CompilerOptions, parse_threads

    @click.command(tool, context_settings=CONTEXT, help="Run exported programs and add their results to a JSON file.")
    @with_options(
        spelt("-o", "--output", type=FILE, required=True, metavar="FILE.json", help="File to add results to."),
        spelt(
            "--artifact-dir", "--root-dir", "root", type=FILE, metavar="DIR", help="Programs' folder.  [default: TMPDIR/openxla-benchmark]"
        ),
        definitions("Definitions with the addresses of models' artifacts; those that --artifact-dir lacks are downloaded."),
        OFFLINE,
        spelt("-name", "--benchmark-name", "name", default=".*", metavar="REGEX", help="Must match a whole name, such as models/BERT.+"),
        spelt("-device", "--target-device", "device", default="host-cpu", show_default=True, help="Machine name in the results."),
        spelt("-iter", "--iterations", type=LEAST_1, default=ITERATIONS[tool], show_default=True, help="Timed calls."),
        spelt("--thread-config", "threads", default="{1: ''}", metavar="TEXT", help=f"Numbers of threads, each with {BOUND[tool]}."),
        *(spelt(name, metavar="PROGRAM", expose_value=False, help="Accepted and ignored.") for name in STARTED[tool]),
        spelt("--verbose", is_flag=True, help="Print each result as it arrives."),
        *COMMON[-3:],
    )
    def run(name: str, threads: str, offline: bool, root: Path | None, **given: Any) -> int:
        given |= {"threads": parse_threads(threads, tool), "download": not offline, **({"root": root} if root else {})}
        return perform([CompilerOptions(tool, (name,), **given)])

    made: click.Command = run
    return made


for _tool in TOOLS:
    command.add_command(tool_command(_tool))
for _tool in STARTED:
    command.add_command(compiler_command(_tool))
