"""Cases called once on tensors without data: what does not fit is told, what cannot be tried is counted, nothing is computed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import registry
from steelyard.engine import shapes
from steelyard.engine.names import settle
from steelyard.engine.shapes import Fit, perform
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.define import workload
from steelyard.model.task import Reading, Task

CATALOGUE = registry.catalogue()


@workload("my/matmul", axes={"m": [4], "k": [5], "n": [6], "other": [5]})
def matmul(m: int, k: int, n: int, other: int, be: Any) -> Task:
    import torch

    return Task(torch.matmul, (be.randn(m, k), be.randn(other, n)))


@matmul.on("numpy")
def matmul_numpy(m: int, k: int, n: int, other: int, be: Any) -> Task:
    raise AssertionError("nothing is built for a backend that has no tensors without data")


@matmul.variant("odd")
def odd(task: Task) -> Task:
    raise RuntimeError("a kernel's own words")


@workload("my/kinds", axes={"kind": ["fine"]}, modes=["eval", "train"])
def kinds(kind: str, be: Any) -> Task:
    import torch

    x = be.randn(4, 4)
    if kind == "timed":
        return Task(measure=lambda: Reading(1.0))
    if kind == "refused":
        raise UsageError("4 is no multiple of 3")
    calls: dict[str, Any] = {
        "fine": lambda: torch.zeros(4) + x,
        "data": lambda: x.sum().item(),
        "select": lambda: torch.nonzero(x),
        "host": lambda: x + torch.ones(4, device="cpu"),
        "numpy": lambda: x.numpy(),
        "exit": lambda: exit(3),
    }
    return Task(calls[kind])


LOADED = registry.built_ins()
LOADED.workloads.update({item.name: item for item in (matmul, kinds)})


def tried(*cases: Case) -> list[Fit]:
    return list(perform(cases, LOADED))


@settings(max_examples=25, deadline=None)
@given(*[st.integers(1, 9)] * 4)
def test_a_product_fits_exactly_where_torch_says_so(m: int, k: int, n: int, other: int) -> None:
    (found,) = tried(Case("my/matmul", (("m", m), ("k", k), ("n", n), ("other", other))))
    assert bool(found.wrong) == (k != other) and not found.unchecked
    assert k == other or f"[{m}, {k}] X [{other}, {n}]" in found.wrong


def test_a_shape_larger_than_any_memory_costs_nothing() -> None:
    (found,) = tried(Case("my/matmul", (("m", 2**30), ("k", 2**20), ("n", 2**30), ("other", 2**20))))
    assert found == Fit(found.case)


@pytest.mark.parametrize(
    ("kind", "wrong", "unchecked"),
    [
        ("fine", "", ""), ("data", "", "meta"), ("select", "", "nonzero"), ("host", "", "meta"), ("numpy", "", "numpy"),
        ("timed", "", "times itself"), ("refused", "4 is no multiple of 3", ""), ("exit", "SystemExit", ""),
    ],
)  # fmt: skip
def test_what_has_no_answer_without_data_is_no_mistake(kind: str, wrong: str, unchecked: str) -> None:
    (found,) = tried(Case("my/kinds", (("kind", kind),)))
    assert wrong in found.wrong and unchecked in found.unchecked
    assert (bool(found.wrong), bool(found.unchecked)) == (bool(wrong), bool(unchecked))


def test_other_backends_ranks_and_modes_are_counted_with_the_reason() -> None:
    case = Case("my/matmul", (("m", 4), ("k", 5), ("n", 6), ("other", 5)))
    numpy, xla, ranks, train = tried(
        Case(case.workload, case.params, "numpy"), Case(case.workload, case.params, "torch_xla"),
        Case(case.workload, case.params, ranks=2), Case(case.workload, case.params, mode="train"),
    )  # fmt: skip
    assert numpy.unchecked == "backend numpy has no tensors without data"
    assert xla == Fit(xla.case), "a backend that runs torch's form is tried with it"
    assert "2 ranks" in ranks.unchecked and "no mode train" in train.unchecked


def test_what_only_a_variant_refuses_is_no_mistake() -> None:
    (found,) = tried(Case("my/matmul", (("m", 4), ("k", 5), ("n", 6), ("other", 5)), variant="odd+compile"))
    assert (found.wrong, found.unchecked) == ("", "variant odd: RuntimeError: a kernel's own words")


def test_without_torch_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("steelyard.backends._shapes", "steelyard.backends.torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = tried(settle(Case("call/torch"), CATALOGUE), Case("my/kinds", (("kind", "fine"),)))
    assert {fit.unchecked for fit in found} == {"torch is not installed, pip install 'steelyard[torch]'"}


NEEDS = {"op/scaled_matmul": "float8 products need an NVIDIA GPU of compute capability 8.9 or newer"}
"""What cannot be built on a CPU, and why."""


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, info in CATALOGUE.workloads.items()
        if "torch" in info.get("backends", ()) and "*" not in name and not info.get("opens")
    ),
)
def test_what_is_built_in_fits(name: str) -> None:
    (found,) = tried(settle(Case(name), CATALOGUE))
    assert not found.wrong and found.unchecked == NEEDS.get(name, "")


def test_a_brief_check_tells_what_cannot_run_and_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = [Fit("a"), Fit("b", wrong="too long"), Fit("c", unchecked="no torch")]
    assert list(shapes.noteworthy(fits)) == [fits[1]]
    monkeypatch.setattr(shapes, "SIGN_OF_LIFE", -1.0)
    assert list(shapes.noteworthy(fits)) == fits
