"""Every case of the base gets a verdict or a reason, and no verdict says more than unpaired runs can."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import Comparison, Mean, RunsSide, compare, mean_ratios, own_pairs, suspicious
from steelyard.errors import UsageError
from steelyard.model.pair import Arm, Delta, Pair
from steelyard.model.record import Figure, Record, Status
from tests.analyze.made import case, record, run, side

QUIET = [1e-3 * (1 + 0.002 * math.sin(7 * number)) for number in range(20)]


def verdicts(found: Comparison) -> dict[str, str]:
    return {delta.head: delta.verdict for delta in found.deltas}


def one(base: Record, head: Record, **options: object) -> Delta:
    found = compare(RunsSide("b", (run("b", [base]),)), RunsSide("h", (run("h", [head], 1),)), **options)  # type: ignore[arg-type]
    return found.deltas[0]


def pair(head: str, ratio: float, half: float = 0.005, base: str = "") -> Pair:
    return Pair(Arm(base or head), Arm(head), ratio, ratio - half, ratio + half, 0.99, 8, 64, 1, (4, 4))


def test_the_one_case_that_doubled_is_seen_and_is_only_suspect() -> None:
    found = compare(side("b", QUIET), side("h", [QUIET[0] * 2, *QUIET[1:]], first=1))
    assert verdicts(found)[case(0)] == "slower"
    assert {verdict for id, verdict in verdicts(found).items() if id != case(0)} <= {"same", "unclear"}
    delta = found.deltas[0]
    assert not delta.paired and delta.reason == "unpaired, not confirmed"
    assert delta.ratio == pytest.approx(2, rel=1e-6) and delta.low is not None and 1.9 < delta.low < 2
    assert any(note.startswith("unpaired") for note in found.notes)


def test_what_all_cases_did_together_is_not_called_a_change() -> None:
    """A machine that is 10 % slower that day looks the same as a change of everything."""
    found = compare(side("b", QUIET), side("h", [1.1 * value for value in QUIET], first=1))
    assert set(verdicts(found).values()) == {"unclear"}
    assert found.suite is not None and found.suite.delta.ratio == pytest.approx(1.1)
    assert not any("together" in note for note in found.notes)
    assert all(delta.low is not None and delta.low < 1 < 1.1 < (delta.high or 0) for delta in found.deltas)


def test_runs_that_alternate_tell_a_change_of_everything_from_drift() -> None:
    noisy = [[value * factor for value in QUIET] for factor in (1.0, 1.004, 0.997, 1.001)]
    slower = [[1.1 * value for value in table] for table in noisy]
    apart = compare(side("b", *noisy), side("h", *slower, first=10))
    assert set(verdicts(apart).values()) == {"unclear"}
    mixed = compare(side("b", *noisy, step=2), side("h", *slower, first=1, step=2))
    assert set(verdicts(mixed).values()) == {"slower"}


def test_nothing_is_dropped() -> None:
    base = [record(case(1)), record(case(2)), record(case(3)), record(case(4), source={"workload": "x"}), record(case(5))]
    head = [
        record(case(5)),
        record(case(2), status="oom", reason="asked for 17 GB"),
        record(case(4), source={"workload": "y"}),
        record(case(9)),
    ]
    head.append(replace(record(case(3)), metrics={}))
    found = compare(RunsSide("b", (run("b", base),)), RunsSide("h", (run("h", head, 1),)))
    assert [(delta.head, delta.verdict) for delta in found.deltas] == [
        (case(1), "missing"), (case(2), "failed"), (case(3), "missing"), (case(4), "incomparable"), (case(5), "unclear"),
    ]  # fmt: skip
    reasons = {delta.head: delta.reason for delta in found.deltas}
    assert reasons[case(2)] == "head is oom (asked for 17 GB)"
    assert "--allow-edited" in reasons[case(4)] and reasons[case(3)] == "head has no time"
    assert found.new == [case(9)]
    assert {metric: mean[:2] for metric, mean in found.means.items()} == {"time": (1.0, 1)}


def test_an_edited_workload_can_be_compared_on_demand_and_an_edited_variant_always() -> None:
    edited = [record(case(1), source={"workload": name, "variant": "v"}) for name in ("old", "new")]
    assert one(*edited).verdict == "incomparable"
    assert one(*edited, allow_edited=True).ratio == 1
    variants = [record(case(1), source={"workload": "w", "variant": name}) for name in ("old", "new")]
    assert one(*variants).ratio == 1


def test_machines_are_not_compared_unless_one_is_unknown() -> None:
    base = side("b", QUIET, machine_key="one")
    assert set(verdicts(compare(base, side("h", QUIET, machine_key="two", first=1))).values()) == {"incomparable"}
    unknown = compare(base, side("h", QUIET, machine_key="", first=1))
    assert len(unknown.comparable) == 20 and any("assumed to be from one machine" in note for note in unknown.notes)


def test_both_sides_must_be_ok_and_the_newest_record_of_a_side_counts() -> None:
    assert one(record(case(1), status="wrong"), record(case(1))).reason == "base is wrong"
    mended = RunsSide("h", (run("h1", [record(case(1), status="crashed")], 1), run("h2", [record(case(1))], 2)))
    assert compare(side("b", {1: 1e-3}), mended).deltas[0].ratio == 1
    broken = RunsSide("h", tuple(reversed(mended.runs)))
    assert compare(side("b", {1: 1e-3}), broken).deltas[0].verdict == "failed"


@pytest.mark.parametrize(("base", "head"), [("unsupported", "unsupported"), ("skipped", "ok"), ("ok", "not_applicable")])
def test_what_a_side_cannot_do_is_not_comparable_and_no_failure(base: Status, head: Status) -> None:
    found = one(record(case(1), status=base, reason="no such dtype"), record(case(1), status=head))
    assert found.verdict == "incomparable" and ("base is" in found.reason, "head is" in found.reason) == (base != "ok", head != "ok")
    assert one(record(case(1), status=base), record(case(1), status="crashed")).verdict == "failed"


def test_for_rates_less_is_worse() -> None:
    def rated(value: float) -> list[Record]:
        return [replace(record(case(n)), metrics={"rate": Figure(value if n == 0 else 1e9, "B/s", "higher")}) for n in range(12)]

    faster = [replace(item, metrics={"rate": Figure(1.1e9, "B/s", "higher")}) for item in rated(1e9)]
    notes = compare(RunsSide("b", (run("b", rated(1e9)),)), RunsSide("h", (run("h", faster, 1),)), metrics=["rate"]).notes
    assert any(note.startswith("all 12 cases together: 10 % more rate; ") for note in notes)
    found = compare(RunsSide("b", (run("b", rated(1e9)),)), RunsSide("h", (run("h", rated(5e8), 1),)), metrics=["rate"])
    assert found.deltas[0].verdict == "slower" and found.deltas[0].ratio == pytest.approx(0.5)
    found = compare(RunsSide("b", (run("b", rated(1e9)),)), RunsSide("h", (run("h", rated(2e9), 1),)), metrics=["rate"])
    assert found.deltas[0].verdict == "faster" and found.means["rate"][:2] == (pytest.approx(2 ** (1 / 12)), 12)


def test_a_metric_that_nothing_has_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="no metric named 'tme'"):
        compare(side("b", QUIET), side("h", QUIET, first=1), metrics=["tme"])


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_figure_without_a_logarithm_is_incomparable(value: float) -> None:
    delta = one(record(case(1)), replace(record(case(1)), metrics={"time": Figure(value, "s", "lower", value, value)}))
    assert delta.verdict == "incomparable" and "not a positive number" in delta.reason


def test_a_single_pair_of_runs_says_what_noise_it_assumes_and_a_known_floor_replaces_it() -> None:
    base, head = side("b", [1e-3]), side("h", [1.2e-3], first=1)
    assumed = compare(base, head)
    assert assumed.deltas[0].verdict == "unclear" and any("10 %, assumed" in note for note in assumed.notes)
    known = compare(base, head, floor=0.01)
    assert known.deltas[0].verdict == "slower" and any("1.0 %, as given" in note for note in known.notes)


def test_margins_are_per_metric() -> None:
    base, head = side("b", [1e-3]), side("h", [1.01e-3], first=1)
    assert compare(base, head, floor=0.0001).deltas[0].verdict == "same"
    tight = compare(base, head, floor=0.0001, margins={"time": 0.005, "other": 0.5}).deltas[0]
    assert tight.verdict == "slower" and tight.material and tight.margin == 0.005


def test_a_finding_must_stand_among_all_cases() -> None:
    """One case in 200 whose interval just excludes one is what chance gives."""
    head = [value * math.exp(0.02 * math.sin(41 * number + 1)) for number, value in enumerate(QUIET * 10)]
    head[0] = QUIET[0] * 1.16
    found = compare(side("b", QUIET * 10), side("h", head, first=1))
    assert found.deltas[0].direction == 1 and found.deltas[0].verdict == "unclear" and "chance" in found.deltas[0].reason


def test_suspects_are_measured_again_before_anything_is_called_a_change() -> None:
    asked: list[str] = []

    def again(deltas: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        asked.extend(delta.head for delta in deltas)
        return [pair(case(0), 1.3), pair(case(1), 1.001)], {case(2): "crashed: gone"}

    head = [QUIET[0] * 1.3, QUIET[1] * 1.5, QUIET[2] * 1.4, *QUIET[3:]]
    found = compare(side("b", QUIET), side("h", head, first=1), confirm=again)
    assert asked[0] == case(1) and set(asked) == {case(0), case(1), case(2)}
    kinds = [(delta.verdict, delta.paired) for delta in found.deltas[:3]]
    assert kinds == [("slower", True), ("same", True), ("slower", False)]
    assert any("2 of 3 suspicious" in note for note in found.notes)
    assert f"not confirmed, so judged as before: {case(2)}: crashed: gone" in found.notes
    assert found.means["time"][0] == pytest.approx(math.exp(math.fsum(math.log(delta.ratio or 1) for delta in found.deltas) / 20))
    calm = compare(side("b", QUIET), side("h", QUIET, first=1), confirm=again)
    assert len(asked) == 3 and any("no case looked changed" in note for note in calm.notes)


def test_what_was_measured_again_must_stand_among_the_others_measured_again() -> None:
    def again(deltas: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        return [replace(pair(delta.head, 1.02), p=0.006) for delta in deltas], {}

    head = [value * (1.4 if number < 3 else 1) for number, value in enumerate(QUIET)]
    found = compare(side("b", QUIET), side("h", head, first=1), confirm=again)
    assert [delta.verdict for delta in found.deltas[:3]] == ["slower"] * 3

    def one_of_three(deltas: list[Delta]) -> tuple[list[Pair], dict[str, str]]:
        return [replace(pair(delta.head, 1.02), p=0.006 if delta.head == case(0) else 0.5) for delta in deltas], {}

    found = compare(side("b", QUIET), side("h", head, first=1), confirm=one_of_three)
    assert found.deltas[0].verdict == "unclear" and "chance" in found.deltas[0].reason and found.deltas[0].paired


def test_what_is_unclear_but_far_off_is_suspicious_too() -> None:
    delta = compare(side("b", [1e-3]), side("h", [1.05e-3], first=1)).deltas[0]
    assert delta.verdict == "unclear" and suspicious(delta)
    assert not suspicious(replace(delta, ratio=1.01)) and not suspicious(replace(delta, paired=True))


def test_a_run_against_itself_is_its_own_pairs() -> None:
    records = [record(case(1)), record(case(1, "compile"), 5e-4), record(case(2)), record(case(3), status="failed", reason="no")]
    lost = replace(record(case(4)), effective={"unweighed": "it ran out of time"})
    pairs = (pair(case(1, "compile"), 0.5, base=case(1)), pair(case(3), 1.0, base=case(2)))
    whole = RunsSide("k3f9", (replace(run("k3f9", [*records, lost, record(case(5))]), pairs=pairs),))
    found = compare(whole, whole)
    assert [(delta.verdict, delta.paired) for delta in found.deltas] == [("faster", True), ("failed", True), ("failed", True)]
    assert found.deltas[2].reason == "not weighed: it ran out of time"
    assert found.means["time"][:2] == (0.5, 1)
    assert "1 case had no partner to be compared with" in found.notes
    base, head = found.figures["time"][case(1, "compile")]
    assert base and head and (base.value, head.value) == (1e-3, 5e-4)


@pytest.mark.parametrize(("low", "high"), [(0.9, math.inf), (0.0, 1.1), (math.exp(-50), math.exp(50)), (math.nan, 2.0)])
def test_a_pair_without_an_end_says_nothing(low: float, high: float) -> None:
    odd = replace(pair(case(2), 1.0, base=case(1)), low=low, high=high)
    found = own_pairs(RunsSide("k", (replace(run("k", [record(case(1)), record(case(2))]), pairs=(odd,)),)))
    assert found.deltas[0].verdict == "unclear" and "unbounded" in found.deltas[0].reason and not found.comparable


def test_a_pair_is_judged_by_the_margin_it_was_measured_for() -> None:
    tight = replace(pair(case(2), 1.01, base=case(1)), margin=0.001)
    whole = RunsSide("k", (replace(run("k", [record(case(1)), record(case(2))]), pairs=(tight,)),))
    assert own_pairs(whole).deltas[0].verdict == "slower" and own_pairs(whole, margins={"time": 0.02}).deltas[0].verdict == "same"


def test_a_run_cannot_be_on_both_sides() -> None:
    base = side("b", QUIET, QUIET)
    with pytest.raises(UsageError, match="on both sides"):
        compare(base, RunsSide("h", (base.runs[0],)))


def test_notes_name_commits_and_versions() -> None:
    def made(name: str, commit: str, torch: str, hour: int) -> RunsSide:
        records = [record(case(n), environment={"torch": torch}) for n in range(3)]
        return RunsSide(name, (run(name, records, hour, machine={"git": {"commit": commit, "dirty": name == "h"}}),))

    notes = compare(made("b", "a" * 40, "2.12.0", 0), made("h", "b" * 40, "2.13.0", 1)).notes
    assert "base is at commit aaaaaaaaaa, head at bbbbbbbbbb with changes" in notes
    assert "versions differ: torch 2.12.0 → 2.13.0" in notes


times = st.floats(1e-9, 1e6)


@given(st.lists(times, min_size=1, max_size=12), st.lists(times, min_size=1, max_size=12))
def test_any_positive_times_give_an_interval_around_the_ratio(base: list[float], head: list[float]) -> None:
    found = compare(side("b", base), side("h", head, first=1))
    assert len(found.deltas) == len(base) and len(found.new) == max(0, len(head) - len(base))
    for delta in found.comparable:
        assert delta.ratio and delta.low and delta.high and delta.low <= delta.ratio <= delta.high
        assert delta.p is not None and 0 <= delta.p <= 1
        assert delta.verdict != "slower" or delta.low > 1
        assert delta.verdict != "faster" or delta.high < 1


def test_a_mean_reaches_as_far_as_its_cases_do_when_they_err_together() -> None:
    found = compare(side("b", QUIET), side("h", QUIET, first=1))
    mean, n, low, high = found.means["time"]
    assert low == pytest.approx(math.prod(delta.low or 0 for delta in found.deltas) ** (1 / len(found.deltas)))
    assert low and high and low < mean < high and n == len(found.deltas)
    assert mean_ratios([replace(delta, high=None) for delta in found.deltas])["time"][2:] == (None, None) and mean_ratios([]) == {}


@given(st.floats(0.5, 2), st.floats(0.5, 2), st.floats(0.5, 2))
def test_a_mean_states_a_direction_only_where_its_interval_has_one(one: float, two: float, three: float) -> None:
    low, ratio, high = sorted((one, two, three))
    words = Mean(ratio, 3, low, high).words("time")
    assert words.endswith(", geometric mean of 3")
    assert ("slower" in words or "faster" in words) is not (low < 1 < high)


def test_a_pair_that_was_mostly_disturbed_is_shown_and_enters_neither_the_mean_nor_what_all_cases_say() -> None:
    """Its ratio is that of the half that was left."""
    ids = [case(number) for number in range(4)]
    quiet = [pair(case(number, "compile"), 1.0, 0.01, id) for number, id in enumerate(ids)]
    bad = replace(pair(case(9, "compile"), 3.0, 0.01, case(9)), discarded={"base": 0.6}, p=1e-9)
    records = [record(arm.id) for item in (*quiet, bad) for arm in (item.base, item.head)]
    with_it, without = (own_pairs(RunsSide("k", (replace(run("k", records), pairs=tuple(some)),))) for some in ([*quiet, bad], quiet))
    last = with_it.deltas[-1]
    assert last.verdict == "unclear" and last.disturbed and "disturbed" in last.reason and last.ratio == 3.0
    assert with_it.means == without.means and with_it.means["time"].n == 4
    assert with_it.suite == without.suite and with_it.suite is not None and with_it.suite.cases == 4
