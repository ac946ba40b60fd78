"""Nothing that a stored run says is executed unless its user wrote it or names it; and then only what its ids and its project hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.cli.main import main
from steelyard.engine.confirm import confirm
from steelyard.engine.consent import Consent
from steelyard.errors import StoreError, UsageError
from steelyard.machine import facts
from steelyard.model.case import Case
from steelyard.model.record import Figure, Record
from steelyard.store.paths import inside
from steelyard.store.runs import Header, Run, Store, read_run
from tests.engine.test_confirm import commit, git

LONG = "x" * 80


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text(".steelyard\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return [commit(tmp_path, count) for count in (1, 2)]


def touching(*, flags: tuple[tuple[str, str], ...] = (), word: str = "") -> Case:
    """A program that leaves a file behind wherever it runs."""
    return Case("command", (("argv", ["sh", "-c", f"touch '{Path.cwd() / 'ran'}' {word}"]),), backend="command", flags=flags)


def saved(store: Store, case: Case, commit: str, time: float = 1e-3, **header: Any) -> Run:
    machine = {"git": {"commit": commit, "dirty": False}, "packages": facts.packages()}
    figure = Figure(time, "s", "lower", 0.999 * time, 1.001 * time, 100)
    with store.create(Header(machine=machine, machine_key="m" * 12, cases=[case.id], **header)) as writer:
        writer.append(Record(case.id, case.plain(), "ok", metrics={"time": figure}))
        writer.seal()
    return read_run(writer.path)


def foreign(run: Run) -> Run:
    """The same run as somebody else would have written it: all is right but the key."""
    file = run.path / "run.jsonl"
    *lines, last = file.read_text(encoding="utf-8").splitlines(keepends=True)
    seal = json.loads(last)
    seal["seal"]["proof"] = "0" * 64
    file.write_text("".join([*lines, json.dumps(seal) + "\n"]), encoding="utf-8")
    return read_run(run.path)


def edited(run: Run, before: str, after: str) -> Run:
    file = run.path / "run.jsonl"
    text = file.read_text(encoding="utf-8")
    assert before in text
    file.write_text(text.replace(before, after), encoding="utf-8")
    return read_run(run.path)


@pytest.mark.parametrize("spoil", [foreign, lambda run: edited(run, '"id":', ' "id":')])
@pytest.mark.parametrize("command", ["gate", "compare"])
def test_a_crafted_run_is_shown_and_not_executed(
    commits: list[str], spoil: Callable[[Run], Run], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, case = Store(Path(".steelyard").absolute()), touching(flags=(("LD_PRELOAD", "/tmp/evil.so"),))
    base, head = saved(store, case, commits[0]), spoil(saved(store, case, commits[1], time=1.0))
    assert main([command, base.id, head.id, "--confirm"]) == 2
    said = capsys.readouterr().err
    assert not Path("ran").exists() and f"nothing from run {head.id} is executed without your consent" in said
    assert "the program sh -c 'touch" in said and "with LD_PRELOAD=/tmp/evil.so" in said and f"--trust {head.id}" in said
    assert base.id not in said.split("error:")[1]


def test_a_copy_of_a_foreign_folder_is_trusted_by_its_path_and_not_by_the_id_it_claims(commits: list[str], tmp_path: Path) -> None:
    store, case = Store(tmp_path / ".steelyard"), touching()
    mine = saved(store, case, commits[0])
    away = foreign(saved(Store(tmp_path / "away"), case, commits[1]))
    claims = replace(away, header=replace(away.header, id=mine.id))
    with pytest.raises(UsageError, match="without your consent"):
        Consent(store, (mine.id,)).check([claims], [case])
    Consent(store, (str(away.path),)).check([claims], [case])
    assert Consent(store).name(claims) == str(away.path)


def test_trust_is_for_runs_at_hand_and_for_confirming(commits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    store, case = Store(Path(".steelyard").absolute()), touching()
    runs = [saved(store, case, at).id for at in (*commits, commits[0])]
    assert main(["gate", *runs[:2], "--trust", runs[0]]) == 2 and "--trust needs --confirm" in capsys.readouterr().err
    assert main(["compare", *runs[:2], "--confirm", "--trust", runs[2]]) == 2 and "names no run" in capsys.readouterr().err
    assert main(["run", "fake/work", "--trust", "nosuch"]) == 2


@pytest.mark.parametrize("file", ["/tmp/evil.py", "../evil.py", "sub/../../evil.py", "link.py", "."])
def test_files_of_a_run_stay_inside_the_project_even_when_it_is_ones_own(commits: list[str], file: str, tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to("/tmp/evil.py")
    git(tmp_path, "add", "link.py")
    git(tmp_path, "commit", "-qm", "link")
    last = git(tmp_path, "rev-parse", "HEAD")
    store, case = Store(tmp_path / ".steelyard"), touching()
    runs = [saved(store, case, at, files=[file]) for at in (commits[0], last)]
    assert all(run.proven for run in runs)
    with pytest.raises(UsageError, match="cannot be measured again"):
        confirm(*runs, [case.id])
    assert not Path("ran").exists()


def test_a_link_that_only_a_commit_has_does_not_lead_out(commits: list[str], tmp_path: Path) -> None:
    (tmp_path / "bench.py").unlink()
    (tmp_path / "bench.py").symlink_to("/tmp/evil.py")
    git(tmp_path, "commit", "-qam", "link")
    last = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "checkout", "-q", commits[1])
    store, case = Store(tmp_path / ".steelyard"), touching()
    runs = [saved(store, case, at, files=["bench.py"]) for at in (commits[0], last)]
    with pytest.raises(UsageError, match="cannot be measured again"):
        confirm(*runs, [case.id])


def test_what_a_digest_names_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    store, case = Store(tmp_path / ".steelyard"), touching(word=LONG)
    assert "#" in case.id
    run = edited(saved(store, case, "a" * 40), LONG, "edited")
    assert main(["run", case.id, "--runs", "1"]) == 2
    assert "does not fit its id" in capsys.readouterr().err
    assert main(["run", case.id, "--runs", "1", "--trust", run.id]) == 2
    assert not Path("ran").exists()


def test_what_a_digest_names_in_a_foreign_run_needs_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store, case = Store(tmp_path / ".steelyard"), touching(word=LONG)
    run = foreign(saved(store, case, "a" * 40))
    assert main(["run", case.id, "--runs", "1", "--dry-run"]) == 2
    assert main(["run", case.id, "--runs", "1", "--dry-run", "--trust", run.id]) == 0
    saved(store, case, "a" * 40)
    assert main(["run", case.id, "--runs", "1", "--dry-run"]) == 0
    assert not Path("ran").exists()


def test_a_flag_by_digest_is_looked_up_as_a_parameter_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = Case("fake/work", backend="fake", flags=(("WORDS", LONG),))
    assert main(["run", "fake/work", "--flag", f"WORDS={LONG}"]) == 0
    [before] = Store(tmp_path / ".steelyard").open("latest").records
    assert "flag.WORDS=#" in before.id and case.flags == (("WORDS", LONG),)
    assert main(["run", before.id]) == 0
    assert Store(tmp_path / ".steelyard").open("latest").records[0].case["flags"] == {"WORDS": LONG}


def test_a_planted_unfinished_run_is_not_passed_on_as_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store, evil = Store(tmp_path / ".steelyard"), touching()
    for planted in (False, True):
        assert main(["run", "fake/work"]) == 0
        run = store.open("latest")
        assert run.proven
        header, record, _ = (run.path / "run.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        line = json.dumps({"record": {"id": evil.id, "case": evil.plain(), "status": "ok"}}) + "\n"
        (run.path / "run.jsonl").write_text(header + record + line * planted, encoding="utf-8")
        assert main(["run", "fake/work", "--resume", run.id]) == 0
        assert read_run(run.path).seal and read_run(run.path).proven is not planted


NAMES = st.text(st.sampled_from("ab./\\~\0 \n-"), max_size=12) | st.lists(
    st.sampled_from(["..", ".", "sub", "out", "in", "", "/", "etc"]), max_size=5
).map("/".join)


@given(NAMES)
def test_no_name_leads_out_of_its_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "paths"
    if not folder.exists():
        (folder / "sub").mkdir(parents=True)
        (folder / "out").symlink_to("/etc")
        (folder / "in").symlink_to("sub")
    try:
        found = inside(folder, name, "a name")
    except StoreError:
        return
    assert found.is_relative_to(folder.resolve()) and found != folder.resolve() and ".." not in Path(name).parts


@given(st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8), min_size=1, max_size=4))
def test_plain_names_are_found(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    folder = tmp_path_factory.getbasetemp() / "plain"
    assert inside(folder, "/".join(parts), "a name") == folder.resolve().joinpath(*parts)
