"""Passes run beside the timing: what they find is right, what they cannot find is said, and no case is lost to one."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard import codec
from steelyard.engine import after, conduct, passes
from steelyard.engine.after import Reply
from steelyard.engine.messages import Found
from steelyard.engine.place import Place
from steelyard.engine.plan import Job
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Header, Store
from tests.engine.drive import processes_below, run_json, steelyard

MEMORY = """
from dataclasses import replace
import numpy as np
from steelyard import Task, workload

@workload("eats", backend="numpy")
def eats(be):
    return Task(lambda: np.ones(300_000_000, np.uint8)[:4])

@eats.variant("more")
def more(task):
    return replace(task, fn=lambda: (np.ones(2_000_000_000, np.uint8), task())[1])

@workload("holds", backend="numpy")
def holds(be):
    import ballast
    copy = np.ones(50_000_000)
    x = copy.astype(np.float32)
    return Task(lambda x: x + 1, (x,), parameters=(x, x))
"""


def near(figure: dict[str, Any], size: float) -> bool:
    return figure["unit"] == "B" and abs(figure["value"] - size) < 0.05 * size


@pytest.mark.deep
def test_peak_memory_is_the_calls_own_whatever_ran_before(tmp_path: Path) -> None:
    (tmp_path / "eats.py").write_text(MEMORY)
    words = ["eats.py", "eats", "-V", "more,eager", "--peak-memory", "--budget", "1ms", "--no-verify"]
    more, eager = (record["metrics"] for record in run_json(*words, cwd=tmp_path)["records"])
    assert near(more["peak_memory"], 2.3e9) and near(eager["peak_memory"], 3e8)
    assert "model_bytes" not in eager and eager["time"]["n"] >= 3
    assert processes_below(tmp_path) == []


def test_peak_memory_counts_inputs_but_neither_copies_of_the_build_nor_imports(tmp_path: Path) -> None:
    (tmp_path / "holds.py").write_text(MEMORY)
    (tmp_path / "ballast.py").write_text("kept = bytearray(b'x' * 150_000_000)\n")
    flags = ["--flag", f"PYTHONPATH={tmp_path}"]
    found = run_json("holds.py", "holds", "--peak-memory", "--budget", "1ms", "--no-verify", *flags, cwd=tmp_path)["records"][0]["metrics"]
    assert near(found["peak_memory"], 4e8)
    assert found["model_bytes"]["value"] == 2e8


def test_what_imports_take_is_told_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter(range(100))

    def gauge() -> float:
        import this_is_imported_by_the_gauge_itself as clock

        return float(next(clock.spent))

    monkeypatch.setitem(sys.modules, "this_is_imported_by_the_gauge_itself", SimpleNamespace(spent=spent))
    with passes.growth(gauge) as taken:
        next(spent)
        import string

        string.capwords("")
        next(spent)
    import textwrap

    textwrap.dedent("")
    assert taken() == 1


def test_a_pass_that_dies_is_a_note_and_not_a_failed_case(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(
        "import os\nfrom pathlib import Path\nfrom steelyard import Task, workload\n"
        "@workload('dies', backend='numpy')\ndef dies(be):\n"
        "    seen, me = Path('first.pid'), str(os.getpid())\n"
        "    if not seen.exists(): seen.write_text(me)\n"
        "    return Task(lambda: be.full(4) if seen.read_text() == me else os._exit(9))\n"
    )
    record = run_json("dies.py", "--peak-memory", "--budget", "1ms", "--no-verify", cwd=tmp_path)["records"][0]
    assert record["status"] == "ok" and "peak_memory" not in record["metrics"]
    assert record["effective"]["peak_memory"].startswith("crashed: the worker exited with code 9")


def test_without_a_profiler_the_record_says_so(tmp_path: Path) -> None:
    record = run_json("fake/work", "--profile", "--memory-snapshot", cwd=tmp_path)["records"][0]
    assert record["status"] == "ok" and record["attachments"] == []
    assert record["effective"]["profile"] == "unsupported: backend fake has no profiler"
    assert record["effective"]["memory_snapshot"].startswith("unsupported: backend fake on cpu")
    assert "profile" in steelyard("show", "latest/1", cwd=tmp_path).stdout


@pytest.mark.torch
def test_a_profile_is_a_trace_and_a_table_beside_the_record(tmp_path: Path) -> None:
    found = run_json("op/softmax", "-a", "n=256", "-B", "torch", "--profile", "--budget", "1ms", cwd=tmp_path)
    record, folder = found["records"][0], Path(found["path"])
    files = {Path(item["path"]).name: (item["kind"], folder / item["path"]) for item in record["attachments"]}
    assert {name: kind for name, (kind, _) in files.items()} == {
        "1-trace.json.gz": "trace", "1-kernels.json": "kernels", "1-kernels.txt": "kernels",
    }  # fmt: skip
    assert json.loads(gzip.decompress(files["1-trace.json.gz"][1].read_bytes()))["traceEvents"]
    rows = json.loads(files["1-kernels.json"][1].read_text())
    softmax = next(row for row in rows if "softmax" in row["name"] and row["calls"] == 5)
    assert softmax["where"] == "cpu" and softmax["mean"] == pytest.approx(softmax["total"] / 5)
    assert softmax["name"] in files["1-kernels.txt"][1].read_text()
    assert record["effective"]["top_kernels"] == rows[:5]
    assert rows[0]["name"] in steelyard("show", "latest/1", cwd=tmp_path).stdout


@pytest.mark.deep
@pytest.mark.torch
def test_compile_time_is_cold_then_warm_and_the_compiler_agrees(tmp_path: Path) -> None:
    words = ["op/gelu", "-a", "n=64", "-V", "eager,compile", "--compile-time=1", "--budget", "1ms"]
    eager, compiled = run_json(*words, cwd=tmp_path)["records"]
    assert "compile_time_cold" not in eager["metrics"]
    facts, metrics = compiled["effective"]["compile_time"], compiled["metrics"]
    assert metrics["compile_time_cold"]["n"] == metrics["compile_time_warm"]["n"] == 1
    assert metrics["compile_time_cold"]["value"] > metrics["compile_time_warm"]["value"] > 0
    assert facts["cold_cache"] == {"hit": [0], "miss": [1]} and facts["warm_cache"] == {"hit": [1], "miss": [0]}
    assert "doubt" not in facts


def compiled(seconds: float, hit: int, miss: int) -> Reply:
    return Reply(Found({"compile_time": Figure(seconds, "s")}, {"counts": {"hit": hit, "miss": miss}, "cpu_time": seconds}))


@pytest.mark.parametrize(
    ("cold", "warm", "said"),
    [((0, 2), (2, 0), ""), ((1, 1), (2, 0), "not cold"), ((0, 2), (1, 1), "not warm"), ((0, 0), (0, 0), "cannot be distinguished")],
)
def test_counters_that_disagree_are_said(cold: tuple[int, int], warm: tuple[int, int], said: str) -> None:
    job = Job(Case("op/gelu", variant="compile"), None, Place(), "unit", True, True)
    facts = after.compile_facts([compiled(2.0, *cold)], [compiled(1.0, *warm)], job)
    assert said in facts.get("doubt", "") and bool(said) == ("doubt" in facts)


def test_cpu_time_is_finer_than_a_tick_and_counts_children() -> None:
    assert len({passes.processor_time() for _ in range(1000)}) > 100
    before, alone = passes.processor_time(), time.process_time()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert passes.processor_time() - before > 2 * (time.process_time() - alone)


class Answers:
    """A crew whose workers have answered already."""

    mark = ""

    def __init__(self, *replies: Reply) -> None:
        self.replies, self.asked = list(replies), list[tuple[Job, Any]]()

    def ask(self, job: Job, plan: Any, name: str, scratch: Path, *, alone: bool) -> Reply:
        self.asked.append((job, name))
        return self.replies.pop(0)

    def dismiss(self) -> None: ...

    def see_off(self) -> None: ...


def test_several_processes_give_their_median_from_caches_of_their_own_and_too_few_no_interval(tmp_path: Path) -> None:
    plan = conduct.from_experiment(Experiment(matrix=(Matrix(("op/gelu",), variant=("compile",)),), settings=Settings(compile_time=3)))
    crew = Answers(*(compiled(*values) for second in (9, 5, 6) for values in ((second, 0, 1), (second / 10, 1, 0))))
    reply = after.compile_time(crew, plan.jobs[0], plan, tmp_path)
    assert reply.found.figures["compile_time_cold"] == Figure(6, "s", "lower", n=3)
    assert reply.found.figures["compile_time_warm"] == Figure(0.6, "s", "lower", n=3)
    caches = [dict(job.place.flags)["TORCHINDUCTOR_CACHE_DIR"] for job, _ in crew.asked]
    assert caches[::2] == caches[1::2] and len(set(caches)) == 3


def test_only_files_in_the_folder_given_are_kept(tmp_path: Path) -> None:
    scratch, secret = tmp_path / "scratch", tmp_path / "secret.txt"
    scratch.mkdir()
    secret.write_text("not yours")
    (scratch / "link").symlink_to(secret)
    (scratch / "good.txt").write_text("good")
    paths = [scratch / "good.txt", secret, scratch / "link", scratch / ".." / "secret.txt", scratch / "missing"]
    files = [("trace", str(path)) for path in paths]
    with Store(tmp_path / "store").create(Header()) as writer:
        for item in files:
            record = after._extended(Record("a@b/c:eval", {}, "ok"), "profile", Reply(Found(files=(item,))), scratch, writer)
            good = item is files[0]
            assert len(record.attachments) == good and ("profile" in record.effective) == (not good)
        kept = [path.name for path in (writer.path / "attachments").iterdir()]
    assert len(kept) == 1 and "not yours" not in (writer.path / "attachments" / kept[0]).read_text()


def test_passes_can_be_asked_for_in_a_file_and_belong_to_the_fingerprint() -> None:
    keys = {"peak_memory": True, "memory_snapshot": True, "profile": True, "ncu": True, "nsys": True, "compile_time": 4}
    settings = codec.parse_experiment({"settings": keys, "matrix": {"workload": "fake/work"}}, "exp.toml").settings
    assert {key: getattr(settings, key) for key in keys} == keys
    with pytest.raises(UsageError, match="compile_time: expected a whole number of at least 1"):
        codec.parse_experiment({"settings": {"compile_time": 0}, "matrix": {"workload": "fake/work"}}, "exp.toml")
    matrix = (Matrix(("fake/work",)),)
    prints = [
        conduct.from_experiment(Experiment(matrix=matrix, settings=Settings(**{key: value}))).fingerprint("here")
        for key, value in {"seed": 0, **keys}.items()
        if key not in ("ncu", "nsys")
    ]
    assert len(set(prints)) == len(prints)


def test_a_word_after_compile_time_is_not_swallowed_in_silence(tmp_path: Path) -> None:
    done = steelyard("run", "--compile-time", "op/softmax", cwd=tmp_path, check=2)
    assert "whole number of processes, not 'op/softmax'" in done.stderr
