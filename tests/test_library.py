"""Steelyard from Python: one function measured here and now, or a whole experiment as the command line runs it."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steelyard
from steelyard import Experiment, Matrix, Settings
from steelyard.errors import NothingMeasured, UsageError
from steelyard.library import check_keywords, measure, run, threads_here
from steelyard.store.runs import Store
from tests.backends.virtual import KERNEL, LAUNCH, Device

FAKE = Matrix(("fake/work",), {"seconds": (1e-4, 2e-4)})


class TestMeasure:
    def test_a_function_with_its_arguments(self) -> None:
        seen: list[tuple[int, ...]] = []
        found = measure(lambda *args: seen.append(args), 1, 2, budget=0.02)
        assert set(seen) == {(1, 2)}
        assert len(seen) >= found.sample.calls * len(found.sample.seconds)
        assert found.seconds == found.figures["time"].value

    def test_more_work_takes_longer_and_the_rates_follow(self) -> None:
        short, long = (measure(sum, range(n), budget=0.05, items=n, flops=n, bytes=8 * n) for n in (200, 20_000))
        assert 0 < short.seconds < long.seconds
        assert long.figures["item_rate"].value == pytest.approx(20_000 / long.seconds)
        assert long.figures["bandwidth"].value == pytest.approx(8 * long.figures["compute"].value)
        assert {"compute", "bandwidth", "item_rate"}.isdisjoint(measure(sum, range(9), budget=0.01).figures)

    def test_it_reads_as_a_figure_with_its_uncertainty(self) -> None:
        text = str(measure(sum, range(2000), budget=0.05))
        assert " ± " in text
        assert "µs" in text
        assert "noise " in text

    def test_single_calls_give_tails(self) -> None:
        found = measure(sum, range(200), budget=0.1, sampling="calls")
        assert found.figures["time_p50"].value <= found.figures["time_p90"].value
        assert found.sample.calls == 1

    def test_what_cannot_be_asked_for(self) -> None:
        with pytest.raises(UsageError, match="'blocks' or 'calls'"):
            measure(sum, [1], sampling="guess")

    def test_an_error_of_the_function_is_its_own(self) -> None:
        with pytest.raises(ZeroDivisionError):
            measure(lambda: 1 / 0)

    @pytest.mark.parametrize("budget", ["fast", "200ms"])
    def test_a_budget_in_words_is_read_as_the_command_line_reads_it(self, budget: str) -> None:
        if budget == "fast":
            with pytest.raises(UsageError):
                measure(sum, [1], budget=budget)
        else:
            assert measure(sum, [1], budget=budget).sample.seconds.sum() < 0.4


def scaled(x: float, *, factor: float = 1.0, budget: str = "") -> float:
    return x * factor


class TestKeywords:
    def test_they_go_to_the_function(self) -> None:
        seen: list[dict[str, int]] = []
        measure(lambda *args, **named: seen.append(named), 1, budget=0.01, dim=-1, keepdim=True)
        assert seen[0] == {"dim": -1, "keepdim": True}
        assert measure(sorted, [2, 1], reverse=True, budget=0.01).figures["time"].n

    def test_one_that_both_could_mean_is_refused_with_a_way_out(self) -> None:
        with pytest.raises(UsageError, match=r"budget is an option of measure and an argument of scaled"):
            measure(scaled, 1.0, budget=0.01)
        assert measure(scaled, 1.0, factor=2.0).figures["time"].n
        assert measure(functools.partial(scaled, budget="own"), 1.0, budget=0.01).figures["time"].n

    def test_one_that_nobody_takes_is_answered_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="did you mean precision"):
            measure(scaled, 1.0, precison=0.1)
        with pytest.raises(UsageError, match="did you mean factor"):
            measure(scaled, 1.0, facter=0.1)

    @given(
        st.sets(st.sampled_from(["budget", "items", "x", "dim", "axis"])),
        st.sets(st.sampled_from(["budget", "items", "x", "dim", "axis"])),
        st.booleans(),
    )
    def test_each_keyword_has_one_owner_or_is_refused(self, takes: set[str], given_: set[str], others: bool) -> None:
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in sorted(takes)]
        parameters += [inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD)] if others else []

        def fn(**named: object) -> None: ...

        fn.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        own = {"budget", "items"}
        ours, theirs = given_ & own, given_ - own
        options = {"budget": 7.0 if "budget" in ours else "quick", "items": 7.0 if "items" in ours else None}
        fine = not ours & takes and (others or theirs <= takes)
        if fine:
            check_keywords(measure, [fn], theirs, options)
        else:
            with pytest.raises(UsageError):
                check_keywords(measure, [fn], theirs, options)


class TestShown:
    def test_every_public_name_is_in_dir_and_can_be_had(self) -> None:
        assert set(steelyard.__all__) <= set(dir(steelyard)) and all(getattr(steelyard, name) for name in steelyard.__all__)

    def test_a_measurement_is_one_line_without_its_samples(self) -> None:
        found = measure(sum, range(2000), budget=0.05)
        assert repr(found) == f"<Measurement: {found}>" and "array" not in repr(found) and "\n" not in repr(found)
        assert "<b>" in found._repr_html_() and "array" not in found._repr_html_()

    @pytest.mark.parametrize(
        ("threads", "cpus", "said"),
        [
            (1, 1.0, "1 thread"), (2, 1.9, "2 threads (steelyard run: 1)"), (None, 1.0, ""), (None, None, ""),
            (None, 1.9, "1.9 CPUs in use (steelyard run: 1 thread)"),
        ],
    )  # fmt: skip
    def test_threads_that_differ_from_those_of_run_are_said(self, threads: int | None, cpus: float | None, said: str) -> None:
        found = replace(measure(sum, [1], budget=0.01), threads=threads, cpus=cpus, other_load=1.3)
        assert threads_here(threads, cpus) == said and said in str(found)
        assert "other programs kept 1.3 CPUs busy" in str(found)
        assert "busy" not in str(replace(found, other_load=0.1))

    def test_a_run_is_its_table(self, tmp_path: Path) -> None:
        found = run(Experiment("shown", matrix=(FAKE,)), store=tmp_path, budget=0.01)
        assert repr(found) == f"<Run {found.id}: 2 ok; steelyard show {found.id}>"
        html = found._repr_html_()  # type: ignore[attr-defined]
        assert "fake/work" in str(found) and "1 thread" in str(found) and "<table" in html and "fake/work" in html


@pytest.mark.torch
class TestMeasureOnADevice:
    def test_the_device_s_work_is_timed_and_not_its_launch(self, device: Device) -> None:
        found = measure(device.launch, KERNEL, budget=0.02, flops=1e4)
        assert found.seconds == pytest.approx(KERNEL, rel=0.01)
        assert found.figures["host_time"].value == pytest.approx(LAUNCH)
        assert found.figures["compute"].value == pytest.approx(1e4 / KERNEL, rel=0.01)
        assert found.clock == "device events, stream held back" and f"clock: {found.clock}" in str(found)

    def test_a_host_that_sets_the_pace_is_named(self, device: Device) -> None:
        found = measure(device.launch, LAUNCH / 5, budget=0.02)
        assert found.seconds == pytest.approx(LAUNCH / 5, rel=0.01)
        assert str(found).endswith("the host needs 5.00 µs")

    @pytest.mark.parametrize("seconds", [0.02, 0.5])
    def test_a_long_call_is_waited_for(self, device: Device, seconds: float) -> None:
        found = measure(device.launch, seconds, budget=0.1)
        assert found.seconds == pytest.approx(seconds + LAUNCH, rel=1e-6)
        assert found.clock == "host, device synchronised" and "host_time" not in found.figures

    @pytest.mark.parametrize("seconds", [1e-4, 0.05])
    def test_a_call_that_gives_the_device_nothing_is_timed_on_the_host(self, device: Device, seconds: float) -> None:
        def call() -> None:
            device.now += seconds

        found = measure(call, budget=0.02)
        assert found.seconds == pytest.approx(seconds, rel=1e-6) and found.clock == "host, device synchronised"

    def test_single_calls_of_a_device_give_tails(self, device: Device) -> None:
        found = measure(device.launch, KERNEL, budget=0.02, sampling="calls")
        assert found.figures["time_p90"].value == pytest.approx(KERNEL, rel=0.01) and found.sample.calls == 1

    def test_a_device_nobody_woke_stays_asleep(self) -> None:
        import torch

        found = measure(sum, [1], budget=0.01)
        assert found.clock == "host" and "clock" not in str(found)
        assert not torch.cuda.is_initialized()

    def test_torch_is_not_imported_to_find_out(self) -> None:
        code = "import sys, steelyard; print(steelyard.measure(sum, [1], budget=0.01).clock, 'torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "host False\n"


class TestNames:
    def test_every_public_name_is_there_and_loaded_late(self) -> None:
        assert all(hasattr(steelyard, name) for name in steelyard.__all__)
        with pytest.raises(AttributeError, match="no attribute 'mesure'"):
            steelyard.mesure  # noqa: B018

    def test_public_names_stay_themselves_whatever_is_imported(self) -> None:
        """A subpackage of the same name takes its place in the package as soon as anything imports it."""
        code = """
import steelyard
before = {name: getattr(steelyard, name) for name in steelyard.__all__}
import steelyard.library, steelyard.registry, steelyard.measuring.stats
steelyard.registry.built_ins()
print([name for name in steelyard.__all__ if getattr(steelyard, name) is not before[name]])
"""
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class TestRun:
    def test_an_experiment_is_run_in_workers_and_saved(self, tmp_path: Path) -> None:
        experiment = Experiment("mine", matrix=(FAKE,), settings=Settings(budget=0.05))
        found = run(experiment, store=tmp_path)
        assert [record.status for record in found.records] == ["ok", "ok"]
        assert [record.metrics["time"].value for record in found.records] == [pytest.approx(1e-4), pytest.approx(2e-4)]
        assert [saved.header.experiment for saved in (Store(tmp_path).open(found.header.id),)] == ["mine"]

    def test_settings_and_comparison(self, tmp_path: Path) -> None:
        matrix = Matrix(("fake/work",), {"seconds": (1e-4,)}, variant=("half",))
        found = run(Experiment(matrix=(matrix,)), store=tmp_path, budget=0.02, vs="eager")
        assert [record.id.split("/")[-1] for record in found.records] == ["eager:eval", "half:eval"]
        assert [pair.ratio for pair in found.pairs] == [pytest.approx(0.5)]
        assert found.header.settings["budget"] == 0.02

    def test_an_experiment_file(self, tmp_path: Path) -> None:
        (tmp_path / "exp.toml").write_text('[settings]\nbudget = 0.02\n[[matrix]]\nworkload = "fake/work"\n')
        assert [record.status for record in run(tmp_path / "exp.toml", store=tmp_path / "runs").records] == ["ok"]

    def test_workloads_of_a_file_of_ones_own(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "from steelyard import Task, workload\n"
            "@workload('my/add', axes={'n': [8]}, backend='fake')\n"
            "def add(n, be):\n    return Task(lambda: be.spend(n * 1e-5))\n"
        )
        experiment = Experiment(matrix=(Matrix(("my/add",)),), files=(str(tmp_path / "mine.py"),), settings=Settings(budget=0.02))
        assert run(experiment, store=tmp_path / "runs").records[0].metrics["time"].value == pytest.approx(8e-5)

    @pytest.mark.parametrize("experiment", [Experiment(), Experiment(matrix=(Matrix(("fake/work",), {"seconds": ()}),))])
    def test_nothing_to_measure_is_never_green(self, experiment: Experiment, tmp_path: Path) -> None:
        with pytest.raises(NothingMeasured):
            run(experiment, store=tmp_path)

    def test_wrong_names_are_told_before_anything_is_timed(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="did you mean fake/work"):
            run(Experiment(matrix=(Matrix(("fake/wrok",)),)), store=tmp_path)
        with pytest.raises(UsageError):
            run(tmp_path / "nowhere.toml", store=tmp_path)
        assert not list(tmp_path.glob("**/*.jsonl"))
