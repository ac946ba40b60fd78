"""The gate says no for material slowdowns and new failures, and for nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import Comparison
from steelyard.analyze.gate import MOST_HIDDEN, Judgement, confirmed, gate, judge
from steelyard.analyze.suite import together
from steelyard.codec.policy import Excuse, Policy
from steelyard.errors import FAILED, INCONCLUSIVE, NOTHING, PASS, REGRESSION, UsageError
from steelyard.model.pair import Arm, Delta, Pair
from steelyard.model.record import Figure
from tests.analyze.saved import case, delta, pair, record, side

A, B, C = case("a"), case("b"), case("c")
OK = {A: 1.0, B: 1.0, C: 1.0}


def judged(
    *deltas: Delta, policy: Policy | None = None, strict: bool = False, base: Any = OK, head: Any = OK, new: Sequence[str] = ()
) -> Judgement:
    comparison = Comparison("base", "head", list(deltas), list(new))
    return judge(comparison, side("base", base), side("head", head), policy or Policy(), strict=strict)


def failed(id: str) -> Delta:
    return Delta(id, id, "time", None, None, None, 0.02, "failed", False, "told")


@pytest.mark.parametrize(
    ("ratio", "half", "kind", "code"),
    [
        (1.05, 0.01, "regression", REGRESSION),
        (1.025, 0.01, "slower", PASS),
        (1.021, 0.0, "regression", REGRESSION),
        (1.0, 0.01, "same", PASS),
        (1.0, 0.05, "unclear", PASS),
        (0.97, 0.02, "faster", PASS),
        (0.90, 0.01, "improvement", PASS),
    ],
)
def test_only_a_whole_interval_beyond_the_margin_is_a_regression(ratio: float, half: float, kind: str, code: int) -> None:
    found = judged(delta(A, ratio, half))
    assert ([item.kind for item in found.findings], found.exit_code) == ([kind], code)


def test_a_change_below_the_noise_floor_is_never_a_regression() -> None:
    slow = delta(A, 1.03, 0.005)
    assert judged(slow, policy=Policy(floor=0.02)).exit_code == REGRESSION
    assert judged(slow, policy=Policy(floor=0.03)).exit_code == PASS


def test_a_figure_that_should_be_high_regresses_downwards() -> None:
    less = replace(delta(A, 0.90, 0.01, metric="bandwidth"), verdict="slower")
    assert judged(delta(A, 1.0, 0.01), less).of("regression")[0].metric == "bandwidth"


def test_a_case_that_broke_fails_the_gate_and_one_that_was_broken_does_not() -> None:
    same = delta(C, 1.0, 0.01)
    assert judged(failed(A), same, head={**OK, A: "wrong"}).exit_code == FAILED
    assert judged(failed(A), same, head={**OK, A: "oom"}, base={**OK, A: "failed"}).exit_code == PASS
    new = judged(same, head={**OK, case("d"): "crashed"}, new=[case("d")])
    assert new.exit_code == PASS and "not in base" in new.of("failed")[0].reason
    fixed = judged(failed(A), same, base={**OK, A: "failed"})
    assert fixed.exit_code == PASS and [item.case for item in fixed.of("new pass")] == [A]


def test_a_case_that_is_not_measured_any_more_is_missing() -> None:
    gone = Delta(A, A, "time", None, None, None, 0.02, "missing", False, "not in head")
    same = delta(C, 1.0, 0.01)
    assert judged(gone, same, head={B: 1.0, C: 1.0}).exit_code == FAILED
    assert judged(gone, same, head={B: 1.0, C: 1.0}, policy=Policy(missing="warn")).exit_code == PASS
    unsupported = judged(failed(A), same, head={**OK, A: "unsupported"})
    assert unsupported.exit_code == FAILED and unsupported.of("missing")[0].case == A
    never = judged(failed(A), same, head={**OK, A: "unsupported"}, base={**OK, A: "unsupported"})
    assert never.exit_code == PASS and never.of("missing")
    silent = replace(failed(A), verdict="incomparable")
    assert judged(silent, same, head={**OK, A: "unsupported"}).exit_code == FAILED
    assert judged(silent, same, head={**OK, A: "unsupported"}, base={**OK, A: "unsupported"}, strict=True).exit_code == PASS


def test_a_figure_gained_is_not_missing() -> None:
    gained = Delta(A, A, "peak_memory", None, None, None, 0.05, "missing", False, "base has no peak_memory")
    comparison = Comparison("base", "head", [delta(A, 1.0, 0.01), gained])
    base, head = side("base", {A: 1.0}), side("head", {A: 1.0})
    memory = {"peak_memory": Figure(1.0, "B", "lower")}
    with_memory = replace(head, runs=(replace(head.runs[0], records=(record(A, 1.0, metrics=memory),)),))
    assert judge(comparison, base, with_memory, Policy()).exit_code == PASS
    assert judge(comparison, with_memory, head, Policy()).exit_code == FAILED


def test_strict_wants_everything_judged() -> None:
    unclear = delta(A, 1.0, 0.05)
    assert judged(unclear, delta(C, 1.0, 0.01)).headline == "pass: no regression in the 1 of 2 comparisons that are settled; 1 unclear"
    edited = Delta(B, B, "time", None, None, None, 0.02, "incomparable", False, "edited")
    for found in (unclear, edited):
        assert judged(found, delta(C, 1.0, 0.01)).exit_code == PASS
        assert judged(found, delta(C, 1.0, 0.01), strict=True).exit_code == INCONCLUSIVE
        assert judged(found, delta(C, 1.0, 0.01), policy=Policy(unclear="fail")).exit_code == INCONCLUSIVE
    forgiven = Policy(unclear="fail", expected=(Excuse(A, "unclear"),))
    assert judged(unclear, delta(C, 1.0, 0.01), policy=forgiven).exit_code == PASS


def test_the_code_that_must_be_seen_first_wins() -> None:
    slow, broken, unclear = delta(A, 1.5, 0.01), failed(B), delta(C, 1.0, 0.1)
    head = {**OK, B: "failed"}
    assert judged(slow, broken, unclear, head=head, strict=True).exit_code == REGRESSION
    assert judged(broken, unclear, head=head, strict=True).exit_code == FAILED
    assert judged(broken, head=head, strict=True).exit_code == NOTHING
    assert judged().exit_code == NOTHING


def test_known_failures_are_excused_and_told_when_they_pass() -> None:
    policy = Policy(expected=(Excuse(A, "failed", "issue 7"), Excuse(B, "slower")), allowed=(Excuse("op/c[*", reason="flaky"),))
    bad = judged(failed(A), delta(B, 1.5, 0.01), failed(C), head={A: "oom", B: 1.5, C: "timeout"}, policy=policy)
    assert bad.exit_code == PASS and not bad.of("new pass")
    assert [item.excuse for item in bad.of("regression", "failed")] == ["expected", "expected: issue 7", "allowed: flaky"]
    good = judged(delta(A, 1.0, 0.01), delta(B, 1.0, 0.01), delta(C, 1.0, 0.01), policy=policy)
    assert [item.case for item in good.of("new pass")] == [A, B]
    assert "issue 7" in good.of("new pass")[0].reason and good.exit_code == PASS


def test_an_excuse_covers_what_it_says_and_no_more() -> None:
    assert judged(failed(A), delta(C, 1.0, 0.01), head={**OK, A: "wrong"}, policy=Policy(expected=(Excuse(A, "oom"),))).exit_code == FAILED
    assert judged(delta(A, 1.5, 0.01), policy=Policy(allowed=(Excuse(A, reason="flaky"),))).exit_code == REGRESSION
    note = judged(delta(A, 1.0, 0.01), policy=Policy(allowed=(Excuse("op/none*"),))).notes
    assert note == ['allowed."op/none*" in the policy fits no case']


def test_brackets_in_a_pattern_stand_for_themselves() -> None:
    assert Excuse("op/a[n=64]@*").fits(A)
    assert not Excuse("op/[abc][n=64]@*").fits(A)


def test_the_worst_stands_first_and_each_can_be_repeated() -> None:
    found = judged(delta(A, 1.1, 0.01), delta(B, 1.9, 0.01), delta(C, 1.3, 0.01))
    assert [item.case for item in found.of("regression")] == [B, C, A]
    assert found.of("regression")[0].repeat == f"steelyard run '{B}'"
    assert found.headline == "regression: 3 slower beyond the margin in 3 comparisons"
    assert judged(replace(delta(A, 1.1, 0.01), base="pyperf thing", head="pyperf thing")).findings[0].repeat == ""


def test_a_case_weighed_against_itself_elsewhere_has_two_times_two_commits_and_a_line_that_repeats_it() -> None:
    """Its record is the head's alone; a run made before arms kept their times shows none rather than a false one."""
    whole = side("k", OK)
    run = replace(whole.runs[0], header=replace(whole.runs[0].header, settings={"vs": "path:../other build"}, files=["b.py"]))
    arms = (
        Arm(A, "path:../other build", commit="b" * 40, time=Figure(1e-3, "s")),
        Arm(A, commit="a" * 40, dirty=True, time=Figure(1.1e-3, "s")),
    )
    weighed = replace(pair(A, A, 1.1, 0.01), base=arms[0], head=arms[1])
    itself = replace(whole, runs=(replace(run, pairs=(weighed,)),))
    found = gate(itself, itself, Policy())
    finding = found.findings[0]
    assert finding.was and finding.now and (finding.was.value, finding.now.value) == (1e-3, 1.1e-3)
    assert finding.repeat == f"steelyard run b.py '{A}' --vs-path '../other build'"
    assert "base is at commit bbbbbbbbbb, head at aaaaaaaaaa with changes" in found.notes
    old = replace(weighed, base=Arm(A, "path:../other build"), head=Arm(A))
    before = replace(whole, runs=(replace(run, pairs=(old,)),))
    finding = gate(before, before, Policy()).findings[0]
    assert (finding.was, finding.now, finding.kind) == (None, None, "regression")


def test_the_times_beside_an_effect_are_those_that_were_compared() -> None:
    """A record is measured apart from its comparison, minutes earlier: its time may say the opposite."""
    whole, weighed = side("k", OK), pair(A, B, 1.1, 0.01)
    timed = [replace(arm, time=Figure(time, "s")) for arm, time in ((weighed.base, 2e-3), (weighed.head, 2.2e-3))]
    for arms, times in ((timed, (2e-3, 2.2e-3)), ((weighed.base, timed[1]), (1.0, 1.0))):
        itself = replace(whole, runs=(replace(whole.runs[0], pairs=(replace(weighed, base=arms[0], head=arms[1]),)),))
        finding = gate(itself, itself, Policy()).findings[0]
        assert finding.was and finding.now and (finding.was.value, finding.now.value) == times


def test_a_run_alone_is_judged_by_its_pairs() -> None:
    compiled = [case(name, "compile") for name in "abc"]
    answers: dict[str, float | str] = {**OK, compiled[0]: 1.0, compiled[1]: 1.0}
    pairs = [pair(A, compiled[0], 1.10, 0.01), pair(B, compiled[1], 1.0, 0.01)]
    one = side("k3f9", answers, *pairs)
    found = gate(one, one, Policy())
    assert found.exit_code == REGRESSION and [item.case for item in found.of("regression")] == [compiled[0]]
    assert gate(one, one, Policy(cases={"op/a*": {"time": 0.2}})).exit_code == PASS
    broken = side("k3f9", {**answers, compiled[2]: "wrong"}, pairs[1])
    assert gate(broken, broken, Policy()).exit_code == FAILED
    assert gate(side("k3f9", OK), side("k3f9", OK), Policy()).exit_code == NOTHING


def test_a_margin_for_a_figure_that_nothing_has_is_a_mistake() -> None:
    one = side("k3f9", OK, pair(A, B, 1.0, 0.01))
    with pytest.raises(UsageError, match="tiem") as told:
        gate(one, one, Policy(margins={"tiem": 0.02}, where="gate.toml"))
    assert told.value.where.startswith("gate.toml") and "time" in told.value.do


def suite(slow: float) -> tuple[Any, Any]:
    """Two sides of twenty cases in which one changed; enough for the noise between runs to be known."""
    base = {case(f"x{number}"): 1e-3 * (1 + number) for number in range(20)}
    head = {id: time * (1 + 1e-4 * (index % 3 - 1)) for index, (id, time) in enumerate(base.items())}
    first = next(iter(base))
    return side("base", base), side("head", {**head, first: base[first] * slow})


def test_what_runs_made_apart_suggest_is_no_regression_until_it_is_confirmed_or_asked_for() -> None:
    found = gate(*suite(2.0), Policy())
    assert found.exit_code == PASS and found.outcome == "inconclusive" and any("unpaired" in note for note in found.notes)
    assert [item.effect.endswith("not confirmed") for item in found.of("not confirmed")] == [True]
    assert gate(*suite(2.0), Policy(), strict=True).exit_code == INCONCLUSIVE
    asked = gate(*suite(2.0), Policy(unconfirmed="fail"))
    assert asked.exit_code == REGRESSION and [item.paired for item in asked.of("regression")] == [False]


@pytest.mark.parametrize(("ratio", "code"), [(1.0, PASS), (2.0, REGRESSION), (None, PASS)])
def test_confirming_measures_the_suspects_alone_and_believes_the_answer(ratio: float | None, code: int) -> None:
    asked: list[str] = []

    def confirm(suspects: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        asked.extend(item.head for item in suspects)
        return ([pair(id, id, ratio, 0.005) for id in asked], {}) if ratio else ([], dict.fromkeys(asked, "timeout: no answer"))

    found = gate(*suite(2.0), Policy(), confirm=confirm)
    assert found.exit_code == code and asked == [case("x0")]
    assert any("timeout: no answer" in note for note in found.notes) is (ratio is None)
    assert found.means["time"][0] == pytest.approx((ratio or 2.0) ** (1 / 20), rel=1e-3)
    assert all(item.paired == bool(ratio) for item in found.of("regression", "not confirmed"))


def test_what_got_faster_or_is_expected_to_be_slow_is_not_measured_again() -> None:
    def refuse(suspects: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        raise AssertionError(suspects)

    assert gate(*suite(0.5), Policy(), confirm=refuse).exit_code == PASS
    assert gate(*suite(2.0), Policy(expected=(Excuse("op/x0[*", "slower"),)), confirm=refuse).exit_code == PASS


def measured_again(unclear: list[Delta], noise: float = 0.0) -> tuple[list[str], list[str]]:
    """Which cases a gate asks for, and what it notes; `noise` is how wide the base's own times are, the last ones most."""
    asked: list[str] = []

    def again(deltas: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        asked.extend(item.head for item in deltas)
        return [], {}

    halves = [noise * (1 + place / 100) for place in range(len(unclear))]
    times = {item.head: (Figure(1.0, "s", "lower", 1 - half, 1 + half, 50), None) for item, half in zip(unclear, halves, strict=True)}
    return asked, confirmed(Comparison("base", "head", unclear, figures={"time": times}), Policy(), again).notes


def test_only_what_looks_slower_is_measured_again() -> None:
    unclear = [replace(delta(id, ratio, 0.2), paired=False) for id, ratio in ((A, 1.05), (B, 0.95), (C, 1.0))]
    assert measured_again(unclear)[0] == measured_again(unclear, 0.015)[0] == [A]


def test_so_is_what_noise_may_hide_and_the_noisiest_first() -> None:
    """A base that was measured in a bad moment makes what is slower look faster."""
    noisy = [replace(delta(id, ratio, 0.12), paired=False) for id, ratio in ((A, 0.94), (B, 0.97))]
    asked, notes = measured_again(noisy, 0.08)
    assert asked == [B, A] and "too noisy to tell" in " ".join(notes)
    assert measured_again([replace(item, paired=True) for item in noisy], 0.08)[0] == []
    many = [replace(delta(case(f"x{number}"), 1.0, 0.2), paired=False) for number in range(MOST_HIDDEN + 5)]
    asked, notes = measured_again(many, 0.08)
    assert len(asked) == MOST_HIDDEN and "5 more cases were too noisy" in " ".join(notes)


def moved(ratio: float, half: float, count: int = 20, *, paired: bool = True) -> Judgement:
    """Cases that all moved alike, none of them clearly."""
    ids = [case(f"x{number}") for number in range(count)]
    deltas = [delta(id, ratio * (1 + 1e-3 * (number % 3 - 1)), half, paired=paired) for number, id in enumerate(ids)]
    suite = together([replace(item, paired=True) for item in deltas])
    assert suite is not None
    suite = suite if paired else replace(suite, delta=replace(suite.delta, paired=False))
    comparison = Comparison("base", "head", deltas, suite=suite)
    answers: Any = dict.fromkeys(ids, 1.0)
    return judge(comparison, side("base", answers), side("head", answers), Policy())


def test_a_shift_that_all_cases_share_is_a_regression_though_each_alone_is_unclear() -> None:
    found = moved(1.05, 0.06)
    assert {item.kind for item in found.findings} == {"unclear"}
    assert found.exit_code == REGRESSION and found.suite is not None and found.suite.kind == "regression"
    assert found.headline.startswith("regression: all 20 cases together 5.0")
    apart = moved(1.05, 0.06, paired=False)
    assert apart.exit_code == PASS and apart.outcome == "inconclusive" and "all 20 cases together 5.0" in apart.headline


def test_a_suite_within_the_margin_decides_where_no_case_does() -> None:
    found = moved(1.0, 0.06)
    assert (found.outcome, found.exit_code) == ("pass", PASS) and "all 20 cases together within 2 %" in found.headline


def sides_of(base: float, head: float, count: int = 20) -> tuple[Any, Any]:
    """Two sides whose cases were all measured again, interleaved, with the same answer, each alone too noisy to be sure."""
    ids = [case(f"x{number}") for number in range(count)]
    return side("base", dict.fromkeys(ids, base)), side("head", dict.fromkeys(ids, head))


def measured(ratio: float, half: float) -> Any:
    def again(deltas: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        return [pair(item.head, item.head, ratio, half) for item in deltas], {}

    return again


def test_the_suite_is_judged_by_the_margins_that_its_cases_have() -> None:
    """Five percent in all cases is a regression at a margin of two, and none where ten are allowed."""
    sides, again = sides_of(1e-3, 1.05e-3), measured(1.05, 0.06)
    assert gate(*sides, Policy(), confirm=again).exit_code == REGRESSION
    allowed = gate(*sides_of(1e-3, 1.15e-3), Policy(cases={"op/*": {"time": 0.10}}), confirm=again)
    assert allowed.exit_code == PASS and allowed.suite is not None and allowed.suite.margin == 0.10
    assert allowed.suite.kind == "same" and "within 10 %" in allowed.suite.effect
    some = gate(*sides_of(1e-3, 1.15e-3), Policy(cases={"op/x0[*": {"time": 0.10}}), confirm=again)
    assert some.exit_code == PASS and some.suite is not None and (some.suite.kind, some.suite.margin) == ("slower", 0.10)


def test_the_suite_leaves_out_what_is_excused() -> None:
    sides, again = sides_of(1e-3, 1.05e-3), measured(1.05, 0.06)
    excused = gate(*sides, Policy(expected=(Excuse("op/*", "slower", "known"),)), confirm=again)
    assert excused.exit_code == PASS and excused.suite is None
    some = gate(*sides, Policy(expected=(Excuse("op/x1[*", "slower", "known"),)), confirm=again)
    assert some.suite is not None and some.suite.case == "all 19 cases together" and some.exit_code == REGRESSION


def test_a_run_that_weighs_several_variants_has_no_common_verdict() -> None:
    ids = [case(f"x{number}") for number in range(6)]
    pairs = [pair(id, case(f"x{number}", how), 1.05, 0.06) for number, id in enumerate(ids) for how in ("compile", "int8")]
    one = side("k3f9", dict.fromkeys([*ids, *(item.head.id for item in pairs)], 1.0), *pairs)
    assert gate(one, one, Policy()).suite is None


answers = st.lists(
    st.tuples(st.floats(0.9, 1.3), st.floats(0.001, 0.2), st.sampled_from([0.02, 0.05, 0.15]), st.booleans()), min_size=3, max_size=12
)


@given(answers)
def test_a_suite_fails_the_gate_only_beyond_all_margins_and_with_a_case_left_open(cases: list[tuple[float, float, float, bool]]) -> None:
    ids = [case(f"x{number}") for number in range(len(cases))]
    deltas = [delta(id, ratio, half, margin=margin) for id, (ratio, half, margin, _) in zip(ids, cases, strict=True)]
    policy = Policy(expected=tuple(Excuse(id, "slower") for id, (*_, known) in zip(ids, cases, strict=True) if known))
    ok: Any = dict.fromkeys(ids, 1.0)
    found = judge(Comparison("base", "head", deltas, suite=together(deltas)), side("base", ok), side("head", ok), policy)
    kept = [item for item, (*_, known) in zip(deltas, cases, strict=True) if not known]
    assert (found.suite is None) is (len(kept) < 3)
    if found.suite and found.suite.counts:
        assert found.suite.low is not None and found.suite.low > 1 + max(item.margin for item in kept)
        assert any(item.verdict != "same" for item in kept)
    if found.suite and found.suite.kind == "same":
        assert found.suite.high is not None and found.suite.high <= 1 + min(item.margin for item in kept)


@pytest.mark.parametrize(("was", "now", "code"), [(0, 8, FAILED), (1, 1, PASS), (8, 0, PASS), (None, 8, PASS)])
def test_a_model_that_falls_apart_into_more_graphs_fails_though_it_is_as_fast(was: int | None, now: int, code: int) -> None:
    def broken(name: str, count: int | None) -> Any:
        made = record(A, 1.0, effective={} if count is None else {"graph_breaks": count})
        return replace(side(name, {}), runs=(replace(side(name, {A: 1.0}).runs[0], records=(made,)),))

    comparison = Comparison("base", "head", [delta(A, 1.0, 0.01)], [])
    found = judge(comparison, broken("base", was), broken("head", now), Policy())
    assert found.exit_code == code
    assert [item.reason for item in found.of("failed")] == (["8 graph breaks, where base has none"] if code else [])
