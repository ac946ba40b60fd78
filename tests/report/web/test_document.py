"""The document holds what the page promises, from whatever runs, and says in words what is wrong with them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide
from steelyard.analyze.foreign import read_file
from steelyard.analyze.history import Change, History, Point, histories
from steelyard.cli.main import main
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.pair import Pair
from steelyard.model.record import STATUSES, Attachment, Figure, Record, Verification
from steelyard.report.web.document import document
from steelyard.report.web.over_time import newest_of, within
from steelyard.store.runs import Header, Run, Seal, Store, read_run
from tests.analyze import foreign_samples
from tests.analyze.saved import case, pair, record, save
from tests.report.web.shape import check

MACHINE = {
    "cpu": {"model": "AMD EPYC", "cores": 2, "cpus": 2}, "gpus": [{"name": "NVIDIA H200", "driver": "580.159", "clocks_set": False}],
    "os": {"system": "Linux", "kernel": "6.18.44"}, "packages": {"torch": "2.13.0", "jax": None},
    "git": {"commit": "a" * 40, "dirty": True},
}  # fmt: skip


def run(answers: dict[str, float | str], *pairs: Pair, name: str = "a", **header: Any) -> Run:
    records = tuple(record(id, answer) for id, answer in answers.items())
    known = {"machine_key": "m" * 12, "created": "2026-01-02T03:00:00Z", **header}
    return Run(Path(name), Header(id=name, **known), records, pairs, Seal("", len(records)))


def made(*runs: Run, **options: Any) -> dict[str, Any]:
    """A document, held to its shape."""
    found = document(runs, **options)
    check(found)
    return found


def test_the_shape_of_a_document_can_be_wrong() -> None:
    good = document([run({case("a"): 1.0})])
    for change in ({"title": 1}, {"warnings": None}, {"more": 1}, {"cases": [{**good["cases"][0], "status": "fine"}]}):
        with pytest.raises(AssertionError):
            check({**good, **change})
    with pytest.raises(AssertionError):
        check({name: value for name, value in good.items() if name != "matrix"})


def test_a_real_run_of_the_fake_backend_is_whole(tmp_path: Path) -> None:
    axes = "noise=[0.0,0.01]"
    arguments = ["run", "fake/work", "-a", axes, "-V", "eager,half", "--vs", "eager", "--budget", "50ms", "--store", str(tmp_path)]
    assert main(arguments) == 0
    found = made(Store(tmp_path).open("latest"))
    assert [item["label"] for item in found["cases"]] == ["noise=0.0 eager", "noise=0.0 half", "noise=0.01 eager", "noise=0.01 half"]
    assert all(item["samples"]["time"] and item["verification"]["status"] == "passed" for item in found["cases"])
    assert found["banner"]["tone"] == "good" and "On fake/work noise=0.0, half against eager: 2.0" in found["banner"]["text"]
    assert found["banner"]["sentences"] == [found["banner"]["text"]]
    assert found["title"].startswith("fake/work") and "run" not in found["title"]
    speedups = found["matrix"]["by_baseline"]["fake/eager"]["speedups"]
    assert [row[1][3] for row in speedups] == [1, 1] and speedups[0][1][0] == pytest.approx(2, rel=0.01)
    assert found["comparison"]["paired"] and found["sweep"][0]["axis"] == "noise" and found["warnings"] == []
    assert {"build_time", "first_call_time", "time"} <= set(found["metrics"]) and found["metrics"]["time"]["label"] == "time per call"
    assert found["cases"][1]["repeat"] == f"steelyard run {shlex.quote(found['cases'][1]['id'])} --budget 0.05s --vs eager"


def test_the_newest_record_of_each_case_is_shown_and_older_ones_make_its_history() -> None:
    nights = [run({case("a"): 1.0 + night, case("b"): 1.0}, name=f"r{night}", created=f"2026-01-0{night}T03:00:00Z") for night in (1, 2, 3)]
    nights.append(run({case("b"): "oom"}, name="r4", created="2026-01-04T03:00:00Z"))
    found = made(*nights)
    assert [(item["id"], item["run"], item["number"], item["status"]) for item in found["cases"]] == [
        (case("a"), 2, 1, "ok"), (case("b"), 3, 1, "oom"),
    ]  # fmt: skip
    assert [(item["case"], len(item["points"]), item["broken"]) for item in found["history"]["series"]] == [
        (case("a"), 3, 0), (case("b"), 3, 1),
    ]  # fmt: skip
    assert found["history"]["trends"]["columns"] == ["torch/eager"]


def test_nights_from_a_store_are_told_since_when(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for night in range(24):
        git = {"commit": f"{night:02x}" * 20, "dirty": False}
        time = (1.0 if night < 12 else 1.06) * (1 + 0.001 * (night % 4))
        save(store, {case("a"): time, case("b"): 1.0}, created=f"2026-01-{night + 1:02}T03:00:00Z", git=git)
    found = made(store.open("latest"), series=histories(store))
    assert found["banner"]["tone"] == "bad"
    assert found["banner"]["text"].startswith("Slower since 2026-01-13: op/a 6.00 % slower [5.89, 6.11] (0b0b0b0b0b..0c0c0c0c0c).")
    (change,) = found["history"]["series"][0]["changes"]
    assert (change["index"], change["last"], change["first"]) == (12, "0b" * 20, "0c" * 20)


def test_a_comparison_with_a_base_lists_what_changed_and_what_could_not_be_compared() -> None:
    base = run({case("a"): 1.0, case("b"): 1.0, case("c"): 1.0, case("gone"): 1.0, case("sick"): "failed"}, name="old")
    head = run({case("a"): 2.0, case("b"): 1.0, case("c"): "wrong", case("new"): 1.0}, name="head", created="2026-01-03T03:00:00Z")
    found = made(head, base=RunsSide("old", (base,)))
    told = found["comparison"]
    assert (told["base"], told["head"], told["paired"], told["new"], told["missing"]) == (
        "old", "head", False, [case("new")], [case("gone"), case("sick")],
    )  # fmt: skip
    assert {delta["case"]: delta["verdict"] for delta in told["deltas"]}[case("a")] == "slower"
    assert [(item["case"], item["side"], item["status"]) for item in told["bad"]] == [
        (case("sick"), "base", "failed"), (case("c"), "head", "wrong"),
    ]  # fmt: skip
    first = told["deltas"][0]
    assert first["before"] == [1, 0.999, 1.001, 40] and first["after"][0] == 2
    assert (
        found["banner"]["tone"] == "bad" and "1 of 2 comparable cases looks slower than old (op/a 2.0x slower [" in found["banner"]["text"]
    )
    assert "2 cases of the base are missing" in found["banner"]["text"] and "geometric mean of 2" in found["banner"]["text"]
    assert "not confirmed" in found["banner"]["text"] and "1 wrong" in found["banner"]["text"]


def test_what_changed_in_the_environment_is_told_also_when_the_run_before_is_only_in_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for night, version in enumerate(("2.12", "2.13"), 1):
        with store.create(Header(created=f"2026-01-0{night}T03:00:00Z", machine_key="m" * 12)) as writer:
            writer.append(record(case("a"), 1.0, environment={"torch": version}, source={"workload": version}))
            writer.seal()
    both = [store.open("latest~1"), store.open("latest")]
    for found in (made(*both), made(both[1], series=histories(store))):
        assert found["cases"][0]["differs"] == ["source of the workload", "torch 2.12 → 2.13"]
    assert made(both[1])["cases"][0]["differs"] is None


def test_machines_and_runs_are_told_in_words() -> None:
    found = made(run({case("a"): 1.0}, machine=MACHINE, command=["steelyard", "run", "a b"], version="0.1.0"))
    (card,) = found["machines"]
    assert card["name"] == "H200 · AMD EPYC · 2 cores · Linux 6.18"
    assert ["GPU", "NVIDIA H200 · driver 580.159 · clocks not locked"] in card["facts"] and all(text for _, text in card["facts"])
    (entry,) = found["runs"]
    assert (entry["command"], entry["commit"], entry["dirty"]) == ("steelyard run 'a b'", "a" * 40, True)
    assert entry["environment"] == {"torch": "2.13.0"} and entry["counts"] == {"ok": 1}


def test_versions_of_backends_that_ran_elsewhere_are_told_with_the_run() -> None:
    one = run({case("a"): 1.0}, machine=MACHINE)
    elsewhere = [record("op/a[n=1]@jax/jit:eval", 1.0, environment={"jax": version, "numpy": "9"}) for version in ("0.10.2", "0.11.0")]
    other = record("op/a[n=1]@torch/eager:eval", 1.0, environment={"torch": "2.9"})
    (entry,) = made(replace(one, records=[*one.records, *elsewhere, other]))["runs"]
    assert entry["environment"] == {"torch": "2.13.0 and 2.9", "jax": "0.10.2 and 0.11.0"}


def damaged(store: Store, change: Callable[[bytes], bytes]) -> dict[str, Any]:
    path = store.open("latest").path
    file = path / "run.jsonl"
    file.write_bytes(change(file.read_bytes()))
    return made(read_run(path))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run of two cases with samples."""
    made = Store(tmp_path / "secret-folder")
    arrays = {"block_time": ("s", "<f8", np.ones(5).tobytes())}
    with made.create(Header(machine_key="m" * 12, cases=[case("a"), case("b")])) as writer:
        writer.append(record(case("a"), 1.0), arrays)
        writer.append(record(case("b"), 1.0), arrays)
        writer.seal()
    return made


def test_a_truncated_run_says_so(store: Store) -> None:
    found = damaged(store, lambda data: data[: data.rindex(b'"record"') + 40])
    text = " ".join(found["warnings"])
    assert "line 3 is cut off" in text and "the run is unfinished: 1 case of 2 is missing" in text and "secret-folder" not in text
    assert found["runs"][0]["missing"] == [case("b")] and not found["runs"][0]["sealed"]
    assert found["banner"]["tone"] != "good" and "1 of 2 planned cases was not measured" in found["banner"]["text"]


def test_an_unknown_schema_version_says_so(store: Store) -> None:
    found = damaged(store, lambda data: data.replace(b'"schema":1}}\n{"seal"', b'"schema":99}}\n{"seal"'))
    text = " ".join(found["warnings"])
    assert "line 3 was skipped: the result was written by a newer Steelyard it has schema version 99" in text
    assert "1 of 2 records is missing from this file" in text and len(found["cases"]) == 1


def test_a_lost_sidecar_says_so(store: Store) -> None:
    run = store.open("latest")
    (run.path / "samples.bin").unlink()
    found = made(run)
    assert found["warnings"] == [f"run {run.id}: samples.bin is missing: the raw samples of 2 cases are lost, the figures are still good"]
    assert all(item["samples"] is None for item in found["cases"])


def test_mixed_and_unknown_machines_say_so() -> None:
    mixed = [run({case("a"): 1.0}, name=key, machine_key=key, machine={"cpu": {"model": key}}) for key in ("x", "y")]
    assert "made on 2 different machines (x, y)" in " ".join(made(*mixed)["warnings"])
    assert "made on 2 different machines" in " ".join(made(mixed[1], base=RunsSide("x", (mixed[0],)))["warnings"])
    assert "not every run says on which machine" in " ".join(made(mixed[0], run({}, name="z", machine_key=""))["warnings"])
    assert made(mixed[0])["warnings"] == []


def test_what_could_not_be_read_at_all_is_told_by_the_caller() -> None:
    found = made(warnings=["run k3f9 cannot be\nread"])
    assert (found["cases"], found["runs"], found["warnings"]) == ([], [], ["run k3f9 cannot be read"])
    assert found["banner"] == {"tone": "none", "text": "Nothing was measured.", "sentences": ["Nothing was measured."]}


def test_the_front_of_a_site_needs_only_the_ends_of_its_runs() -> None:
    ends = [Run(Path("a"), Header(id="a", cases=["x"]), seal=Seal("2026", 3, {"ok": 2, "oom": 1}))]
    found = made(*ends, samples=0)
    assert found["cases"] == [] and found["runs"][0]["counts"] == {"ok": 2, "oom": 1} and found["runs"][0]["missing"] == []
    assert found["warnings"] == []


def test_another_tools_processes_are_one_run_with_figures_over_them(tmp_path: Path) -> None:
    runs = read_file(foreign_samples.pyperf_file(tmp_path / "bench.json", {"sort": [[1.0, 1.0], [1.1, 1.1], [1.2, 1.2]], "once": [[2.0]]}))
    assert len(runs) == 3
    found = made(*runs)
    assert [item["id"] for item in found["runs"]] == ["bench.json"] and found["history"] is None and found["warnings"] == []
    first, second = found["cases"]
    assert (first["repeat"], first["samples"], first["backend"], first["label"]) == ("", None, "pyperf", first["id"])
    value, low, high, n = first["metrics"]["time"]
    assert n == 3 and low < value < high and value == pytest.approx((1.0 * 1.1 * 1.2) ** (1 / 3), rel=1e-5)
    assert second["metrics"]["time"][0] == 2


def test_nights_of_pytorch_xla_have_its_three_plots(tmp_path: Path) -> None:
    rows = []
    for night in range(3):
        for dynamo, seconds in ((None, 1.0), ("inductor", 0.5 - 0.1 * night)):
            experiment = {
                "accelerator": "cuda",
                "accelerator_model": "NVIDIA H200",
                "xla": None,
                "dynamo": dynamo,
                "test": "eval",
                "batch_size": 1,
            }
            metrics = {"total_time": [9.0, *[seconds] * 5]}
            row = {"model": {"suite_name": "torchbench", "model_name": "alexnet"}, "experiment": experiment, "metrics": metrics}
            rows.append({**row, "repeat": 6, "iterations_per_run": 1, "timestamp": 1.7e9 + 86400 * night})
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = made(*read_file(file))
    told = found["history"]["trends"]
    assert (told["baseline"], told["columns"]) == ("torch/eager", ["torch/eager", "torch/compile"])
    assert [point["mean"] for point in told["points"] if point["column"] == "torch/compile"] == pytest.approx([2, 2.5, 3.33333], rel=1e-4)
    assert {item["column"]: item["speedup"] for item in told["latest"]}["torch/compile"] == pytest.approx(3.33333, rel=1e-4)


def test_a_case_under_a_roof_tells_where_it_stands() -> None:
    rates = {"compute": Figure(3.35e13, "FLOP/s", "higher"), "bandwidth": Figure(1e12, "B/s", "higher")}
    id = Case("op/a", (("dtype", "fp32"),), device="cuda").id
    item = record(id, 1.0, metrics=rates, environment={"device": "NVIDIA H200"})
    head = Header(id="a", machine_key="m")
    found = made(Run(Path("a"), head, (item, record(Case("op/b", device="cuda").id, 1.0))))
    assert found["roofline"] == {
        "roofs": [{"machine": 0, "device": "cuda", "dtype": "fp32", "compute": 6.7e13, "bandwidth": 4.8e12, "source": "datasheet"}],
        "points": [id],
    }
    roof = found["cases"][0]["roof"]
    assert (roof["bound"], roof["share"], roof["intensity"]) == ("compute", 0.5, 33.5) and found["cases"][1]["roof"] is None
    stored = replace(
        item, metrics={**item.metrics, "roof": Figure(0.25, "1", "higher")}, effective={"bound": "compute", "roof_source": "measured"}
    )
    roof = made(Run(Path("a"), head, (stored,)))["cases"][0]["roof"]
    assert (roof["share"], roof["peak_compute"]) == (0.25, 1.34e14)


def test_cases_that_each_know_half_a_roof_stand_under_one() -> None:
    def under(n: int, bound: str, share: float, **rates: float) -> Record:
        figures = {name: Figure(value, "1", "higher") for name, value in {"roof": share, **rates}.items()}
        told = {"bound": bound, "roof_source": "measured"}
        return record(Case("op/a", (("dtype", "bf16"), ("n", n)), device="cuda").id, 1.0, metrics=figures, effective=told)

    items = (under(1, "compute", 0.5, compute=4e14, bandwidth=1e12), under(2, "compute", 0.3, compute=2.4001e14, bandwidth=1e12),
             under(3, "memory", 0.5, compute=1e12, bandwidth=2e12), under(4, "compute", 0.5, compute=1e14, bandwidth=1e11))  # fmt: skip
    roofs = made(Run(Path("a"), Header(id="a", machine_key="m"), items))["roofline"]["roofs"]
    assert [(roof["compute"], roof["bandwidth"]) for roof in roofs] == [(8e14, 4e12), (2e14, None)]


def test_control_characters_and_markup_stay_what_they_are_text() -> None:
    odd = "x\x1b[31m\x00<script>alert('1')</script>\u2028"
    item = Record(
        f"foreign/x:{odd}", {"workload": odd, "params": {odd: odd}, "backend": odd}, "failed", odd, environment={odd: odd},
        effective={odd: odd}, verification=Verification("failed", odd, odd), attachments=[Attachment(odd, odd, odd)],
    )  # fmt: skip
    found = made(
        Run(Path("a"), Header(id="a", experiment=odd, machine={"os": {"distro": odd}}, command=[odd]), (item,), warnings=(odd,)), title=odd
    )
    text = json.dumps({**found, "charts": {}}, ensure_ascii=False)
    spelled = "\\\\u0000"
    assert "\x1b" not in text and "\\u0000" not in text.replace(spelled, "") and "\u2028" not in text and "<script>" in text


def test_a_baseline_that_is_not_there_is_an_error_with_the_names() -> None:
    with pytest.raises(UsageError, match="no column named 'jax'"):
        document([run({case("a"): 1.0, case("a", "compile"): 1.0})], baseline="jax")


figures = st.builds(
    Figure,
    st.floats(),
    st.sampled_from(["s", "B"]),
    st.just("lower"),
    st.none() | st.floats(),
    st.none() | st.floats(),
    st.none() | st.integers(0, 9),
)
ids = st.sampled_from([case(name, variant) for name in "ab" for variant in ("eager", "compile")] + ["no id of ours"])


def odd_record(name: str, status: Any, metrics: dict[str, Figure], effective: dict[str, Any]) -> Record:
    return Record(name, Case.parse(name).plain() if "@" in name else {"workload": name}, status, "", metrics, {}, effective)


records = st.builds(
    odd_record, ids, st.sampled_from(STATUSES), st.dictionaries(st.sampled_from(["time", "compute", "bandwidth", "\x00"]), figures),
    st.dictionaries(st.text(max_size=3), st.none() | st.floats() | st.text(max_size=3) | st.lists(st.floats(), max_size=2)),
)  # fmt: skip
pairs = st.builds(lambda a, b, ratio, half: pair(a, b, ratio, half), ids, ids, st.floats(), st.floats())
nights = st.builds(
    lambda night, found, weighed, key: Run(
        Path("a"), Header(id=f"r{night}", created=f"2026-01-0{night}T00:00:00Z", machine_key=key), tuple(found), tuple(weighed)
    ),
    st.integers(1, 9), st.lists(records, max_size=6), st.lists(pairs, max_size=2), st.sampled_from(["", "m", "n"]),
)  # fmt: skip


@given(st.lists(nights, max_size=4))
def test_any_runs_make_a_whole_document_without_a_number_that_json_cannot_hold(runs: list[Run]) -> None:
    check(document(runs))


def test_a_history_too_long_for_a_page_keeps_what_changed_and_the_newest_of_the_rest() -> None:
    def series(name: str, length: int, *changes: int) -> History:
        points = [Point(f"r{night}", 1, f"2026-01-01T{night:02}:00:00Z", 1.0) for night in range(length)]
        return History(case(name), "m", points, [Change(at, f"r{at}", "", 1.0, 1.1, 1.1, 1.09, 1.11, 0.002) for at in changes])

    known = {item.case: item for item in (series("a", 23), series("b", 20, 15), series("c", 23))}
    assert within(known, 66) == known
    kept = within(known, 45)
    assert [(id, len(item.points)) for id, item in kept.items()] == [(case("a"), 15), (case("b"), 20)]
    assert kept[case("a")].points[-1].run == "r22" and kept[case("b")].changes[0].index == 15
    cut = newest_of(known[case("b")], 10)
    assert (len(cut.points), cut.changes[0].index, cut.points[cut.changes[0].index].run) == (10, 5, "r15")
    assert newest_of(known[case("b")], 5).changes == []


def test_a_page_of_a_file_that_lost_records_never_says_that_all_is_ok(store: Store) -> None:
    for lost in (1, 2):
        found = damaged(store, lambda data, lost=lost: data.replace(b'{"record":', b'{"broken":', lost))  # type: ignore[misc]
        assert found["banner"]["tone"] == "bad" and f"{lost} lost" in found["banner"]["text"]
        assert "are ok" not in found["banner"]["text"] and "is ok" not in found["banner"]["text"]
        assert any(f"{lost} of 2 records" in line for line in found["warnings"])


def test_equal_workloads_stand_together_whatever_their_backend() -> None:
    ids = [f"op/{name}[n={size}]@{backend}/eager:eval" for backend in ("numpy", "torch") for name in "ab" for size in (1, 2)]
    found = made(run(dict.fromkeys(ids, 1.0)))
    assert [item["id"].partition("@")[0] for item in found["cases"]] == [f"op/{name}[n={size}]" for name in "ab" for size in (1, 1, 2, 2)]
    assert found["title"].startswith("op/a, op/b · ")
