"""`steelyard as ptxla microbench`: two functions, or two stacks over the matmul sweep; the original's line, and a verdict below."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.errors import FAILED, NOTHING, PASS, REGRESSION, UsageError, exit_code
from steelyard.terminal import CONTEXT, emit_json, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steelyard.dialects.ptxla.microbench import Result
    from steelyard.dialects.ptxla.weighing import Manner, TwoSides
    from steelyard.engine.place import Place

SWEEP_BUDGET = "quick"
LONGEST_MS = 3_600_000


@click.command("microbench", context_settings=CONTEXT)
@click.argument("base", required=False, metavar="[FILE.py:BASE]")
@click.argument("test", required=False, metavar="[FILE.py:TEST]")
@click.option("--name", metavar="NAME", help="Name of the comparison. Default: the name of TEST.")
@click.option("--matmul", is_flag=True, help="Run the sweep over square matrix products instead of two functions.")
@click.option("--baseline", default="inductor", show_default=True, metavar="BACKEND", help="With --matmul: the backend to compare with.")
@click.option(
    "--testing", default="openxla+dynamo", show_default=True, metavar="BACKEND", help="With --matmul: the backend that is tested."
)
@click.option(
    "--sizes",
    default="256:8192:128",
    show_default=True,
    metavar="FIRST:LAST:STEP",
    help="With --matmul: a range of sizes, or a list: 256,1024.",
)
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="With --matmul: f32, f16, bf16; repeatable. Default: all three.")
@click.option(
    "--accelerator", default="cpu", show_default=True, metavar="KIND", help="cpu, or cuda, which is then reserved for this command."
)
@click.option("--warmup", type=click.FloatRange(min=0), default=25.0, show_default=True, metavar="MS", help="Warm-up of each side.")
@click.option("--rep", type=click.FloatRange(min=0), default=100.0, show_default=True, metavar="MS", help="Timing of each side.")
@click.option(
    "--return-mode", type=click.Choice(["min", "max", "mean", "median"]), default="min", show_default=True, help="The figure of a side."
)
@click.option("--save-profile-to-dir", "folder", metavar="DIR", help="Profile both sides into it if the speedup is below 0.95.")
@click.option("--budget", metavar="TIME", help="Time for the verdict. Default: normal, and quick with --matmul.")
@click.option("--no-verdict", is_flag=True, help="Print only the line that the original prints.")
@click.option("--no-verify", is_flag=True, help="Do not compare the answers of the two sides.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads.")
@click.option("--env", metavar="NAME", help="Run in this environment (steelyard env list).")
@click.option(
    "--timeout", default="600s", show_default=True, metavar="TIME", help="Give up on a comparison after this long without a message."
)
@click.option("--strict-exit", is_flag=True, help="Exit with 4 if a test is confirmed to be slower.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each comparison.")
def microbench(base: str | None, test: str | None, **given: Any) -> int:
    """Time two functions as PyTorch/XLA's micro-benchmark does, and weigh them against each other.

    A function is called without arguments; it may do its work on any device. Red and green need a verdict that agrees.

    \b
    steelyard as ptxla microbench kernels.py:old kernels.py:new --save-profile-to-dir profiles
    steelyard as ptxla microbench --matmul --baseline eager --testing inductor --sizes 256,512
    """
    from steelyard.dialects.ptxla.weighing import Microbench
    from steelyard.store.runs import Store

    manner = _manner(given)
    comparisons, place = _comparisons(base, test, given), _place(given)
    codes: list[int] = []
    bench = Microbench(manner, place, Store.find(), click.get_current_context().find_root().obj or (), tell)
    bench.run(comparisons, lambda answer: codes.append(_shown(answer, given["as_json"], given["strict_exit"])))
    return exit_code(codes) if codes else NOTHING


def _manner(given: Mapping[str, Any]) -> Manner:
    from steelyard.dialects.ptxla import weighing
    from steelyard.model.experiment import BUDGETS
    from steelyard.model.units import parse_budget, parse_seconds

    for name in ("warmup", "rep"):
        if not given[name] <= LONGEST_MS:
            raise UsageError(f"--{name} must be a number of milliseconds up to {LONGEST_MS}, not {given[name]}")
    if given["accelerator"] not in ("cpu", "cuda"):
        raise UsageError(f"no accelerator named {given['accelerator']!r}", do="use cpu or cuda")
    budget = given["budget"] or (SWEEP_BUDGET if given["matmul"] else "normal")
    return weighing.Manner(
        given["warmup"] * 1e-3, given["rep"] * 1e-3, given["return_mode"], not given["no_verdict"], not given["no_verify"],
        parse_budget(budget, BUDGETS), parse_seconds(given["timeout"]), Path(given["folder"]).resolve() if given["folder"] else None,
    )  # fmt: skip


def _comparisons(base: str | None, test: str | None, given: Mapping[str, Any]) -> list[TwoSides]:
    from steelyard.dialects.ptxla import matmul, weighing
    from steelyard.dialects.ptxla.microbench import check_name

    where = {"device": given["accelerator"], "threads": given["threads"]}
    if given["matmul"]:
        if base or test:
            raise UsageError("--matmul makes its own functions", do="leave out FILE.py:BASE and FILE.py:TEST")
        return matmul.sweep(matmul.sizes(given["sizes"]), given["dtypes"], given["baseline"], given["testing"], **where)
    if not base or not test:
        raise UsageError("two functions are needed", do="name FILE.py:BASE and FILE.py:TEST, or use --matmul for the sweep")
    name = given["name"] or test.rpartition(":")[2]
    check_name(name, given["folder"])
    return [weighing.of_functions(name, _spot(base), _spot(test), _framework(given["env"]), **where)]


def _spot(text: str) -> str:
    """Return FILE.py:NAME with an absolute path, because the worker may start elsewhere."""
    path, _, name = text.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(f"not a function in a file: {text!r}", do="write it like kernels.py:softmax")
    if not Path(path).is_file():
        raise UsageError("there is no such file", where=path)
    return f"{Path(path).resolve()}:{name}"


def _framework(env: str | None) -> str:
    """Return the backend that moves the functions' arrays: torch if it is installed, else numpy."""
    from importlib.util import find_spec

    from steelyard.engine import envs

    return "torch" if (envs.find(env).version("torch") if env else find_spec("torch")) else "numpy"


def _place(given: Mapping[str, Any]) -> Place:
    """Return where both sides run: in the environment named, or for XLA in one that has it, if this one does not."""
    from steelyard.engine import envs
    from steelyard.engine.place import Place as Start

    place = envs.place(given["env"]) if given["env"] else Start()
    xla = given["matmul"] and any(given[side].startswith("openxla") for side in ("baseline", "testing"))
    return envs.place_for("torch_xla", place) if xla else place


def _shown(answer: Result | str, as_json: bool, strict: bool) -> int:
    """Print one result, and return its exit code."""
    import sys

    from steelyard.dialects.ptxla.microbench import wants_colour
    from steelyard.report.cells import clean, visible

    if isinstance(answer, str):
        tell(f"error: {clean(answer)}")
        return FAILED
    if as_json:
        emit_json(answer.plain(), indent=None)
    else:
        first, *rest = answer.text(wants_colour(sys.stdout)).split("\n")
        click.echo(first)
        for line in rest:
            click.echo(f"  {visible(line.strip())}")
    if answer.verdict == "failed":
        return FAILED
    return REGRESSION if strict and answer.verdict == "slower" else PASS
