"""Inside the worker: every outcome of a case has its status, its reason and whatever was known by then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steelyard.engine.bench import prepare_bench
from steelyard.engine.pairs import weigh_heads
from steelyard.engine.weigh import weigh_case
from steelyard.errors import NotApplicable, NotApplied, Unsupported, UsageError, out_of_memory
from steelyard.model.about import About
from steelyard.model.case import Case
from steelyard.model.define import Variant, variant, workload
from steelyard.model.experiment import Settings
from steelyard.model.pair import weigh as judged
from steelyard.model.record import Figure, Record
from steelyard.model.task import Reading, Task
from steelyard.registry import Loaded

SETTINGS = Settings(budget=0.05)
CLEANED: list[str] = []
PLAIN = "t/scale[cost=1e-4,fault=none,n=16,stage=call]@fake/eager:eval"


class MadeUpOutOfMemoryError(RuntimeError):
    """As frameworks spell it."""


def _fail(how: str) -> None:
    errors: dict[str, BaseException] = {
        "value": ValueError("told to"), "memory": MemoryError("none left"), "framework memory": MadeUpOutOfMemoryError("none left"),
        "allocator": RuntimeError("[enforce fail] can't allocate memory: you tried"), "exit": SystemExit(3),
        "unsupported": Unsupported("no such kernel", why="too old", do="buy one"), "meaningless": NotApplicable("no backward"),
        "same": NotApplied("nothing changed"), "usage": UsageError("a wrong word"),
    }  # fmt: skip
    if how in errors:
        raise errors[how]


@workload("t/scale", axes={"n": [16], "cost": [1e-4], "fault": ["none"], "stage": ["call"]}, backend="fake")
def scale(n: int, cost: float, fault: str, stage: str, be: Any) -> Task:
    """Doubles; fails on request while it is built or while it is called."""
    x = be.randn(n)
    if stage == "build":
        _fail(fault)

    def fn() -> Any:
        be.spend(cost)
        _fail(fault)
        return x * (3 if fault == "wrong" else 2)

    return Task(fn, flops=n, items=2.0, reference=lambda: x * 2, cleanup=lambda: CLEANED.append("scale"), effective={"made": "here"})


@scale.variant("quick")
def quick(task: Task, be: Any, factor: float = 0.5, off: float = 0.0) -> Task:
    """The same answer in a fraction of the time, or another answer."""
    spent = {"cost": 1e-4 * factor}
    x = Task.__call__(task) / 2

    def fn() -> Any:
        be.spend(spent["cost"])
        return x * 2 + off

    return replace(task, fn=fn, inspect=lambda: {"factor": factor})


SEEN: dict[int, list[Any]] = {}


@workload("t/listed", backend="fake")
def listed(be: Any) -> Task:
    """Works on a list and keeps every one that it ever got."""

    def fn(items: list[Any]) -> float:
        be.spend(1e-4)
        SEEN[id(items)] = items
        return items[1]["a key"]

    return Task(fn, ([0.5, {"a key": 1.5}],))


@listed.variant("renamed")
def renamed(task: Task) -> Task:
    """The same under another name."""
    return replace(task, args=(*task.args,), effective={"again": True})


@variant("restoring", sticky=True)
def restoring(task: Task) -> Task:
    """Takes long to make, and restores its inputs where they are."""
    return replace(task, prepare=lambda: None)


@workload("t/numpy", axes={"n": [8], "dtype": ["fp32"], "wrong": [False]}, backend="fake")
def checked(n: int, dtype: str, wrong: bool, be: Any) -> Task:
    """Checked against its numpy body in double precision."""
    x = be.randn(n, dtype=dtype)
    return Task(lambda: (be.spend(1e-4), x + 1 + 0.01 * wrong)[1])


@checked.on("numpy")
def exact(n: int, dtype: str, wrong: bool, be: Any) -> Task:
    """The reference."""
    x = be.randn(n, dtype=dtype)
    assert x.dtype == np.float64
    return Task(lambda: x + 1)


@checked.variant("again")
def again(task: Task) -> Task:
    """The same answer, right or wrong."""
    return replace(task, fn=lambda: Task.__call__(task))


def unable() -> Any:
    """A reference that cannot be computed."""
    raise RuntimeError("expected double, but got float")


@workload("t/large", backend="fake")
def large(be: Any) -> Task:
    """Too much to compute in double precision."""
    x = be.randn(8)
    return Task(lambda: (be.spend(1e-4), x + 1)[1], flops=1e13)


@workload("t/closed", backend="fake")
def closed(be: Any) -> Task:
    """Holds what no reference can reach."""
    x = be.randn(8)
    return Task(lambda: (be.spend(1e-4), x + 1)[1], reference=unable)


@large.variant("moved")
@closed.variant("moved")
def moved(task: Task, off: float = 0.0) -> Task:
    """The same answer, or another."""
    return replace(task, fn=lambda: Task.__call__(task) + off)


@workload("t/self", backend="fake")
def timed_by_itself(be: Any) -> Task:
    """Reports more than seconds."""
    count = iter(range(1, 10_000))
    return Task(measure=lambda: Reading(0.01, {"user_time": 0.001 * next(count), "peak_memory": 5e6}))


@workload("t/bare", backend="fake", modes=["eval", "train"])
def bare(mode: str, be: Any) -> Task:
    """Nothing to compare with."""
    return Task(lambda: (be.spend(1e-4), np.float32(1))[1], effective={"mode": mode})


@variant("torch-only", backends=["torch"])
def torch_only(task: Task) -> Task:
    """Not for the fake backend."""
    return task


LOADED = Loaded(
    {item.name: item for item in (scale, checked, large, closed, timed_by_itself, bare, listed)},
    {"torch-only": torch_only, "restoring": restoring},
)


def weigh(text: str, settings: Settings = SETTINGS) -> Record:
    return weigh_case(Case.parse(text), LOADED, settings, lambda phase, fraction: None)[0]


class TestStatuses:
    def test_ok_with_everything_it_should_have(self) -> None:
        CLEANED.clear()
        phases: list[str] = []
        case = Case.parse(PLAIN)
        record, arrays = weigh_case(case, LOADED, SETTINGS, lambda phase, fraction: phases.append(phase))
        assert (record.status, record.reason, record.id) == ("ok", "", case.id)
        assert record.metrics["time"] == Figure(pytest.approx(1e-4), "s", "lower", pytest.approx(1e-4), pytest.approx(1e-4), 50)
        assert {"time_q10", "overhead", "discarded", "build_time", "first_call_time"} <= set(record.metrics)
        assert record.verification is not None
        assert (record.verification.status, record.verification.against) == ("passed", "the workload's reference")
        assert record.effective["made"] == "here"
        assert (record.effective["stopped_by"], record.effective["blocks"], record.effective["calls_per_block"]) == ("precision", 50, 1)
        assert record.environment["fake"] == "1"
        assert set(record.source) == {"workload", "variant"}
        assert record.requested["budget"] == 0.05
        assert Case.from_plain(record.case) == case
        assert phases[:4] == ["imports", "build", "first call", "verify"]
        assert CLEANED == ["scale"]
        unit, kind, data = arrays["block_time"]
        assert (unit, np.frombuffer(data, kind).tolist()) == ("s", [pytest.approx(1e-4)] * 50)
        assert np.frombuffer(arrays["preempted"][2], arrays["preempted"][1]).tolist() == [0] * 50

    @pytest.mark.parametrize("stage", ["build", "call"])
    @pytest.mark.parametrize(
        ("fault", "status", "reason"),
        [
            ("value", "failed", "ValueError: told to"),
            ("exit", "failed", "SystemExit: 3"),
            ("usage", "failed", "a wrong word"),
            ("memory", "oom", "MemoryError: none left"),
            ("framework memory", "oom", "none left"),
            ("allocator", "oom", "can't allocate memory"),
            ("unsupported", "unsupported", "no such kernel; too old; buy one"),
            ("meaningless", "not_applicable", "no backward"),
            ("same", "not_applied", "nothing changed"),
        ],
    )
    def test_each_failure_has_its_own(self, fault: str, status: str, reason: str, stage: str) -> None:
        CLEANED.clear()
        record = weigh(f"{Case('t/scale', (('fault', fault), ('stage', stage), ('n', 16), ('cost', 1e-4)), 'fake')}")
        assert record.status == status
        assert reason in record.reason
        assert "time" not in record.metrics
        assert ("traceback" in record.effective) == (fault in ("value", "exit"))
        assert len(CLEANED) == (stage == "call")

    def test_wrong_answers_keep_their_times(self) -> None:
        record = weigh("t/scale[cost=1e-4,fault=wrong,n=16,stage=call]@fake/eager:eval")
        assert record.status == "wrong"
        assert record.reason.startswith("not the answer of the workload's reference: out: 16 of 16 values differ")
        assert record.metrics["time"].value == pytest.approx(1e-4)

    def test_the_person_at_the_keyboard_is_obeyed(self) -> None:
        def interrupt(phase: str, fraction: float | None) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            weigh_case(Case.parse("t/bare@fake/eager:eval"), LOADED, SETTINGS, interrupt)

    def test_memory_errors_by_any_name(self) -> None:
        assert out_of_memory(MemoryError())
        assert out_of_memory(MadeUpOutOfMemoryError())
        assert out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes"))
        assert not out_of_memory(RuntimeError("memory of better days"))


class TestPieces:
    @pytest.mark.parametrize(
        ("text", "error", "words"),
        [
            ("t/scael@fake/eager:eval", UsageError, "did you mean t/scale"),
            ("t/scale@fake/quik:eval", UsageError, "did you mean quick"),
            ("t/scale@fkae/eager:eval", UsageError, "did you mean fake"),
            ("t/scale@numpy/eager:eval", Unsupported, "no implementation for backend numpy"),
            ("t/scale@fake/eager:bwd", NotApplicable, "no mode bwd"),
            ("t/scale@fake/torch-only:eval", Unsupported, "works with torch, not with backend fake"),
        ],
    )
    def test_what_cannot_be_had_is_told_apart(self, text: str, error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            prepare_bench(Case.parse(text), LOADED, SETTINGS)

    def test_a_framework_that_is_not_installed_is_unsupported_with_the_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> Any:
            raise ModuleNotFoundError("No module named 'fake_framework'", name="fake_framework")

        monkeypatch.setattr("steelyard.registry.load_backend", missing)
        for about, remedy in (
            (About(extra="acme", stack="acme-cpu"), "pip install 'steelyard[acme]', or steelyard env create acme-cpu"),
            (About(), "see the documentation of its package"),
        ):
            monkeypatch.setattr("steelyard.registry.about_backend", lambda name, about=about: about)
            record = weigh("t/scale@fake/eager:eval")
            assert record.status == "unsupported"
            assert record.reason == f"backend fake needs fake_framework, which is not installed here; {remedy}"

    def test_a_body_that_asks_for_the_mode_gets_it(self) -> None:
        assert weigh("t/bare@fake/eager:eval").effective["mode"] == "eval"

    def test_options_reach_the_variant_and_what_it_did_is_told(self) -> None:
        record = weigh(PLAIN.replace("eager", "quick[factor=0.25]"))
        assert record.metrics["time"].value == pytest.approx(2.5e-5)
        assert record.effective["factor"] == 0.25
        assert record.verification is not None
        assert record.verification.against == "fake eager"

    def test_an_edited_source_is_another_source(self) -> None:
        plain = weigh(PLAIN)
        quick = weigh(PLAIN.replace("eager", "quick"))
        assert plain.source["workload"] == quick.source["workload"]
        assert plain.source["variant"] != quick.source["variant"]


class TestVerification:
    def test_a_variant_is_checked_against_the_plain_task(self) -> None:
        record = weigh(PLAIN.replace("eager", "quick[off=0.5]"))
        assert (record.status, record.verification and record.verification.status) == ("wrong", "failed")

    @pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16"])
    def test_a_workload_with_a_numpy_body_is_checked_in_double_precision(self, dtype: str) -> None:
        record = weigh(f"t/numpy[dtype={dtype},n=64,wrong=false]@fake/eager:eval")
        assert record.status == "ok"
        assert record.verification is not None
        assert record.verification.against == "numpy fp64"
        assert weigh(f"t/numpy[dtype={dtype},n=64,wrong=true]@fake/eager:eval").status == "wrong"

    def test_variants_have_the_reference_of_the_plain_task_where_that_is_asked_for(self) -> None:
        text = "t/numpy[dtype=fp32,n=8,wrong=true]@fake/again:eval"
        found = [weigh(text, replace(SETTINGS, reference=reference)) for reference in ("eager", "fp64")]
        told = [(record.status, record.verification and record.verification.against) for record in found]
        assert told == [("ok", "fake eager"), ("wrong", "numpy fp64")]

    @pytest.mark.parametrize("trouble", ["large", "closed"])
    def test_a_variant_without_such_a_reference_still_has_the_plain_task(self, trouble: str) -> None:
        for off, status in ((0.0, "ok"), (0.5, "wrong")):
            record = weigh(f"t/{trouble}@fake/moved[off={off}]:eval", replace(SETTINGS, reference="fp64"))
            assert (record.status, record.verification and record.verification.against) == (status, "fake eager")

    def test_tolerances_asked_for_decide(self) -> None:
        text = "t/numpy[dtype=fp32,n=8,wrong=true]@fake/eager:eval"
        assert weigh(text).status == "wrong"
        assert weigh(text, replace(SETTINGS, atol=0.1)).status == "ok"
        assert weigh(text, replace(SETTINGS, verify=False)).verification is None

    def test_nothing_to_compare_with_is_said(self) -> None:
        found = weigh("t/bare@fake/eager:eval").verification
        assert found is not None
        assert (found.status, found.message[:12]) == ("none", "no reference")


class TestSelfTimed:
    def test_its_own_quantities_become_figures(self) -> None:
        record = weigh("t/self@fake/eager:eval", Settings(runs=5, budget=0.0))
        assert record.status == "ok"
        assert record.metrics["time"].value == pytest.approx(0.01)
        assert record.metrics["peak_memory"] == Figure(5e6, "B", "lower", n=5)
        assert record.metrics["user_time"].value > 0.002
        assert record.verification is None


class TestPairs:
    def test_two_variants_are_weighed_together(self) -> None:
        base = Case.parse(PLAIN)
        head = base.against("quick[factor=0.8]")
        [(pair, arrays)] = weigh_heads(base, [head], LOADED, SETTINGS, lambda phase, fraction: None)
        assert (pair.ratio, pair.low, pair.high) == pytest.approx((0.8, 0.8, 0.8), rel=1e-4)
        assert (pair.base.id, pair.head.id, pair.confidence) == (base.id, head.id, 0.99)
        assert pair.base.source != pair.head.source
        assert pair.discarded == {"base": 0.0, "head": 0.0}
        assert len(pair.centres) == pair.rebuilds
        times, arm, rebuild = (np.frombuffer(arrays[name][2], arrays[name][1]) for name in ("round_time", "round_arm", "round_rebuild"))
        assert len(times) == len(arm) == 6 * len(rebuild) == 6 * pair.quads
        calls = np.array([pair.calls[0], pair.calls[1], pair.calls[0]])[arm]
        assert times == pytest.approx(np.array([1e-4, 0.8e-4, 1e-4])[arm] * calls)

    def test_several_heads_are_weighed_at_once_and_each_against_the_same_base(self) -> None:
        base = Case.parse(PLAIN)
        heads = [base.against(f"quick[factor={factor}]") for factor in (0.5, 0.8, 2.0)]
        found = weigh_heads(base, heads, LOADED, SETTINGS, lambda phase, fraction: None)
        assert [pair.head.id for pair, _ in found] == [head.id for head in heads]
        assert [pair.ratio for pair, _ in found] == pytest.approx([0.5, 0.8, 2.0])
        assert len({pair.coin_seed for pair, _ in found}) == 1

    def test_a_repeated_comparison_is_another_draw(self) -> None:
        base = Case.parse(PLAIN)
        drawn = [weigh_heads(base, [base.against("quick")], LOADED, SETTINGS, lambda phase, fraction: None)[0] for _ in range(2)]
        assert len({pair.coin_seed for pair, _ in drawn}) == 2
        assert len({arrays["round_arm"][2] for _, arrays in drawn}) == 2

    def test_the_margin_asked_for_is_the_pairs_own(self) -> None:
        base = Case.parse(PLAIN)
        found = weigh_heads(base, [base.against("quick[factor=0.95]")], LOADED, replace(SETTINGS, margin=0.1), lambda phase, fraction: None)
        assert judged(found[0][0]).verdict == "same"
        assert judged(found[0][0], 0.02).verdict == "faster"

    def test_every_rebuild_of_every_arm_works_on_objects_of_its_own(self) -> None:
        SEEN.clear()
        base = Case.parse("t/listed@fake/eager:eval")
        [(pair, _)] = weigh_heads(base, [base.against("renamed")], LOADED, SETTINGS, lambda phase, fraction: None)
        assert len(SEEN) >= 3 * pair.rebuilds > 20
        parts = {id(part) for items in SEEN.values() for part in (items[0], items[1], items[1]["a key"])}
        assert len(parts) >= 3 * len(SEEN) - 4, "only the three arms as they were first built share the two numbers of their code"

    def test_what_can_neither_be_moved_nor_rebuilt_widens_the_interval_and_says_so(self) -> None:
        base = Case.parse("t/listed@fake/eager:eval")
        [(pair, _)] = weigh_heads(base, [base.against("restoring")], LOADED, SETTINGS, lambda phase, fraction: None)
        assert pair.high / pair.low > 1.1
        assert "what restoring works on could not be moved" in pair.notes[-1]

    def test_equal_arms_weigh_the_same(self) -> None:
        base = Case.parse(PLAIN)
        [(pair, _)] = weigh_heads(base, [base], LOADED, SETTINGS, lambda phase, fraction: None)
        assert pair.low <= 1 <= pair.high

    @pytest.mark.parametrize("pair", [True, False])
    def test_whatever_is_built_is_cleaned_up(self, pair: bool) -> None:
        base = Case.parse(PLAIN)
        built = []
        counted = Loaded({"t/scale": replace(scale, bodies={"fake": lambda **asked: built.append(1) or scale.bodies["fake"](**asked)})})
        CLEANED.clear()
        if pair:
            weigh_heads(base, [base.against("quick")], counted, SETTINGS, lambda phase, fraction: None)
        else:
            weigh_case(base.against("quick"), counted, SETTINGS, lambda phase, fraction: None)
        assert len(CLEANED) == len(built)


def test_a_training_step_that_forgets_to_update_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The update itself is compared, since a weight hardly moves against its own size in one step."""
    import torch

    from steelyard import registry

    case = Case("layer/linear", (("hidden", 32), ("out", 16), ("seq", 4), ("batch", 1), ("dtype", "fp32")), mode="train")
    quick = Settings(budget=0.005)
    assert weigh_case(case, registry.built_ins(), quick, lambda phase, fraction: None)[0].status == "ok"
    calls = []
    step = torch.optim.SGD.step

    def forgetful(self: torch.optim.SGD, *args: object) -> object:
        moving = self.param_groups[0]["lr"] > 0
        calls.extend([1] * moving)
        return None if moving and len(calls) == 1 else step(self, *args)

    monkeypatch.setattr(torch.optim.SGD, "step", forgetful)
    record = weigh_case(case, registry.built_ins(), quick, lambda phase, fraction: None)[0]
    assert record.status == "wrong" and "updates" in record.reason


def test_a_variant_that_changes_nothing_is_not_applied() -> None:
    idle = Variant("idle", lambda task: task)
    loaded = Loaded({"t/scale": scale}, {"idle": idle})
    record = weigh_case(Case.parse(PLAIN).against("idle"), loaded, SETTINGS, lambda phase, fraction: None)[0]
    assert record.status == "not_applied"


@pytest.mark.torch
def test_a_timed_protocol_compiles_every_size_for_itself() -> None:
    """torch.compile would take the second size for one that varies, and give the function up after eight."""
    from steelyard import registry
    from steelyard.model.protocol import Fixed

    timed, loaded = Settings(fixed=Fixed(rehearse=1, warmup_time=0.0, repeat_time=0.0)), registry.built_ins()
    for n in range(2, 12):
        case = Case("op/matmul", (("m", n), ("n", n), ("k", n), ("dtype", "fp32")), variant="compile[backend=eager]")
        record = weigh_case(case, loaded, timed, lambda phase, fraction: None)[0]
        assert (record.status, record.reason, record.effective["graphs"]) == ("ok", "", 1)
