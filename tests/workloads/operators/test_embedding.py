"""The embedding benchmark of PARAM: its lookups, and what is said where the library for it is not there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard.errors import Unsupported, UsageError  # noqa: E402
from steelyard.workloads.operators._embedding import ALPHA, FILES, GENERATOR, NAME, generate, lookups  # noqa: E402
from steelyard.workloads.operators._names import find  # noqa: E402
from steelyard.workloads.operators.call import DescribedCall  # noqa: E402
from tests.workloads.operators.specs import Spec, call, many, of  # noqa: E402

pytestmark = pytest.mark.torch


def sizes(tables: int, rows: Any, pooling: Any, *, batch: int = 4, weighted: bool = False, **more: Spec) -> Spec:
    def number(value: Any) -> Spec:
        return of("int", value) if isinstance(value, int) else many(*(of("int", item) for item in value))

    said = (of("bool", weighted), of("str", "fp32"))
    return call(of("int", tables), number(rows), of("int", 8), of("int", batch), number(pooling), *said, **more)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ALPHA, *FILES.values()):
        monkeypatch.delenv(name, raising=False)


def drawn(alpha: float, count: int = 4000, length: int = 7, rows: int = 100) -> Any:
    return lookups(count, length, rows, alpha, torch.Generator().manual_seed(0))


def test_alpha_says_how_rows_repeat() -> None:
    assert drawn(0).tolist() == [place % 7 for place in range(4000)]
    assert drawn(0.5).tolist() == [place % 100 for place in range(4000)]
    alike, skewed = (torch.bincount(drawn(alpha), minlength=100) for alpha in (1.0, 1.5))
    assert len(alike) == len(skewed) == 100
    assert alike.max() < 3 * alike.min() and skewed[1] == skewed.max() > 1000
    assert drawn(0, length=500).max() < 100, "a bag longer than the table stays inside it"


def test_each_table_has_its_own_bags() -> None:
    (indices, offsets, weights), kwargs, noted = generate(sizes(2, [100, 3], [5, 2]), "cpu", 0)
    assert offsets.tolist() == [0, 5, 10, 15, 20, 22, 24, 26, 28] and kwargs == {} and weights is None
    assert len(indices) == 28 and indices[:20].max() > 3 > indices[20:].max() and noted == {"alpha": 1.0}


def test_one_number_stands_for_every_table_and_weights_are_drawn_if_asked() -> None:
    (indices, offsets, weights), _, _ = generate(sizes(3, 50, 2, weighted=True), "cpu", 0)
    assert len(indices) == len(weights) == 24 and len(offsets) == 13
    again = generate(sizes(3, 50, 2, weighted=True), "cpu", 0)[0]
    assert torch.equal(indices, again[0]) and torch.equal(weights, again[2])
    assert not torch.equal(indices, generate(sizes(3, 50, 2, weighted=True), "cpu", 1)[0][0])


def test_alpha_is_a_keyword_or_a_variable_of_param(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALPHA, "0")
    assert generate(sizes(1, 50, 2), "cpu", 0)[2] == {"alpha": 0.0}
    assert generate(sizes(1, 50, 2, alpha=of("float", 1.2)), "cpu", 0)[2] == {"alpha": 1.2}


def test_lookups_may_come_from_files_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, data in (("indices", torch.tensor([3, 1, 2])), ("offsets", torch.tensor([0, 2, 3]))):
        torch.save(data, tmp_path / part)
        monkeypatch.setenv(FILES[part], str(tmp_path / part))
    made, _, noted = generate(sizes(1, 50, 2), "cpu", 0)
    assert [item if item is None else item.tolist() for item in made] == [[3, 1, 2], [0, 2, 3], None]
    assert noted == {"indices": "from files"}
    monkeypatch.setenv(FILES["offsets"], str(tmp_path / "none"))
    with pytest.raises(UsageError, match="no file"):
        generate(sizes(1, 50, 2), "cpu", 0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="takes 7 arguments and got 1"):
        generate(call(of("int", 1)), "cpu", 0)
    with pytest.raises(UsageError, match="rows has 3 values for 2 tables"):
        generate(sizes(2, [1, 2, 3], 2), "cpu", 0)
    spec = sizes(1, 50, 2)
    spec["args"][4]["indices_tensor"] = "/etc/passwd"
    with pytest.raises(UsageError, match="cannot name files"):
        generate(spec, "cpu", 0)


def test_without_the_library_the_remedy_is_named_and_the_config_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fbgemm_gpu", None)
    build = call(of("int", 1), of("int", 50), of("int", 8), of("int", 0), of("bool", False), of("str", "fp32"))
    assert find(NAME, {}).kind == "fbgemm"
    described = DescribedCall(NAME, build, sizes(1, 50, 2), names=("", GENERATOR))
    with pytest.raises(Unsupported, match="pip install --no-deps 'fbgemm-gpu"):
        described.prepare("cpu")
    assert described.examine()[0] == ""
