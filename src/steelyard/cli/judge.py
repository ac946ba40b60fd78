"""`steelyard judge`: checks candidates for a problem: correct, faster, or cheating."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import CONTEXT, emit_json, json_option, put, say, warn, width
from steelyard.errors import FAILED, INCONCLUSIVE, NOTHING, PASS, StoreError, UsageError
from steelyard.model.judging import PRECISIONS
from steelyard.model.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from steelyard.model.judging import Ruling

FORMATS = ("words", "kernelbench", "gpumode", "flashinfer", "backendbench", "markdown", "csv")


@click.command("judge", context_settings=CONTEXT)
@click.argument("reference", metavar="REFERENCE")
@click.argument("candidates", nargs=-1, required=True, metavar="CANDIDATE...")
@click.option("--only", multiple=True, metavar="NAME", help="Only this problem of several; repeatable.")
@click.option("--inputs", metavar="NAME", help="Function in the reference's file that makes the inputs. Default: inputs or get_inputs.")
@click.option("-d", "--device", default="cpu", help="Device to judge on: cpu or cuda. Default cpu.")
@click.option("--budget", default="normal", help="Timed calls for each candidate: quick, normal, thorough, or seconds.")
@click.option("--margin", default="2%", help="Smaller differences count as the same. Default 2%.")
@click.option("--timeout", default="60s", help="Time limit for one step of a candidate. Default 60s.")
@click.option("--limit", default=None, help="Time limit for judging one candidate in all, such as 2m.")
@click.option("--memory", default=None, help="Memory limit for a candidate's processes, such as 4GiB.")
@click.option("--threads", default=1, type=click.IntRange(1), help="Contract: number of threads a candidate may use. Default 1.")
@click.option("--in-place", is_flag=True, help="Contract: calls may change their inputs.")
@click.option("--persistent", multiple=True, type=click.IntRange(0), metavar="N", help="Contract: input N is the same in every call.")
@click.option("--reuses-output", is_flag=True, help="Contract: outputs are valid only until the next call.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Contract: the lowest precision of arithmetic allowed.")
@click.option("--rtol", type=float, help="Relative tolerance, instead of Steelyard's own rule.")
@click.option("--atol", type=float, help="Absolute tolerance, instead of Steelyard's own rule.")
@click.option("--kernels", is_flag=True, help="List the kernels each candidate launches.")
@click.option("--strict", is_flag=True, help="Exit 6 if the time of a correct candidate is unclear.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Append each ruling to this file as a line of JSON.")
@click.option("--resume", is_flag=True, help="Skip candidates that already have a ruling in the --output file.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="words", help="Print rulings as another system writes its results.")
@json_option
def command(
    reference: str,
    candidates: tuple[str, ...],
    only: tuple[str, ...],
    strict: bool,
    output: Path | None,
    resume: bool,
    form: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Judge candidates against a reference: is the answer right, is it faster, and did it cheat?

    The code of both is executed: judge only code you would run yourself. Each candidate runs in its own processes; the expected answers and
    the clock are in separate ones. Layouts: plain Python files, KernelBench, gpu-mode, FlashInfer-Bench, BackendBench. A candidate may be a
    folder of candidates.

    \b
    steelyard judge reference.py candidate.py
    steelyard judge reference.py candidates/ -d cuda -o rulings.jsonl --resume
    """
    from steelyard.codec import ruling_document
    from steelyard.engine.referee import judging
    from steelyard.refereeing import judge_options

    if resume and output is None:
        raise UsageError("--resume needs a file of rulings to continue", do="name it: -o rulings.jsonl --resume")
    if as_json and form != "words":
        raise UsageError(f"--json and --format {form} exclude each other", do="leave one of them out")
    chosen = judge_options(_options(given))
    known = {str(ruling.facts["digest"]): ruling for ruling in _earlier(output)} if resume and output else {}
    many = len(candidates) > 1 or Path(candidates[0]).is_dir()
    found: list[Ruling] = []
    for ruling in judging.judge_all(reference, candidates, chosen, only, lambda who: say(f"waiting for {who}"), known):
        found.append(ruling)
        if output is not None and ruling.facts.get("digest") not in known:
            _append(output, ruling)
        if form == "words" and not as_json:
            _tell(ruling, many=many)
    code = _exit_code(found, strict=strict)
    if as_json:
        emit_json({"rulings": [ruling_document(ruling) for ruling in found], "exit_code": code})
    elif form != "words":
        _print(form, found, {problem.label: problem for problem in judging.problems(reference, only, chosen)})
    elif many:
        from steelyard.report.rulings import summary

        click.echo(summary(found))
    return code


def _tell(ruling: Ruling, *, many: bool) -> None:
    """Print one candidate in full, or one line per candidate as rulings arrive."""
    from steelyard.report.rulings import row, ruling_page

    put(row(ruling, width=width()) if many else ruling_page(ruling, width=width()))


def _print(form: str, found: Sequence[Ruling], problems: dict[str, Any]) -> None:
    from steelyard.engine.referee.formats import FORMATS as THEIRS
    from steelyard.report.rulings import rulings_csv, rulings_markdown

    ours = {"markdown": rulings_markdown, "csv": rulings_csv}
    made = ours[form](found) if form in ours else THEIRS[form](found, problems)
    if isinstance(made, str):
        click.echo(made.rstrip("\n"))
    else:
        emit_json(made)


def _earlier(file: Path) -> Iterator[Ruling]:
    """The rulings already in a file; an incomplete last line (its judge was killed) is skipped."""
    from steelyard.codec import read_ruling
    from steelyard.files import RESULTS, read_text

    if not file.exists():
        return
    for number, line in enumerate(read_text(file, RESULTS).splitlines(), 1):
        try:
            found = read_ruling(line.encode()) if line.strip() else None
        except StoreError as error:
            warn(f"{file}:{number}: {error}; judged again")
            continue
        if found is not None and "digest" in found.facts:
            yield found


def _append(file: Path, ruling: Ruling) -> None:
    """Append one ruling as a separate line, even if the file ends in an incomplete one."""
    from steelyard.codec import encode, ruling_document

    try:
        with file.open("ab+") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - 1))
            cut_off = size and opened.read(1) != b"\n"
            opened.write((b"\n" if cut_off else b"") + encode(ruling_document(ruling)) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write {file}", why=str(error), do="name another file with -o") from None


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The given options as keyword arguments of `steelyard.judge`."""
    found = {name: value for name, value in given.items() if value not in (None, False, ())}
    found["timeout"] = parse_seconds(given["timeout"])
    if given["limit"] is not None:
        found["limit"] = parse_seconds(given["limit"])
    if given["memory"] is not None:
        found["memory"] = parse_bytes(given["memory"])
    return found


def _exit_code(found: Sequence[Ruling], *, strict: bool) -> int:
    if not found or all(ruling.status == "unsupported" for ruling in found):
        return NOTHING
    if any(not ruling.correct for ruling in found):
        return FAILED
    unclear = any(ruling.delta is None or ruling.delta.verdict == "unclear" for ruling in found)
    return INCONCLUSIVE if strict and unclear else PASS
