"""The result table: its look, its widths, and that it hides nothing."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from steelyard.model.case import Case
from steelyard.model.record import STATUSES, Figure, Record, Verification
from steelyard.report.text import run_table
from steelyard.store.runs import Run
from tests.report.made import HEADER, figures, mixed, pair, record, run_of, softmax

SOFTMAX = """\
H200 · torch 2.13.0 · driver 580.159 · clocks not locked · 1 thread               4 cases · run k3f9
#                         median ± 95 %   vs eager, 99 %                  TB/s     n   noise
op/softmax  m=4096 bf16
1  ├─ n=1024  eager     11.42 ± 0.06 µs     base                         1.469   420   A
2  │          compile    9.87 ± 0.05 µs   ▲ 13.8 % faster [13.1, 14.5]   1.700   480   A
3  └─ n=8192  eager     61.30 ± 0.20 µs     base                         2.189   160   A
4             compile   61.1  ± 0.3  µs   ≈ within 2 % [-0.7, 0.1]       2.196   160   A
4 ok · saved k3f9    next: steelyard show k3f9/2 (the only change)"""


def table(run: Run, width: int = 100) -> str:
    return run_table(run.header, run.records, run.pairs, width=width).plain


def colours(text: Text, part: str) -> set[str]:
    at = text.plain.index(part)
    return {str(span.style) for span in text.spans if span.start <= at < span.end}


def test_the_example_of_the_design_page() -> None:
    assert table(softmax()) == SOFTMAX


def test_rows_have_the_numbers_that_show_needs_and_the_hint_says_why_it_points_there() -> None:
    rows = [record(f"op/{name}@torch/{variant}:eval", figures(1e-3, 1e-5)) for variant in ("eager", "quick", "slow") for name in "ab"]
    pairs = [pair(rows[0], rows[2], 0.9, 0.01), pair(rows[1], rows[5], 1.3, 0.01)]
    shown = table(run_of(rows, pairs)).splitlines()
    places = {line.split()[0]: line for line in shown if re.match(r"\d  ", line)}
    assert list(places) == ["1", "3", "5", "2", "4", "6"] and "slower" in places["6"]
    assert shown[-1].endswith("next: steelyard show k3f9/6 (the largest change)")
    broken = table(run_of([*rows, record("op/c@torch/eager:eval", None, "failed", "no")]))
    assert broken.endswith("next: steelyard show k3f9/7 (failed)")
    alone = table(run_of(rows[:1]))
    assert "#" not in alone and alone.endswith("next: steelyard show k3f9/1")


def test_a_column_that_was_asked_for_survives_a_narrow_screen() -> None:
    memory = {"peak_memory": Figure(3e9, "B", "lower")}
    rows = [record(f"op/a[n={n}]@torch/eager:eval", figures(1e-3, 1e-5, **memory), noise="A") for n in (1, 2)]
    asked = [replace(item, requested={"peak_memory": True}) for item in rows]
    assert "memory" not in table(run_of(rows), 50) and "memory" in table(run_of(asked), 50)


def test_stacks_have_a_speedup_and_a_verified_column_even_where_nothing_was_weighed() -> None:
    passed = Verification("passed", "numpy")
    times = {"torch/eager": 1e-3, "jax/eager": 0.5e-3, "numpy/eager": 4e-3}
    rows = [
        record(f"op/{name}@{stack}:eval", figures(time, time / 100), verification=passed) for name in "ab" for stack, time in times.items()
    ]
    rows[4] = replace(rows[4], verification=Verification("none", message="no reference"))
    shown = table(run_of(rows))
    assert "vs torch/eager, unpaired" in shown and "verified" in shown
    lines = {line.split()[0]: line for line in shown.splitlines() if line[:1].isdigit()}
    assert "▲ 2.00x faster" in lines["2"] and "✓" in lines["2"] and "base" in lines["1"] and "○" in lines["5"] and "✓" not in lines["5"]
    assert "▼ 4.00x slower" in lines["3"]


def test_long_names_have_lines_of_their_own_before_the_columns_that_say_most_go() -> None:
    """As exported programs have them, each with one backend or two."""
    names, passed = [f"model_resnet50_tensorflow_bed941b{number}/stablehlo_vhlo.mlirbc" for number in range(4)], Verification("passed", "x")
    stacks = [("xla", names[0]), *(("iree", name) for name in names)]
    ids = [f'artifact[path="{name}"]@{backend}/eager:eval' for backend, name in stacks]
    shown = table(run_of([record(id, figures(1e-3, 1e-5), verification=passed) for id in ids]))
    assert "verified" in shown and "eager, unpaired" in shown and all(name in shown for name in names)
    assert max(map(len, shown.splitlines())) <= 100


def test_parameters_that_have_no_value_are_left_out_where_all_rows_share_them() -> None:
    ids = [f'trace[file=a,part={part},skip=null,name=""]@torch/eager:eval' for part in ("null", "tail")]
    one, two = (record(id, figures(1e-3, 1e-5)) for id in ids)
    assert "trace  file=a part=tail" in table(run_of([two])) and "trace  file=a\n" in table(run_of([one, two]))
    assert "part=null" in table(run_of([one, two])) and "skip" not in table(run_of([one, two]))


def test_a_narrow_table_gives_up_the_least_important_columns_first() -> None:
    assert "noise" in table(softmax(), 90)
    narrow = table(softmax(), 76)
    assert "TB/s" in narrow and "vs eager" in narrow and "noise" not in narrow
    assert "median" in table(softmax(), 40) and "TB/s" not in table(softmax(), 40)


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 120])
def test_no_line_is_longer_than_the_width(width: int) -> None:
    for run in (softmax(), mixed(), run_of([])):
        assert max(map(cell_len, table(run, width).split("\n"))) <= width


def test_a_long_variant_keeps_its_whole_name_and_its_figures() -> None:
    shown = table(mixed(), 80)
    assert re.search(r"├─ torch int8wo\+compile\[mode=max-autotune\]\n 6  │  ", shown)
    assert "398.1  ± 2.2  µs" in shown


def test_the_column_names_the_base_and_several_backends_say_which_each_row_has() -> None:
    rows = [
        record(f"op/a@{backend}/{variant}:eval", figures(1e-3, 1e-5))
        for backend in ("torch", "torch_xla")
        for variant in ("eager", "quick")
    ]
    eager, quick, other, other_quick = rows
    own = table(run_of(rows, [pair(eager, quick, 0.8, 0.01), pair(other, other_quick, 0.8, 0.01)]))
    assert "vs own eager" in own
    assert "each backend against its own: torch/eager, torch_xla/eager · one base for all: --vs torch/eager" in own
    one = table(run_of(rows, [pair(eager, head, 7.0, 0.1) for head in (quick, other, other_quick)]))
    assert "vs torch/eager" in one and "own" not in one and one.count("  base") == 1


def test_every_verdict_has_a_sign_and_only_confirmed_ones_a_colour() -> None:
    base = record("op/a@torch/eager:eval", figures(1e-3, 1e-5))
    heads = [record(f"op/a@torch/{name}:eval", figures(1e-3, 1e-5)) for name in ("quick", "slow", "twin", "murky")]
    ratios = [(0.8, 0.01), (1.25, 0.01), (1.0, 0.005), (1.01, 0.05)]
    run = run_of([base, *heads], [pair(base, head, *ratio) for head, ratio in zip(heads, ratios, strict=True)])
    drawn = run_table(run.header, run.records, run.pairs)
    assert colours(drawn, "▲ 20.0 % faster") == {"green"}
    assert colours(drawn, "▼ 25.0 % slower") == {"red"}
    assert colours(drawn, "≈ within") == colours(drawn, "? unclear") == set()


def test_only_records_that_are_ok_enter_a_speedup() -> None:
    base, head = record("op/a@torch/eager:eval", figures(1e-3, 1e-5)), record("op/a@torch/x:eval", figures(5e-4, 1e-5), "wrong", "off by 3")
    shown = table(run_of([base, head], [pair(base, head, 0.5, 0.01)]))
    assert "vs" not in shown and "µs   ✗ wrong  off by 3" in shown and "faster" not in shown


def test_a_reason_that_does_not_fit_is_told_in_full_and_once() -> None:
    words = " ".join(f"word{number}" for number in range(40))
    shown = table(run_of([record(f"op/a[n={n}]@torch/eager:eval", None, "failed", words) for n in (1, 2, 3)]))
    notes = shown.partition("✗ failed  k3f9/1 k3f9/2 k3f9/3\n")[2]
    assert re.findall(r"word\d+", notes) == words.split()


def test_what_a_framework_prints_cannot_steer_the_terminal() -> None:
    shown = table(run_of([record("op/a@torch/eager:eval", None, "crashed", "\x1b[2J\x1b[31mboom\x07 and\x00gone")]))
    assert "✗ crashed  boom and gone" in shown and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", shown)


def test_commands_are_shown_as_typed() -> None:
    rows = [
        record(f'command[argv=[sleep,"{seconds}"]]@command/eager:eval', figures(float(seconds), 1e-4, bytes=None))
        for seconds in ("0.1", "0.2")
    ]
    shown = table(run_of(rows))
    assert "├─ sleep 0.1   " in shown and "└─ sleep 0.2   " in shown and "eager" not in shown and "argv" not in shown


def test_backends_are_named_where_there_are_several() -> None:
    rows = [record(f"op/a[n=8]@{backend}/eager:eval", figures(1e-3, 1e-5)) for backend in ("torch", "numpy")]
    shown = table(run_of(rows))
    assert "├─ torch" in shown and "└─ numpy" in shown and shown.count("eager") == 1 == shown.count("vs torch/eager, unpaired")


def test_the_rate_is_arithmetic_where_arithmetic_limits() -> None:
    both = {"bandwidth": Figure(1e11, "B/s", "higher"), "compute": Figure(5e13, "FLOP/s", "higher")}
    thin = {"bandwidth": Figure(2e11, "B/s", "higher"), "compute": Figure(2e11, "FLOP/s", "higher")}
    rows = [
        record(f"op/{name}@torch/eager:eval", figures(1e-3, 1e-5, bytes=None, **rates)) for name, rates in (("dense", both), ("thin", thin))
    ]
    shown = table(run_of(rows))
    assert "50.0 TFLOP/s" in shown and re.search(r"200 +GB/s", shown)


def test_discarded_blocks_and_own_metrics_have_their_columns() -> None:
    rows = [
        record(
            "op/a@torch/eager:eval", figures(1e-3, 1e-5, discarded=0.042, rows=Figure(3.2e6, "row/s", "higher", 3.1e6, 3.3e6)), noise="C"
        )
    ]
    shown = table(run_of(rows))
    assert "C 4.2 %" in shown and "3.20 ± 0.10 Mrow/s" in shown


def test_nothing_measured_is_said() -> None:
    assert table(run_of([])).endswith("nothing measured · saved k3f9")


def test_no_colour_leaves_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    run = mixed()
    drawn = run_table(run.header, run.records, run.pairs)
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    Console(file=stream, width=100, force_terminal=True, highlight=False).print(drawn)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", stream.getvalue())
    assert re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).rstrip("\n") == drawn.plain


names = st.from_regex(r"[a-z]{1,12}", fullmatch=True)
values = st.one_of(
    st.integers(-(10**9), 10**9), st.booleans(), st.none(), st.text(max_size=70), st.lists(st.integers(0, 99), max_size=30), st.floats()
)
sizes = st.one_of(st.floats(1e-10, 1e6), st.just(math.nan))


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    case = Case(
        draw(st.sampled_from(["op/a", "op/a_rather_long_name/of_a_workload", "command"])),
        tuple(draw(st.dictionaries(names, values, max_size=5)).items()),
        draw(st.sampled_from(["torch", "numpy"])), draw(st.sampled_from(["eager", "compile", "int8wo+compile[mode=max-autotune]"])),
        device=draw(st.sampled_from(["cpu", "cuda"])), threads=draw(st.integers(1, 64)),
    )  # fmt: skip
    found = {}
    if draw(st.booleans()):
        seconds = draw(sizes)
        found = figures(
            seconds, draw(st.floats(0, 0.9)) * seconds, n=draw(st.integers(1, 10**7)), bytes=draw(st.sampled_from([None, 1.0, 1e9]))
        )
    return Record(
        case.id,
        case.plain(),
        draw(st.sampled_from(STATUSES)),
        draw(st.text(max_size=300)),
        found,
        effective={"noise": draw(st.sampled_from("ABCD"))},
    )


@given(st.lists(any_record(), max_size=8), st.integers(40, 120), st.data())
@settings(max_examples=150, deadline=None)
def test_any_run_can_be_drawn_within_its_width(records: list[Record], width: int, data: st.DataObject) -> None:
    pairs = []
    if len(records) >= 2:
        ratio = data.draw(st.floats(1e-3, 1e3))
        pairs = [pair(records[0], records[1], ratio, data.draw(st.floats(0, 0.9)) * ratio)]
    shown = run_table(HEADER, records, pairs, width=width).plain
    assert max(map(cell_len, shown.split("\n"))) <= width
    assert shown.replace("\n", "").replace("\u202f", "").isprintable()
    for item in records:
        word = item.status.replace("_", " ")
        assert item.status == "ok" or word in shown
