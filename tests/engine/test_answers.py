"""A rule that is not our own looks at a case that was timed: at real models, right ones, wrong ones, and some that cannot be judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steelyard import registry  # noqa: E402
from steelyard.engine.answers import CaseAnswers, RuleCheck  # noqa: E402
from steelyard.engine.bench import prepare_bench  # noqa: E402
from steelyard.engine.weigh import weigh_case  # noqa: E402
from steelyard.model.case import Case  # noqa: E402
from steelyard.model.define import Variant, workload  # noqa: E402
from steelyard.model.experiment import Settings  # noqa: E402
from steelyard.model.protocol import Fixed  # noqa: E402
from steelyard.model.record import Arrays, Record  # noqa: E402
from steelyard.model.task import Task  # noqa: E402
from steelyard.registry import Loaded  # noqa: E402
from steelyard.workloads.models.subject import MODES, Dropout  # noqa: E402

pytestmark = pytest.mark.torch
LIKE_THE_ORIGINAL = Fixed(repeats=3, calls=2, inputs="fresh", cold=True, counters="counts")
Change = Callable[[Task], Task]


class Half(torch.autograd.Function):  # type: ignore[misc]
    """The right answer, and half of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 0.5


def model(make: Callable[[], Any], change: Change | None = None, mode: str = "eval") -> tuple[Loaded, Case]:
    """A workload of one module, and a case of it; `change` is what a compiler would have done to the task."""

    @workload("t/model", backend="torch", modes=MODES)
    def own(be: Any) -> Task:
        """As the test has it."""
        torch.manual_seed(be.seed)
        module = make().train(mode == "train")
        chance = Dropout(module) if mode == "train" else None
        return Task(module, (torch.randn(8, 4),), parameters=tuple(module.parameters()), chance=chance)

    variants = {"changed": Variant("changed", change, fresh=True)} if change else {}
    return Loaded({own.name: own}, {**registry.built_ins().variants, **variants}), Case(
        "t/model", (), "torch", "changed" if change else "eager", mode
    )


def measured(loaded: Loaded, case: Case, rule: str = "ptxla", **words: Any) -> tuple[Record, Arrays]:
    settings = Settings(**{"fixed": LIKE_THE_ORIGINAL, "seed": 1337, "rule": rule, **words})
    record, arrays = weigh_case(case, loaded, settings, lambda phase, fraction: None)
    if record.status in ("ok", "wrong"):
        assert len(arrays["forward.measure.time"][2]) == 8 * settings.fixed.repeats  # type: ignore[union-attr]
    return record, arrays


def code(loaded: Loaded, case: Case, rule: str = "ptxla") -> str:
    record, _ = measured(loaded, case, rule)
    assert record.verification is not None and record.status == ("wrong" if record.verification.code == "FAIL" else "ok")
    return record.verification.code


def layers() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


@pytest.mark.parametrize(("mode", "variant"), [("eval", "eager"), ("train", "optimizer[kind=adam,rate=0.01]"), ("train", "eager")])
def test_a_model_that_was_timed_answers_as_eager_does(mode: str, variant: str) -> None:
    case = Case("dummy/linear", (("batch", 16), ("dtype", "fp32")), "torch", variant, mode)
    record, arrays = measured(registry.built_ins(), case)
    assert record.status == "ok" and record.verification is not None
    assert (record.verification.code, record.verification.status) == ("PASS", "passed")
    assert record.verification.figures == {"mean_rel_error": 0.0}
    assert record.verification.against == "eager and its run in double precision"
    assert record.effective["batch_size"] == 16 and record.effective["calls_per_repeat"] == 2
    times = np.frombuffer(arrays["forward.measure.time"][2]) * 1e-9 / 2
    assert record.metrics["first_call_time"].value == pytest.approx(times[0])
    assert record.metrics["time"].value == pytest.approx(float(np.median(times[1:])))
    assert len(record.effective["repeats"]) == 3 and {"noise", "threads"} <= record.effective.keys()


def test_our_own_models_are_judged_the_same_way() -> None:
    known = registry.catalogue().workloads["model/mlp"]
    params = {axis: values[0] for axis, values in known["axes"].items()} | known["sizes"]["small"] | {"batch": 3}
    record, _ = measured(registry.built_ins(), Case("model/mlp", tuple(sorted(params.items())), "torch", "eager", "train"))
    assert record.verification is not None and record.verification.code == "PASS"


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_an_answer_that_is_wrong_is_seen(mode: str) -> None:
    def spoil(task: Task) -> Task:
        return replace(task, fn=lambda x: task.fn(x) * 1.5)  # type: ignore[misc]

    record, _ = measured(*model(layers, spoil, mode))
    assert record.status == "wrong" and record.verification is not None
    assert (record.verification.code, record.verification.status) == ("FAIL", "failed")
    assert record.verification.figures["mean_rel_error"] > 0.02 and record.verification.message in record.reason


def test_a_wrong_gradient_is_seen_although_the_loss_is_right() -> None:
    def spoil(task: Task) -> Task:
        return replace(task, fn=lambda x: Half.apply(task.fn(x)))  # type: ignore[misc]

    record, _ = measured(*model(layers, spoil, "train"))
    assert record.status == "wrong" and record.verification is not None
    assert record.verification.figures == {"mean_rel_error": 0.0} and record.verification.message.startswith("out.gradients.")


def test_eager_that_differs_from_itself_proves_nothing() -> None:
    builds: list[int] = []

    def restless() -> Any:
        builds.append(1)
        made = layers()
        with torch.no_grad():
            made[0].weight += 0.01 * len(builds)
        return made

    assert code(*model(restless)) == "NONDETERMINISTIC_EAGER_RUN"


def test_eager_that_fails_is_told_and_the_times_stay() -> None:
    builds: list[int] = []

    def once() -> Any:
        builds.append(1)
        if len(builds) > 1:
            raise RuntimeError("no second time")
        return layers()

    record, _ = measured(*model(once))
    assert record.status == "ok" and record.verification is not None
    assert (record.verification.code, record.verification.status) == ("EAGER_FAILED", "none")
    assert record.verification.message == "eager PyTorch failed: RuntimeError: no second time"


def test_a_rule_that_cannot_be_applied_keeps_the_times() -> None:
    record, _ = measured(*model(layers), rule="ptxla[tolerance=wide]")
    assert record.status == "ok" and record.verification is not None
    assert (record.verification.code, record.verification.status) == ("EXCEPTION_RAISED", "none")
    assert "could not convert" in record.verification.message


def test_what_has_no_double_precision_is_held_against_eager_by_cosine() -> None:
    class Only(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            if x.dtype == torch.float64:
                raise TypeError("only in single precision")
            return x * 2

    record, _ = measured(*model(Only))
    assert record.verification is not None and record.verification.code == "PASS"
    assert "by cosine (no run in double precision: TypeError: only in single precision)" in record.verification.against


@pytest.mark.parametrize("rule", ["none", "ptxla"])
def test_nobody_looks_where_no_rule_or_no_verification_is_asked_for(rule: str) -> None:
    record, _ = measured(*model(layers), rule=rule, verify=rule == "none")
    assert (record.status, record.verification) == ("ok", None)


def test_several_calls_from_the_start_are_compared() -> None:
    seen: list[int] = []

    def count(task: Task) -> Task:
        def counted(x: Any) -> Any:
            seen.append(1)
            return task.fn(x)  # type: ignore[misc]

        return replace(task, fn=counted)

    loaded, case = model(layers, count, "train")
    assert code(loaded, replace(case, variant="optimizer+changed"), "ptxla[calls=3]") == "PASS"
    assert len(seen) == LIKE_THE_ORIGINAL.repeats * LIKE_THE_ORIGINAL.calls + 3


class Dropping(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Drops half, and counts how often."""

    dropped = 0

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop = layers(), torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        kept = self.drop(self.body(x))
        Dropping.dropped += bool((kept == 0).any())
        return kept


def test_dropout_drops_while_it_is_timed_and_not_where_answers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dropping, "dropped", 0)
    made: list[Any] = []

    def make() -> Any:
        made.append(Dropping())
        return made[-1]

    assert code(*model(make, mode="train")) == "PASS"
    assert Dropping.dropped == LIKE_THE_ORIGINAL.repeats * LIKE_THE_ORIGINAL.calls
    assert made[0].drop.p == 0.5 and [item.drop.p for item in made[1:]] == [0.0] * 3


def test_what_calls_draw_by_themselves_is_drawn_alike() -> None:
    class Noisy(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x + torch.randn_like(x)

    assert code(*model(Noisy)) == "PASS"


def test_what_a_module_keeps_beside_its_weights_begins_anew() -> None:
    def normed() -> Any:
        return torch.nn.Sequential(torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4)), torch.nn.BatchNorm1d(4))

    assert code(*model(normed, mode="train")) == "PASS"


def test_adams_step_does_not_depend_on_a_gradients_size_and_others_do() -> None:
    for kind, rate in (("adam", 0.01), ("adamw", 0.01), ("sgd", None)):
        case = Case("dummy/linear", (("batch", 2), ("dtype", "fp32")), "torch", f"optimizer[kind={kind},rate=0.01]", "train")
        bench = prepare_bench(case, registry.built_ins(), Settings(rule="ptxla"))
        be, task = bench.build()
        answers = CaseAnswers(bench, be, task, ())
        assert (answers.mode, answers.device, answers.rate) == ("train", "cpu", rate)


def test_weights_are_remembered_for_training_alone() -> None:
    for mode, kept in (("train", 6), ("eval", 0)):
        case = Case("dummy/linear", (("batch", 2), ("dtype", "fp32")), "torch", "eager", mode)
        bench = prepare_bench(case, registry.built_ins(), Settings(rule="ptxla"))
        check = RuleCheck.of(bench, *bench.build())
        assert check is not None and len(check.state) == kept
        own = replace(bench, settings=Settings())
        assert RuleCheck.of(own, *own.build()) is None
