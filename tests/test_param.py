"""PARAM's benchmark from Python: configs as data, runs in a worker or here, and one's own way to run a call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.param import expand
from steelyard.errors import UsageError
from steelyard.param import config, measure_call, read_records, run, run_here, run_to_file, spec, tensor, together, value

EXAMPLE = Path(__file__).parents[1] / "examples" / "param_run_op.py"


class TestWriting:
    def test_values_of_python_become_arguments(self) -> None:
        found = spec(tensor(2, 3, dtype="bf16", requires_grad=False), 1, 2.5, "a", None, True, (1, [2]), 1j, k=value("long", range=(1, 9)))
        assert [item["type"] for item in found["args"]] == ["tensor", "int", "double", "str", "none", "bool", "tuple", "complex"]
        assert found["args"][0] == {"type": "tensor", "dtype": "bf16", "shape": [2, 3], "requires_grad": False}
        assert found["args"][6]["value"][1] == {"type": "genericlist", "value": [{"type": "int", "value": 2}]}
        assert found["kwargs"] == {"k": {"type": "long", "value_range": [1, 9]}}
        with pytest.raises(UsageError, match="cannot make an argument from"):
            spec(object())

    def test_a_config_expands_as_a_file_would(self) -> None:
        made = config("torch.neg", spec(tensor([1, 3], __range__=["shape"])), input_iterator="RangeConfigIterator", seed=5)
        sheet = expand.sheet(made, "here")
        assert sheet.mistakes == ()
        assert [(item.id, item.input["args"][0]["shape"], item.seed) for item in sheet.configs] == [
            ("0|0|0_0", [1], 5), ("0|0|0_1", [2], 5), ("0|0|0_2", [3], 5),
        ]  # fmt: skip

    def test_builds_are_absent_empty_or_many(self) -> None:
        one = spec(tensor(2))
        assert "build" not in config("a", one)["a"]["config"][0]
        assert config("a", one, builds=[])["a"]["config"][0]["build"] == []
        assert len(config("a", one, builds=[spec(1), spec(2)])["a"]["config"][0]["build"]) == 2

    def test_configs_of_one_operator_are_joined_unless_they_differ(self) -> None:
        a, b = config("a", spec(1)), config("a", spec(2))
        assert len(together([a, b, config("b", spec(3))])["a"]["config"]) == 2
        assert len(a["a"]["config"]) == 1
        with pytest.raises(UsageError, match="a is in two configs"):
            together([a, config("a", spec(2), seed=3)])


@pytest.mark.torch
class TestRunning:
    def test_records_of_a_worker_come_back_and_no_file_is_left(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        found = run([config("torch.neg", spec(tensor(2))), config("torch.exp", spec(tensor(2)))], iterations=3, backward=True)
        assert [record["op_name"] for record in found] == ["torch.neg", "torch.exp"]
        assert all(len(record["metric"]["backward"]["measure.time"]) == 3 for record in found)
        assert list(tmp_path.iterdir()) == []

    def test_a_mistake_is_an_error_unless_one_goes_on(self, tmp_path: Path) -> None:
        bad = [config("torch.neg", spec(tensor(2))), config("torch.ngg", spec(tensor(2)))]
        with pytest.raises(UsageError, match=r"no operator named 'torch\.ngg'"):
            run(bad)
        with pytest.warns(UserWarning, match=r"no operator named 'torch\.ngg'"):
            found = run_to_file(bad, tmp_path / "out.json", keep_going=True, iterations=2)
        assert found.code == 3 and len(found.mistakes) == 1 and found.files == {"benchmark_file": str(tmp_path / "out.json")}
        refused, *measured = read_records(tmp_path / "out.json")
        assert measured == found.records and refused["steelyard"]["status"] == "skipped"

    def test_here_with_the_usual_executor_and_with_another(self) -> None:
        import torch

        before = torch.get_num_threads()
        made = config("torch.nn.Linear", spec(tensor(2, 4)), builds=spec(4, 3))
        (usual,) = run_here(made, iterations=2)
        assert usual["steelyard"]["status"] == "ok" and len(usual["metric"]["forward"]["measure.time"]) == 2

        def shapes(call: Any, seat: Any) -> dict[str, Any]:
            return {"shape": {"out": list(call.forward(*call.args, **call.kwargs).shape), "id": seat.id}}

        (other,) = run_here(made, executor=shapes)
        assert other["metric"] == {"shape": {"out": [2, 3], "id": "0|0|0"}}
        assert torch.get_num_threads() == before
        with pytest.raises(UsageError, match="no operator named"):
            run_here(config("torch.ngg", spec(1)))

    def test_python_s_own_kinds_of_the_same_data_are_taken(self) -> None:
        import numpy as np

        made = {**tensor(), "shape": (np.int64(2), 3)}
        (found,) = run_here(config("torch.neg", spec(made)))
        assert found["config"]["input"]["args"][0]["shape"] == [2, 3]
        for wrong in (object(), {1, 2}):
            with pytest.raises(UsageError, match="a config must be plain data"):
                run_here(config("torch.neg", spec({**tensor(2), "name": wrong})))

    def test_one_file_needs_no_list(self, tmp_path: Path) -> None:
        (tmp_path / "ops.py").write_text('from steelyard import operator\n\n@operator("my.same")\ndef same(x):\n    return x\n')
        for files in (tmp_path / "ops.py", str(tmp_path / "ops.py"), [tmp_path / "ops.py"]):
            (found,) = run_here(config("my.same", spec(tensor(2))), files=files)
            assert found["steelyard"]["status"] == "ok"

    @pytest.mark.parametrize("wrong", [{"device": 5}, {"log_level": 5}, {"timeout": "5s"}, {"output_prefix": None}])
    def test_a_word_of_the_wrong_kind_is_named(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match=next(iter(wrong))):
            run(config("torch.neg", spec(tensor(2))), **wrong)

    def test_a_failure_here_is_in_the_record(self) -> None:
        def broken(call: Any, seat: Any) -> dict[str, Any]:
            raise ValueError("no\nway")

        (found,) = run_here(config("torch.neg", spec(tensor(2))), executor=broken)
        assert found["metric"] == {} and found["steelyard"] == {"status": "failed", "seed": 0, "error": "ValueError: no way"}

    def test_a_config_that_changes_the_process_changes_it_for_no_other(self) -> None:
        import torch

        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        def spoil(call: Any, seat: Any) -> dict[str, Any]:
            now = [torch.get_num_threads(), str(torch.get_default_dtype()), torch.is_grad_enabled()]
            torch.set_num_threads(3)
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            if seat.id == "0|0|1":
                raise Mute
            return {"now": {"now": now}}

        first, second, third = run_here(config("torch.neg", [spec(tensor(2))] * 3), executor=spoil)
        assert first["metric"] == third["metric"] == {"now": {"now": [1, "torch.float32", True]}}
        assert second["steelyard"]["error"] == "Mute"

    def test_a_call_of_ones_own(self) -> None:
        import torch

        x = torch.ones(3, requires_grad=True)
        found = measure_call(torch.mul, [x, 2], warmup=0, iterations=4, backward=True)
        assert list(found) == ["forward", "backward"] and len(found["backward"]["measure.time"]) == 4 and x.grad is None

    def test_what_was_changed_is_a_warning(self) -> None:
        with pytest.warns(UserWarning, match="--cuda-graph is off"):
            run_here(config("torch.neg", spec(tensor(2))), cuda_graph=True)

    def test_the_example(self, tmp_path: Path) -> None:
        done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
        assert "torch.mm|0|0|1  ok" in done.stdout and "torch.nn.Linear|0|0|0  ok" in done.stdout and "here: [" in done.stdout
        assert done.stdout.count("backward: median") == 3


def test_importing_it_loads_neither_torch_nor_the_engine() -> None:
    code = "import sys, steelyard.param as it; print([n for n in ('torch', 'numpy', 'msgspec') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
