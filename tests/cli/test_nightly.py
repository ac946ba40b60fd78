"""Nights through the real command line: kept, judged by the gate's exit codes, confirmed, killed and gone on with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from steelyard.cli.main import cli, main
from steelyard.engine.nightly.archive import Archive
from steelyard.store.runs import Store
from tests.engine.drive import start, steelyard
from tests.engine.test_confirm import git, trees

BENCH = """
from steelyard import Task, workload

@workload("mine/work", axes={"name": ["grown", "calm"]}, backend="fake")
def work(name, be):
    import cost
    seconds, x = cost.SECONDS[name], be.randn(16)

    def fn():
        be.spend(seconds)
        return x

    return Task(fn)
"""
NIGHT = """
name = "mine"
files = ["bench.py"]

[settings]
budget = "20ms"

[[matrix]]
workload = ["mine/work"]
"""
GROWN, CALM = (f"mine/work[name={name}]@fake/eager:eval" for name in ("grown", "calm"))
FAKE = 'name = "many"\n[settings]\nbudget = "10ms"\n[[matrix]]\nworkload = ["fake/work"]\naxes = {{ seconds = [{}] }}\n'


def nightly(folder: Path, *words: str, check: int = 0) -> dict[str, Any]:
    """One night, its JSON."""
    done = steelyard("nightly", "night.toml", "--keep", "archive", "--json", *words, cwd=folder, check=check)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def commit(folder: Path, message: str, **seconds: float) -> str:
    (folder / "cost.py").write_text(f"# {message}\nSECONDS = {seconds!r}\n", encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose workloads stay as they are and whose library gets slower or does not."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("archive\n__pycache__\n", encoding="utf-8")
    (tmp_path / "bench.py").write_text(BENCH, encoding="utf-8")
    (tmp_path / "night.toml").write_text(NIGHT, encoding="utf-8")
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "archive" / "nights.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.deep
def test_a_slower_commit_is_confirmed_interleaved_and_stays_a_regression_until_someone_accepts_it(project: Path) -> None:
    first = commit(project, "as it was", grown=1e-3, calm=1e-3)
    found = nightly(project)
    assert (found["night"]["outcome"], found["night"]["exit_code"], found["verdict"]) == ("no base", 0, None)
    second = commit(project, "<b>slower</b> | `oops`", grown=1.1e-3, calm=1e-3)
    found = nightly(project, check=4)
    night, worst = found["night"], found["verdict"]["findings"][0]
    assert (night["outcome"], night["confirmed"], night["base_commit"], night["commit"]) == ("regression", 1, first, second)
    assert (worst["case"], worst["kind"], worst["paired"]) == (GROWN, "regression", True) and 1.08 < worst["time_ratio"] < 1.12
    assert trees(project) == 1
    folder = Path(found["folder"])
    between = f"{first[:10]}..{second[:10]}"
    summary = (folder / "report.md").read_text(encoding="utf-8")
    assert "### Compared with an older night until fixed or accepted (1)" in summary
    assert between in summary and "slower</b> ¦ 'oops'`" in summary and between in (folder / "report.html").read_text(encoding="utf-8")
    assert json.loads((folder / "verdict.json").read_text())["night"]["commits"] == between
    assert GROWN in (folder / "cases.csv").read_text(encoding="utf-8")
    assert [line["run"] for line in lines(project)] == [found["night"]["base"], night["run"]]
    assert set(night["reports"]) >= {f"reports/{folder.name}/{name}" for name in ("report.html", "report.md", "cases.csv", "verdict.json")}
    done = steelyard("nightly", "night.toml", "--keep", "archive", cwd=project, check=4)
    again = lines(project)[-1]
    assert "1 case stays compared with the last good night until fixed or accepted" in done.stderr
    assert f"--accept {again['run']} --case '{GROWN}' --reason" in done.stderr
    assert again["base"] == night["base"] and again["reports"][0].startswith(f"reports/{night['date']}-")
    steelyard("nightly", "--keep", "archive", "--accept", again["run"], "--reason", "worth it", cwd=project)
    last = nightly(project)
    assert last["night"]["base"] == again["run"] and last["night"]["withheld"] == []
    accepted = (Path(last["folder"]) / "report.md").read_text(encoding="utf-8")
    assert "### Accepted by name (1)" in accepted and "worth it" in accepted
    assert "worth it" in (Path(last["folder"]) / "report.html").read_text(encoding="utf-8")
    assert json.loads((Path(last["folder"]) / "verdict.json").read_text())["night"]["accepted"][0]["reason"] == "worth it"


@pytest.mark.deep
def test_a_suspicion_is_cleared_by_measuring_again(project: Path) -> None:
    """The stored base looks as if it had been far faster; both commits interleaved say otherwise."""
    commit(project, "as it was", grown=1e-3, calm=1e-3)
    base = Store(project / "archive").open(nightly(project)["night"]["run"])
    told = [json.loads(line) for line in (base.path / "run.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in told:
        if line.get("record", {}).get("id") == CALM:
            line["record"]["metrics"]["time"] |= {name: 0.4 * line["record"]["metrics"]["time"][name] for name in ("value", "low", "high")}
    (base.path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told), encoding="utf-8")
    commit(project, "a comment", grown=1e-3, calm=1e-3)
    unconfirmed = nightly(project, "--no-confirm")["night"]
    assert (unconfirmed["exit_code"], unconfirmed["confirmed"], unconfirmed["base"]) == (0, 0, base.id)
    assert "slower, not confirmed" in unconfirmed["headline"]
    found = nightly(project, "--trust", base.id)
    assert (found["night"]["outcome"], found["night"]["confirmed"], found["night"]["base"]) == ("pass", 1, base.id)
    assert any("1 of 1 that looked slower were measured again" in note for note in found["verdict"]["notes"])


def test_uncommitted_changes_cannot_be_confirmed_and_the_reason_is_told(project: Path) -> None:
    commit(project, "as it was", grown=1e-3, calm=1e-3)
    nightly(project)
    (project / "cost.py").write_text('SECONDS = {"grown": 4e-3, "calm": 1e-3}\n', encoding="utf-8")
    found = nightly(project)
    assert found["night"]["dirty"] and found["night"]["confirmed"] == 0 and "slower, not confirmed" in found["night"]["headline"]
    assert any("could not be measured again" in note and "uncommitted changes" in note for note in found["verdict"]["notes"])


def write_many(folder: Path, count: int = 24) -> None:
    values = ", ".join(f"{number}e-6" for number in range(1, count + 1))
    (folder / "night.toml").write_text(FAKE.format(values), encoding="utf-8")


def kill_after(folder: Path, cases: int) -> None:
    process = start("nightly", "night.toml", "--keep", "archive", cwd=folder)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"[{cases}/"):
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_killed_night_goes_on_where_it_was(tmp_path: Path) -> None:
    write_many(tmp_path)
    kill_after(tmp_path, 5)
    done = steelyard("nightly", "night.toml", "--keep", "archive", cwd=tmp_path)
    (info,) = Store(tmp_path / "archive").runs()
    assert f"continuing run {info.id}" in done.stderr and info.sealed and info.counts == {"ok": 24}
    (night,) = lines(tmp_path)
    assert (night["run"], night["outcome"]) == (info.id, "no base")


def test_a_killed_night_of_another_kind_is_left_unfinished_and_the_next_goes_on(tmp_path: Path) -> None:
    write_many(tmp_path)
    kill_after(tmp_path, 5)
    write_many(tmp_path, 12)
    steelyard("nightly", "night.toml", "--keep", "archive", cwd=tmp_path)
    assert [(line["outcome"], line["exit_code"]) for line in lines(tmp_path)] == [("unfinished", 130), ("no base", 0)]


def test_a_night_killed_after_measuring_is_judged_by_the_next_command(tmp_path: Path) -> None:
    write_many(tmp_path, 3)
    run = nightly(tmp_path)["night"]["run"]
    (tmp_path / "archive" / "nights.jsonl").unlink()
    done = steelyard("nightly", "night.toml", "--keep", "archive", cwd=tmp_path)
    assert "not judged: continuing with it" in done.stderr
    assert [line["run"] for line in lines(tmp_path)] == [run] and len(Store(tmp_path / "archive").runs()) == 1


def test_the_archive_is_a_store_and_a_dry_run_tells_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path, 3)
    words = ["nightly", "night.toml", "--keep", "archive"]
    assert main([*words, "--dry-run"]) == 0 and not (tmp_path / "archive").exists()
    assert "3 cases" in (said := capsys.readouterr().err) and "no good night to compare with yet" in said
    assert main([*words, "-o", "tonight"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("no base: 3 ok") and "report.html" in said and (tmp_path / "tonight" / "report.md").is_file()
    assert main([*words, "--dry-run", "--json"]) == 0
    (night,) = Archive(tmp_path / "archive").nights()
    assert json.loads(capsys.readouterr().out)["base"]["run"] == night.run
    assert main([*words, "--no-confirm"]) == 0
    assert f"({night.run})" in capsys.readouterr().out
    assert main(["show", night.run, "--store", "archive"]) == 0
    assert main(["gate", "latest~1", "latest", "--store", "archive"]) == 0
    assert main([*words, "--no-confirm", "--keep-nights", "2", "--report-site", "site"]) == 0
    assert "1 old night removed" in capsys.readouterr().err and (tmp_path / "site" / "index.html").is_file()
    assert main(["show", night.run, "--store", "archive"]) == 2 and len(Archive(tmp_path / "archive").nights()) == 3


def test_the_job_summary_gets_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path, 2)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert main(["nightly", "night.toml", "--keep", "archive"]) == 0
    (night,) = Archive(tmp_path / "archive").nights()
    (report,) = (tmp_path / "archive" / file for file in night.reports if file.endswith("report.md"))
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == report.read_text(encoding="utf-8")


def test_failures_have_their_exit_code_and_the_next_night_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = FAKE.format("1e-6").replace("axes = {", 'axes = { fault = ["none", "raise"],')
    Path("night.toml").write_text(text, encoding="utf-8")
    Path("gate.toml").write_text('[expected]\n"fake/work*fault=raise*" = "failed"\n', encoding="utf-8")
    assert main(["nightly", "night.toml", "--keep", "archive"]) == 3
    assert main(["nightly", "night.toml", "--keep", "archive", "--policy", "gate.toml"]) == 0
    first, second = Archive(Path("archive")).nights()
    fine, broken = (f"fake/work[fault={fault},seconds=1e-06]@fake/eager:eval" for fault in ("none", "raise"))
    assert [night.exit_code for night in (first, second)] == [3, 0] and second.base == first.run
    assert all(night.may_be_base(fine) for night in (first, second)) and set(second.withheld or []) == set() and broken
    assert main(["nightly", "night.toml", "--keep", "archive"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no experiment named"),
        (["night.toml", "--accept", "latest"], "--accept measures nothing"),
        (["--accept", "latest", "--reason", "x"], "no nights in"),
        (["--accept", "latest"], "no reason given"),
        (["night.toml", "--case", "op/*"], "--case needs --accept"),
        (["night.toml", "--reason", "so"], "--reason needs --accept"),
        (["nihgt.toml"], "did you mean night.toml"),
        (["night.toml", "--timeout", "0s"], "--timeout must be more than 0"),
        (["night.toml", "--polciy", "x"], "did you mean --policy"),
        (["night.toml", "--policy", "none.toml"], "none.toml"),
    ],
)
def test_a_mistake_is_exit_code_2_and_nothing_is_measured(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path, 1)
    assert main(["nightly", *words, "--keep", "archive"]) == 2
    assert message in capsys.readouterr().err and Store(tmp_path / "archive").runs() == []


def test_two_nights_never_share_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_many(tmp_path, 1)
    with Archive(tmp_path / "archive").held():
        assert main(["nightly", "night.toml", "--keep", "archive"]) == 2
    said = capsys.readouterr().err
    assert "a night is under way" in said and str(os.getpid()) in said


def page() -> str:
    return (Path(__file__).parents[2] / "docs" / "howto" / "nightly-in-ci.md").read_text(encoding="utf-8")


def parses(words: list[str]) -> None:
    """The command exists and click takes every option in it, with its value."""
    command = cli.get_command(click.Context(cli), words[1])  # type: ignore[attr-defined]
    command.make_context(words[1], list(words[2:]))


def test_the_documented_workflow_is_yaml_and_its_commands_parse() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)
    found = yaml.safe_load(text)
    assert found[True]["schedule"][0]["cron"].count(" ") == 4, "YAML reads the key `on` as true"
    steps = found["jobs"]["night"]["steps"]
    typed = [shlex.split(line) for step in steps for line in step.get("run", "").splitlines() if line.startswith("steelyard")]
    assert [words[1] for words in typed] == ["doctor", "nightly"]
    for words in typed:
        parses(words)
    kept = next(step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", ""))
    assert kept == typed[1][typed[1].index("-o") + 1]


def test_the_documented_cron_line_parses() -> None:
    (line,) = re.findall(r"^(\d\S* \d\S* \* \* \* .*)$", page(), re.MULTILINE)
    command = line.split(" ", 5)[5]
    (words,) = (shlex.split(part.partition(">>")[0]) for part in command.split("&&") if "nightly" in part)
    parses(["steelyard", *words[1:]])


def test_nights_are_not_kept_at_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its text would be the name of a folder here, and nobody would find the nights."""
    monkeypatch.chdir(tmp_path)
    assert main(["nightly", "quickstart", "--keep", "s3://our-team/nights"]) == 2
    assert "nights are kept in a folder" in capsys.readouterr().err and not list(tmp_path.iterdir())
