"""A run as the parent sees it: which configs get a process, what their rows say, and what a second run does with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.ptxla import runner
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.engine import run as supervision
from steelyard.engine.conversation import Lost
from steelyard.engine.crew import Unstarted
from steelyard.errors import FAILED, NOTHING, PASS, UsageError
from steelyard.machine.locks import LockError
from steelyard.model.case import Case
from steelyard.store.runs import Store
from tests.dialects.ptxla.checkout import POLICY, make
from tests.dialects.ptxla.stage import SECONDS, Reply, Stage, batch, lost, measured, other, perform, rows, untimed


def wrong(case: Case) -> Any:
    return measured(case, "FAIL")


def modes(stage: Stage) -> list[str]:
    return [case.mode for case in stage.cases]


def models(stage: Stage) -> list[str]:
    return [case.workload.partition("/")[2] for case in stage.cases]


class TestRows:
    def test_a_row_is_the_originals(self, stage: Stage, tmp_path: Path) -> None:
        perform(tmp_path)
        (row,) = rows(tmp_path)
        ours = row.pop("steelyard")
        assert row == {
            "model": {"suite_name": "dummy", "model_name": "dummy"},
            "experiment": {
                "accelerator": "cpu", "accelerator_model": "Abacus", "xla": None, "xla_flags": None, "dynamo": None, "torch_xla2": None,
                "keep_model_data_on_cuda": False, "test": "eval", "batch_size": 16, "enable_functionalization": False,
            },
            "repeat": 2, "iterations_per_run": 1, "metrics": {"total_time": [2.0, 1.0], "per_iter_time": [2.0, 1.0]}, "timestamp": 7.5,
            "verification_code": "VERIFIER_SKIPPED",
        }  # fmt: skip
        assert list(row) == [
            "model", "experiment", "repeat", "iterations_per_run", "metrics", "timestamp", "verification_code",
        ]  # fmt: skip
        assert list(row["experiment"])[:3] == ["accelerator", "accelerator_model", "xla"]
        assert ours["status"] == "ok" and len(ours["fingerprint"]) == 16

    def test_ours_says_under_which_conditions_it_was_measured_and_where_it_is_kept(self, stage: Stage, tmp_path: Path) -> None:
        store = Store(tmp_path / "store")
        perform(tmp_path, store, threads=3)
        (row,) = rows(tmp_path)
        ours = row["steelyard"]
        assert (ours["threads"], ours["noise"], ours["other_load"]) == (3, "A", 0.25)
        assert ours["case"] == stage.cases[0].id == "dummy/linear[batch=16,dtype=fp32]@torch/eager:eval:threads=3"
        run = store.open(store.folder / ours["run"])
        assert [record.id for record in run.records] == [ours["case"]]
        assert ours["versions"] == {"torch": "0"} and "note" not in ours and "tail" not in ours

    def test_the_times_of_several_calls_are_divided(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: measured(case, host=(0.5, 0.25))
        perform(tmp_path, iterations_per_run=4)
        assert rows(tmp_path)[0]["metrics"] == {"total_time": [2.0, 1.0], "per_iter_time": [0.5, 0.25]}
        assert (stage.settings[0].fixed.calls, stage.settings[0].fixed.repeats) == (4, 2)  # type: ignore[union-attr]

    def test_xlas_own_counts_are_metrics(self, stage: Stage, tmp_path: Path) -> None:
        counts = {"compile_time": 0.5, "compiles": 1, "execute_time": 0.25, "executions": 2, "fallbacks": {"aten::nonzero": 3}}
        repeats = [{"xla": counts, "dynamo": {}}, {"xla": {**counts, "compiles": 0}, "dynamo": {"stats": {"unique_graphs": 1}}}]
        stage.reply = lambda case: measured(case, host=(0.5, 0.25), effective={"repeats": repeats})
        perform(tmp_path, xla=("PJRT",), collect_dynamo_counters=True, iterations_per_run=2)
        (row,) = rows(tmp_path)
        assert row["metrics"] == {
            "total_time": [2.0, 1.0], "per_iter_time": [1.0, 0.5], "trace_total_time": [0.5, 0.25], "trace_per_iter_time": [0.25, 0.125],
            "xla_CompileTime_time_s": [0.5, 0.5], "xla_CompileTime_number": [1, 0], "xla_ExecuteTime_time_s": [0.25, 0.25],
            "xla_ExecuteTime_number": [2, 2], "dynamo_counters": [{}, {"stats": {"unique_graphs": 1}}],
        }  # fmt: skip
        assert row["steelyard"]["fallbacks"] == {"aten::nonzero": 6}
        assert stage.cases[0].backend == "torch_xla"

    def test_verification_stands_beside_the_times(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = wrong
        _, heard = perform(tmp_path, verify=True, strict_exit=True)
        (row,) = rows(tmp_path)
        assert (row["verification_code"], row["verification_mean_rel_error"]) == ("FAIL", 0.5)
        assert row["metrics"]["total_time"] == list(SECONDS)
        assert row["steelyard"]["verification"] == {
            "code": "FAIL", "mean_rel_error": 0.5, "why": "far off", "against": "eager", "tolerance": 0.01,
        }  # fmt: skip
        assert (row["steelyard"]["status"], heard.code) == ("wrong", FAILED)

    def test_a_model_that_the_policy_calls_random_is_not_verified(self, stage: Stage, tmp_path: Path) -> None:
        (tmp_path / "policy.yaml").write_text("non_deterministic: [dummy]")
        _, heard = perform(tmp_path, verify=True, policy=str(tmp_path / "policy.yaml"), strict_exit=True)
        (row,) = rows(tmp_path)
        assert (stage.rules, row["verification_code"], row["verification_mean_rel_error"]) == (["none"], "VERIFIER_SKIPPED", None)
        assert row["steelyard"]["verification"]["why"] == "the policy says that this model is too large or not deterministic"
        assert heard.code == PASS

    def test_the_format_of_a_librarys_model_is_told_in_inference_alone(self, stage: Stage, tmp_path: Path) -> None:
        place = str(make(tmp_path / "bench", "good"))
        (tmp_path / "half.yaml").write_text("dtype: {force_fp16_for_bf16_models: [good]}")
        (tmp_path / "cast.yaml").write_text("dtype: {force_fp16_for_bf16_models: [good], force_amp_for_fp16_bf16_models: [good]}")
        words = {"suite_name": "torchbench", "torchbench": place}
        perform(tmp_path / "a", test=("eval", "train"), **words)
        perform(tmp_path / "b", policy=str(tmp_path / "half.yaml"), **words)
        perform(tmp_path / "c", policy=str(tmp_path / "cast.yaml"), **words)
        told = [row["steelyard"].get("dtype") for name in "abc" for row in rows(tmp_path / name)]
        assert told == ["bfloat16", None, "float16", None]
        assert [dict(case.params)["dtype"] for case in stage.cases] == ["bf16", "fp32", "fp16", "fp32"]

    def test_what_has_another_torch_says_so(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: other(case, environment={"torch": "2.9" if case.backend == "torch_xla" else "2.8+cpu"})
        _, heard = perform(tmp_path, xla=("None", "PJRT"))
        first, second = (row["steelyard"].get("note", "") for row in rows(tmp_path))
        assert first == "" and second.startswith("torch 2.9, while other stacks of this run have 2.8+cpu: --env runs all in one")
        assert sum("runs on torch 2.9" in line for line in heard.lines) == 1


class TestPlanning:
    def test_a_dry_run_says_what_and_writes_nothing(self, stage: Stage, tmp_path: Path) -> None:
        _, heard = perform(tmp_path, dry_run=True, xla=("None", "PJRT"), dynamo=("inductor",))
        assert heard.lines[:2] == ["info: Number of selected experiment configs: 1", "info: Number of selected model configs: 1"]
        assert any(
            '--model-config={"model_name": "dummy"} --experiment-config={"accelerator": "cpu", "xla": null' in line for line in heard.lines
        )
        assert any("rule 3" in line for line in heard.lines)
        assert not stage.jobs and not list(tmp_path.iterdir())

    def test_three_runs_have_one_order(self, stage: Stage, tmp_path: Path) -> None:
        orders = []
        for number in range(3):
            stage.cases.clear()
            perform(tmp_path / str(number), suite_name="steelyard", size="small", dynamo=("inductor", "None"), test=("train", "eval"))
            orders.append([(case.workload, "compile" in case.variant, case.mode) for case in stage.cases])
            told = [
                (row["model"]["model_name"], row["experiment"]["dynamo"], row["experiment"]["test"]) for row in rows(tmp_path / str(number))
            ]
            assert [(f"model/{name}", dynamo == "inductor", test) for name, dynamo, test in told] == orders[-1]
        assert orders == [orders[0]] * 3
        assert orders[0][:2] == [("model/bert", True, "train"), ("model/bert", True, "eval")]

    def test_accelerators_that_nobody_named_are_left_out_where_they_are_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "has_device", lambda accelerator, xla: accelerator == "cpu" and xla == "PJRT")
        asked = RunnerOptions(suite_name="dummy", xla=("PJRT",), test=("eval",), dynamo=("None",))
        assert [point["accelerator"] for _, point in runner.plan_configs(asked).configs] == ["cpu"]
        named = replace(asked, accelerator=("tpu", "cpu"))
        assert [point["accelerator"] for _, point in runner.plan_configs(named).configs] == ["tpu", "cpu"]

    def test_a_size_that_no_model_has_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no size named 'smal'"):
            perform(tmp_path, suite_name="steelyard", size="smal")

    def test_our_own_models_have_a_size_and_a_batch(self, stage: Stage, tmp_path: Path) -> None:
        perform(tmp_path, suite_name="steelyard", filter=("^mlp$",), size="small", batch_size=3)
        assert batch(stage.cases[0]) == 3
        (row,) = rows(tmp_path)
        assert (row["experiment"]["batch_size"], row["steelyard"]["size"]) == (3, "small")
        single = {"model_config": '{"model_name": "mlpp"}', "experiment_config": "{}"}
        perform(tmp_path / "b", suite_name="steelyard", **single)
        error = rows(tmp_path / "b")[0]["metrics"]["error"]
        assert error.startswith("failed: no model named 'mlpp'") and "did you mean mlp" in error

    @pytest.mark.parametrize("name", ["", "../x", "a b", "x]y", "-x", "a/b"])
    def test_what_is_no_name_of_a_model_is_a_row(self, stage: Stage, tmp_path: Path, name: str) -> None:
        words = {"model_config": json.dumps({"model_name": name}), "experiment_config": "{}", "suite_name": "timm"}
        try:
            perform(tmp_path, **words)
        except UsageError:
            assert not rows(tmp_path)
        else:
            assert rows(tmp_path)[0]["metrics"]["error"].startswith("failed: ")
        assert not stage.cases

    @pytest.mark.parametrize(
        ("point", "why"),
        [
            ('{"accelerator": "tpu", "xla": "XRT"}', "XRT was removed from PyTorch/XLA"),
            ('{"keep_model_data_on_cuda": true, "xla": "PJRT", "dynamo": "openxla", "accelerator": "cuda"}', "no longer moves data"),
            ('{"dynamo": "openxla"}', "openxla needs XLA"),
        ],
    )
    def test_what_is_gone_for_good_and_what_no_stack_can_run_is_a_row(self, stage: Stage, tmp_path: Path, point: str, why: str) -> None:
        perform(tmp_path, model_config='{"model_name": "dummy"}', experiment_config=point)
        assert not stage.jobs
        (row,) = rows(tmp_path)
        assert row["metrics"]["error"].startswith("unsupported: ") and why in row["metrics"]["error"]
        assert (row["steelyard"]["status"], row["verification_code"]) == ("unsupported", "VERIFIER_DIDNT_RUN")


class TestContinuing:
    def test_what_has_a_row_is_not_run_again(self, stage: Stage, tmp_path: Path) -> None:
        perform(tmp_path)
        stage.cases.clear()
        made, heard = perform(tmp_path, test=("eval", "train"), timestamp=9.0)
        assert modes(stage) == ["train"]
        assert made.statuses == ["ok", "ok"]
        assert any("a row for it already (ok)" in line for line in heard.lines)
        assert heard.counted == [(2, 2)]

    @pytest.mark.parametrize("words", [{"repeat": 3}, {"batch_size": 4}, {"verify": True}, {"iterations_per_run": 2}])
    def test_a_changed_flag_is_a_new_config(self, stage: Stage, tmp_path: Path, words: dict[str, Any]) -> None:
        perform(tmp_path)
        perform(tmp_path, **words)
        assert len(rows(tmp_path)) == 2

    def test_failures_are_retried_only_when_asked(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lost("timeout")
        perform(tmp_path)
        stage.reply = measured
        stage.cases.clear()
        perform(tmp_path)
        assert not stage.cases
        perform(tmp_path, retry="failed")
        assert len(stage.cases) == 1
        assert ["error" in row["metrics"] for row in rows(tmp_path)] == [True, False]
        perform(tmp_path, retry="failed")
        assert len(stage.cases) == 1

    def test_a_wrong_answer_is_a_failure_that_can_be_retried(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = wrong
        codes = [perform(tmp_path, strict_exit=True, verify=True, **words)[1].code for words in ({}, {}, {"retry": "failed"})]
        assert (len(stage.cases), codes) == (2, [FAILED] * 3)

    def test_a_line_that_was_cut_short_costs_itself_alone(self, stage: Stage, tmp_path: Path) -> None:
        perform(tmp_path, test=("eval", "train"))
        path = tmp_path / "out" / "results.jsonl"
        text = path.read_text()
        path.write_text(text[: len(text) - 40])
        stage.cases.clear()
        _, heard = perform(tmp_path, test=("eval", "train"))
        assert modes(stage) == ["train"]
        assert any("cut short" in line for line in heard.lines)
        assert json.loads(path.read_text().splitlines()[-1])["experiment"]["test"] == "train"

    def test_no_resume_begins_anew(self, stage: Stage, tmp_path: Path) -> None:
        perform(tmp_path)
        perform(tmp_path, no_resume=True, timestamp=9.0)
        assert [row["timestamp"] for row in rows(tmp_path)] == [9.0]

    def test_a_row_of_the_original_tool_counts_as_done(self, stage: Stage, tmp_path: Path) -> None:
        perform(tmp_path)
        path = tmp_path / "out" / "results.jsonl"
        row = rows(tmp_path)[0]
        del row["steelyard"], row["experiment"]["keep_model_data_on_cuda"]
        path.write_text(json.dumps(row) + "\n")
        stage.cases.clear()
        perform(tmp_path)
        assert not stage.cases
        perform(tmp_path, batch_size=16)
        assert not stage.cases
        perform(tmp_path, batch_size=8)
        perform(tmp_path, repeat=5)
        assert len(stage.cases) == 2


class TestTrouble:
    @pytest.mark.parametrize("status", ["crashed", "oom", "timeout"])
    def test_a_lost_process_is_one_row_with_its_reason(self, stage: Stage, tmp_path: Path, status: Any) -> None:
        stage.reply = lost(status)
        _, heard = perform(tmp_path, test=("eval", "train"))
        assert [row["metrics"]["error"] for row in rows(tmp_path)] == [f"{status}: gone"] * 2
        row = rows(tmp_path)[0]
        assert row["verification_code"] == "VERIFIER_DIDNT_RUN"
        assert row["steelyard"]["tail"].endswith("last words")
        assert Path(row["steelyard"]["log"]).read_text().endswith("last words")
        assert row["steelyard"]["case"] == stage.cases[0].id and row["steelyard"]["run"]
        assert heard.code == PASS and heard.prints == []

    def test_the_tail_is_short_and_the_log_is_whole(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply, stage.stderr = lost("crashed"), "x" * 5000 + "end"
        _, heard = perform(tmp_path, print_subprocess=True)
        ours = rows(tmp_path)[0]["steelyard"]
        assert ours["tail"] == stage.stderr[-2000:] and Path(ours["log"]).read_text() == stage.stderr
        assert heard.prints == [stage.stderr]

    def test_what_a_process_printed_is_told_also_where_all_went_well(self, stage: Stage, tmp_path: Path) -> None:
        _, heard = perform(tmp_path, print_subprocess=True, test=("eval", "train"))
        assert heard.prints == [stage.stderr] * 2
        assert all("tail" not in row["steelyard"] for row in rows(tmp_path))

    def test_a_process_that_dies_after_it_answered_leaves_one_row(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: [measured(case), Lost("crashed", "gone")]
        perform(tmp_path, test=("eval", "train"))
        assert [row["metrics"]["total_time"] for row in rows(tmp_path)] == [list(SECONDS)] * 2
        assert [row["steelyard"]["ended"] for row in rows(tmp_path)] == ["gone"] * 2
        stage.reply = measured
        perform(tmp_path / "b")
        assert "ended" not in rows(tmp_path / "b")[0]["steelyard"]

    def test_what_cannot_be_had_here_is_a_row(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = untimed("unsupported", "backend torch_xla needs torch_xla; steelyard env create torch-xla")
        _, heard = perform(tmp_path, xla=("PJRT",), strict_exit=True)
        (row,) = rows(tmp_path)
        assert row["metrics"]["error"] == "unsupported: backend torch_xla needs torch_xla; steelyard env create torch-xla"
        assert "tail" not in row["steelyard"] and heard.code == NOTHING

    def test_a_model_that_raises_is_told_with_its_words_and_where(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = untimed("failed", "ValueError: no weights", traceback="Traceback: here")
        perform(tmp_path)
        (row,) = rows(tmp_path)
        assert row["metrics"] == {"error": "failed: ValueError: no weights"} and row["steelyard"]["trace"] == "Traceback: here"

    def test_a_process_that_cannot_be_started_is_a_row_and_the_rest_goes_on(self, stage: Stage, tmp_path: Path) -> None:
        def starting(job: Any) -> None:
            if job.case.mode == "eval":
                raise Unstarted("no worker could be started: No such file or directory")

        stage.starting = starting
        made, _ = perform(tmp_path, test=("eval", "train"))
        assert made.statuses == ["crashed", "ok"]
        assert rows(tmp_path)[0]["metrics"]["error"] == "crashed: no worker could be started: No such file or directory"

    def test_locks_that_cannot_be_used_end_the_run_before_they_make_rows(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nowhere(*words: Any) -> Any:
            raise LockError("cannot use the folder of locks")

        monkeypatch.setattr(supervision.locks, "hold", nowhere)
        with pytest.raises(LockError):
            perform(tmp_path)
        assert rows(tmp_path) == []

    def test_a_log_that_cannot_be_kept_costs_no_row(self, stage: Stage, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "dummy").write_text("in the way")
        stage.reply = lost("crashed")
        _, heard = perform(tmp_path)
        ours = rows(tmp_path)[0]["steelyard"]
        assert ours["tail"].endswith("last words") and "log" not in ours
        assert any(line.startswith("warning: the log of a process could not be kept") for line in heard.lines)


class TestPolicy:
    def test_skips_are_rows_and_no_skip_runs_them(self, stage: Stage, tmp_path: Path) -> None:
        words = {"suite_name": "torchbench", "torchbench": str(make(tmp_path / "bench", "good", "crashes", policy=POLICY))}
        perform(tmp_path, **words)
        assert models(stage) == ["good"]
        assert batch(stage.cases[0]) == 6
        skipped = rows(tmp_path)[0]
        assert (skipped["metrics"], skipped["verification_code"]) == ({"error": "SKIP"}, "VERIFIER_SKIPPED")
        assert skipped["steelyard"]["reason"] == "the policy skips this model"
        perform(tmp_path, **words)
        perform(tmp_path, no_skip=True, **words)
        assert models(stage) == ["good", "crashes"]

    def test_new_failures_and_new_passes_both_show(self, stage: Stage, tmp_path: Path) -> None:
        fails = untimed("failed", "no")
        stage.reply = lambda case: fails(case) if case.workload.endswith("raises") else measured(case)
        words = {"suite_name": "torchbench", "torchbench": str(make(tmp_path / "bench", "good", "raises", policy=POLICY))}
        made, heard = perform(tmp_path, test=("eval", "train"), strict_exit=True, **words)
        assert made.surprises == {"new passes": ["good cpu train eager"], "new failures": ["raises cpu train eager"]}
        assert heard.code == FAILED
        assert any(line.startswith("warning: new failures") for line in heard.lines)
        assert [row["steelyard"]["expected"] for row in rows(tmp_path)] == [True, False, True, False]

    def test_a_second_run_knows_what_was_expected_of_the_rows_it_finds(self, stage: Stage, tmp_path: Path) -> None:
        place = str(make(tmp_path / "bench", "good", "raises", policy=POLICY))
        words = {"suite_name": "torchbench", "torchbench": place, "test": ("eval", "train"), "strict_exit": True}
        stage.reply = untimed("failed", "no")
        first, heard = perform(tmp_path, **words)
        second, again = perform(tmp_path, **words)
        assert second.surprises == first.surprises == {"new failures": ["good cpu eval eager", "raises cpu train eager"]}
        assert (heard.code, again.code) == (NOTHING, NOTHING)

    def test_what_cannot_run_here_is_no_new_failure_and_is_told_alike_the_second_time(self, stage: Stage, tmp_path: Path) -> None:
        words = {"suite_name": "torchbench", "torchbench": str(make(tmp_path / "bench", "good", policy=POLICY)), "strict_exit": True}
        stage.reply = untimed("unsupported", "no such device")
        codes = [perform(tmp_path, **words)[1].code for _ in range(2)]
        made, _ = perform(tmp_path, **words)
        assert (codes, made.surprises, made.statuses) == ([NOTHING, NOTHING], {}, ["unsupported"])
        perform(tmp_path, retry="failed", **words)
        assert len(stage.cases) == 2

    def test_the_rule_of_a_model_is_what_its_policy_says(self, stage: Stage, tmp_path: Path) -> None:
        words = {"suite_name": "torchbench", "torchbench": str(make(tmp_path / "bench", "good")), "verify": True, "verify_iterations": 3}
        (tmp_path / "policy.yaml").write_text(
            "tolerance: {good: 0.5, cosine: [good], even_higher: [good]}\niou: {good: 0.9}\nmax_multiplier: [good]\n"
            "require_larger_multiplier_for_smaller_tensor: [good]"
        )
        perform(tmp_path, policy=str(tmp_path / "policy.yaml"), **words)
        perform(tmp_path / "b", **words | {"verify_iterations": 1})
        told = "calls=3,cosine=true,even_higher=true,iou=0.9,multiplier=10.0,small_tensors=true,tolerance=0.5"
        assert stage.rules == [f"ptxla[{told}]", "ptxla"]

    def test_training_is_by_adam_or_by_what_the_original_uses_for_a_model(self, stage: Stage, tmp_path: Path) -> None:
        for name, suite in (("dummy", "dummy"), ("alexnet", "timm")):
            words = {"model_config": json.dumps({"model_name": name}), "experiment_config": '{"test": "train"}', "suite_name": suite}
            perform(tmp_path, **words)
        assert [case.variant for case in stage.cases] == ["optimizer[kind=adam,rate=0.01]", "optimizer[kind=sgd,rate=0.01]"]


class TestStrictExit:
    @pytest.mark.parametrize(
        ("code", "exits"),
        [
            ("PASS", PASS), ("", PASS), ("FAIL", FAILED), ("EXCEPTION_RAISED", FAILED), ("NONDETERMINISTIC_EAGER_RUN", FAILED),
            ("EAGER_FAILED", FAILED), ("CANNOT_PROCEED_WITH_VERIFICATION", FAILED),
        ],
    )  # fmt: skip
    def test_verification_without_a_result_is_not_ok(self, stage: Stage, tmp_path: Path, code: str, exits: int) -> None:
        stage.reply = lambda case: measured(case, code)
        _, loose = perform(tmp_path / "loose", verify=True)
        _, strict = perform(tmp_path, verify=True, strict_exit=True)
        _, again = perform(tmp_path, verify=True, strict_exit=True)
        assert (loose.code, strict.code, again.code) == (PASS, exits, exits)
        assert len(rows(tmp_path)) == 1 and rows(tmp_path)[0]["metrics"]["total_time"] == list(SECONDS)

    @pytest.mark.parametrize(
        ("reply", "exits"),
        [(lost("crashed"), NOTHING), (untimed("failed", "no"), NOTHING), (untimed("not_applicable", "no"), NOTHING), (measured, PASS)],
    )
    def test_nothing_measured_is_never_green(self, stage: Stage, tmp_path: Path, reply: Reply, exits: int) -> None:
        stage.reply = reply
        assert perform(tmp_path / "loose")[1].code == PASS
        assert perform(tmp_path, strict_exit=True)[1].code == exits

    def test_a_failure_beside_a_success_is_a_failure(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: Lost("crashed", "gone") if case.mode == "eval" else measured(case)
        assert perform(tmp_path, strict_exit=True, test=("eval", "train"))[1].code == FAILED


class TestSingleConfigs:
    def test_a_single_config_takes_the_same_way(self, stage: Stage, tmp_path: Path) -> None:
        words = {"model_config": '{"model_name": "dummy"}', "experiment_config": json.dumps({"accelerator": "cpu", "test": "eval"})}
        perform(tmp_path / "a")
        perform(tmp_path / "b", **words)
        perform(tmp_path / "b", **words)

        def without_run(folder: Path) -> list[Any]:
            return [{**row, "steelyard": {**row["steelyard"], "run": ""}} for row in rows(folder)]

        (one,) = without_run(tmp_path / "a")
        assert without_run(tmp_path / "b") == [one, one]
        assert stage.cases == [stage.cases[0]] * 3 and stage.places == [stage.places[0]] * 3
        assert stage.settings == [stage.settings[0]] * 3

    def test_a_single_config_may_bring_the_batch_size_that_its_row_has(self, stage: Stage, tmp_path: Path) -> None:
        words = {"model_config": '{"model_name": "dummy"}', "experiment_config": '{"batch_size": 3}'}
        made, _ = perform(tmp_path, **words)
        assert (made.options.batch_size, batch(stage.cases[0]), rows(tmp_path)[0]["experiment"]["batch_size"]) == (3, 3, 3)
        with pytest.raises(UsageError, match="batch_size is 3, and --batch-size is 4"):
            perform(tmp_path, batch_size=4, **words)
