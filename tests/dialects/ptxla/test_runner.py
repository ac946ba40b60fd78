"""A run as the parent sees it: which configs get a process, what their rows say, and what a second run does with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.ptxla import runner
from steelyard.dialects.ptxla.flags import RunnerOptions, settle
from steelyard.dialects.ptxla.matrix import read_experiment
from steelyard.errors import FAILED, NOTHING, PASS, Unsupported, UsageError
from steelyard.machine.locks import LockError
from tests.dialects.ptxla.checkout import POLICY, make

MEASURED = {
    "metrics": {"total_time": [2.0, 1.0], "per_iter_time": [2.0, 1.0]}, "batch_size": 16, "accelerator_model": "Abacus",
    "versions": {"torch": "0"}, "fallbacks": {}, "dtype": "", "files": {}, "verification": {"code": "VERIFIER_SKIPPED"},
}  # fmt: skip
Reply = list[dict[str, Any]]


@dataclass
class Stage:
    """Workers that say what the test has them say; a stand-in, because what is tested here is the parent."""

    reply: Callable[[Mapping[str, Any]], Reply] = lambda job: [{"started": ""}, {"measured": MEASURED}]
    jobs: list[Mapping[str, Any]] = field(default_factory=list)
    variables: list[Mapping[str, str]] = field(default_factory=list)
    stderr: str = "\x1b]0;owned\x07last words"

    def ask(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        self.jobs.append(json.loads(json.dumps(job)))
        yield from self.reply(job)

    @contextmanager
    def talking(self, experiment: Any, variables: Mapping[str, str], threads: int, timeout: float) -> Iterator[Stage]:
        self.variables.append(variables)
        yield self


class Heard(runner.RunnerWatch):
    """Remembers the log."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.code = -1

    def say(self, level: str, text: str) -> None:
        self.lines.append(f"{level}: {text}")


def perform(folder: Path, stage: Stage | None = None, **words: Any) -> tuple[runner.MatrixRun, Heard]:
    """One whole run into a folder, of the dummy on a CPU with plain PyTorch unless said otherwise."""
    usual = {
        "suite_name": "dummy", "accelerator": ("cpu",), "xla": ("None",), "dynamo": ("None",), "test": ("eval",), "repeat": 2,
        "output_dirname": str(folder / "out"), "timestamp": 7.5,
    }  # fmt: skip
    heard = Heard()
    made = runner.begin(settle(RunnerOptions(**(usual | words))), (stage or Stage()).talking, heard)
    heard.code = made.run()
    return made, heard


def rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "out" / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def lost(status: str) -> Callable[[Mapping[str, Any]], Reply]:
    return lambda job: [{"started": ""}, {"lost": {"status": status, "reason": "gone"}}]


def test_a_row_is_the_originals(tmp_path: Path) -> None:
    perform(tmp_path)
    (row,) = rows(tmp_path)
    ours = row.pop("steelyard")
    assert row == {
        "model": {"suite_name": "dummy", "model_name": "dummy"},
        "experiment": {
            "accelerator": "cpu", "accelerator_model": "Abacus", "xla": None, "xla_flags": None, "dynamo": None, "torch_xla2": None,
            "keep_model_data_on_cuda": False, "test": "eval", "batch_size": 16, "enable_functionalization": False,
        },
        "repeat": 2, "iterations_per_run": 1, "metrics": MEASURED["metrics"], "timestamp": 7.5, "verification_code": "VERIFIER_SKIPPED",
    }  # fmt: skip
    assert list(row["experiment"])[:3] == ["accelerator", "accelerator_model", "xla"]
    assert ours["status"] == "ok" and len(ours["fingerprint"]) == 16


def test_verification_stands_beside_the_times(tmp_path: Path) -> None:
    measured = MEASURED | {"verification": {"code": "FAIL", "mean_rel_error": 0.5, "why": "far off"}}
    _, heard = perform(tmp_path, Stage(lambda job: [{"measured": measured}]), verify=True, strict_exit=True)
    (row,) = rows(tmp_path)
    assert (row["verification_code"], row["verification_mean_rel_error"]) == ("FAIL", 0.5)
    assert row["metrics"]["total_time"] == [2.0, 1.0]
    assert (row["steelyard"]["status"], heard.code) == ("wrong", FAILED)


def test_a_dry_run_says_what_and_writes_nothing(tmp_path: Path) -> None:
    stage = Stage()
    _, heard = perform(tmp_path, stage, dry_run=True, xla=("None", "PJRT"), dynamo=("inductor",))
    assert heard.lines[:2] == ["info: Number of selected experiment configs: 1", "info: Number of selected model configs: 1"]
    assert any(
        '--model-config={"model_name": "dummy"} --experiment-config={"accelerator": "cpu", "xla": null' in line for line in heard.lines
    )
    assert any("rule 3" in line for line in heard.lines)
    assert not stage.jobs and not list(tmp_path.iterdir())


def test_five_runs_have_one_order(tmp_path: Path) -> None:
    orders = []
    for number in range(5):
        stage = Stage()
        perform(tmp_path / str(number), stage, suite_name="steelyard", dynamo=("inductor", "None"), test=("train", "eval"))
        orders.append([(job["model"]["model_name"], job["experiment"]["dynamo"], job["experiment"]["test"]) for job in stage.jobs])
    assert orders == [orders[0]] * 5
    assert orders[0][:2] == [("bert", "inductor", "train"), ("bert", "inductor", "eval")]


def test_what_has_a_row_is_not_run_again(tmp_path: Path) -> None:
    perform(tmp_path)
    stage = Stage()
    made, heard = perform(tmp_path, stage, test=("eval", "train"), timestamp=9.0)
    assert [job["experiment"]["test"] for job in stage.jobs] == ["train"]
    assert made.statuses == ["ok", "ok"]
    assert any("a row for it already (ok)" in line for line in heard.lines)


@pytest.mark.parametrize("words", [{"repeat": 3}, {"batch_size": 4}, {"verify": True}, {"iterations_per_run": 2}])
def test_a_changed_flag_is_a_new_config(tmp_path: Path, words: dict[str, Any]) -> None:
    perform(tmp_path)
    perform(tmp_path, **words)
    assert len(rows(tmp_path)) == 2


def test_failures_are_retried_only_when_asked(tmp_path: Path) -> None:
    perform(tmp_path, Stage(lost("timeout")))
    stage = Stage()
    perform(tmp_path, stage)
    assert not stage.jobs
    perform(tmp_path, stage, retry="failed")
    assert len(stage.jobs) == 1
    assert ["error" in row["metrics"] for row in rows(tmp_path)] == [True, False]
    perform(tmp_path, stage, retry="failed")
    assert len(stage.jobs) == 1


def test_a_wrong_answer_is_a_failure_that_can_be_retried(tmp_path: Path) -> None:
    wrong = MEASURED | {"verification": {"code": "FAIL"}}
    stage = Stage(lambda job: [{"measured": wrong}])
    codes = [perform(tmp_path, stage, strict_exit=True, **words)[1].code for words in ({}, {}, {"retry": "failed"})]
    assert (len(stage.jobs), codes) == (2, [FAILED] * 3)


def test_a_line_that_was_cut_short_costs_itself_alone(tmp_path: Path) -> None:
    perform(tmp_path, test=("eval", "train"))
    path = tmp_path / "out" / "results.jsonl"
    text = path.read_text()
    path.write_text(text[: len(text) - 40])
    stage = Stage()
    _, heard = perform(tmp_path, stage, test=("eval", "train"))
    assert [job["experiment"]["test"] for job in stage.jobs] == ["train"]
    assert any("cut short" in line for line in heard.lines)
    assert json.loads(path.read_text().splitlines()[-1])["experiment"]["test"] == "train"


def test_no_resume_begins_anew(tmp_path: Path) -> None:
    perform(tmp_path)
    perform(tmp_path, no_resume=True, timestamp=9.0)
    assert [row["timestamp"] for row in rows(tmp_path)] == [9.0]


def test_a_row_of_the_original_tool_counts_as_done(tmp_path: Path) -> None:
    perform(tmp_path)
    path = tmp_path / "out" / "results.jsonl"
    row = rows(tmp_path)[0]
    del row["steelyard"], row["experiment"]["keep_model_data_on_cuda"]
    path.write_text(json.dumps(row) + "\n")
    stage = Stage()
    perform(tmp_path, stage)
    assert not stage.jobs
    perform(tmp_path, stage, batch_size=16)
    assert not stage.jobs
    perform(tmp_path, stage, batch_size=8)
    perform(tmp_path, stage, repeat=5)
    assert len(stage.jobs) == 2


@pytest.mark.parametrize("status", ["crashed", "oom", "timeout"])
def test_a_lost_process_is_one_row_with_its_reason(tmp_path: Path, status: str) -> None:
    _, heard = perform(tmp_path, Stage(lost(status)), test=("eval", "train"))
    assert [row["metrics"]["error"] for row in rows(tmp_path)] == [f"{status}: gone"] * 2
    row = rows(tmp_path)[0]
    assert row["verification_code"] == "VERIFIER_DIDNT_RUN"
    assert row["steelyard"]["tail"].endswith("last words")
    assert Path(row["steelyard"]["log"]).read_text().endswith("last words")
    assert heard.code == PASS


def test_a_process_that_dies_after_it_answered_leaves_one_row(tmp_path: Path) -> None:
    def reply(job: Mapping[str, Any]) -> Reply:
        return [{"measured": MEASURED}, {"lost": {"status": "crashed", "reason": "gone"}}]

    perform(tmp_path, Stage(reply))
    (row,) = rows(tmp_path)
    assert row["metrics"] == MEASURED["metrics"]
    assert row["steelyard"]["ended"] == "gone"


def test_what_cannot_be_had_here_is_a_row(tmp_path: Path) -> None:
    def nowhere(*words: Any) -> Any:
        raise Unsupported("no XLA", do="steelyard env create torch-xla")

    stage = Stage()
    stage.talking = nowhere  # type: ignore[method-assign]
    _, heard = perform(tmp_path, stage, xla=("PJRT",), strict_exit=True)
    (row,) = rows(tmp_path)
    assert row["metrics"]["error"] == "unsupported: no XLA; steelyard env create torch-xla"
    assert heard.code == NOTHING


def test_a_process_that_cannot_be_started_is_a_row_and_the_rest_goes_on(tmp_path: Path) -> None:
    stage = Stage()
    starting = stage.talking

    def sometimes(experiment: Any, *words: Any) -> Any:
        if experiment["test"] == "eval":
            raise FileNotFoundError(2, "No such file or directory", "bin/python")
        return starting(experiment, *words)

    stage.talking = sometimes  # type: ignore[method-assign]
    made, _ = perform(tmp_path, stage, test=("eval", "train"))
    assert made.statuses == ["failed", "ok"]
    assert rows(tmp_path)[0]["metrics"]["error"] == "failed: its process could not be started: No such file or directory"


def test_locks_that_cannot_be_used_end_the_run_before_they_make_rows(tmp_path: Path) -> None:
    def nowhere(*words: Any) -> Any:
        raise LockError("cannot use the folder of locks")

    stage = Stage()
    stage.talking = nowhere  # type: ignore[method-assign]
    with pytest.raises(LockError):
        perform(tmp_path, stage)
    assert rows(tmp_path) == []


def test_a_log_that_cannot_be_kept_costs_no_row(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dummy").write_text("in the way")
    perform(tmp_path, Stage(lost("crashed")))
    ours = rows(tmp_path)[0]["steelyard"]
    assert ours["tail"].endswith("last words") and "log" not in ours


def test_skips_are_rows_and_no_skip_runs_them(tmp_path: Path) -> None:
    place = str(make(tmp_path / "bench", "good", "crashes", policy=POLICY))
    stage, words = Stage(), {"suite_name": "torchbench", "torchbench": place}
    perform(tmp_path, stage, **words)
    assert [job["model"]["model_name"] for job in stage.jobs] == ["good"]
    assert stage.jobs[0]["policy"]["batch_size"] == 6
    skipped = rows(tmp_path)[0]
    assert (skipped["metrics"], skipped["verification_code"]) == ({"error": "SKIP"}, "VERIFIER_SKIPPED")
    assert skipped["steelyard"]["reason"] == "the policy skips this model"
    perform(tmp_path, stage, **words)
    perform(tmp_path, stage, no_skip=True, **words)
    assert [job["model"]["model_name"] for job in stage.jobs] == ["good", "crashes"]


def test_new_failures_and_new_passes_both_show(tmp_path: Path) -> None:
    place = str(make(tmp_path / "bench", "good", "raises", policy=POLICY))

    def reply(job: Mapping[str, Any]) -> Reply:
        fails = job["model"]["model_name"] == "raises"
        return [{"failed": {"status": "failed", "error": "no"}}] if fails else [{"measured": MEASURED}]

    made, heard = perform(tmp_path, Stage(reply), suite_name="torchbench", torchbench=place, test=("eval", "train"), strict_exit=True)
    assert made.surprises == {"new passes": ["good cpu train eager"], "new failures": ["raises cpu train eager"]}
    assert heard.code == FAILED
    assert any(line.startswith("warning: new failures") for line in heard.lines)
    assert [row["steelyard"]["expected"] for row in rows(tmp_path)] == [True, False, True, False]


def test_a_second_run_knows_what_was_expected_of_the_rows_it_finds(tmp_path: Path) -> None:
    place = str(make(tmp_path / "bench", "good", "raises", policy=POLICY))
    words = {"suite_name": "torchbench", "torchbench": place, "test": ("eval", "train"), "strict_exit": True}
    first, heard = perform(tmp_path, Stage(lambda job: [{"failed": {"status": "failed", "error": "no"}}]), **words)
    second, again = perform(tmp_path, Stage(), **words)
    assert second.surprises == first.surprises == {"new failures": ["good cpu eval eager", "raises cpu train eager"]}
    assert (heard.code, again.code) == (NOTHING, NOTHING)


def test_what_cannot_run_here_is_no_new_failure_and_is_told_alike_the_second_time(tmp_path: Path) -> None:
    place = str(make(tmp_path / "bench", "good", policy=POLICY))
    words = {"suite_name": "torchbench", "torchbench": place, "strict_exit": True}
    stage = Stage(lambda job: [{"failed": {"status": "unsupported", "error": "no such device"}}])
    codes = [perform(tmp_path, stage, **words)[1].code for _ in range(2)]
    made, _ = perform(tmp_path, stage, **words)
    assert (codes, made.surprises, made.statuses) == ([NOTHING, NOTHING], {}, ["unsupported"])
    perform(tmp_path, stage, retry="failed", **words)
    assert len(stage.jobs) == 2


def test_a_single_config_takes_the_same_way(tmp_path: Path) -> None:
    config = {"accelerator": "cpu", "test": "eval"}
    words = {"model_config": '{"model_name": "dummy"}', "experiment_config": json.dumps(config)}
    whole, single = Stage(), Stage()
    perform(tmp_path / "a", whole)
    perform(tmp_path / "b", single, **words)
    perform(tmp_path / "b", single, **words)
    (one,) = rows(tmp_path / "a")
    assert rows(tmp_path / "b") == [one, one]
    keys = ("model", "experiment", "policy", "basename", "threads")
    assert [{key: job[key] for key in keys} for job in single.jobs] == [{key: whole.jobs[0][key] for key in keys}] * 2


def test_a_single_config_may_bring_the_batch_size_that_its_row_has(tmp_path: Path) -> None:
    words = {"model_config": '{"model_name": "dummy"}', "experiment_config": '{"batch_size": 3}'}
    stage = Stage()
    made, _ = perform(tmp_path, stage, **words)
    assert (made.options.batch_size, stage.jobs[0]["options"]["batch_size"], stage.jobs[0]["policy"]["batch_size"]) == (3, 3, 3)
    with pytest.raises(UsageError, match="batch_size is 3, and --batch-size is 4"):
        perform(tmp_path, stage, batch_size=4, **words)


def test_a_single_config_that_no_stack_can_run_is_a_row(tmp_path: Path) -> None:
    stage = Stage()
    perform(tmp_path, stage, model_config='{"model_name": "dummy"}', experiment_config='{"dynamo": "openxla"}')
    assert not stage.jobs
    assert rows(tmp_path)[0]["metrics"]["error"] == "unsupported: openxla needs XLA"


def test_accelerators_that_nobody_named_are_left_out_where_they_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "has_device", lambda accelerator, xla: accelerator == "cpu" and xla == "PJRT")
    asked = RunnerOptions(suite_name="dummy", xla=("PJRT",), test=("eval",), dynamo=("None",))
    assert [point["accelerator"] for _, point in runner.plan(asked).configs] == ["cpu"]
    named = replace(asked, accelerator=("tpu", "cpu"))
    assert [point["accelerator"] for _, point in runner.plan(named).configs] == ["tpu", "cpu"]


def test_a_size_that_no_model_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no size named 'smal'"):
        perform(tmp_path, suite_name="steelyard", size="smal")


@pytest.mark.parametrize(
    ("point", "words", "expected"),
    [
        ({}, {}, {"XLA_DISABLE_FUNCTIONALIZATION": "1"}),
        ({"enable_functionalization": True}, {}, {}),
        (
            {"xla": "PJRT", "accelerator": "cuda", "enable_functionalization": True}, {},
            {"PJRT_DEVICE": "CUDA", "XLA_FLAGS": "", "XRT_TPU_CONFIG": ""},
        ),
        (
            {"xla": "XRT", "accelerator": "tpu", "enable_functionalization": True}, {},
            {"PJRT_DEVICE": "", "XLA_FLAGS": "", "XRT_TPU_CONFIG": runner.LOCAL_TPU, "TPU_NUM_DEVICES": "1"},
        ),
        (
            {"xla": "PJRT", "xla_flags": "--a=1", "enable_functionalization": True}, {"dump_hlo": True},
            {"PJRT_DEVICE": "CPU", "XLA_FLAGS": "--a=1 --xla_dump_to=side/hlo-BASE", "XRT_TPU_CONFIG": ""},
        ),
        ({"enable_functionalization": True}, {"dump_hlo": True}, {"XLA_FLAGS": "--mine --xla_dump_to=side/hlo-BASE"}),
        (
            {"enable_functionalization": True}, {"save_ir_format": "hlo"},
            {"XLA_SAVE_TENSORS_FMT": "hlo", "XLA_SAVE_TENSORS_FILE": "side/dump-BASE"},
        ),
        ({"torch_xla2": "extract_jax", "enable_functionalization": True}, {}, {"JAX_PLATFORMS": "cpu"}),
    ],
)  # fmt: skip
def test_variables(point: dict[str, Any], words: dict[str, Any], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    monkeypatch.setattr(runner.matrix, "basename", lambda model, experiment: "BASE")
    made = runner.variables({"model_name": "m"}, read_experiment(json.dumps(point)), RunnerOptions(**words), Path("side"))
    assert made == expected


def test_blanks_in_a_folder_do_not_take_flags_apart() -> None:
    point = read_experiment('{"xla": "PJRT"}')
    made = runner.variables({"model_name": "m"}, point, RunnerOptions(dump_hlo=True), Path('my "own" results'))
    assert made["XLA_FLAGS"].startswith('--xla_dump_to="my \\"own\\" results/hlo-')


def test_models_that_generate_get_a_larger_cache() -> None:
    made = runner.variables({"model_name": "hf_T5_generate"}, read_experiment("{}"), RunnerOptions(), Path("side"))
    assert made["XLA_COMPILATION_CACHE_SIZE"] == "2048"
