"""`steelyard judge` as a user meets it: batches, folders, resuming, formats, candidates that end badly, and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from steelyard import codec
from steelyard.cli.main import main

REFERENCE = """\
import numpy as np

def reference(x):
    return np.cumsum(np.sort(x)) * 2.0

def inputs(seed):
    return (np.random.default_rng(seed).standard_normal(2000),)

def few(seed):
    return (np.random.default_rng(seed).standard_normal(50),)
"""
RIGHT = "import numpy as np\ndef candidate(x):\n    return np.cumsum(np.sort(x)) * 2.0\n"
WRONG = "def candidate(x):\n    return x * 2.0\n"
BAD = {
    "syntax": ("def candidate(x:\n", "failed", "SyntaxError"),
    "nothing": ("X = 1\n", "failed", "no public function"),
    "raises": ("def candidate(x):\n    return x.nosuch\n", "failed", "nosuch"),
    "leaves": ("import sys\nsys.exit(0)\ndef candidate(x):\n    return x\n", "failed", ""),
    "ends": ("import os\ndef candidate(x):\n    os._exit(0)\n", "crashed", "exited"),
    "loops": ("def candidate(x):\n    while True:\n        pass\n", "timeout", "no answer within"),
    "eats": ("KEPT = []\ndef candidate(x):\n    while True:\n        KEPT.append(bytearray(1 << 24))\n", "oom", ""),
}
Judge = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A reference in a folder of its own, with right and wrong candidates beside it."""
    (tmp_path / "reference.py").write_text(REFERENCE)
    folder = tmp_path / "candidates"
    folder.mkdir()
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(WRONG)
    return tmp_path


@pytest.fixture
def judge(place: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["judge", str(place / "reference.py"), *words, "--budget", "20ms"])
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in file.read_text().splitlines()]


def test_a_folder_is_judged_and_gone_on_with(place: Path, judge: Judge) -> None:
    folder, output = place / "candidates", place / "rulings.jsonl"
    code, told, _ = judge(str(folder), "-o", str(output))
    assert code == 3 and "2 judged: 1 correct" in told and "1 wrong" in told
    written = lines_of(output)
    for line in written:
        jsonschema.Draft202012Validator(codec.ruling_schema()).validate(line)
        assert codec.ruling_document(codec.read_ruling(line)) == line
    output.write_bytes(output.read_bytes() + b'{"schema": 1, "prob')
    (folder / "third.py").write_text(WRONG.replace("2.0", "3.0"))
    code, told, warned = judge(str(folder), "-o", str(output), "--resume")
    assert code == 3 and "3 judged" in told and "judged again" in warned
    lines = output.read_text().splitlines()
    assert [json.loads(line) for line in lines[:2]] == written and len(lines) == 4
    assert json.loads(lines[3])["candidate"] == "third"
    (folder / "right.py").write_text(RIGHT + "# changed\n")
    judge(str(folder), "-o", str(output), "--resume")
    assert [json.loads(line)["candidate"] for line in output.read_text().splitlines()[4:]] == ["right"]


def test_candidates_that_end_badly_cost_their_own_ruling_and_leave_nothing(place: Path, judge: Judge) -> None:
    folder = place / "bad"
    folder.mkdir()
    for name, (source, _, _) in BAD.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "zz_right.py").write_text(RIGHT + "print('junk' * 1000, flush=True)\n")
    before = set(Path("/dev/shm").glob(f"steelyard-court-{os.getpid()}-*"))
    code, told, _ = judge(str(folder), "--timeout", "5s", "--memory", "512MiB", "--json")
    found = {ruling["candidate"]: ruling for ruling in json.loads(told)["rulings"]}
    assert code == 3 and set(found) == {*BAD, "zz_right"}
    for name, (_, status, words) in BAD.items():
        assert found[name]["status"] == status and words in found[name]["reason"], found[name]
    assert found["zz_right"]["correct"], found["zz_right"]["reason"]
    assert set(Path("/dev/shm").glob(f"steelyard-court-{os.getpid()}-*")) <= before
    assert found["raises"]["facts"]["seated"] and not found["leaves"]["facts"]["seated"]


def test_the_limit_holds_for_all_steps_together(place: Path, judge: Judge) -> None:
    slow = place / "slow.py"
    slow.write_text("import time\n" + RIGHT.replace("    return", "    time.sleep(0.05)\n    return"))
    code, told, _ = judge(str(slow), "--limit", "200ms")
    assert code == 3 and "the limit for one candidate" in " ".join(told.split())


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["missing.py"], 2, "no such candidate"),
        (["candidates/right.py", "--resume"], 2, "--resume needs a file"),
        (["candidates/right.py", "--json", "--format", "csv"], 2, "exclude each other"),
        (["candidates/right.py", "--inputs", "fewer"], 2, "it has no 'fewer'"),
        (["candidates/right.py", "--only", "softmax"], 2, "softmax"),
        (["candidates/right.py::1"], 2, "is not a name"),
        (["candidates/right.py", "--memory", "lots"], 2, "not a size"),
        (["candidates/right.py", "--limit", "soon"], 2, "not a time"),
        (["."], 0, "1 judged: 1 correct"),
    ],
)
def test_bad_words_are_refused_with_what_to_do(
    place: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, told: str
) -> None:
    monkeypatch.chdir(place)
    found, out, err = judge(*words)
    assert found == code and told in out + err, out + err


@pytest.mark.parametrize("content", [None, "def reference(x:\n", "X = 1\n", "def reference(x):\n    return x\n", "\0"])
def test_a_reference_that_cannot_be_asked_is_an_error_of_usage(place: Path, judge: Judge, content: str | None) -> None:
    file = place / "reference.py"
    file.unlink() if content is None else file.write_text(content)
    code, _, err = judge(str(place / "candidates"))
    assert code == 2 and "reference.py" in err and "Traceback" not in err


def test_inputs_names_another_function(place: Path, judge: Judge) -> None:
    code, told, _ = judge(str(place / "candidates" / "right.py"), "--inputs", "few", "--json")
    (ruling,) = json.loads(told)["rulings"]
    assert code == 0 and ruling["problem"] == "reference few"


@pytest.mark.parametrize(("form", "begins"), [("csv", "problem,candidate,status"), ("markdown", "## ❌ Steelyard: 2 judged")])
def test_tables_for_others(place: Path, judge: Judge, form: str, begins: str) -> None:
    code, told, _ = judge(str(place / "candidates"), "--format", form)
    assert code == 3 and told.startswith(begins) and "wrong" in told


@pytest.mark.torch
def test_kernelbench_gets_its_own_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    level, run = tmp_path / "level1", tmp_path / "run"
    for folder in (level, run):
        folder.mkdir()
    model = "import torch\nclass {name}(torch.nn.Module):\n    def forward(self, x):\n        return {answer}\n"
    rest = "def get_inputs():\n    return [torch.randn(64, 64)]\ndef get_init_inputs():\n    return []\n"
    (level / "3_Tanh.py").write_text(model.format(name="Model", answer="torch.tanh(x)") + rest)
    (run / "level_1_problem_3_sample_0_kernel.py").write_text(model.format(name="ModelNew", answer="x.tanh()"))
    (run / "level_1_problem_3_sample_1_kernel.py").write_text(model.format(name="ModelNew", answer="x"))
    (run / "level_1_problem_4_sample_0_kernel.py").write_text(model.format(name="ModelNew", answer="x"))
    code = main(["judge", str(level), str(run), "--format", "kernelbench", "--budget", "20ms"])
    found = json.loads(capsys.readouterr().out)
    assert code == 3 and list(found) == ["3"]
    assert [(each["sample_id"], each["compiled"], each["correctness"]) for each in found["3"]] == [(0, True, True), (1, True, False)]
    assert found["3"][0]["runtime"] > 0 and found["3"][1]["metadata"]["correctness_issue"]


def test_an_iterator_of_candidates_is_asked_when_the_last_has_its_ruling(place: Path) -> None:
    """A search writes its next candidate by the ruling on the last; run apart, as a user's program is."""
    program = f"""
import steelyard
def proposed():
    for name, source in (("a", {RIGHT!r}), ("b", {WRONG!r})):
        open(name + ".py", "w").write(source)
        print("wrote", name, flush=True)
        yield name + ".py"
for ruling in steelyard.judge_all("reference.py", proposed(), budget=0.02):
    print("judged", ruling.candidate, ruling.status, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=False, timeout=100, env=os.environ
    )
    assert done.stdout.splitlines() == ["wrote a", "judged a ok", "wrote b", "judged b wrong"], done.stderr
