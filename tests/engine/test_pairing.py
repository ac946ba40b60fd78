"""Pairs that an experiment lists, and rows made of several cases and pairs: what is planned, weighed, told, and continued."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard import codec
from steelyard.engine import conduct, partition, plan
from steelyard.engine.messages import Unweighed
from steelyard.engine.run import NoWatch
from steelyard.engine.sinks import MeasuredCase, RowSink
from steelyard.errors import FAILED, PASS, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, ResultRow, Rule, Settings
from steelyard.model.pair import Pair
from steelyard.model.protocol import Fixed
from steelyard.model.record import Record
from steelyard.store.runs import Store
from tests.engine.drive import run_json, steelyard
from tests.engine.planned import CATALOGUE

QUICK = Settings(budget=0.02, settle=0.0, telemetry=False)


def work(seconds: float, fault: str = "none", variant: str = "eager") -> Case:
    return Case("fake/work", (("seconds", seconds), ("fault", fault)), "fake", variant)


ONE, TWO, FOUR = work(1e-3), work(2e-3), work(4e-3)


class Heard(NoWatch):
    """Keeps the lines that stay."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Ratios(RowSink):
    """A line with the times and ratios of a row."""

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Pair | Unweighed]) -> Mapping[str, Any]:
        times = [case.record.metrics["time"].value if case.record.status == "ok" else case.record.status for case in cases]
        ratios = [round(pair.ratio, 3) if isinstance(pair, Pair) else f"none: {pair.reason}" for pair in pairs]
        return {"key": key, "times": times, "ratios": ratios}

    def key_of(self, line: Mapping[str, Any]) -> str:
        return str(line.get("key", ""))

    def header(self) -> Mapping[str, Any] | None:
        return {"file": "ratios"}


def measure(experiment: Experiment, store: Path, sink: RowSink | None = None, **words: Any) -> tuple[conduct.RunOutcome, Heard]:
    heard = Heard()
    return conduct.execute(conduct.from_experiment(experiment), Store(store), ["x"], lambda writer: heard, sink=sink, **words), heard


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rows(experiment: Experiment, path: Path, **words: Any) -> Ratios:
    return Ratios(conduct.from_experiment(experiment).rows, path, **words)


class TestPlan:
    def expand(self, **words: Any) -> plan.Plan:
        return plan.expand(Experiment("x", **words), CATALOGUE)

    def test_a_word_can_be_for_one_workload_alone(self) -> None:
        both = Matrix(("op/one", "op/two"), {"n": (8,)}, backend=("torch",))
        found = self.expand(matrix=(both,), pairs=(("op/two@torch/eager", "numpy/eager"),))
        assert [(job.case.workload, job.vs and job.vs.backend) for job in found.pairs] == [("op/two", "numpy")]
        other = self.expand(matrix=(Matrix(("op/one",), {"n": (8,)}),), pairs=(("op/two@torch/eager", "numpy/eager"),))
        assert other.pairs == () and {job.case.workload for job in other.jobs} == {"op/one"}

    def test_words_mean_every_case_that_is_so_and_bases_are_measured_too(self) -> None:
        variants = ("fused", "plain", "plain+fused")
        pairs = (("plain", "eager"), ("plain+fused", "eager"), ("plain+fused", "fused"))
        found = self.expand(matrix=(Matrix(("op/one",), variant=variants),), pairs=pairs)
        assert len(found.jobs) == 8 and all(job.vs is None for job in found.jobs)
        told = [(dict(job.case.params)["n"], job.case.variant, job.vs.variant) for job in found.pairs if job.vs]
        assert told == [(n, *pair) for pair in pairs for n in (8, 16)]
        assert found.comparisons == 6 and found.fingerprint("m") != self.expand(matrix=found.experiment.matrix).fingerprint("m")

    def test_ids_mean_one_case_each_and_a_base_may_be_a_word(self) -> None:
        head = "op/one[n=32]@numpy/fused:eval"
        found = self.expand(pairs=((head, "torch/eager"), (head, "op/two[k=3]@numpy/eager:eval")))
        assert [job.vs.id.split("[")[0] for job in found.pairs if job.vs] == ["op/one", "op/two"]
        assert [job.side is not None for job in found.pairs] == [True, False] and len(found.jobs) == 3

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ({"pairs": (("plian", "eager"),)}, "no case matches plian"),
            ({"pairs": (("op/won@plain", "eager"),)}, "op/won"),
            ({"pairs": (("plain", "eagre"),)}, "eagre"),
            ({"pairs": (("plain", "plain"),)}, "itself"),
            ({"pairs": (("op/one@numpy/eager:eval:threads=2", "op/one@numpy/eager:eval"),)}, "they differ in threads"),
            ({"pairs": (("plain", "eager"),), "settings": Settings(vs="eager")}, "pairs and vs"),
            ({"rows": (ResultRow("a", (Case("op/won", backend="numpy"),)),)}, "op/won"),
            ({"rows": (ResultRow("a", (Case("op/one", backend="numpy"),)), ResultRow("a", ()))}, "same key"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, words: dict[str, Any], said: str) -> None:
        with pytest.raises(UsageError, match=said):
            self.expand(matrix=(Matrix(("op/one",), variant=("plain",)),), **words)

    def test_a_row_and_a_pair_go_with_the_case_that_a_rule_leaves_out(self) -> None:
        one, two, plain = (Case("op/one", (("n", 8),), "numpy"), Case("op/two", (), "numpy"), Case("op/one", (("n", 8),), "numpy", "plain"))
        both = (ResultRow("a", (one, plain), ((plain, one),)), ResultRow("b", (two,)))
        assert [row.key for row in self.expand(rows=both).rows] == ["a", "b"]
        found = self.expand(rows=both, exclude=(Rule({"variant": "plain"}),))
        assert [row.key for row in found.rows] == ["b"] and not found.pairs and len(found.jobs) == 2

    def test_parts_keep_together_what_a_row_and_a_pair_need(self, tmp_path: Path) -> None:
        made = [Case("op/one", (("n", n),), "numpy") for n in range(6)]
        chosen = (ResultRow("a", tuple(made[:2])), ResultRow("b", tuple(made[1:3])), ResultRow("c", (made[3],), ((made[3], made[4]),)))
        whole = self.expand(rows=chosen, include=(made[5],))
        parts = [partition.take(whole, partition.Part(number, 3), Store(tmp_path)) for number in (1, 2, 3)]
        assert sorted(row.key for part in parts for row in part.rows) == ["a", "b", "c"]
        assert sorted(len(part.jobs) for part in parts) == [1, 2, 3] and sum(len(part.pairs) for part in parts) == 1


class TestFile:
    def test_a_file_lists_pairs(self, tmp_path: Path) -> None:
        text = 'pairs = [["half", "eager"], ["fake/work@fake/half:eval", "fake/work[seconds=0.004]@fake/eager:eval"]]\n'
        (tmp_path / "x.toml").write_text(text + '[settings]\nbudget = "20ms"\n[[matrix]]\nworkload = "fake/work"\nvariant = "half"\n')
        found = run_json("x.toml", cwd=tmp_path)
        assert [round(pair["ratio"], 3) for pair in found["pairs"]] == [0.5, 0.125] and len(found["records"]) == 3
        told = steelyard("compare", "latest", cwd=tmp_path, check=None).stdout
        assert "2.0" in told and "8.0" in told
        assert "pairs and vs" in steelyard("run", "x.toml", "--vs", "eager", cwd=tmp_path, check=2).stderr

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('pairs = "half"', "pairs: expected a list of [head, base]"),
            ('pairs = [["half"]]', "pairs[0]: expected [head, base]"),
            ('pairs = [["half", 3]]', "pairs[0].base: expected text, not 3"),
            ('pairs = [["a@b:", "eager"]]', "pairs[0].head"),
        ],
    )
    def test_mistakes_have_their_place(self, tmp_path: Path, text: str, said: str) -> None:
        (tmp_path / "x.toml").write_text(text + '\n[[matrix]]\nworkload = "fake/work"\n')
        with pytest.raises(UsageError) as caught:
            codec.load_experiment(tmp_path / "x.toml")
        assert said in str(caught.value)


class TestRuns:
    def test_a_case_with_two_bases_is_measured_once_and_weighed_against_both(self, tmp_path: Path) -> None:
        outcome, heard = measure(Experiment("x", pairs=((FOUR, ONE), (TWO, ONE), (FOUR, TWO)), settings=QUICK), tmp_path)
        assert outcome.code == PASS and len(outcome.run.records) == 3 and not heard.notes
        assert [round(pair.ratio, 3) for pair in outcome.run.pairs] == [4.0, 2.0, 2.0]

    @pytest.mark.deep
    @pytest.mark.torch
    def test_numpy_as_base_shares_a_process_with_another_backend(self, tmp_path: Path) -> None:
        pairs = (("op/sum[n=4096]@torch/eager:eval", "numpy/eager"), ("op/sum[n=4096]@torch/eager:eval", "op/sum[n=64]@torch/eager:eval"))
        outcome, _ = measure(Experiment("x", pairs=pairs, settings=QUICK), tmp_path)
        assert outcome.code == PASS and [pair.processes for pair in outcome.run.pairs] == [1, 1]
        assert [pair.base.id for pair in outcome.run.pairs] == [base for _, base in outcome.run.header.pairs]

    def test_one_base_for_all_rows_does_not_hold_the_rows_back(self, tmp_path: Path) -> None:
        """Pairs that share a base are weighed together within a row, not over rows."""
        both = (ResultRow("two", (ONE, TWO), ((TWO, ONE),)), ResultRow("four", (ONE, FOUR), ((FOUR, ONE),)))
        experiment = Experiment("x", rows=both, settings=QUICK)
        order: list[str] = []

        class Ordered(Ratios):
            def take(self, job: Any, record: Any, arrays: Any) -> None:
                order.append(f"case {dict(job.case.params)['seconds']}")
                super().take(job, record, arrays)

            def row(self, key: str, *parts: Any) -> Mapping[str, Any]:
                order.append(f"row {key}")
                return super().row(key, *parts)

        with closing(Ordered(conduct.from_experiment(experiment).rows, tmp_path / "out")) as sink:
            measure(experiment, tmp_path, sink)
        assert order == ["case 0.001", "case 0.002", "row two", "case 0.004", "row four"]
        assert lines(tmp_path / "out") == [
            {"file": "ratios"},
            {"key": "two", "times": [1e-3, 2e-3], "ratios": [2.0]},
            {"key": "four", "times": [1e-3, 4e-3], "ratios": [4.0]},
        ]

    @pytest.mark.parametrize("fixed", [None, Fixed(0, 3)])
    def test_a_failed_case_costs_its_pairs_and_no_row(self, tmp_path: Path, fixed: Fixed | None) -> None:
        bad = work(1e-3, "segfault")
        some = (ResultRow("bad", (ONE, bad), ((bad, ONE), (TWO, ONE))), ResultRow("good", (TWO,)))
        settings = Settings(budget=0.02, settle=0.0, telemetry=False, fixed=fixed)
        experiment = Experiment("x", rows=some, settings=settings)
        with closing(rows(experiment, tmp_path / "out")) as sink:
            outcome, heard = measure(experiment, tmp_path, sink)
        first, second = sink.written.values()
        assert outcome.code == FAILED and len(outcome.run.pairs) == 1 and len(heard.notes) == 1
        assert first["times"][1] == "crashed" and first["ratios"] == [f"none: {outcome.run.records[1].id} is crashed", 2.0]
        assert second["times"][0] == 2e-3 if fixed is None else second["times"][0] > 0

    def test_a_pair_that_could_not_be_weighed_is_told_and_is_not_green(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("steelyard.engine.crew.Crew.weigh", lambda crew, heads, plan: ([], "no luck"))
        experiment = Experiment("x", rows=(ResultRow("a", (ONE, TWO), ((TWO, ONE),)),), settings=QUICK)
        with closing(rows(experiment, tmp_path / "out")) as sink:
            outcome, heard = measure(experiment, tmp_path, sink)
        assert outcome.code == FAILED and outcome.run.header.pairs == [(outcome.run.records[1].id, outcome.run.records[0].id)]
        assert heard.notes[0].endswith("no luck") and sink.written["a"]["ratios"] == ["none: no luck"]


class TestContinuing:
    EXPERIMENT = Experiment(
        "x", settings=QUICK,
        rows=(ResultRow("two", (ONE, TWO), ((TWO, ONE),)), ResultRow("four", (FOUR, ONE), ((FOUR, ONE),)), ResultRow("one", (ONE,))),
    )  # fmt: skip

    def whole(self, tmp_path: Path) -> bytes:
        with closing(rows(self.EXPERIMENT, tmp_path / "out")) as sink:
            assert measure(self.EXPERIMENT, tmp_path / "s", sink)[0].code == PASS
        return (tmp_path / "out").read_bytes()

    def test_rows_of_a_continued_file_are_not_measured_again(self, tmp_path: Path) -> None:
        expected = self.whole(tmp_path)
        parts = expected.splitlines(keepends=True)
        (tmp_path / "out").write_bytes(parts[0] + parts[2] + parts[3][:9])
        with closing(rows(self.EXPERIMENT, tmp_path / "out", append=True)) as sink:
            outcome, _ = measure(self.EXPERIMENT, tmp_path / "s", sink)
        assert [record.case["params"]["seconds"] for record in outcome.run.records] == [1e-3, 2e-3] and len(outcome.run.pairs) == 1
        assert (tmp_path / "out").read_bytes().splitlines() == [parts[n].strip() for n in (0, 2, 1, 3)]
        assert list(sink.held_rows) == ["four"] and list(sink.written) == ["two", "one"]

    def test_what_the_continued_run_holds_is_told_to_the_file_first(self, tmp_path: Path) -> None:
        """A kill between two records of a row costs neither."""

        class Killed(Ratios):
            def take(self, job: Any, record: Any, arrays: Any) -> None:
                if job.case == conduct.from_experiment(TestContinuing.EXPERIMENT).jobs[2].case:
                    raise KeyboardInterrupt
                super().take(job, record, arrays)

        ready = conduct.from_experiment(self.EXPERIMENT)
        with closing(Killed(ready.rows, tmp_path / "out")) as sink, pytest.raises(KeyboardInterrupt):
            measure(self.EXPERIMENT, tmp_path / "s", sink)
        assert len(lines(tmp_path / "out")) == 2
        with closing(rows(self.EXPERIMENT, tmp_path / "out", append=True)) as sink:
            outcome, _ = measure(self.EXPERIMENT, tmp_path / "s", sink, resume="")
        assert len(outcome.run.records) == 3 and len(list((tmp_path / "s" / "runs").iterdir())) == 1
        assert [line.get("key") for line in lines(tmp_path / "out")] == [None, "two", "four", "one"]

    def test_a_run_whose_pairs_alone_are_missing_goes_on_with_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def stopped(crew: Any, heads: Any, plan: Any) -> Any:
            raise KeyboardInterrupt

        experiment = Experiment("x", pairs=((TWO, ONE),), settings=QUICK)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("steelyard.engine.crew.Crew.weigh", stopped)
            measure(experiment, tmp_path)
        outcome, _ = measure(experiment, tmp_path, resume="")
        assert len(outcome.run.records) == 2 and [round(pair.ratio, 3) for pair in outcome.run.pairs] == [2.0]


def test_what_a_run_says_of_itself_has_every_listed_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is missing is not passed over, and times are left out where a head has several bases: they differ by pair."""
    from steelyard.analyze.compare import own_pairs
    from steelyard.analyze.sides import RunsSide

    outcome, _ = measure(Experiment("x", pairs=((FOUR, ONE), (FOUR, TWO), (TWO, ONE)), settings=QUICK), tmp_path)
    lost = replace(outcome.run, pairs=outcome.run.pairs[:2])
    found = own_pairs(RunsSide("x", (lost,)))
    assert [delta.verdict for delta in found.deltas] == ["slower", "slower", "failed"]
    assert found.deltas[2].base == outcome.run.pairs[2].base.id and found.figures["time"][lost.pairs[0].head.id] == (None, None)


@pytest.mark.parametrize(("unit", "dtype", "code"), [("ns", "<i8", "q"), ("ms", "<f8", "d"), ("s", "<f4", "f"), ("us", "<u4", "I")])
def test_raw_times_come_in_seconds_whatever_they_are_kept_in(unit: str, dtype: str, code: str) -> None:
    case = MeasuredCase(Record("x", {}, "ok"), {"a.time": (unit, dtype, struct.pack(f"<2{code}", 3, 4))})
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    assert case.seconds("a.time") == pytest.approx([3 * scale, 4 * scale]) and case.seconds("b.time") == []
