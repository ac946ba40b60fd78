"""`steelyard env`: environments for stacks that cannot be installed together."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TextIO

import click

from steelyard.cli.output import emit_json, json_option


class InstallSteps:
    """Shows an installer's progress with the time so far: one line rewritten on a terminal, a line per step elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        from steelyard.report.progress import is_live

        self.stream, self.live, self.begun = stream, is_live(stream), time.monotonic()

    def __call__(self, step: str) -> None:
        """Show a step."""
        from steelyard.model.units import duration
        from steelyard.report.cells import clean
        from steelyard.report.progress import ERASE

        line = f"  {duration(time.monotonic() - self.begun)}  {clean(step)}"
        self.stream.write(f"{ERASE}{line[:79]}" if self.live else f"{line}\n")
        self.stream.flush()

    def close(self) -> None:
        """Clear the line on a terminal."""
        from steelyard.report.progress import ERASE

        if self.live:
            self.stream.write(ERASE)


@click.group(
    "env", short_help="Environments for stacks that cannot be installed together.", context_settings={"help_option_names": ["-h", "--help"]}
)
def command() -> None:
    """Pinned virtual environments, one per stack; use one with 'steelyard run --env NAME'."""


@command.command("create")
@click.argument("stack")
@click.argument("packages", nargs=-1)
@click.option("--name", help="Name of the environment. Default: the stack's name.")
@click.option(
    "-r", "--requirements", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Also install from a requirements file, or from every requirements.txt below a folder; repeatable.",
)  # fmt: skip
@json_option
def create(stack: str, packages: tuple[str, ...], name: str | None, requirements: tuple[Path, ...], as_json: bool) -> int:
    """Build the environment of a STACK (torch, jax, tensorflow, torch-xla, iree, litert, …; env list names all), with extra PACKAGES.

    STACK-VERSION is another version of a stack than the pinned one, such as jax-0.9 to compare with jax.
    """
    from steelyard.engine import envs

    envs.check(stack, name)
    envs.requirement_files(requirements)
    click.echo(f"building {name or stack}: this downloads packages and can take minutes", err=True)
    steps = InstallSteps(sys.stderr)
    try:
        made = envs.create(stack, name, packages, requirements, steps)
    finally:
        steps.close()
    if as_json:
        emit_json(made)
    else:
        click.echo(f"{made.name}: {len(made.packages)} packages in {made.path}\n  use it: steelyard run … --env {made.name}")
    return 0


@command.command("list")
@json_option
def listing(as_json: bool) -> int:
    """List environments that exist, and stacks that can be built."""
    from steelyard.engine import envs
    from steelyard.report.cells import visible

    found = envs.listing()
    if as_json:
        emit_json({"environments": found, "stacks": {name: stack.requirements for name, stack in envs.stacks().items()}})
        return 0
    stacks = envs.stacks()
    for env in found:
        wanted = stacks[env.stack].requirements if env.stack in stacks else ()
        main = [f"{name} {version}" for name in wanted if (version := env.version(name))]
        click.echo(visible(f"{env.name:14} {env.trouble or ', '.join(main)}   {env.path}"))
        moved = ", ".join(f"{name} {now}" for name, (_, now) in envs.moved_pins(env).items())
        if env.trouble or moved:
            click.echo(visible(f"  {f'pinned now: {moved}; ' if moved else ''}renew it: {env.remedy}"), err=True)
    if not found:
        click.echo("no environments yet", err=True)
    click.echo(f"can be built: {', '.join(stacks)}   (steelyard env create STACK)", err=True)
    return 0


@command.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> int:
    """Delete an environment."""
    from steelyard.engine import envs

    path = envs.remove(name)
    if as_json:
        emit_json({"removed": name})
    else:
        click.echo(f"removed {path}")
    return 0
