"""One batch size for all stacks that are compared, and a note where they have different ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.ptxla.flags import RunnerOptions, settle
from steelyard.engine.conversation import Lost
from steelyard.errors import UsageError
from tests.dialects.ptxla.stage import Stage, batch, measured, perform, rows

RESNET: dict[str, Any] = {"suite_name": "timm", "filter": ("resnet18",), "dynamo": ("None", "inductor"), "test": ("eval",)}


class TestBatchSizes:
    def test_another_batch_size_than_the_first_stacks_is_noted(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: measured(case, effective={"batch_size": 4 if "compile" in case.variant else 8})
        _, heard = perform(tmp_path, **RESNET)
        eager, inductor = rows(tmp_path)
        assert [row["experiment"]["batch_size"] for row in (eager, inductor)] == [8, 4]
        note = "batch size 4, while eager has 8: they cannot be compared; --batch-size same uses one for all stacks"
        assert "note" not in eager["steelyard"] and inductor["steelyard"]["note"] == note
        assert f"warning: resnet18 on inductor: {note}" in heard.lines

    def test_a_row_of_an_earlier_run_counts_as_the_first(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: measured(case, effective={"batch_size": 4 if "compile" in case.variant else 8})
        perform(tmp_path, **RESNET | {"dynamo": ("None",)})
        perform(tmp_path, **RESNET)
        assert "batch size 4, while eager has 8" in rows(tmp_path)[1]["steelyard"]["note"]

    def test_same_gives_all_stacks_that_of_the_first(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: measured(case, effective={"batch_size": batch(case) if "compile" in case.variant else 8})
        _, heard = perform(tmp_path, batch_size="same", **RESNET | {"test": ("eval", "train")})
        assert [(case.mode, "compile" in case.variant) for case in stage.cases] == [
            ("eval", False), ("train", False), ("eval", True), ("train", True),
        ]  # fmt: skip
        assert [batch(case) for case in stage.cases][2:] == [8, 8]
        assert all(row["experiment"]["batch_size"] == 8 and "note" not in row["steelyard"] for row in rows(tmp_path))
        assert sorted(heard.counted) == [(1, 4), (2, 4), (3, 4), (4, 4)]
        stage.cases.clear()
        perform(tmp_path, batch_size="same", **RESNET | {"test": ("eval", "train")})
        assert not stage.cases and len(rows(tmp_path)) == 4

    def test_where_the_first_stack_fails_the_others_have_their_own(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: measured(case) if "compile" in case.variant else Lost("oom", "gone")
        perform(tmp_path, batch_size="same", **RESNET)
        first, second = (batch(case) for case in stage.cases)
        assert first == second
        assert [row["steelyard"]["status"] for row in rows(tmp_path)] == ["oom", "ok"]

    def test_each_model_and_test_has_a_batch_size_of_its_own(self, stage: Stage, tmp_path: Path) -> None:
        stage.reply = lambda case: measured(
            case, effective={"batch_size": batch(case) if "compile" in case.variant else len(case.workload)}
        )
        perform(tmp_path, batch_size="same", **RESNET | {"filter": ("resnet",)})
        assert [batch(case) for case in stage.cases if "compile" in case.variant] == [len("timm/resnet18"), len("timm/resnet50")]

    @pytest.mark.parametrize("given", ["some", "0", "-1", "1.5", ""])
    def test_what_is_no_batch_size_is_refused(self, given: str) -> None:
        with pytest.raises(UsageError, match="batch"):
            settle(RunnerOptions(suite_name="dummy", batch_size=given))
        assert settle(RunnerOptions(suite_name="dummy", batch_size="12")).batch_size == 12
