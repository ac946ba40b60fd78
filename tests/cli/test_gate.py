"""Each exit code of the gate, through the real command line; and what it writes beside it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from steelyard.cli.main import cli, main
from steelyard.store.runs import Store
from tests.analyze.saved import case, pair, save

Gate = Callable[..., tuple[int, Any]]
CASES = [case(f"x{number}") for number in range(20)]
BASE: dict[str, float | str] = {id: 1e-3 * (1 + number) for number, id in enumerate(CASES)}
SAME = {id: float(time) * (1 + 1e-4 * (number % 3 - 1)) for number, (id, time) in enumerate(BASE.items())}


@pytest.fixture
def gate(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Save base and head, judge them, and give the exit code with what was printed."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    store = Store(tmp_path / "store")

    def judge(head: dict[str, float | str], *words: str, base: dict[str, float | str] = BASE, policy: str = "", key: str = "m" * 12) -> Any:
        runs = [save(store, base), save(store, head, key=key)]
        (tmp_path / "gate.toml").write_text(policy, encoding="utf-8")
        code = main(["gate", *runs, "--policy", str(tmp_path / "gate.toml"), "--store", str(store.root), *words])
        return code, capsys.readouterr()

    return judge


@pytest.mark.parametrize(
    ("head", "words", "code", "banner"),
    [
        (SAME, [], 0, "? inconclusive: none of 20 comparisons is settled; 20 unclear"),
        ({**SAME, CASES[0]: 3e-3}, [], 0, "? inconclusive: none of 20 comparisons is settled; 1 slower, not confirmed, 19 unclear"),
        ({**SAME, CASES[0]: "wrong"}, [], 3, "✗ failed: 1 failed"),
        ({CASES[0]: 1e-3}, [], 3, "✗ failed: 19 missing"),
        ({case("new"): 1.0}, [], 5, "– nothing comparable: 20 missing"),
        ({**SAME, CASES[0]: "crashed", CASES[1]: 9e-3}, [], 3, "✗ failed: 1 failed"),
    ],
)
def test_each_verdict_has_its_exit_code_and_its_words(
    head: dict[str, float | str], words: list[str], code: int, banner: str, gate: Gate
) -> None:
    found, said = gate(head, *words)
    assert found == code and said.out.startswith(banner)
    assert max(map(len, said.out.splitlines())) <= 100


def test_an_unclear_case_is_inconclusive_only_when_asked(gate: Gate) -> None:
    two = dict(list(BASE.items())[:2])
    assert gate(two, base=two)[0] == 0
    code, said = gate(two, "--strict", base=two)
    assert code == 6 and said.out.startswith("? inconclusive: none of 2 comparisons is settled; 2 unclear")
    assert gate(two, base=two, policy='unclear = "fail"')[0] == 6


def test_another_machine_is_nothing_comparable(gate: Gate) -> None:
    code, said = gate(SAME, key="other")
    assert code == 5 and "different machines" in said.out


def test_a_policy_decides(gate: Gate) -> None:
    slow = {**SAME, CASES[0]: 1.5e-3, CASES[1]: "oom"}
    assert gate(slow)[0] == 3
    assert gate(slow, policy='unconfirmed = "fail"')[0] == 4
    policy = 'unconfirmed = "fail"\n[cases."op/x0[*"]\ntime = "60%"\n[allowed]\n"op/x1[*" = "small GPU"\n'
    code, said = gate(slow, policy=policy)
    assert code == 0 and "allowed: small GPU" in said.out
    code, said = gate(SAME, policy=f'[expected]\n"{CASES[1]}" = "failed"\n')
    assert code == 0 and "new passes (1)" in said.out


@pytest.mark.parametrize(
    ("words", "policy", "message"),
    [
        ([], 'flor = "1%"', "gate.toml:1  flor: unknown key"),
        ([], '[margins]\ntiem = "1%"', "'tiem'"),
        (["--polciy", "x"], "", "did you mean --policy"),
    ],
)
def test_a_mistake_is_exit_code_2(words: list[str], policy: str, message: str, gate: Gate) -> None:
    code, said = gate(SAME, *words, policy=policy)
    assert code == 2 and message in said.err and said.out == ""


@pytest.mark.parametrize("option", ["--output", "--markdown"])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_file_that_cannot_be_written_does_not_lose_the_verdict(option: str, words: list[str], gate: Gate) -> None:
    """It may have taken minutes to measure; the error is told after it, with its own exit code."""
    code, said = gate(SAME, option, "no/such/folder/v", *words)
    assert code == 2 and "cannot write" in said.err and "inconclusive: none of 20 comparisons is settled" in said.out


def test_a_side_that_is_not_there_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "zzzz", "latest", "--store", str(tmp_path)]) == 2
    assert "zzzz" in capsys.readouterr().err
    save(Store(tmp_path), BASE)
    for option in ("--confirm", "--allow-edited"):
        assert main(["gate", "latest", option, "--store", str(tmp_path)]) == 2
        assert f"{option} needs BASE and HEAD" in capsys.readouterr().err


def test_one_run_is_judged_by_its_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, compiled = Store(tmp_path), case("x0", "compile")
    save(store, {CASES[0]: 1e-3, compiled: 1.1e-3}, pair(CASES[0], compiled, 1.1, 0.01))
    assert main(["gate", "latest", "--store", str(tmp_path)]) == 4
    said = capsys.readouterr().out
    assert "its pairs" in said and "10.0 % slower [9.0, 11.0] (margin 2 %)" in said
    save(store, BASE)
    assert main(["gate", "latest", "--store", str(tmp_path)]) == 5


def test_the_verdict_is_one_document(tmp_path: Path, gate: Gate) -> None:
    file = tmp_path / "verdict.json"
    code, said = gate({**SAME, CASES[0]: 3e-3}, "--json", "-o", str(file), policy='unconfirmed = "fail"')
    printed, written = json.loads(said.out), json.loads(file.read_text(encoding="utf-8"))
    assert code == 4 and printed == written
    assert (printed["outcome"], printed["exit_code"], printed["schema"]) == ("regression", 4, 2)
    worst = printed["findings"][0]
    assert (worst["kind"], worst["case"], worst["counts"], worst["paired"]) == ("regression", CASES[0], True, False)
    assert worst["time_ratio"] == pytest.approx(3.0) and worst["repeat"] == f"steelyard run '{CASES[0]}'"
    assert printed["means"]["time"]["cases"] == 20


def test_nothing_is_written_unless_asked(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    gate(SAME)
    assert list((tmp_path / "here").iterdir()) == []


def test_the_job_summary_is_added_to(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    summary, file = tmp_path / "summary.md", tmp_path / "gate.md"
    summary.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    gate(SAME, "--markdown", str(file))
    assert summary.read_text(encoding="utf-8") == "before\n" + file.read_text(encoding="utf-8")
    assert "inconclusive: none of 20 comparisons is settled" in file.read_text(encoding="utf-8")
    gate(SAME, "--no-summary")
    assert summary.read_text(encoding="utf-8").count("Steelyard") == 1


def test_a_full_or_broken_job_summary_does_not_change_the_verdict(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("x" * (1 << 20), encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, said = gate(SAME)
    assert code == 0 and "full" in said.err and summary.stat().st_size == 1 << 20
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    code, said = gate(SAME)
    assert code == 0 and "cannot write the job summary" in said.err


def test_the_history_of_a_case_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    for night in range(24):
        time = (1e-3 if night < 12 else 1.05e-3) * (1 + 0.001 * (night % 4))
        save(store, {CASES[0]: time}, created=f"2026-01-{night + 1:02}T03:00:00Z", git={"commit": f"{night:x}" * 40, "dirty": False})
    assert main(["show", CASES[0], "--history", "--store", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1 change of level" in said and "bbbbbbbbbb..cccccccccc" in said and "5.00 % slower [4.90, 5.10]" in said
    assert main(["show", "latest/1", "--history", "--json", "--store", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["points"]), found["changes"][0]["index"]) == (24, 12)
    assert main(["show", "latest", "--history", "--store", str(tmp_path)]) == 2
    assert "--history needs one case" in capsys.readouterr().err


def test_the_example_and_the_documented_policy_are_the_same_and_read(gate: Gate) -> None:
    root = Path(__file__).parents[2]
    example = (root / "examples" / "gate.toml").read_text(encoding="utf-8")
    page = (root / "docs" / "reference" / "gate-policy.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert tomllib.loads(shown) == tomllib.loads(example)
    assert gate({**SAME, CASES[0]: 1.02e-3}, policy=example)[0] == 0
    assert gate({**SAME, CASES[0]: 2e-3}, policy=example)[0] == 0
    assert gate({**SAME, CASES[0]: 2e-3}, policy=example.replace('unconfirmed = "pass"', 'unconfirmed = "fail"'))[0] == 4


def test_the_documented_workflow_is_yaml_and_calls_commands_that_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "gate-in-ci.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    steps = yaml.safe_load(text)["jobs"]["gate"]["steps"]
    typed = [shlex.split(step["run"].partition("||")[0]) for step in steps if step.get("run", "").startswith("steelyard")]
    assert [words[1] for words in typed] == ["doctor", "run", "gate"]
    for words in typed:
        command = cli.get_command(click.Context(cli), words[1])  # type: ignore[attr-defined]
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options


@pytest.mark.parametrize(("vs", "code"), [("eager", 0), ("half", 4)])
def test_a_measured_run_is_gated_by_what_it_weighed(vs: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", str(tmp_path)]
    main(["run", "fake/work", "-V", "eager,half", "--vs", vs, "--budget", "50ms", *store])
    assert main(["gate", "latest", *store]) == code
    assert ("regressions (1)" in capsys.readouterr().out) == (code == 4)
