"""HUD's rules with its labels: two values, two statuses, windows of days; and a faster time is never painted red."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze import hud, hud_gate
from steelyard.analyze.compare import RunsSide
from steelyard.analyze.foreign import read_file
from steelyard.analyze.foreign.parts import as_runs
from steelyard.analyze.gate import Judgement, gate
from steelyard.codec.hud import HudPolicy, HudWindows, RatioRule, WindowRule
from steelyard.codec.policy import Policy, load_policy
from steelyard.dialects.v3 import export
from steelyard.dialects.v3.results import read as v3_read
from steelyard.errors import UsageError
from steelyard.model.record import Figure
from steelyard.report.labels import DIRECTIONS, labelled, values_text
from steelyard.report.markdown import markdown
from steelyard.report.verdict import verdict_document, verdict_page
from steelyard.store.runs import Run
from tests.analyze.saved import case, record, side

ROOT = Path(__file__).parents[2]
ANY = RatioRule("*")
AT_MOST = WindowRule("time", "min", "less_equal", 1.2)
AT_LEAST = WindowRule("speedup", "median", "greater_equal", 0.9)
DAY = hud.DAY


@pytest.mark.parametrize(
    ("new", "better", "label"),
    [
        (1.16, "lower", "regression"), (1.15, "lower", "neutral"), (0.85, "lower", "neutral"), (0.84, "lower", "good"),
        (0.89, "higher", "regression"), (0.9, "higher", "neutral"), (1.1, "higher", "neutral"), (1.11, "higher", "good"),
        (9.0, "none", "neutral"), (0.1, "none", "neutral"),
    ],
)  # fmt: skip
def test_a_ratio_goes_by_the_metrics_own_direction_and_thresholds_are_strict(new: float, better: str, label: str) -> None:
    assert hud.ratio_cell(ANY, 1.0, new, better).label == label


def test_a_rule_has_thresholds_of_its_own() -> None:
    strict = RatioRule("time", "down", 1.25, 0.75)
    labels = [hud.ratio_cell(strict, 2.0, new, "lower").label for new in (2.6, 2.5, 1.5, 1.4)]
    assert labels == ["regression", "neutral", "neutral", "good"]
    assert hud.ratio_cell(RatioRule("x", "up"), 1.0, 0.5).label == "regression"


@pytest.mark.parametrize(
    ("old", "new", "label"), [(None, None, "neutral"), (1.0, None, "missing"), (None, 1.0, "missing"), (-1.0, 1.0, "neutral")]
)
def test_what_is_missing_is_no_change(old: float | None, new: float | None, label: str) -> None:
    assert hud.ratio_cell(ANY, old, new, "lower").label == label


@pytest.mark.parametrize(
    ("new", "better", "label"),
    [(1.0, "lower", "regression"), (0.0, "lower", "neutral"), (1.0, "higher", "good"), (-1.0, "higher", "regression")],
)
def test_a_change_from_0_has_a_label_too(new: float, better: str, label: str) -> None:
    assert hud.ratio_cell(ANY, 0.0, new, better).label == label


def test_a_failure_is_a_warning() -> None:
    assert hud.ratio_cell(ANY, 1.0, None, "lower", failed=True).label == "warning"


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.sampled_from(["lower", "higher"]))
def test_the_better_side_is_never_red_and_the_worse_never_green(old: float, new: float, better: str) -> None:
    label = hud.ratio_cell(ANY, old, new, better).label
    gained = new < old if better == "lower" else new > old
    assert label != ("regression" if gained or new == old else "good")


def test_a_rule_that_calls_the_better_side_bad_is_refused() -> None:
    with pytest.raises(UsageError, match="calls a change for the better bad"):
        hud.ratio_cell(RatioRule("time", "up", 0.9, 1.1), 1.0, 0.5, "lower")
    with pytest.raises(UsageError, match="calls a change for the better bad") as told:
        hud.judge_series([], HudWindows(), replace(AT_MOST, condition="greater_equal"), 0.0, "lower")
    assert told.value.do == "use less_equal"


@pytest.mark.parametrize(
    ("old", "new", "label"),
    [
        (True, False, "regression"), (False, True, "good"), (False, False, "warning"), (True, True, "neutral"),
        (None, True, "missing"), (True, None, "missing"), (None, None, "neutral"),
    ],
)  # fmt: skip
def test_statuses(old: bool | None, new: bool | None, label: str) -> None:
    assert hud.status_cell(old, new).label == label


@pytest.mark.parametrize(
    ("text", "passes"),
    [("pass", True), ("PASSED", True), ("ok", True), ("fail_accuracy", False), ("FAILED", False), ("skipped", None), ("", None)],
)
def test_a_status_contains_pass_or_fail(text: str, passes: bool | None) -> None:
    assert hud.passed(text) is passes


@pytest.mark.parametrize(("kind", "value"), [("min", 1.0), ("max", 9.0), ("earliest", 4.0), ("target", 2.0), ("median", 3.0)])
def test_baselines(kind: str, value: float) -> None:
    assert hud.baseline_of([4.0, 1.0, 9.0, 3.0, 2.0], kind) == value  # type: ignore[arg-type]
    assert hud.baseline_of([], kind) is None  # type: ignore[arg-type]


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=9))
def test_the_median_is_a_point_that_was_measured(values: list[float]) -> None:
    assert hud.baseline_of(values, "median") in values


@pytest.mark.parametrize(
    ("condition", "below", "on", "above"),
    [
        ("greater_equal", True, False, False), ("greater_than", True, True, False), ("less_equal", False, False, True),
        ("less_than", False, True, True), ("equal_to", True, False, True),
    ],
)  # fmt: skip
def test_conditions(condition: str, below: bool, on: bool, above: bool) -> None:
    rule = WindowRule("x", "min", condition, 1.5)  # type: ignore[arg-type]
    assert [hud.violates(rule, value, 2.0) for value in (2.9, 3.0, 3.1)] == [below, on, above]


def test_equal_to_has_a_tolerance() -> None:
    rule = WindowRule("x", "min", "equal_to", 1.0, rel_tol=0.1)
    assert [hud.violates(rule, value, 10.0) for value in (9.0, 11.0, 8.9)] == [False, False, True]
    assert not hud.violates(rule, 0.09, 0.0)


EQUAL = WindowRule("latency", "median", "equal_to", 1.0)


def units_apart(unit: str, size: float, pattern: str = "latency") -> hud.SeriesLabel:
    """The label of a latency of 0.3 ms that becomes 0.32 ms, as a file has it in a unit."""
    runs = []
    for number, value in enumerate((0.3, 0.3, 0.3, 0.3, 0.32, 0.32)):
        row = {
            "timestamp": 1767225600 + 86400 * number, "workflow_id": number + 1, "benchmark": {"name": "b"}, "model": {"name": "m"},
            "metric": {"name": "latency", "benchmark_values": [value * size], "extra_info": {"unit": unit}},
        }  # fmt: skip
        (source,) = v3_read([row], Path("r.json"))
        runs += as_runs("v3", Path(f"{number}.json"), source)
    (found,) = hud_gate.report(runs, HudWindows(rules=(replace(EQUAL, pattern=pattern),)), None).series
    assert found.unit == "s" and found.verdict.baseline == pytest.approx(0.3e-3)
    return found.verdict.label


def test_the_tolerance_of_equal_to_is_in_the_files_unit_or_in_the_rules() -> None:
    assert units_apart("ms", 1.0) == "regression"
    assert units_apart("us", 1e3) == "regression"
    assert units_apart("s", 1e-3) == "no_regression"
    for unit, size in (("ms", 1.0), ("us", 1e3), ("s", 1e-3), ("ns", 1e6)):
        assert units_apart(unit, size, "latency (ms)") == "regression"
        assert units_apart(unit, size, "latency (s)") == "no_regression"


def test_a_saved_run_has_the_label_that_its_export_has(tmp_path: Path) -> None:
    runs = nights(0.3e-3, 0.3e-3, 0.3e-3, 0.3e-3, 0.32e-3, 0.32e-3)
    rules = HudWindows(rules=(replace(EQUAL, pattern="time"),))
    exported = []
    for number, run in enumerate(runs):
        (tmp_path / f"{number}.json").write_text(export.text(run))
        exported += read_file(tmp_path / f"{number}.json")
    labels = [hud_gate.report(found, rules, None).series[0].verdict.label for found in (runs, exported)]
    assert labels == ["regression", "regression"]


@pytest.mark.parametrize(
    ("flags", "label"),
    [
        ("", "insufficient_data"), ("x", "insufficient_data"), (".", "insufficient_data"), ("xx", "regression"), ("..xx", "regression"),
        ("xxx", "regression"), ("xxx.", "suspicious"), (".xxx.x", "suspicious"), ("xx.", "no_regression"), (".x", "no_regression"),
        ("x.x.x", "no_regression"), ("..", "no_regression"), ("xxxx.xx", "regression"),
    ],
)  # fmt: skip
def test_labels(flags: str, label: str) -> None:
    assert hud.label_of([flag == "x" for flag in flags]) == label


@pytest.mark.parametrize(
    ("labels", "status"),
    [
        (["no_regression"] * 9 + ["regression"], "regression"),
        (["insufficient_data"] * 99 + ["regression"], "regression"),
        (["no_regression", "suspicious"], "suspicious"),
        (["insufficient_data"] * 9 + ["no_regression"], "insufficient_data"),
        (["insufficient_data"] * 8 + ["no_regression"], "no_regression"),
        (["no_regression"], "no_regression"),
        ([], "unknown"),
    ],
)
def test_the_status_of_a_report(labels: list[hud.SeriesLabel], status: str) -> None:
    assert hud.report_status(labels) == status


def test_severities_go_from_least_to_worst() -> None:
    assert hud.SEVERITIES == ("unknown", "none", "no_regression", "insufficient_data", "suspicious", "regression")


def points(*values: float, step: float = 1.0) -> list[hud.SeriesPoint]:
    return [hud.SeriesPoint((number + 1) * step * DAY, value) for number, value in enumerate(values)]


def test_a_series_is_held_against_its_baseline_window() -> None:
    found = hud.judge_series(points(1.0, 1.1, 1.2, 1.1, 1.3, 1.4), HudWindows(), AT_MOST, 6 * DAY, "lower")
    assert (found.label, found.baseline) == ("regression", 1.0)
    assert [point.flagged for point in found.points] == [False, True, True]
    better = hud.judge_series(points(1.0, 1.1, 1.2, 0.1, 0.1, 0.1), HudWindows(), AT_MOST, 6 * DAY, "lower")
    assert better.label == "no_regression"
    fewer = hud.judge_series(points(2.0, 2.0, 2.0, 1.9, 1.7, 1.7), HudWindows(), AT_LEAST, 6 * DAY, "higher")
    assert fewer.label == "regression"


@pytest.mark.parametrize(
    ("values", "end", "reason"),
    [
        ((1.0, 1.0, 1.0), 3.0, "the baseline window is empty"),
        ((1.0, 1.0, 1.0), 9.0, "the comparison window is empty"),
        ((1.0, 1.0, 1.0, 9.0), 4.5, ""),
        ((), 4.0, "the comparison window is empty"),
    ],
)
def test_too_little_data(values: tuple[float, ...], end: float, reason: str) -> None:
    found = hud.judge_series(points(*values), HudWindows(), AT_MOST, end * DAY)
    assert (found.label, found.reason) == ("insufficient_data" if reason else "no_regression", reason)


def test_one_point_is_not_enough() -> None:
    found = hud.judge_series(points(1.0, 9.0, step=3), HudWindows(), AT_MOST, 6 * DAY)
    assert (found.label, found.reason) == ("insufficient_data", "fewer than 2 points")


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("Quantized Fwd Time (ms)", "quantized fwd time (ms)", True), ("quantized_fwd_time", "Quantized Fwd Time (ms)", True),
        ("*", "anything", True), ("time", "time (ms)", True), ("*time*", "compile_time", True), ("time", "compile_time", False),
        ("latency", "time", False),
    ],
)  # fmt: skip
def test_names_are_compared_without_case_unit_and_spelling(pattern: str, name: str, fits: bool) -> None:
    assert hud.fits(pattern, name) is fits


# In the gate

A, B = case("a"), case("b")
HUD = Policy(hud=HudPolicy(status=True, ratios=(ANY,)))


def judged(base: dict[str, float | str], head: dict[str, float | str], policy: Policy = HUD) -> Judgement:
    return gate(side("base", base), side("head", head), policy)


def test_the_gate_goes_by_the_ratio_alone() -> None:
    found = judged({A: 1e-3, B: 1e-3}, {A: 1.16e-3, B: 1.14e-3})
    assert (found.outcome, found.exit_code) == ("regression", 4)
    assert [(item.case, item.kind) for item in found.findings] == [(A, "regression"), (B, "same")]
    assert "HUD's ratio rule: 1.16 of base, and above 1.15 is bad" in found.findings[0].reason
    assert judged({A: 1e-3, B: 1e-3}, {A: 0.1e-3, B: 1.14e-3}).exit_code == 0


def test_the_gate_goes_by_status_where_asked() -> None:
    assert judged({A: 1e-3, B: 1e-3}, {A: "failed", B: 1e-3}).exit_code == 4
    assert judged({A: 1e-3, B: 1e-3}, {A: "failed", B: 1e-3}, Policy()).exit_code == 3
    again = judged({A: "failed", B: 1e-3}, {A: "failed", B: 1e-3})
    assert (again.exit_code, again.findings[0].kind, again.findings[0].counts) == (0, "failed", False)
    assert judged({A: "failed", B: 1e-3}, {A: 1e-3, B: 1e-3}).exit_code == 0


def shown(found: Judgement) -> list[tuple[str, str, str, str]]:
    """Label, metric, direction and values of every row of the table of labels."""
    return [(item.hud.label, item.hud.name, DIRECTIONS[item.hud.direction], values_text(item.hud)) for item in labelled(found) if item.hud]


def test_every_label_is_shown_with_direction_and_values_and_is_in_the_document() -> None:
    c, d, e, f = (case(name) for name in "cdef")
    base = {A: 1e-3, B: 1e-3, c: 1e-3, d: 1e-3, e: "failed", f: "failed"}
    found = judged(base, {A: 1.2e-3, B: 0.8e-3, c: 1.1e-3, e: 1e-3, f: "oom"})
    assert sorted(shown(found)) == [
        ("good", "status", "", "failed → ok"), ("good", "time", "lower is better", "1 → 0.8 ms"), ("missing", "status", "", "ok → missing"),
        ("neutral", "time", "lower is better", "1 → 1.1 ms"), ("regression", "time", "lower is better", "1 → 1.2 ms"),
        ("warning", "status", "", "failed → oom"),
    ]  # fmt: skip
    page = verdict_page(found).plain
    assert "HUD's labels: 1 regression, 1 warning, 1 missing, 2 good, 1 neutral" in page and max(map(len, page.splitlines())) <= 100
    for label, name, direction, values in shown(found):
        line = next(line for line in page.splitlines() if f" {label} " in line and values in line)
        assert name in line and direction in line
        assert f" {label} |" in markdown(found) and f"`{values}`" in markdown(found)
    assert "regressions (" not in page and "improvements (" not in page and "within the margin" not in page
    document = verdict_document(found)
    assert document["labels"] == {"regression": 1, "good": 2, "neutral": 1, "warning": 1, "missing": 1}
    told = {item["case"]: item["hud"] for item in document["findings"]}
    assert told[A] == {
        "label": "regression", "reason": "1.2 of base, and above 1.15 is bad", "name": "time", "direction": "down",
        "old": pytest.approx(1.0), "new": pytest.approx(1.2), "unit": "ms",
    }  # fmt: skip
    assert (found.exit_code, document["exit_code"]) == (4, 4) and found.headline.startswith("regression: 1 worse by HUD's rules")


@pytest.mark.parametrize(("time", "colours"), [(0.5e-3, set[str]()), (1.0e-3, set()), (2.0e-3, {"yellow"})])
def test_a_faster_time_is_never_painted_red(time: float, colours: set[str]) -> None:
    page = verdict_page(judged({A: 1e-3}, {A: time}))
    row = next(place for place, line in enumerate(page.plain.splitlines()) if "lower is better" in line)
    start = sum(len(line) + 1 for line in page.plain.splitlines()[:row])
    styles = {str(span.style) for span in page.spans if start <= span.start < start + 20} & {"red", "yellow", "green"}
    assert styles == colours


def test_without_a_rule_for_statuses_a_failure_is_a_warning_and_what_is_not_there_missing() -> None:
    ratios = Policy(hud=HudPolicy(ratios=(ANY,)))
    found = judged({A: 1e-3, B: 1e-3}, {A: "failed", B: 1e-3}, ratios)
    assert shown(found)[0] == ("warning", "time", "lower is better", "1 ms → failed") and found.exit_code == 3
    gone = judged({A: 1e-3, B: 1e-3}, {B: 1e-3}, ratios)
    assert shown(gone)[0] == ("missing", "time", "lower is better", "1 ms → missing") and gone.exit_code == 3
    back = judged({A: "failed", B: 1e-3}, {A: 1e-3, B: 1e-3}, ratios)
    assert shown(back)[0] == ("missing", "time", "lower is better", "failed → 1 ms") and back.exit_code == 0


def test_a_status_rule_alone_leaves_the_rest_to_the_margins() -> None:
    found = judged({A: 1e-3, B: 1e-3}, {A: 9e-3, B: 1e-3}, Policy(unconfirmed="fail", hud=HudPolicy(status=True)))
    assert shown(found) == [("neutral", "status", "", "ok → ok")] * 2
    page = verdict_page(found).plain
    assert "slower" in page.partition("HUD's labels: 2 neutral")[2] and "worse by HUD" not in page
    assert [item.kind for item in found.findings] == [item.kind for item in judged({A: 1e-3, B: 1e-3}, {A: 9e-3, B: 1e-3},
                                                                                   Policy(unconfirmed="fail")).findings]  # fmt: skip


def test_a_figure_that_was_0_is_judged_in_the_gate() -> None:
    found = gate(with_figure("errors", 0.0, "lower"), with_figure("errors", 5.0, "lower"), HUD)
    assert (found.exit_code, shown(found)) == (4, [("regression", "errors", "lower is better", "0 → 5")])
    better = gate(with_figure("errors", 5.0, "lower"), with_figure("errors", 0.0, "lower"), HUD)
    assert (better.exit_code, shown(better)) == (0, [("good", "errors", "lower is better", "5 → 0")])


def test_a_figure_of_no_known_direction_is_told_and_not_judged() -> None:
    base, head = with_figure("frobs", 1.0, "none"), with_figure("frobs", 9.0, "none")
    assert any("it is unknown which direction of frobs is better" in note for note in gate(base, head, HUD).notes)
    assert gate(base, head, Policy(hud=HudPolicy(ratios=(RatioRule("frobs", "down"),)))).exit_code == 4


def with_figure(name: str, value: float, better: str) -> RunsSide:
    made = side("x", {A: 1e-3})
    (run,) = made.runs
    figure = Figure(value, "1", better)  # type: ignore[arg-type]
    return RunsSide("x", (replace(run, path=Path(str(value)), records=(replace(run.records[0], metrics={name: figure}),)),))


@pytest.mark.parametrize(("new", "better", "code"), [(0.5, "higher", 4), (2.0, "higher", 0), (2.0, "lower", 4), (0.5, "lower", 0)])
def test_other_figures_than_time_are_judged_in_their_direction(new: float, better: str, code: int) -> None:
    found = gate(with_figure("speedup", 1.0, better), with_figure("speedup", new, better), HUD)
    assert found.exit_code == code and len(found.findings) == 1


def test_figures_about_the_measuring_have_to_be_named() -> None:
    base, head = with_figure("build_time", 1.0, "lower"), with_figure("build_time", 9.0, "lower")
    with pytest.raises(UsageError, match="no figure of these runs"):
        gate(base, head, HUD)
    assert gate(base, head, Policy(hud=HudPolicy(ratios=(RatioRule("build_time"),)))).exit_code == 4


def test_a_rule_for_a_figure_that_nothing_has_is_a_mistake_and_one_that_is_idle_is_told() -> None:
    with pytest.raises(UsageError, match="no figure of these runs named 'tim'"):
        judged({A: 1e-3}, {A: 1e-3}, Policy(hud=HudPolicy(ratios=(RatioRule("tim"),))))
    found = judged({A: 1e-3}, {A: 1e-3}, Policy(hud=HudPolicy(ratios=(ANY, RatioRule("latency"), RatioRule("qps")), windows=HudWindows())))
    assert any('hud.ratio."qps" in the policy' in note for note in found.notes)
    assert any("steelyard as v3 policy uses it" in note for note in found.notes)


def test_a_rule_against_the_direction_is_refused_by_the_gate() -> None:
    with pytest.raises(UsageError, match="calls a change for the better bad"):
        judged({A: 1e-3}, {A: 1e-3}, Policy(hud=HudPolicy(ratios=(RatioRule("time", "up", 0.9),))))


def test_what_is_expected_is_excused_under_hud_too(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(f"[hud]\nstatus = true\n[expected]\n'{A}' = 'failed'\n")
    assert judged({A: 1e-3, B: 1e-3}, {A: "failed", B: 1e-3}, load_policy(tmp_path / "p.toml")).exit_code == 0


# Over days


def nights(*times: float | str, branch: str = "main", key: str = "m") -> list[Run]:
    made = []
    for number, time in enumerate(times):
        (run,) = side(f"n{number}", {A: time}).runs
        machine = {"git": {"commit": f"abc{number}", "branch": branch}}
        header = replace(run.header, created=f"2026-01-{number + 1:02d}T00:00:00Z", machine_key=key, machine=machine)
        made.append(replace(run, header=header))
    return made


def test_a_report_has_a_series_for_each_branch_and_machine() -> None:
    slow, fine = nights(1, 1, 1, 1, 2, 2), nights(1, 1, 1, 1, 1, 1, branch="other")
    found = hud_gate.report([*slow, *fine, *nights(1, key="else")], HudWindows(rules=(AT_MOST,)), None)
    assert [(item.branch, item.machine, item.verdict.label) for item in found.series] == [
        ("main", "m", "regression"), ("main", "else", "insufficient_data"), ("other", "m", "no_regression"),
    ]  # fmt: skip
    assert found.status == "regression" and not found.stale


def test_failed_nights_are_no_points_and_old_data_is_stale() -> None:
    found = hud_gate.report(nights(1, 1, 1, "failed", "failed", 9), HudWindows(rules=(AT_MOST,)), None)
    assert found.series[0].verdict.label == "insufficient_data"
    end = 1767225600.0 + 5 * DAY
    assert not hud_gate.report(nights(1, 1, 1, 1, 1, 1), HudWindows(rules=(AT_MOST,)), end + 2 * DAY).stale
    assert hud_gate.report(nights(1, 1, 1, 1, 1, 1), HudWindows(rules=(AT_MOST,)), end + 2 * DAY + 1).stale


def test_metrics_without_a_rule_are_skipped_and_no_rule_at_all_is_a_mistake() -> None:
    (run,) = nights(1.0)
    extra = replace(run, records=(record(A, 1.0, metrics={"qps": Figure(1.0, "1", "higher")}),))
    assert hud_gate.report([extra], HudWindows(rules=(AT_MOST,)), None).skipped == ["qps"]
    with pytest.raises(UsageError, match="no metric in these runs named 'speedup'"):
        hud_gate.report([extra], HudWindows(rules=(AT_LEAST,)), None)
    with pytest.raises(UsageError, match="no run says when"):
        hud_gate.report([replace(run, header=replace(run.header, created=""))], HudWindows(rules=(AT_MOST,)), None)


# In a file


def test_the_example_has_huds_rules_for_torchao() -> None:
    found = load_policy(ROOT / "examples" / "hud-torchao.toml").hud
    assert found and found.status and found.windows
    assert (found.windows.baseline_days, found.windows.comparison_days, found.windows.stale_days) == (3, 3, 2)
    assert [(rule.pattern, rule.baseline, rule.condition, rule.threshold) for rule in found.windows.rules] == [
        ("Bfloat16 Fwd Time (ms)", "min", "less_equal", 1.2), ("Quantized Fwd Time (ms)", "min", "less_equal", 1.2),
        ("Fwd Speedup (x)", "median", "greater_equal", 0.9),
    ]  # fmt: skip
    assert found.ratios == (RatioRule("*"), RatioRule("Quantized Fwd Time (ms)", "down", 1.15, 0.85))


WINDOW = '[hud.window.metrics."x"]\nbaseline = "min"\ncondition = "less_equal"\nthreshold = 1.2\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("hud = 3", "hud: expected a table"),
        ("[hud]\n", "hud: the table is empty"),
        ("[hud]\nstatus = 1", "hud.status: expected true or false"),
        ("[hud]\nstaus = true", "hud.staus: unknown key"),
        ('[hud.ratio."x"]\nbad = 1.2\ngood = 1.3', "contradict each other"),
        ('[hud.ratio."x"]\nbad = 0.9\ndirection = "down"', "contradict each other"),
        ('[hud.ratio."x"]\nbad = -1', "expected a factor"),
        ('[hud.ratio."x"]\nbad = "1.2"', "expected a factor"),
        ('[hud.ratio."x"]\nbed = 1.2', "unknown key"),
        ('[hud.ratio."x"]\ndirection = "sideways"', "expected one of up, down"),
        ("[hud.window]\nbaseline_days = 3", "hud.window.metrics: no metric has a rule"),
        (f"[hud.window]\nbaseline_days = 0\n{WINDOW}", "hud.window.baseline_days: expected a number of days"),
        (WINDOW.replace("min", "mean"), "baseline: expected one of min, max, earliest, target, median"),
        (WINDOW.replace("less_equal", "smaller"), "condition: expected one of"),
        (WINDOW.replace("threshold = 1.2", ""), "threshold: is missing"),
        (WINDOW.replace("1.2", "nan"), "threshold: expected a factor"),
    ],
)
def test_mistakes_are_named(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError) as told:
        load_policy(tmp_path / "p.toml")
    assert what in str(told.value) and "p.toml" in str(told.value)
