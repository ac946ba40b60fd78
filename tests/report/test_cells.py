"""Single values as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from steelyard.model.case import Case
from steelyard.model.pair import weigh
from steelyard.model.record import STATUSES
from steelyard.report.cells import IDENTICAL, UNVERIFIED, VERDICT_GLYPHS, aligned, brief, case_line, cut, delta_text, facets, glyph
from steelyard.report.history import BARS
from steelyard.report.tree import BRANCH, LAST, TRUNK
from steelyard.report.wrap import wrap_text
from tests.report.made import figures, pair, record


def test_an_axis_called_env_is_not_the_environment() -> None:
    said = facets(Case("my/a", (("env", "prod"),), env="old").plain())
    assert [text for text in said.values() if text.startswith("env=")] == ["env=prod", "env=old"]


def test_a_file_is_named_by_itself() -> None:
    """Nothing is gained by the name of the parameter, and what follows the name is cut where names are long."""
    held = {"file": "/a/m/stablehlo.mlir", "name": "m/stablehlo.mlir", "sha256": "0123456789abcdef" * 4}
    said = facets({"workload": "artifact", "params": {"path": held, "n": 2}})
    assert (said["path"], said["n"]) == ("m/stablehlo.mlir#012345", "n=2")


def test_points_and_signs_stand_below_each_other() -> None:
    assert aligned([("11.42", "0.06", "µs"), None, ("161.3", "0.2", "ms"), ("7", "", "s")]) == [
        " 11.42 ± 0.06 µs",
        "",
        "161.3  ± 0.2  ms",
        "  7           s ",
    ]
    assert aligned([("11.42", "0.06", "µs"), ("0.7 to 15.8", "", "ms"), ("161", "", "s")]) == [
        " 11.42 ± 0.06 µs",
        "  0.7 to 15.8 ms",
        "161           s ",
    ], "a range takes the place of number and spread, and moves nothing"
    assert aligned([("3 to 7", "", "s"), ("10.5 to 20.5", "", "s")]) == ["      3 to 7 s", "10.5 to 20.5 s"]


def test_a_speedup_is_the_inverse_of_the_time_ratio() -> None:
    base, head = record("op/a@torch/eager:eval"), record("op/a@torch/x:eval")
    assert delta_text(weigh(pair(base, head, 0.5, 0.01))) == "▲ 2.00x faster [1.96, 2.04]"
    assert delta_text(weigh(pair(base, head, 2.0, 0.01))) == "▼ 2.000x slower [1.990, 2.010]"


def test_a_case_in_few_words() -> None:
    assert brief("op/softmax[m=4096,n=1024,dtype=bf16]@torch/compile:eval") == "op/softmax m=4096 n=1024 bf16 compile"
    assert brief("op/a@torch/eager:train:device=cuda:threads=4") == "op/a train cuda threads=4 eager"
    assert brief('command[argv=[ls,"-l"]]@command/eager:eval') == "ls -l"
    assert brief("not an id") == "not an id"


def test_one_plain_line_per_case() -> None:
    fine = record("op/a[n=8]@torch/eager:eval", figures(11.42e-6, 0.06e-6), device="cpu")
    assert case_line(fine) == "✓ ok  op/a[n=8]@torch/eager:eval  11.42 ± 0.06 µs  n=420  noise A"
    failed = record("op/a[n=8]@torch/eager:eval", None, "not_applied", "the same\n  graph", device="cpu")
    assert case_line(failed) == "– not applied  op/a[n=8]@torch/eager:eval  the same graph"


@given(st.text(), st.integers(1, 60))
def test_cutting_never_passes_the_width(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"])), st.integers(4, 60))
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    pieces = wrap_text(text, width)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(cell_len(piece) <= width for piece in pieces)


def test_a_reason_without_end_is_cut_and_cannot_steer() -> None:
    failed = record("op/a@torch/eager:eval", status="failed", reason="ValueError: \x1b[31m" + "x" * 100_000)
    shown = case_line(failed)
    assert shown.endswith("x…") and len(shown) < 600 and "\x1b" not in shown


def test_every_sign_of_a_table_takes_one_column() -> None:
    signs = [*VERDICT_GLYPHS.values(), *map(glyph, STATUSES), UNVERIFIED, IDENTICAL, *BRANCH, *LAST, *TRUNK, *BARS, *"…±×µΩ·→≈\u202f"]
    assert all(cell_len(sign) == 1 for sign in signs)
