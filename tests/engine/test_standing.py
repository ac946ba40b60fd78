"""The rule of the base, over any sequence of nights: what is told slower is no base until it is mended or accepted by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.gate import Judged
from steelyard.codec.policy import Policy
from steelyard.engine.nightly import assess as assessment
from steelyard.engine.nightly.against import carried, with_findings
from steelyard.engine.nightly.archive import Archive
from steelyard.engine.nightly.assess import Assessment, Terms, assess
from steelyard.engine.nightly.drift import findings_of, withheld_by
from steelyard.engine.nightly.lines import EVERY, Acceptance, Night, Withheld, night_of
from steelyard.engine.nightly.night import went_before
from steelyard.engine.nightly.standing import Base, Tonight, base_of, bases, good_nights, is_fixed, withhold
from steelyard.errors import FAILED, INCONCLUSIVE, PASS, REGRESSION
from steelyard.model.pair import Delta, Pair, judge
from steelyard.model.record import Record
from steelyard.store.runs import Run
from tests.analyze.saved import case, pair
from tests.engine.test_nightly import KEY, spend

CASE = case("x0")
VERDICTS: Mapping[str, tuple[float, float, float]] = {
    "same": (1.0, 0.99, 1.01), "faster": (0.9, 0.88, 0.92), "regression": (1.04, 1.03, 1.05), "slower": (1.035, 1.015, 1.055),
    "unclear": (1.005, 0.96, 1.05), "looks slower": (1.05, 0.97, 1.13),
    "same, apart": (1.0, 0.99, 1.01),
}  # fmt: skip
MENDED = ("same", "faster", "same, apart")
"""The last one mends what was slower, and no regression."""
ANSWERS = (*VERDICTS, "failed", "missing", "incomparable")


def line(number: int, withheld: Sequence[Withheld] = (), code: int = PASS, **more: Any) -> Night:
    created = f"2026-01-01T00:00:{number:02}Z"
    return Night(created[:10], f"n{number}", "bench", KEY, "pass", code, created=created, withheld=list(withheld), **more)


def delta(answer: str) -> Delta:
    if answer not in VERDICTS:
        verdict: Any = answer
        return Delta(CASE, CASE, "time", None, None, None, 0.02, verdict, paired=False)
    ratio, low, high = VERDICTS[answer]
    return Delta(CASE, CASE, "time", ratio, low, high, 0.02, judge(low, high, 0.02), paired=answer != "same, apart")


def statuses_of(answer: str) -> dict[str, str]:
    return {} if answer == "missing" else {CASE: "crashed" if answer == "failed" else "ok"}


class Nights:
    """Nights of one case whose answers are given, each judged against what the rule says is its base."""

    def __init__(self) -> None:
        self.lines: list[Night] = []
        self.answers: list[str] = []

    def statuses(self, night: Night) -> dict[str, str]:
        return statuses_of(self.answers[int(night.run[1:])])

    def spend(self, answer: str) -> tuple[Base | None, Night]:
        """One more night; gives what it was held against, and its line."""
        here = statuses_of(answer)
        before = bases(self.lines, self.statuses, here)
        base = before.get(CASE)
        kinds = {"failed", "missing", "regression"} & {answer} if base else set()
        if base and base.pending and base.pending.why == "regression" and answer not in ("same", "faster"):
            kinds.add("regression")
        records = {CASE: Record(CASE, {}, here[CASE])} if here else {}  # type: ignore[arg-type]
        tonight = Tonight(f"n{len(self.lines)}", [delta(answer)] if base else [], {CASE: kinds}, records)
        held = withhold(before, tonight)
        self.lines.append(line(len(self.lines), held, REGRESSION if "regression" in kinds else PASS))
        self.answers.append(answer)
        return base, self.lines[-1]

    def accept(self, number: int, pattern: str) -> int:
        place = number % len(self.lines)
        word = Acceptance(pattern, "so")
        self.lines[place] = replace(self.lines[place], acceptances=[*self.lines[place].acceptances, word])
        return place


@given(st.lists(st.sampled_from(ANSWERS), max_size=14))
def test_a_night_that_is_slower_never_becomes_the_base_and_every_later_one_regresses_until_it_is_mended(answers: list[str]) -> None:
    nights, slow, told = Nights(), False, False
    for answer in answers:
        base, night = nights.spend(answer)
        if base:
            slow = answer == "regression" or (slow and answer not in ("same", "faster"))
            told = answer in ("regression", "slower") or (told and answer not in (*MENDED, "failed", "missing")) or slow
            assert not nights.lines[int(base.run[1:])].held_back(CASE) and statuses_of(nights.answers[int(base.run[1:])]) == {CASE: "ok"}
        assert (night.exit_code == REGRESSION) is slow
        assert not (slow or told or answer == "looks slower") or not base or not night.may_be_base(CASE)


steps = st.one_of(st.sampled_from(ANSWERS), st.sampled_from(ANSWERS), st.tuples(st.integers(0, 9), st.sampled_from([EVERY, "op/x0[*"])))


@given(st.lists(steps, max_size=14))
def test_only_an_acceptance_moves_the_base_past_a_slower_night(script: list[str | tuple[int, str]]) -> None:
    nights = Nights()
    for step in script:
        if isinstance(step, str):
            base, night = nights.spend(step)
            source = nights.lines[int(base.run[1:])] if base else night
            assert base is None or source.accepts(CASE) or (source.may_be_base(CASE) and nights.statuses(source) == {CASE: "ok"})
            assert base is None or step not in ("regression", "slower", "looks slower") or night.held_back(CASE)
        elif nights.lines:
            place = nights.accept(*step)
            found = base_of(CASE, nights.lines, nights.statuses)
            newest = [night for night in nights.lines if night.accepts(CASE)][-1]
            assert int(found.run[1:]) >= int(newest.run[1:]) if found else not nights.statuses(newest)
            if place == len(nights.lines) - 1:
                assert found is None or found == Base(nights.lines[place].run)


@given(st.sampled_from(["regression", "slower"]), st.sampled_from(["time", "memory"]), st.sampled_from([*VERDICTS]), st.booleans())
def test_runs_made_apart_take_back_what_looked_slower_and_no_regression(why: Any, metric: str, answer: str, trusted: bool) -> None:
    """Bytes do not drift with the machine, so runs made apart tell of those."""
    pending, item = Withheld(CASE, why, "n0", "n1", 1.04, 1.03, 1.05, metric=metric), replace(delta(answer), metric=metric)
    for paired in (False, True):
        tonight = Tonight("n2", [replace(item, paired=paired)], trusted=lambda case: trusted)
        assert is_fixed(pending, tonight) is (
            item.verdict in ("same", "faster") and (paired or trusted or why == "slower" or metric == "memory")
        )
    assert not is_fixed(pending, Tonight("n2", [replace(item, metric="energy")], trusted=lambda case: True))


@given(st.sampled_from([*VERDICTS]), st.sampled_from(["regression", "not confirmed", "slower", "same", "unclear", "improvement"]))
def test_a_night_in_which_all_cases_together_are_slower_is_no_base_for_any_that_is_not_shown_to_be_as_fast(answer: str, kind: Any) -> None:
    verdict: Any = {"regression": "slower", "not confirmed": "slower", "improvement": "faster"}.get(kind, kind)
    ends = (1.05, 1.04, 1.06, 0.02, kind != "not confirmed")
    suite = Judged(kind, "all", "", "time", *ends, counts=kind == "regression", verdict=verdict)
    held = withhold({CASE: Base("n0")}, Tonight("n1", [delta(answer)], suite=suite))
    alone = withhold({CASE: Base("n0")}, Tonight("n1", [delta(answer)]))
    if verdict != "slower" or delta(answer).verdict in ("same", "faster"):
        assert held == alone
    else:
        assert [(item.why, item.base) for item in held] == [("regression" if kind == "regression" else "slower", "n0")]
    assert withhold({CASE: Base("n0")}, Tonight("n1", [delta(answer)], suite=suite, excused=lambda case: True)) == []


def test_acceptance_of_some_cases_leaves_the_others_where_they_were() -> None:
    other = case("x1")
    held = [Withheld(id, "regression", "n0", "n1", 1.04, 1.03, 1.05) for id in (CASE, other)]
    nights = [line(0), line(1, withheld=held, acceptances=[Acceptance("op/x1[*", "worth it")])]
    found = bases(nights, lambda night: {CASE: "ok", other: "ok"})
    assert found == {CASE: Base("n0", held[0]), other: Base("n1")}
    assert found[CASE].told_slower and not found[other].told_slower
    assert good_nights(other, nights) == nights[1:] and good_nights(CASE, nights) == nights[:1]


def test_a_base_whose_line_or_run_is_lost_gives_way_to_an_older_night() -> None:
    held = [Withheld(CASE, "regression", "gone", "n1", 1.04, 1.03, 1.05)]
    nights = [line(0), line(1, held)]
    assert base_of(CASE, nights, lambda night: {CASE: "ok"}) == Base("n0")
    assert base_of(CASE, nights[1:], lambda night: {CASE: "ok"}) is None
    lost = [line(0), line(1), line(2, [replace(held[0], base="n1")])]
    assert base_of(CASE, lost, lambda night: {} if night.run == "n1" else {CASE: "ok"}) == Base("n0")


def test_a_case_that_was_removed_waits_to_be_accepted() -> None:
    gone = [Withheld(CASE, "missing", "n0", "n1")]
    nights = [line(0), line(1, withheld=gone)]
    statuses = {"n0": {CASE: "ok", case("x1"): "ok"}, "n1": {case("x1"): "ok"}}
    assert bases(nights, lambda night: statuses[night.run])[CASE].run == "n0"
    nights[1] = replace(nights[1], acceptances=[Acceptance(CASE.replace("64", "*"), "nobody needs it")])
    assert set(bases(nights, lambda night: statuses[night.run])) == {case("x1")}


CASES = {case(f"x{number}"): 1e-3 * (1 + number) for number in range(12)}


class Archived:
    """Nights with planted times in an archive; measuring again gives the planted ratio of the two nights, interleaved."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive = Archive(root / "archive")
        self.day = 0
        self.half = 0.004
        self.confirmed: list[tuple[str, str]] = []

        def again(base: Run, head: Run, cases: list[str], *_: Any) -> tuple[list[Pair], dict[str, str]]:
            self.confirmed += [(base.id, id) for id in cases]
            times = [{item.id: item.metrics["time"].value for item in run.records} for run in (base, head)]
            return [pair(id, id, times[1][id] / times[0][id], self.half) for id in cases], {}

        monkeypatch.setattr(assessment, "confirm", again)

    def spend(self, answers: Mapping[str, float | str] = CASES, terms: Terms | None = None, **header: Any) -> Assessment:
        self.day += 1
        run = spend(self.archive, self.day, dict(answers), machine={"git": {"commit": f"{self.day:040x}"}}, **header)
        before = went_before(self.archive, "bench", run.header.machine_key, run.header.created, [item.id for item in run.records])
        found = assess(run, before, terms or Terms(), self.archive.store, tell=lambda text: None)
        base = found.base.runs[0].id if found.base else ""
        self.archive.append(night_of(run, found.outcome, found.exit_code, base=base, withheld=found.withheld, faster=found.faster))
        return found


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archived:
    return Archived(tmp_path, monkeypatch)


def slower(ratio: float, *names: str) -> dict[str, float]:
    return {id: seconds * (ratio if id in [case(name) for name in names] else 1) for id, seconds in CASES.items()}


def test_six_nights_with_a_planted_step_fail_from_the_third_on_until_it_is_accepted(nights: Archived) -> None:
    codes = [nights.spend(slower(1.04, "x3") if night >= 3 else CASES).exit_code for night in range(1, 7)]
    assert codes == [PASS, PASS, REGRESSION, REGRESSION, REGRESSION, REGRESSION]
    sixth = nights.archive.nights()[-1]
    (held,) = sixth.withheld or []
    second, third = (nights.archive.nights()[place].run for place in (1, 2))
    assert (held.case, held.why, held.base, held.since) == (case("x3"), "regression", second, third)
    assert {base for base, id in nights.confirmed if id == case("x3")} == {second}
    nights.archive.accept(sixth.run, "it rounds correctly now", ["op/x3[*"])
    found = nights.spend(slower(1.04, "x3"))
    assert (found.exit_code, found.withheld) == (PASS, [])
    assert nights.spend(slower(1.04 * 1.04, "x3")).exit_code == REGRESSION


def test_a_step_that_is_mended_passes_and_the_mended_night_is_the_next_base(nights: Archived) -> None:
    codes = [nights.spend(answers).exit_code for answers in (CASES, slower(1.04, "x3"), CASES, CASES)]
    assert codes == [PASS, REGRESSION, PASS, PASS] and all(not night.withheld for night in nights.archive.nights()[2:])


def test_slower_of_unclear_size_is_no_base_either(nights: Archived) -> None:
    nights.spend()
    nights.half = 0.023
    found = nights.spend(slower(1.04, "x3"))
    assert found.exit_code != REGRESSION and [(item.case, item.why) for item in found.withheld] == [(case("x3"), "slower")]
    nights.half = 0.004
    found = nights.spend(slower(1.04, "x3"))
    assert found.exit_code == REGRESSION and found.withheld[0].base == nights.archive.nights()[0].run


def test_a_regression_that_tonight_cannot_settle_stays_one(nights: Archived) -> None:
    nights.spend()
    assert nights.spend(slower(1.04, "x3")).exit_code == REGRESSION
    nights.half = 0.06
    assert nights.spend(slower(1.01, "x3")).exit_code == REGRESSION
    assert nights.spend(slower(1.01, "x3"), Terms(confirm=False)).exit_code == REGRESSION
    found = nights.spend({**CASES, case("x3"): "crashed"})
    assert found.exit_code == REGRESSION and found.judgement is not None
    kinds = [(finding.kind, finding.counts) for finding in found.judgement.findings if finding.case == case("x3")]
    assert kinds == [("regression", True), ("failed", True)]
    assert "this night does not show that it is fixed" in found.judgement.findings[0].reason


EVERY_CASE = [f"x{number}" for number in range(12)]


def test_a_shift_that_only_all_cases_together_show_holds_every_base_until_they_show_that_it_is_mended(nights: Archived) -> None:
    first = nights.spend().run.id
    nights.half = 0.051
    for _ in range(2):
        found = nights.spend(slower(1.05, *EVERY_CASE))
        assert found.exit_code == REGRESSION and found.judgement is not None and not found.judgement.of("regression")
        assert {(item.why, item.base, item.together) for item in found.withheld} == {("regression", first, True)}
        assert len(found.withheld) == 12
    nights.half = 0.3
    carried = nights.spend(slower(1.05, *EVERY_CASE))
    assert carried.exit_code == REGRESSION and len(carried.withheld) == 12 and carried.judgement is not None
    assert all("does not show that it is fixed" in item.reason for item in carried.judgement.of("regression"))
    nights.half = 0.03
    mended = nights.spend(CASES)
    assert mended.exit_code == PASS and mended.withheld == [] and mended.judgement is not None
    assert {item.kind for item in mended.judgement.findings} == {"unclear"}


def test_a_shift_of_all_cases_in_runs_made_apart_is_no_base_either(nights: Archived) -> None:
    quiet = Terms(confirm=False)
    for factor in (1.0, 1.003, 0.998, 1.002, 1.0, 0.997, 1.004):
        last = nights.spend(slower(factor, *EVERY_CASE), quiet)
    found = nights.spend(slower(1.1, *EVERY_CASE), quiet)
    assert found.judgement is not None and found.judgement.suite is not None and found.judgement.suite.kind == "not confirmed"
    assert found.exit_code == PASS and {(item.case, item.why, item.base) for item in found.withheld} == {
        (id, "slower", last.run.id) for id in CASES
    }


def test_the_very_code_of_the_base_needs_no_proof(nights: Archived) -> None:
    base = nights.spend()
    assert nights.spend(slower(1.04, "x3")).exit_code == REGRESSION
    nights.day += 1
    run = spend(nights.archive, nights.day, slower(1.01, "x3"), machine=base.run.header.machine)
    before = went_before(nights.archive, "bench", KEY, run.header.created, list(CASES))
    quiet = assess(run, before, Terms(confirm=False), nights.archive.store, tell=lambda text: None)
    assert quiet.exit_code == PASS
    dirty = replace(run, header=replace(run.header, machine={"git": {**run.header.machine["git"], "dirty": True}}))
    assert quiet.judgement is not None and quiet.comparison is not None
    assert carried(quiet.judgement, before, dirty, quiet.comparison.deltas, Terms().policy).exit_code == REGRESSION


def test_a_case_that_failed_in_the_base_night_keeps_its_older_base_and_others_move_on(nights: Archived) -> None:
    first = nights.spend()
    assert nights.spend({**CASES, case("x1"): "crashed"}).exit_code == FAILED
    assert nights.spend({**CASES, case("x1"): "crashed"}).exit_code == FAILED
    found = nights.spend(slower(1.04, "x1"))
    assert found.exit_code == REGRESSION
    assert {base for base, id in nights.confirmed if id == case("x1")} == {first.run.id}
    groups = went_before(nights.archive, "bench", KEY, "", list(CASES)).grouped()
    assert {run: len(cases) for run, cases in groups.items()} == {first.run.id: 1, found.run.id: 11}


def test_new_cases_have_no_base_and_other_machines_none_of_ours(nights: Archived) -> None:
    nights.spend()
    new = case("y")
    found = nights.spend({**CASES, new: 5e-3})
    assert found.exit_code == PASS and found.comparison is not None and found.comparison.new == [new]
    assert nights.spend({**CASES, new: 5.2e-3}).exit_code == REGRESSION
    elsewhere = nights.spend({**CASES, new: 9e-3}, machine_key="o" * 12)
    assert (elsewhere.exit_code, elsewhere.base) == (PASS, None)
    assert nights.spend({**CASES, new: 5.2e-3}).exit_code == REGRESSION


def test_the_runs_that_cases_wait_for_are_never_removed(nights: Archived) -> None:
    for answers in (CASES, slower(1.04, "x3"), slower(1.04, "x3"), slower(1.04, "x3"), slower(1.04, "x3")):
        nights.spend(answers)
    first = nights.archive.nights()[0].run
    assert first not in nights.archive.prune("bench", 2)
    assert nights.spend(slower(1.04, "x3")).exit_code == REGRESSION


def test_few_cases_are_judged_by_the_noise_of_earlier_nights(nights: Archived) -> None:
    few = {id: CASES[id] for id in list(CASES)[:3]}
    for factor in (1.0, 1.003, 0.998, 1.002, 1.0, 0.997, 1.004):
        nights.spend({id: seconds * factor for id, seconds in few.items()}, Terms(confirm=False))
    found = nights.spend({id: seconds * 1.001 for id, seconds in few.items()}, Terms(confirm=False))
    assert found.comparison is not None and any("from 7 earlier runs on this machine" in note for note in found.comparison.notes)
    assert all(delta.high and delta.low and delta.high / delta.low < 1.15 for delta in found.comparison.deltas)


DRIFTING = case("x3")


def drift(nights: Archived, count: int, step: float, terms: Terms | None = None) -> list[Assessment]:
    """Nights in which one case gets slower by a little every night, all others scatter by a third of a percent."""
    wobble = (0.0, 0.003, -0.002, 0.001, -0.003, 0.002)
    return [
        nights.spend({id: seconds * (1 + wobble[(day + place) % 6]) * (step**day if id == DRIFTING else 1)
                      for place, (id, seconds) in enumerate(CASES.items())}, terms)
        for day in range(count)
    ]  # fmt: skip


def test_drift_of_half_a_percent_a_night_is_found_against_an_old_night_and_stays_a_regression(nights: Archived) -> None:
    found = drift(nights, 14, 1.005)
    codes = [item.exit_code for item in found]
    first = codes.index(REGRESSION)
    assert 5 <= first <= 10 and set(codes[:first]) == {PASS} and set(codes[first:]) == {REGRESSION}
    told = next(item for item in found if item.drift and item.drift[0].delta.verdict == "slower")
    assert told.judgement is not None and any(
        "in steps too small to be detected one by one" in item.reason for item in told.judgement.findings
    )
    last = found[-1].judgement
    assert last is not None and last.findings[0].reason == f"drifted away, seen since the night of 2026-01-06 ({told.run.id})"
    (held,) = found[-1].withheld
    anchor = nights.archive.nights()[0].run
    assert (held.case, held.why, held.base, held.since, held.drift) == (DRIFTING, "regression", anchor, told.run.id, True)
    assert {base for base, id in nights.confirmed if id == DRIFTING} >= {anchor}
    nights.archive.accept(found[-1].run.id, "worth it", ["op/x3[*"])
    assert nights.spend({**CASES, DRIFTING: CASES[DRIFTING] * 1.005**13}).exit_code == PASS


def test_drift_that_cannot_be_confirmed_is_told_with_its_numbers_and_does_not_fail(nights: Archived) -> None:
    found = drift(nights, 20, 1.006, Terms(confirm=False))
    assert REGRESSION not in {item.exit_code for item in found}
    (item,) = found[-1].drift or found[-2].drift
    assert item.delta.verdict == "slower" and not item.delta.paired and item.delta.ratio and item.delta.ratio > 1.03
    assert "not confirmed" in item.words and item.nights >= 10


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        (Terms(confirm=False), PASS),
        (Terms(confirm=False, policy=Policy(unconfirmed="fail")), REGRESSION),
        (Terms(confirm=False, strict=True), INCONCLUSIVE),
        (Terms(confirm=False, policy=Policy(unclear="fail")), INCONCLUSIVE),
    ],
)
def test_drift_is_as_strict_as_the_gate(terms: Terms, code: int, nights: Archived) -> None:
    found = drift(nights, 20, 1.006, Terms(confirm=False))[-1]
    items = [replace(item, delta=replace(item.delta, verdict="slower", low=1.05, ratio=1.06, high=1.07)) for item in found.drift]
    assert found.judgement is not None and items
    told = findings_of(items, terms.policy, strict=terms.strict)
    assert with_findings(replace(found.judgement, findings=[], exit_code=PASS), told).exit_code == code
    assert bool(withheld_by(items, [], told, "n")) is (code == REGRESSION)


def test_drift_of_runs_made_apart_is_a_regression_and_withheld_where_the_policy_says_so(nights: Archived) -> None:
    found = drift(nights, 20, 1.006, Terms(confirm=False, policy=Policy(unconfirmed="fail")))
    codes = [item.exit_code for item in found]
    first = codes.index(REGRESSION)
    assert set(codes[:first]) == {PASS} and set(codes[first:]) == {REGRESSION}
    assert [(item.case, item.why, item.drift) for item in found[first].withheld] == [(DRIFTING, "regression", True)]


def test_nights_that_scatter_do_not_drift_and_what_got_faster_begins_anew(nights: Archived) -> None:
    calm = drift(nights, 14, 1.0)
    assert not any(item.drift for item in calm) and {item.exit_code for item in calm} == {PASS}
    quick = {**CASES, DRIFTING: CASES[DRIFTING] / 1.3}
    assert nights.spend(quick).faster == [DRIFTING]
    lines = nights.archive.nights()
    assert [night.run for night in good_nights(DRIFTING, lines)] == [lines[-1].run]
    assert len(good_nights(case("x4"), lines)) == len(lines)
