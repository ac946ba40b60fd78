"""Programs as tasks: what they cost, and that a failing one is never a fast one."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.backends import command
from steelyard.backends.command import Command, OutOfMemory, run_once, watch
from steelyard.errors import SteelyardError, Unsupported
from steelyard.model.task import Reading


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def test_a_program_is_a_task_that_times_itself() -> None:
    task = Command().program(python("pass"))
    assert task.measure is not None
    assert not task.repeatable
    reading = task.measure()
    assert isinstance(reading, Reading)
    assert 0 < reading.extras["user_time"] + reading.extras["system_time"] < 60
    assert 0 < reading.seconds < 60


def test_cpu_time_is_that_of_the_program() -> None:
    busy = python("import time\nwhile time.process_time() < 0.08: pass")
    found = run_once(busy)
    assert found.extras["user_time"] + found.extras["system_time"] >= 0.08
    assert found.seconds >= 0.08


def test_peak_memory_is_that_of_the_program_or_nothing() -> None:
    """A child starts with its parent's memory on its account; only what lies above can be told."""
    assert "peak_memory" not in run_once(python("pass")).extras
    size = int(1.3 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    found = run_once(python(f"x = bytearray(b'1') * {size}")).extras["peak_memory"]
    assert size < found < size + 50_000_000


def test_a_failing_program_is_an_error_with_its_last_words() -> None:
    with pytest.raises(SteelyardError, match="exited with 3") as caught:
        run_once(python("import sys; print('x' * 5000 + ' no such file', file=sys.stderr); sys.exit(3)"))
    assert caught.value.why.endswith("no such file")
    assert len(caught.value.why) <= 2000


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV"), (40, "signal 40")])
def test_a_program_ended_by_a_signal_says_which(number: int, name: str) -> None:
    with pytest.raises(SteelyardError, match=f"ended by {name}$"):
        run_once(python(f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {number})"))


@pytest.mark.parametrize("argv", [["no-such-program-anywhere"], ["./no/such/path"], [], [""]])
def test_a_program_that_is_not_there_is_told_before_anything_is_timed(argv: list[str]) -> None:
    with pytest.raises(SteelyardError, match="no program named") as caught:
        Command().program(argv)
    assert "PATH" in caught.value.do


def test_a_file_that_cannot_be_run_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("exit 0")
    with pytest.raises(SteelyardError, match="no program named"):
        Command().program([str(tmp_path / "script")])


def test_input_is_closed_and_output_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    ours = os.dup(0)
    reader, writer = os.pipe()
    os.write(writer, b"meant for us")
    os.close(writer)
    os.dup2(reader, 0)
    try:
        run_once(python("import sys; assert sys.stdin.read() == ''; print('chatter'); print('noise', file=sys.stderr)"))
        assert os.read(0, 100) == b"meant for us"
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        os.close(reader)
    assert capfd.readouterr() == ("", "")


def test_words_are_handed_over_as_they_are(tmp_path: Path) -> None:
    """No shell looks at them: signs that mean something to one stay text."""
    out = tmp_path / "argv"
    words = ["a b", "$HOME", "*", ";", "", "`id`"]
    run_once([*python(f"import sys; open({str(out)!r}, 'w').write(repr(sys.argv[1:]))"), *words])
    assert out.read_text() == repr(words)
    assert Command().program(["true", "1", *["x"]]).measure is not None


def unreaped() -> set[str]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {pid for pid in children if " Z " in Path(f"/proc/{pid}/stat").read_text()}


def test_nothing_is_left_open_or_unreaped() -> None:
    before = unreaped()
    open_files = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    for _ in range(3):
        run_once(["true"])
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == open_files
    assert unreaped() <= before


def test_a_command_has_no_arrays() -> None:
    be = Command()
    with pytest.raises(Unsupported, match="no arrays"):
        be.randn(3)
    assert be.outputs([1.5, object()])[0].dtype == "float"


def test_a_program_ends_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    os.mkfifo(told)
    program = ["sh", "-c", 'echo $$ > "$0"; exec sleep 600', str(told)]
    code = f"from steelyard.backends.command import Command; Command().program({program}).measure()"
    worker = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    pid = int(told.read_text())
    watched = os.pidfd_open(pid)
    try:
        worker.kill()
        worker.wait()
        assert select.select([watched], [], [], 30)[0], "the program lives on"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.close(watched)


def test_who_leads_no_session_gets_no_guard() -> None:
    assert os.getsid(0) != os.getpid(), "run the tests from a shell"
    Command().program(["true"])
    assert watch(os.getpid()).process is None


def test_a_kill_for_memory_is_told_from_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 4])
    monkeypatch.setattr(command, "oom_kills", lambda: next(counts))
    with pytest.raises(OutOfMemory, match="too much memory"):
        run_once(python("import os; os.kill(os.getpid(), 9)"))
