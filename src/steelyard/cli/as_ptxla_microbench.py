"""`steelyard as ptxla microbench`: two functions, or two stacks over the matmul sweep; the original's line, and a verdict below."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import CONTEXT, emit_json, tell
from steelyard.errors import FAILED, NOTHING, PASS, REGRESSION, NothingMeasured, UsageError, exit_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from steelyard.dialects.ptxla.matmul import Product
    from steelyard.dialects.ptxla.microbench import Result
    from steelyard.engine.converse import Talk
    from steelyard.engine.place import Place

SHIM = "steelyard.dialects.ptxla.microbench_shim"
SWEEP_BUDGET = "quick"
LONGEST_MS = 3_600_000


@click.command("microbench", context_settings=CONTEXT)
@click.argument("base", required=False, metavar="[FILE.py:BASE]")
@click.argument("test", required=False, metavar="[FILE.py:TEST]")
@click.option("--name", metavar="NAME", help="What the comparison is called. Default: the name of TEST.")
@click.option("--matmul", is_flag=True, help="The sweep over square matrix products instead of two functions.")
@click.option("--baseline", default="inductor", show_default=True, metavar="BACKEND", help="With --matmul: the backend to compare with.")
@click.option(
    "--testing", default="openxla+dynamo", show_default=True, metavar="BACKEND", help="With --matmul: the backend that is tested."
)
@click.option("--sizes", default="256:8192:128", show_default=True, metavar="FIRST:LAST:STEP", help="With --matmul; or sizes: 256,1024.")
@click.option("--dtype", "dtypes", multiple=True, metavar="NAME", help="With --matmul: f32, f16, bf16; repeatable. Default: all three.")
@click.option("--accelerator", default="cpu", show_default=True, metavar="KIND", help="cpu, or cuda, which is then held for this alone.")
@click.option("--warmup", type=click.FloatRange(min=0), default=25.0, show_default=True, metavar="MS", help="Warm-up of each side.")
@click.option("--rep", type=click.FloatRange(min=0), default=100.0, show_default=True, metavar="MS", help="Timing of each side.")
@click.option(
    "--return-mode", type=click.Choice(["min", "max", "mean", "median"]), default="min", show_default=True, help="The figure of a side."
)
@click.option("--save-profile-to-dir", "folder", metavar="DIR", help="Profile both sides into it where the speedup is below 0.95.")
@click.option("--budget", metavar="TIME", help="Time for the verdict. Default: normal, and quick with --matmul.")
@click.option("--no-verdict", is_flag=True, help="Only the original's line.")
@click.option("--no-verify", is_flag=True, help="Do not hold the answers of the two sides against each other.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads.")
@click.option("--env", metavar="NAME", help="Run in this environment (steelyard env list).")
@click.option("--timeout", default="600s", show_default=True, metavar="TIME", help="Give a comparison up after this long without a word.")
@click.option("--strict-exit", is_flag=True, help="Exit with 4 where a test is confirmed to be slower.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each comparison.")
def microbench(base: str | None, test: str | None, **given: Any) -> int:
    """Time two functions as PyTorch/XLA's micro-benchmark does, and weigh them against each other.

    A function is called with nothing; it may do its work on any device. Red and green need a verdict that agrees.

    \b
    steelyard as ptxla microbench kernels.py:old kernels.py:new --save-profile-to-dir profiles
    steelyard as ptxla microbench --matmul --baseline eager --testing inductor --sizes 256,512
    """
    from steelyard.engine import converse
    from steelyard.model.units import parse_seconds

    products = _products(given) if given["matmul"] else None
    job = _job(base, test, given, products)
    place = _place(given, products is not None)
    devices = [] if given["accelerator"] == "cpu" else [f"{given['accelerator']}0"]
    codes: list[int] = []
    with converse.talking(devices, tell, parse_seconds(given["timeout"]), place) as talk:
        for answer in _results(talk, job, products):
            codes.append(_shown(answer, given["as_json"], given["strict_exit"]))
    return exit_code(codes) if codes else NOTHING


def _products(given: Mapping[str, Any]) -> list[Product]:
    from steelyard.dialects.ptxla import matmul

    return matmul.sweep(matmul.sizes(given["sizes"]), given["dtypes"])


def _job(base: str | None, test: str | None, given: Mapping[str, Any], products: Sequence[Product] | None) -> dict[str, Any]:
    from steelyard.model.experiment import BUDGETS
    from steelyard.model.units import parse_budget

    for name in ("warmup", "rep"):
        if not given[name] <= LONGEST_MS:
            raise UsageError(f"--{name} is a number of milliseconds up to {LONGEST_MS}, not {given[name]}")
    if given["accelerator"] not in ("cpu", "cuda"):
        raise UsageError(f"no accelerator named {given['accelerator']!r}", do="cpu or cuda")
    budget = given["budget"] or (SWEEP_BUDGET if products is not None else "normal")
    options = {
        "warmup": given["warmup"], "rep": given["rep"], "return_mode": given["return_mode"], "weigh": not given["no_verdict"],
        "verify": not given["no_verify"], "budget": parse_budget(budget, BUDGETS),
        "save_profile_to_dir": str(Path(given["folder"]).resolve()) if given["folder"] else None,
    }  # fmt: skip
    job = {"do": "shim", "shim": SHIM, "files": [], "entries": [], "paths": [], "options": options}
    if products is not None:
        if base or test:
            raise UsageError("--matmul makes its own functions", do="leave out FILE.py:BASE and FILE.py:TEST")
        stacks = {side: given[side] for side in ("baseline", "testing")}
        return {**job, "matmul": {**stacks, "accelerator": given["accelerator"]}}
    if not base or not test:
        raise UsageError("two functions are needed: FILE.py:BASE and FILE.py:TEST", do="or --matmul for the sweep")
    return {**job, "base": _spot(base), "test": _spot(test), "name": given["name"] or test.rpartition(":")[2]}


def _spot(text: str) -> str:
    """FILE.py:NAME with a whole path, since the worker may start elsewhere."""
    path, _, name = text.rpartition(":")
    if not path or not name.isidentifier():
        raise UsageError(f"not a function in a file: {text!r}", do="write it like kernels.py:softmax")
    if not Path(path).is_file():
        raise UsageError("there is no such file", where=path)
    return f"{Path(path).resolve()}:{name}"


def _place(given: Mapping[str, Any], sweeping: bool) -> Place:
    """Where the worker starts: in the environment named, or for XLA in one that has it, if this one does not."""
    from dataclasses import replace

    from steelyard.engine import envs
    from steelyard.engine.place import Place as Start

    place = envs.place(given["env"]) if given["env"] else Start()
    flags: dict[str, str] = {}
    if sweeping and any(given[side].startswith("openxla") for side in ("baseline", "testing")):
        place = envs.place_for("torch_xla", place)
        flags = envs.variables("torch_xla", given["accelerator"], given["threads"])
    return replace(place, threads=given["threads"], flags=tuple(flags.items()))


def _results(talk: Talk, job: Mapping[str, Any], products: Sequence[Product] | None) -> Iterator[Result | str]:
    """Every result, or what became of it instead; a sweep goes on behind a comparison that was lost with a new worker."""
    from steelyard.dialects.ptxla.microbench import Result

    left = list(products or ())
    while True:
        asked = {**job, "matmul": {**job["matmul"], "products": [(item.dtype, item.n) for item in left]}} if products is not None else job
        started, lost = "", ""
        for message in talk.ask(asked):
            if "unsupported" in message:
                raise NothingMeasured(**message["unsupported"])
            if "started" in message:
                started = str(message["started"])
            elif "result" in message:
                left, started = left[1:], ""
                yield Result.from_plain(message["result"])
            elif "failed" in message:
                left, started = left[1:], ""
                yield f"{message['failed']['name']}: {message['failed']['reason']}"
            elif "lost" in message:
                lost = f"{started or 'before the first comparison'}: {message['lost']['status']}: {message['lost']['reason']}"
        if lost:
            yield lost
        if not lost or not started or products is None or not left[1:]:
            return
        left = left[1:]


def _shown(answer: Result | str, as_json: bool, strict: bool) -> int:
    """Print one answer, and say what it is worth as an exit code."""
    import sys

    from steelyard.dialects.ptxla.microbench import wants_colour
    from steelyard.report.cells import visible

    if isinstance(answer, str):
        tell(f"error: {answer}")
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
