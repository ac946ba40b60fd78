"""Where the processes of a run start: variables, environments, and a checkout of TorchBench."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.ptxla import matrix, native
from steelyard.dialects.ptxla.flags import RunnerOptions, settle
from steelyard.dialects.ptxla.matrix import read_experiment
from steelyard.errors import UsageError
from steelyard.store.runs import Store
from tests.dialects.ptxla.checkout import make
from tests.dialects.ptxla.stage import Stage, perform, rows


def place_of(stage: Stage, folder: Path, point: str, **words: Any) -> dict[str, str]:
    """The variables of the process that a config gets."""
    perform(folder, model_config='{"model_name": "dummy"}', experiment_config=point, **words)
    return stage.places[-1].environment("")


class TestPlaces:
    @pytest.fixture(autouse=True)
    def mine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a user may have set."""
        for name in ("XLA_FLAGS", "PJRT_DEVICE", "XRT_TPU_CONFIG"):
            monkeypatch.setenv(name, "--mine")
        monkeypatch.setattr(matrix, "basename", lambda model, experiment: "BASE")

    @pytest.mark.parametrize(
        ("point", "words", "expected"),
        [
            ({"enable_functionalization": True}, {}, {"XLA_FLAGS": "--mine", "PJRT_DEVICE": "--mine"}),
            ({"xla": "PJRT"}, {}, {"XLA_DISABLE_FUNCTIONALIZATION": "1", "PJRT_DEVICE": "CPU", "XLA_FLAGS": "", "XRT_TPU_CONFIG": ""}),
            ({"xla": "PJRT", "accelerator": "cuda", "enable_functionalization": True}, {}, {"PJRT_DEVICE": "CUDA", "XLA_FLAGS": ""}),
            ({"xla": "PJRT", "accelerator": "tpu"}, {}, {"PJRT_DEVICE": "TPU"}),
            ({"xla": "PJRT", "xla_flags": "--a=1"}, {}, {"XLA_FLAGS": "--a=1"}),
            ({"xla": "PJRT", "xla_flags": "--a=1"}, {"dump_hlo": True}, {"XLA_FLAGS": "--a=1 --xla_dump_to=SIDE/hlo-BASE"}),
            ({}, {"dump_hlo": True}, {"XLA_FLAGS": "--mine --xla_dump_to=SIDE/hlo-BASE"}),
            ({}, {"save_ir_format": "hlo"}, {"XLA_SAVE_TENSORS_FMT": "hlo", "XLA_SAVE_TENSORS_FILE": "SIDE/dump-BASE"}),
            ({"torch_xla2": "extract_jax"}, {}, {"JAX_PLATFORMS": "cpu"}),
            ({"accelerator": "cuda"}, {}, {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}),
        ],
    )  # fmt: skip
    def test_variables(self, stage: Stage, tmp_path: Path, point: dict[str, Any], words: dict[str, Any], expected: dict[str, str]) -> None:
        found = place_of(stage, tmp_path, json.dumps(point), **words)
        side = str((tmp_path / "out" / "dummy").resolve())
        assert {name: found.get(name) for name in expected} == {name: text.replace("SIDE", side) for name, text in expected.items()}
        assert Path(side).is_dir() == bool(words)

    @pytest.mark.parametrize(("point", "words"), [({"accelerator": "cuda"}, {"disable_tf32": True}), ({"accelerator": "cpu"}, {})])
    def test_no_tf32_where_it_is_disabled_or_none_could_be(
        self, stage: Stage, tmp_path: Path, point: dict[str, Any], words: dict[str, Any]
    ) -> None:
        assert native.TF32 not in place_of(stage, tmp_path, json.dumps(point), **words)

    def test_functionalization_stays_where_it_is_asked_for(self, stage: Stage, tmp_path: Path) -> None:
        point = '{"xla": "PJRT", "enable_functionalization": true}'
        assert "XLA_DISABLE_FUNCTIONALIZATION" not in place_of(stage, tmp_path, point)

    def test_dumps_change_no_case(self, stage: Stage, tmp_path: Path) -> None:
        for folder, words in ((tmp_path / "a", {}), (tmp_path / "b", {"dump_hlo": True, "save_ir_format": "text"})):
            place_of(stage, folder, '{"xla": "PJRT", "xla_flags": "--a=1"}', **words)
        assert stage.cases[0] == stage.cases[1]

    def test_threads_are_all_unless_said(self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(native.os, "sched_getaffinity", lambda pid: {0, 1, 2})
        assert place_of(stage, tmp_path, "{}")["OMP_NUM_THREADS"] == "3"
        assert place_of(stage, tmp_path, "{}", threads=2)["OMP_NUM_THREADS"] == "2"

    def test_blanks_in_a_folder_do_not_take_flags_apart(self) -> None:
        point = read_experiment('{"xla": "PJRT"}')
        made = native.dumps("m", point, RunnerOptions(dump_hlo=True), Path('my "own" results'), "")
        assert made["XLA_FLAGS"].startswith('--xla_dump_to="my \\"own\\" results/hlo-')

    def test_models_that_generate_get_a_larger_cache(self) -> None:
        made = native.dumps("hf_T5_generate", read_experiment("{}"), RunnerOptions(), Path("side"), "")
        assert made["XLA_COMPILATION_CACHE_SIZE"] == "2048"

    def test_a_checkout_is_where_its_models_start_and_import_from(self, stage: Stage, tmp_path: Path) -> None:
        place = make(tmp_path / "bench", "good")
        perform(tmp_path, suite_name="torchbench", torchbench=str(place))
        assert (stage.places[0].folder, stage.places[0].paths) == (str(place.resolve()), (str(place.resolve()),))


class TestEnvironments:
    @staticmethod
    def env(folder: Path, name: str) -> str:
        """A folder that looks like a built environment."""
        python = folder / "envs" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (folder / "envs" / name / "steelyard-env.json").write_text(json.dumps({"stack": "torch-xla", "packages": {}}))
        return str(python)

    def test_all_stacks_run_in_the_one_that_is_named(self, stage: Stage, tmp_path: Path, apart: Path) -> None:
        python = self.env(apart, "mine")
        store = Store(tmp_path / "store")
        perform(tmp_path, store, xla=("None", "PJRT"), env="mine")
        assert [case.backend for case in stage.cases] == ["torch", "torch_xla"]
        assert {place.python for place in stage.places} == {python}
        assert store.open(store.folder / rows(tmp_path)[0]["steelyard"]["run"]).header.env == "mine"

    def test_one_that_does_not_exist_is_refused_before_anything_runs(self, stage: Stage, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="nowhere"):
            perform(tmp_path, env="nowhere")
        assert not stage.jobs and not rows(tmp_path)


class TestCheckouts:
    @pytest.mark.parametrize("place", [".", "benchmark", "torchbench", "torchbenchmark"])
    @pytest.mark.parametrize("depth", [0, 1, 3])
    def test_one_beside_us_or_up_to_three_folders_above_is_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, depth: int
    ) -> None:
        checkout = make(tmp_path / "top" / place, "good")
        start = tmp_path / "top" / Path(*"abc"[:depth])
        start.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(start)
        found = settle(RunnerOptions(suite_name="torchbench")).torchbench
        assert found is not None and Path(found).resolve() == checkout.resolve()

    def test_further_above_nobody_looks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make(tmp_path / "top" / "benchmark", "good")
        start = tmp_path / "top" / "a" / "b" / "c" / "d"
        start.mkdir(parents=True)
        monkeypatch.chdir(start)
        with pytest.raises(UsageError, match="there is none here or in the three folders above"):
            settle(RunnerOptions(suite_name="torchbench"))
        assert settle(RunnerOptions(suite_name="dummy")).torchbench is None

    def test_one_that_is_named_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make(tmp_path / "benchmark", "good")
        monkeypatch.chdir(tmp_path)
        assert settle(RunnerOptions(suite_name="torchbench", torchbench="mine")).torchbench == "mine"
