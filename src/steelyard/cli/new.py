"""`steelyard new`: writes a small file that runs as it is, to start from."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from steelyard.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
TAKEN = {"Task", "workload", "variant", "metric", "replace", "trial", "torch", "numpy", "np", "be", "task", "seconds", "n", "dtype"}

WORKLOAD = '''"""The workload {name}. Run it with: {run}"""

from steelyard import Task, workload


@workload("{name}", {default}axes={{"n": [4096, 65536], "dtype": ["fp32"]}})
def {ident}(n, dtype, be):
    """What is computed, and what limits it."""
    import {library}

    x = be.randn(n, dtype=dtype)
    return Task({short}.exp, (x,), bytes=2 * x.nbytes)  # also flops= and items=, for rates
'''

REFERENCE = """

@{ident}.on("numpy")  # the same in numpy is the reference that results are checked against
def _(n, dtype, be):
    import numpy as np

    return Task(np.exp, (be.randn(n, dtype=dtype),))
"""

VARIANT = '''"""The variant {name}. Run it with: {run}"""

from dataclasses import replace

from steelyard import Task, variant, workload


@variant("{name}")
def {ident}(task):
    """What is done differently; the answer is checked against the task as it was."""

    def changed(*args, **kwargs):
        return task.fn(*args, **kwargs)

    return replace(task, fn=changed)


@workload("try/{name}", backend="{backend}", axes={{"n": [65536]}})
def trial(n, be):
    """Something to try the variant on."""
    import {backend}

    return Task({backend}.exp, (be.randn(n),))
'''

METRIC = '''"""The metric {name}. Run it with: {run}"""

from steelyard import Task, metric, workload


@metric("{name}", unit="row/s", better="higher")
def {ident}(seconds, task):
    """What the figure means; None if it does not apply."""
    return task.items / seconds if task.items else None


@workload("try/{name}", backend="{backend}", axes={{"rows": [256, 1024]}})
def trial(rows, be):
    """Something to try the metric on."""
    import {backend}

    return Task({backend}.exp, (be.randn(rows, 64),), items=rows)
'''

EXPERIMENT = """# Run it with: {run}
name = "{name}"
description = "What this experiment is to find out."

[settings]
budget = "quick"        # quick, normal, thorough, or a time such as 30s
precision = "1%"        # stop sampling a case when its interval is this narrow

[[matrix]]
workload = ["op/softmax", "op/layer_norm"]   # all names: steelyard list
backend = ["{backend}"]
axes = {{ n = [256, 1024] }}

[[exclude]]
workload = "op/layer_norm"
axes = {{ n = 256 }}
reason = "an example of a rule; a dropped case is reported with it"
"""


@click.command("new")
@click.argument("kind", type=click.Choice(["workload", "variant", "metric", "experiment"]))
@click.argument("name")
@click.option(
    "-o", "--output", metavar="PATH", type=click.Path(path_type=Path), help="File or folder to write to; by default NAME in this folder."
)
def command(kind: str, name: str, output: Path | None) -> None:
    """Write a small file that runs as it is, to start from.

    \b
    steelyard new workload my/gelu
    steelyard new variant twice -o variants.py
    steelyard new experiment nightly
    """
    if not NAME.fullmatch(name) or (kind in ("variant", "experiment") and "/" in name):
        allowed = "letters, digits, '_', '.', '-'" + ("" if kind in ("variant", "experiment") else " and '/'")
        raise UsageError(f"not a {kind} name: {name!r}", do=f"use {allowed}, beginning with a letter or digit")
    wanted = ".toml" if kind == "experiment" else ".py"
    usual = file_stem(name) + wanted
    path = output / usual if output and output.is_dir() else output or Path(usual)
    if path.suffix != wanted:
        raise UsageError(f"{kind} files end in {wanted}, not {path.name!r}", do=f"use -o {path.with_suffix(wanted)}")
    run = f"steelyard run {quoted(path)}" + (f" -V eager,{name} --vs eager" if kind == "variant" else "")
    write(path, content(kind, name, run))
    click.echo(f"wrote {path}\nnext: {run}")


def content(kind: str, name: str, run: str) -> str:
    """Return the file's text, for torch if it is installed, else for numpy."""
    has_torch = find_spec("torch") is not None
    backend, library, short = ("torch", "torch", "torch") if has_torch else ("numpy", "numpy as np", "np")
    workload, default = (WORKLOAD + REFERENCE, "") if has_torch else (WORKLOAD, 'backend="numpy", ')
    template = {"workload": workload, "variant": VARIANT, "metric": METRIC, "experiment": EXPERIMENT}[kind]
    return template.format(name=name, ident=identifier(name), run=run, backend=backend, library=library, short=short, default=default)


def identifier(name: str) -> str:
    """A Python name for the function that shadows no name the file uses."""
    plain = re.sub(r"\W", "_", name.rpartition("/")[2], flags=re.ASCII)
    plain = f"_{plain}" if plain[0].isdigit() else plain
    return f"{plain}_" if plain in TAKEN or keyword.iskeyword(plain) else plain


def file_stem(name: str) -> str:
    """A default file name that cannot shadow an imported module."""
    from steelyard import registry

    plain = re.sub(r"\W", "_", name.rpartition("/")[2], flags=re.ASCII)
    modules = {"steelyard", *registry.frameworks(), *sys.stdlib_module_names}
    return f"{plain}_bench" if plain in modules else plain


def quoted(path: Path) -> str:
    """A path quoted for the shell."""
    import shlex

    return shlex.quote(str(path))


def write(path: Path, text: str) -> None:
    """Create the file; an existing one is never overwritten."""
    try:
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise UsageError(f"{str(path)!r} already exists", do="name another file with -o FILE") from None
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}", why=error.strerror or str(error), do="name another file with -o FILE") from None
