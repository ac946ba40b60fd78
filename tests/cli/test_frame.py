"""The frame around all commands: help without imports, errors as messages and exit codes, completion."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from steelyard.cli import main as frame
from steelyard.cli.main import COMMANDS, cli, main
from steelyard.cli.output import console, emit_json, width
from steelyard.errors import SteelyardError, StoreError
from steelyard.version import __version__


def in_a_process(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "steelyard", *args], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


@pytest.fixture
def do(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int | None]], None]:
    """Put a function in the place of `steelyard list`."""

    def put(action: Callable[[], int | None]) -> None:
        monkeypatch.setattr(frame.Commands, "get_command", lambda self, ctx, name: click.Command("list", callback=action))

    return put


def raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def test_help_lists_every_command_and_imports_only_click() -> None:
    heavy = ["torch", "numpy", "rich", "msgspec", "psutil", "yaml", *(module for module, _ in COMMANDS.values())]
    code = (
        "import sys; from steelyard.cli.main import main\n"
        f"assert main(['--help']) == 0; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in done.stdout and line in done.stdout


@pytest.mark.parametrize("name", ["list", "show", "new"])
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "-h"]) == 0
    assert f"Usage: steelyard {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"steelyard {__version__}\n"


def test_no_command_is_a_usage_error_that_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "Usage: steelyard" in said.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["lsit"], ["error: no command named 'lsit'", "did you mean list?"]),
        (["list", "--jsno"], ["error: no option named '--jsno'", "did you mean --json", "steelyard list --help"]),
        (["--verson"], ["error: no option named '--verson'", "did you mean --version"]),
        (["new", "workload"], ["error: missing argument 'NAME'", "see steelyard new --help"]),
        (["new", "thing", "x"], ["error: invalid value", "workload"]),
    ],
)
def test_usage_errors_have_one_form(args: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    said = capsys.readouterr()
    assert said.out == "" and all(word in said.err for word in words), said.err
    assert all(line.startswith("  ") for line in said.err.splitlines()[1:])


def test_our_errors_keep_their_exit_code_and_lines(do: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    do(raising(StoreError("what", why="why\nand why", do="do", where="exp.toml:14")))
    assert main(["list"]) == 2
    assert capsys.readouterr().err == "error: exp.toml:14  what\n  why\n  and why\n  do\n"


def test_anything_else_is_our_bug_with_the_traceback_on_demand(do: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    do(raising(ZeroDivisionError("by\nzero")))
    assert main(["list"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: this is a bug in steelyard\n  ZeroDivisionError: by zero\n") and "Traceback" not in said
    assert main(["--debug", "list"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_debug_shows_the_traceback_of_our_own_errors_too(do: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    do(raising(SteelyardError("what")))
    main(["--debug", "list"])
    said = capsys.readouterr().err
    assert "Traceback" in said and said.endswith("error: what\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_130(error: BaseException, do: Callable[..., None]) -> None:
    do(raising(error))
    assert main(["list"]) == 130


@pytest.mark.parametrize(("answer", "code"), [(None, 0), (0, 0), (3, 3)])
def test_a_command_answers_its_exit_code(answer: int | None, code: int, do: Callable[..., None]) -> None:
    do(lambda: answer)
    assert main(["list"]) == code


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "steelyard", "list", "--json"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (frame.BROKEN_PIPE, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", shell]) == 0
    assert "_STEELYARD_COMPLETE" in capsys.readouterr().out


def test_completion_answers_commands_and_options() -> None:
    done = in_a_process(_STEELYARD_COMPLETE="bash_complete", COMP_WORDS="steelyard s", COMP_CWORD="1")
    assert done.stdout.split() == ["plain,show", "plain,sync"]
    done = in_a_process(_STEELYARD_COMPLETE="bash_complete", COMP_WORDS="steelyard list --js", COMP_CWORD="2")
    assert done.stdout.split() == ["plain,--json"]


def test_json_stays_alone_on_stdout_when_a_command_fails() -> None:
    done = in_a_process("list", "--json", "no/such")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("error: no workload named 'no/such'")


def test_json_can_always_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"a": float("nan"), "b": (1, Path("x")), "c": StoreError})
    assert json.loads(capsys.readouterr().out)["a"] is None


@pytest.mark.parametrize(("columns", "expected"), [("60", 60), ("250", 100), ("7", 40), ("no", 100)])
def test_the_width_is_the_terminals_and_at_most_100(columns: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert width() == expected == console().width


def test_ci_is_no_terminal_and_no_color_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert console().is_terminal and not console().no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert console().no_color
    monkeypatch.setenv("CI", "true")
    assert not console().is_terminal


def test_the_group_is_a_click_command_for_whoever_embeds_it() -> None:
    assert isinstance(cli, click.Group) and cli.list_commands(click.Context(cli)) == list(COMMANDS)
