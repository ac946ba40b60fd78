"""Weighing compilers: both arms in fresh processes in turn, what becomes of the comparison, and what cannot be weighed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze.programs import program_changes
from steelyard.engine import after, compiling, conduct
from steelyard.engine.after import Reply
from steelyard.engine.messages import Found, PairAnswer
from steelyard.engine.plan import Job, Plan
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.pair import Arm, Pair, weigh_part
from steelyard.model.parts import WEIGHED
from steelyard.model.record import Figure, Record, numbers
from steelyard.report.text import run_table
from steelyard.store.runs import Header, Store

Answering = Callable[[Job, int], Reply]


class Compilers:
    """A crew whose workers compile in no time: what each process found is given by its job and its number."""

    mark = ""

    def __init__(self, answering: Answering) -> None:
        self.answering, self.asked = answering, list[Job]()
        self.counts = Counter[str]()

    def tell(self, phase: str, fraction: float | None) -> None: ...

    def ask(self, job: Job, plan: Any, name: str, scratch: Path, *, alone: bool, sources: Any = None) -> Reply:
        assert name == "compile" and alone and job.fresh
        self.asked.append(job)
        self.counts[job.case.id] += 1
        return self.answering(job, self.counts[job.case.id])


def made(seconds: float, size: float = 100.0, **facts: Any) -> Reply:
    figures = {"compile_time": Figure(seconds, "s", "lower", n=1), "code_size": Figure(size, "B", "lower", n=1)}
    return Reply(Found(figures, {"counts": {"hit": 0, "miss": 1}, **facts}))


def planned(count: int | None = 8) -> tuple[Plan, Job]:
    settings = Settings(compile_time=count, vs="flags:A=1")
    plan = conduct.from_experiment(Experiment(matrix=(Matrix(("op/gelu",), {"n": (64,)}, variant=("compile",)),), settings=settings))
    return plan, plan.jobs[1]


def compared(job: Job) -> PairAnswer:
    assert job.vs is not None
    return PairAnswer(Pair(Arm(job.vs.id), Arm(job.case.id), 1.0, 0.99, 1.01, 0.99, 6, 10, 0, (1, 1)), {})


def flagged(job: Job) -> bool:
    return dict(job.place.flags).get("A") == "1"


def test_both_arms_compile_in_turn_and_each_quantity_has_a_verdict() -> None:
    plan, job = planned()
    crew = Compilers(lambda job, number: made((2.0 if flagged(job) else 1.0) + number % 3 / 100, 110.0 if flagged(job) else 100.0))
    found = compiling.with_compiles(compared(job), job, plan, crew)
    pair = found.pair
    assert weigh_part(pair, "compile_time").verdict == "faster" and 0.45 < pair.parts["compile_time"].ratio < 0.55
    assert weigh_part(pair, "code_size").verdict == "faster"
    turns = [flagged(asked) for asked in crew.asked]
    assert [sum(turns[place : place + 2]) for place in range(0, 18, 2)] == [1] * 9, "each pair has one process of either"
    caches = [dict(asked.place.flags)["TORCHINDUCTOR_CACHE_DIR"] for asked in crew.asked]
    assert len(set(caches)) == 18 and len(set(map(len, caches))) == 1
    assert numbers(found.arrays, "compile_time_head") == [pytest.approx(1.0 + number % 3 / 100) for number in range(2, 10)]
    assert "8 fresh processes each" in pair.notes[-1]


def test_the_record_of_the_head_has_what_the_comparison_found_and_nothing_is_compiled_again(tmp_path: Path) -> None:
    plan, job = planned()
    crew = Compilers(lambda job, number: made(1.0))
    pair = compiling.with_compiles(compared(job), job, plan, crew).pair
    record = compiling.with_figures(Record(job.case.id, job.case.plain(), "ok"), [pair])
    assert record.metrics[after.COLD].n == 8 and record.metrics["code_size"].value == 100.0
    with Store(tmp_path / "store").create(Header()) as writer:
        asked = len(crew.asked)
        assert after.complete(record, job, plan, crew, writer) == record
        base = Record(plan.jobs[0].case.id, plan.jobs[0].case.plain(), "ok")
        assert after.complete(base, plan.jobs[0], plan, crew, writer) == base
        assert len(crew.asked) == asked
    text = run_table(Header(), [base, record], [pair]).plain
    assert "compile" in text and "code size" in text and WEIGHED[2] == "compile_time"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(trouble="crashed: exit 1"), "crashed: exit 1"),
        (Reply(Found(facts={"compile_time": "not here"})), "not here"),
    ],
)
def test_an_arm_that_cannot_compile_costs_this_part_alone(reply: Reply, said: str) -> None:
    plan, job = planned()
    found = compiling.with_compiles(compared(job), job, plan, Compilers(lambda job, number: reply if flagged(job) else made(1.0)))
    assert not found.pair.parts and found.pair.notes == [f"compile times were not compared: the base (flags:A=1): {said}"]


def test_what_is_odd_is_said() -> None:
    plan, job = planned(3)
    found = compiling.with_compiles(compared(job), job, plan, Compilers(lambda job, number: made(1.0, counts={"hit": 1})))
    assert "--compile-time=6" in found.pair.notes[-2] and "not cold" in found.pair.notes[-1]


HLO = """HloModule f
ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  ROOT %t = f32[8] {op}(%p)
}}
"""


class Dumping(Compilers):
    """Workers that write down what they compiled."""

    def ask(self, job: Job, plan: Any, name: str, scratch: Path, *, alone: bool, sources: Any = None) -> Reply:
        assert name == "graphs" and alone and job.fresh
        (scratch / "graph-1.txt").write_text(HLO.format(op="exp<b>" if flagged(job) else "tanh"))
        return Reply(Found(facts={"dump_ir": {"graphs": 1}}, files=(("graph", str(scratch / "graph-1.txt")),)))


def test_the_programs_of_both_arms_are_kept_and_held_against_each_other(tmp_path: Path) -> None:
    settings = Settings(dump_ir="optimized", vs="flags:A=1")
    plan = conduct.from_experiment(Experiment(matrix=(Matrix(("op/gelu",), {"n": (64,)}, variant=("compile",)),), settings=settings))
    job = plan.jobs[1]
    with Store(tmp_path / "store").create(Header()) as writer:
        record = after.complete(Record(job.case.id, job.case.plain(), "ok"), job, plan, Dumping(lambda job, number: made(1.0)), writer)
        kept = {item.kind: (writer.path / item.path).read_text() for item in record.attachments}
    assert "tanh(" in kept["graph"] and "exp<b>(" in kept["base graph"]
    assert [(row.name, row.change) for row in program_changes(record.effective)["graph-1.txt"] if row.group == "operation"] == [("tanh", 1)]


def test_nothing_is_compiled_where_nobody_asked() -> None:
    plan, job = planned(None)
    crew = Compilers(lambda job, number: made(1.0))
    assert compiling.with_compiles(compared(job), job, plan, crew) == compared(job) and not crew.asked
