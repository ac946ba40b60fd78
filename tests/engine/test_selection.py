"""From what a user types to an experiment: names, ids, files, suites and programs, each read as what it is."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import commands
from steelyard.engine.place import Place
from steelyard.engine.plan import expand
from steelyard.engine.selection import Request, gather, read_devices
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Matrix, Rule, Settings

MINE = """
from steelyard import Task, workload

@workload("my/add", axes={"n": [8, 16]}, backend="numpy")
def add(n, be):
    x = be.randn(n)
    return Task(lambda: x + x)
"""

EXPERIMENT = """
name = "two"
include = ["op/sum[m=1,n=1]@numpy/eager:eval"]
[settings]
budget = 0.25
vs = "eager"
[[matrix]]
workload = "op/softmax"
backend = "numpy"
axes = {n = [32, 64]}
flags = [{A = "1"}]
[[exclude]]
axes = {n = 64}
"""


def ids(request: Request) -> list[str]:
    experiment, catalogue, entries = gather(request, Place())
    return [job.case.id for job in expand(experiment, catalogue, entries=entries).jobs]


class TestWords:
    def test_names_and_globs_are_one_matrix(self) -> None:
        experiment, _, entries = gather(Request(("op/softmax", "op/s*", "tag:smoke")), Place())
        assert experiment.matrix == (Matrix(("op/softmax", "op/s*", "tag:smoke")),)
        assert (experiment.name, experiment.include, experiment.files, entries) == ("command line", (), (), ())

    def test_a_name_with_parameters_fixes_them(self) -> None:
        experiment, _, _ = gather(Request(("op/softmax[n=32,dtype=fp16]", "op/sum")), Place())
        assert experiment.matrix == (Matrix(("op/sum",)), Matrix(("op/softmax",), {"n": (32,), "dtype": ("fp16",)}))
        assert ids(Request(("op/soft*[n=32,m=2]",))) == ["op/softmax[dtype=fp32,m=2,n=32]@torch/eager:eval"]

    @pytest.mark.parametrize("word", ["op/softmax[n=32", "op/softmax[n=32]x", "n=32"])
    def test_what_only_looks_like_it_is_refused(self, word: str) -> None:
        with pytest.raises(UsageError):
            gather(Request((word,)), Place())

    def test_an_id_is_included_as_it_is(self) -> None:
        case = "op/softmax[dtype=fp32,m=2,n=32]@numpy/eager:eval:threads=2"
        assert ids(Request((case,))) == [case]

    def test_options_override_the_matrix(self) -> None:
        how: dict[str, Any] = {"backend": ("numpy",), "variant": ("eager",), "mode": ("eval",), "threads": (3,), "flags": {"X": "y"}}
        request = Request(("op/softmax",), axes={"n": (8, 9), "m": (1,)}, settings={"budget": 0.1, "seed": 7}, **how)
        assert ids(request) == [f"op/softmax[dtype=fp32,m=1,n={n}]@numpy/eager:eval:threads=3:flag.X=y" for n in (8, 9)]
        assert gather(request, Place())[0].settings == Settings(budget=0.1, seed=7)

    def test_axes_named_together_go_over_those_of_a_workload_and_to_the_matrices_that_have_them(self) -> None:
        found = ids(Request(("op/matmul", "op/softmax[n=8]"), axes={"m,k": (2, 4)}))
        assert [id for id in found if "matmul" in id] == [f"op/matmul[dtype=fp32,k={n},m={n},n=256]@torch/eager:eval" for n in (2, 4)]
        assert [id for id in found if "softmax" in id] == ["op/softmax[dtype=fp32,m=256,n=8]@torch/eager:eval"]

    def test_nothing_named_is_nothing_to_measure(self) -> None:
        with pytest.raises(NothingMeasured, match="empty"):
            ids(Request())

    def test_programs_are_cases(self) -> None:
        assert commands.cases(Request(commands=(("ls", "-l"),))) == [Case("command", (("argv", ["ls", "-l"]),), "command")]
        assert ids(Request(commands=(("true",), ("echo", "a b")))) == [
            'command[argv=["true"]]@command/eager:eval',
            'command[argv=[echo,"a b"]]@command/eager:eval',
        ]

    def test_devices_are_kinds(self) -> None:
        assert read_devices(["cpu", "cuda", "cuda:1", "tpu"]) == (("cpu", "cuda", "tpu"), "1")
        with pytest.raises(UsageError, match="did you mean cuda"):
            read_devices(["cpu", "cudda"])

    @pytest.mark.parametrize("word", ["gpu", "GPU", "gpu:1", "nvidia"])
    def test_a_word_for_a_device_is_answered_with_its_kind(self, word: str) -> None:
        with pytest.raises(UsageError) as caught:
            read_devices([word])
        assert "did you mean cuda?" in caught.value.do and "tpu or" not in caught.value.do

    @pytest.mark.parametrize(("word", "do"), [("cpu:5", "write -d cpu; --threads says how many cores"), ("cuda:", "write cuda or cuda:1")])
    def test_a_number_belongs_to_what_there_can_be_several_of(self, word: str, do: str) -> None:
        with pytest.raises(UsageError, match="device") as caught:
            read_devices([word])
        assert caught.value.do == do


VARIED = (
    MINE
    + """
@add.variant("twice")
def twice(task):
    return Task(lambda: task.fn())

@add.variant("for_torch", backends=["torch"])
def for_torch(task):
    return task

@variant("any")
def any_task(task):
    return Task(lambda: task.fn())

@workload("my/plain", backend="numpy")
def plain(be):
    return Task(lambda: 1)
"""
)


class TestOwnVariants:
    @pytest.mark.parametrize("more", [(), ("my/*",), ("my/add", "my/plain")])
    def test_a_base_without_variants_means_those_of_the_file(self, tmp_path: Path, more: tuple[str, ...]) -> None:
        (tmp_path / "mine.py").write_text(VARIED.replace("Task, workload", "Task, variant, workload", 1))
        found = ids(Request((str(tmp_path / "mine.py"), *more), axes={"n": (8,)}, settings={"vs": "eager"}))
        assert found == [
            *(f"my/add[n=8]@numpy/{variant}:eval" for variant in ("eager", "twice", "any")),
            *(f"my/plain@numpy/{variant}:eval" for variant in ("eager", "any")),
        ]

    def test_variants_that_were_named_are_all_there_are(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(VARIED.replace("Task, workload", "Task, variant, workload", 1))
        request = Request((str(tmp_path / "mine.py"), "my/add"), variant=("twice",), axes={"n": (8,)}, settings={"vs": "eager"})
        assert ids(request) == ["my/add[n=8]@numpy/eager:eval", "my/add[n=8]@numpy/twice:eval"]

    @pytest.mark.parametrize("selector", ["op/softmax", "op/layer_norm"])
    def test_what_is_built_in_is_refused_with_what_to_write(self, selector: str) -> None:
        with pytest.raises(UsageError, match="nothing to compare with eager") as caught:
            ids(Request((selector,), settings={"vs": "eager"}))
        assert "-V eager," in caught.value.do

    def test_a_file_without_variants_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(MINE)
        with pytest.raises(UsageError, match="nothing to compare with eager"):
            ids(Request((str(tmp_path / "mine.py"),), settings={"vs": "eager"}))


class TestFiles:
    def test_a_python_file_alone_means_all_it_defines(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(MINE)
        before = set(sys.modules)
        experiment, catalogue, _ = gather(Request((str(tmp_path / "mine.py"),)), Place())
        assert experiment.matrix == (Matrix(("my/add",)),)
        assert experiment.files == (str(tmp_path / "mine.py"),)
        assert catalogue.workloads["my/add"]["origin"] == str(tmp_path / "mine.py")
        assert not [name for name in set(sys.modules) - before if name.startswith("steelyard_user")]

    def test_with_a_name_it_only_adds_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mine.py").write_text(MINE)
        monkeypatch.chdir(tmp_path)
        assert ids(Request(("mine.py", "my/add[n=5]"))) == ["my/add[n=5]@numpy/eager:eval"]
        assert ids(Request(("op/sum[n=1,m=1]", "mine.py"))) == ["op/sum[dtype=fp32,m=1,n=1]@torch/eager:eval"]

    @pytest.mark.parametrize("name", ["nowhere.py", "folder.py"])
    def test_one_that_cannot_be_read_is_named(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "folder.py").mkdir()
        with pytest.raises(UsageError, match="cannot read"):
            gather(Request((str(tmp_path / name),)), Place())

    def test_an_experiment_file_brings_everything_and_options_go_over_it(self, tmp_path: Path) -> None:
        (tmp_path / "exp.toml").write_text(EXPERIMENT)
        word = str(tmp_path / "exp.toml")
        experiment, _, _ = gather(Request((word,)), Place())
        assert (experiment.name, experiment.settings) == ("two", Settings(budget=0.25, vs="eager"))
        both = Request((word,), settings={"vs": None})
        assert ids(both)[0].startswith("op/softmax[dtype=fp32,m=")
        assert len(ids(both)) == 2
        with pytest.raises(UsageError, match="nothing to compare with eager"):
            ids(Request((word,)))
        over, _, _ = gather(Request((word,), axes={"n": (8,)}, flags={"B": "2"}, settings={"budget": 0.5}), Place())
        assert (over.settings, over.matrix[0].axes, over.matrix[0].flags) == (
            Settings(budget=0.5, vs="eager"), {"n": (8,)}, ({"A": "1", "B": "2"},),
        )  # fmt: skip
        assert over.include == experiment.include
        assert over.exclude == experiment.exclude

    def test_rules_and_environments_of_a_file_are_kept_and_an_environment_asked_for_replaces_them(self, tmp_path: Path) -> None:
        word = str(tmp_path / "exp.toml")
        Path(word).write_text('[[matrix]]\nworkload = "op/sum"\nenv = "torch-xla"\n[[deny]]\ndevice = "cuda"\nreason = "it crashes"\n')
        experiment, _, _ = gather(Request((word,)), Place())
        assert (experiment.matrix[0].env, experiment.deny) == (("torch-xla",), (Rule({"device": "cuda"}, "it crashes"),))
        assert gather(Request((word,), env="another"), Place())[0].matrix[0].env == ("here",)
        inside = "op/sum[n=8]@numpy/eager:eval:env=torch-xla"
        with pytest.raises(UsageError, match=r"names its environment itself.*\n  leave out --env, or :env=torch-xla"):
            gather(Request((inside,), env="another"), Place())

    def test_batch_is_an_axis_like_any_other(self) -> None:
        assert ids(Request(("model/mlp",), axes={"batch": (2, 4), "size": ("small",)})) == [
            id.replace("batch=2", f"batch={batch}")
            for batch in (2, 4)
            for id in ids(Request(("model/mlp[batch=2]",), axes={"size": ("small",)}))
        ]

    def test_a_suite_is_an_experiment_by_name(self) -> None:
        experiment, _, _ = gather(Request(("quickstart",)), Place())
        assert experiment.matrix
        assert experiment.name == "quickstart"

    def test_the_suite_of_stacks_has_every_model_in_four_ways_and_two_modes(self) -> None:
        experiment, catalogue, _ = gather(Request(("stacks",)), Place())
        found = [job.case for job in expand(experiment, catalogue).jobs]
        ways = {"torch/eager", "torch/compile", "torch_xla/eager", "torch_xla/openxla"}
        models = {"model/mlp", "model/resnet50", "model/bert"}
        assert {(case.workload, f"{case.backend}/{case.variant}", case.mode) for case in found} == {
            (model, way, mode) for model in models for way in ways for mode in ("eval", "train")
        }

    def test_files_named_in_an_experiment_are_described_too(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(MINE)
        (tmp_path / "exp.toml").write_text('files = ["mine.py"]\n[[matrix]]\nworkload = "my/add"\n')
        assert ids(Request((str(tmp_path / "exp.toml"),))) == [f"my/add[n={n}]@numpy/eager:eval" for n in (8, 16)]


class TestPackages:
    @pytest.fixture(autouse=True)
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A package as pip would leave it; workers find it too."""
        (tmp_path / "acme_ops.py").write_text(MINE.replace("my/add", "acme/add"))
        info = tmp_path / "acme_ops-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-ops\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[steelyard.workloads]\nacme/add = acme_ops:add\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        importlib.invalidate_caches()
        yield
        assert "acme_ops" not in sys.modules

    @pytest.mark.parametrize("word", ["acme/add", "acme/add[n=8]", "acme/add[n=8]@numpy/eager:eval"])
    def test_a_workload_is_loaded_by_a_worker_because_it_was_named(self, word: str) -> None:
        experiment, catalogue, entries = gather(Request((word,)), Place())
        assert entries == (("workloads", "acme/add"),)
        assert expand(experiment, catalogue).jobs[0].case.id == "acme/add[n=8]@numpy/eager:eval"

    def test_without_its_name_nothing_is_loaded(self) -> None:
        assert gather(Request(("op/softmax",)), Place())[2] == ()

    @pytest.mark.parametrize("word", ["acme/*", "*/add"])
    def test_a_glob_names_it_too(self, word: str) -> None:
        assert ids(Request((word,))) == [f"acme/add[n={n}]@numpy/eager:eval" for n in (8, 16)]

    def test_an_id_in_a_file_names_it_too(self, tmp_path: Path) -> None:
        (tmp_path / "exp.toml").write_text('include = ["acme/add[n=8]@numpy/eager:eval"]')
        assert ids(Request((str(tmp_path / "exp.toml"),))) == ["acme/add[n=8]@numpy/eager:eval"]


class TestSeveralFiles:
    """Files named together are one experiment, whose cases share what the command line says."""

    @pytest.fixture
    def two(self, tmp_path: Path) -> tuple[str, str]:
        first, second = tmp_path / "first.toml", tmp_path / "second.toml"
        first.write_text('[settings]\nbudget = "quick"\n[[matrix]]\nworkload = "op/softmax"\nbackend = "numpy"\naxes = {m = 1}\n')
        second.write_text('[[matrix]]\nworkload = "op/sum"\nbackend = "numpy"\n[[matrix]]\nworkload = "fake/work"\n')
        return str(first), str(second)

    def test_settings_that_differ_are_refused_until_the_command_line_decides(self, two: tuple[str, str]) -> None:
        with pytest.raises(UsageError, match="the files disagree about budget") as error:
            gather(Request(two), Place())
        assert "first: 0.3, second: 1" in str(error.value) and "--budget" in str(error.value)
        assert gather(Request(two, settings={"budget": 0.5}), Place())[0].settings == Settings(budget=0.5)

    def test_an_axis_goes_to_the_matrices_that_know_it(self, two: tuple[str, str]) -> None:
        found = ids(Request(two, axes={"n": (8,)}, settings={"budget": 0.5}))
        assert [id.split("[")[0] for id in found] == ["op/softmax", "op/sum", "fake/work"]
        assert ["n=8" in id for id in found] == [True, True, False]

    def test_an_axis_that_nobody_knows_is_a_mistake(self, two: tuple[str, str]) -> None:
        with pytest.raises(UsageError, match="no axis named 'nn'"):
            ids(Request(two, axes={"nn": (8,)}, settings={"budget": 0.5}))
