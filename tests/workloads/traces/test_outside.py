"""Steps whose recording lacks values: numbers recorded as tensors, memory filled by nobody, shapes that depend on masks and lengths."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import steelyard  # noqa: E402
from steelyard.workloads.traces import replay, script  # noqa: E402
from steelyard.workloads.traces._data import parts_of  # noqa: E402
from tests.workloads.traces.test_replay import build  # noqa: E402

Step = Callable[[Any, Any], Any]
STEPS: dict[str, Step] = {
    "a loss divided by a number": lambda x, w: ((x @ w).mean() / 4 + 1) * 2 - 1e-6,
    "a whole number": lambda x, w: (x > 0).sum(dtype=torch.int32) * 3,
    "indices that the step makes": lambda x, w: x.index_put((torch.tensor([0, 3]),), torch.tensor(1.5))[torch.tensor([7, 1])],
    "classes, one of them ignored": lambda x, w: torch.nn.functional.cross_entropy(x, torch.tensor([1, 2, -100, 3, 4, 5, 6, 7])),
    "a mask": lambda x, w: x[x > 0] * 2,
    "a mask of rows": lambda x, w: w[(x @ w).sum(1) > 0] @ w,
    "values put where a mask is": lambda x, w: w.clone().index_put_((x > 0,), x[x > 0] * 2),
    "places that are not zero": lambda x, w: w[torch.nonzero(x.sum(-1) > 0).squeeze(-1)],
    "elements of a mask": lambda x, w: torch.masked_select(w, x > 0).sum(),
    "repeats": lambda x, w: x.repeat_interleave(torch.tensor([1, 0, 3, 2, 1, 1, 4, 1]), 0).sum(),
    "how often each is repeated": lambda x, w: w.flatten()[torch.repeat_interleave(torch.tensor([3, 1, 2]))],
    "sequences of several lengths": lambda x, w: torch.nn.utils.rnn.pack_padded_sequence(
        x.view(4, 2, 8), torch.tensor([4, 2])
    ).data.relu(),
    "a loss of sequences": lambda x, w: torch.nn.functional.ctc_loss(
        x.view(8, 1, 8).log_softmax(2), torch.tensor([[1, 2]]), torch.tensor([8]), torch.tensor([2])
    ),
}  # fmt: skip


def captured(path: Path, step: Callable[[], Any]) -> Path:
    """One call of a step as `steelyard capture` records it."""
    step()
    with steelyard.capture(path) as steps:
        steps.step()
        step()
    return path


@pytest.mark.parametrize("name", list(STEPS))
def test_every_operator_is_replayed_with_the_recorded_forms(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    task = build(captured(tmp_path / "t.json", lambda: STEPS[name](x, w)))
    facts = task.effective["replay"]
    assert (facts["skipped"], facts["unlike_recorded"]) == ([], [])
    for _ in range(2):
        assert task()["coverage"] == 1.0


def test_a_recurrent_layer_is_trained_as_it_was_where_it_looks_at_gradients(tmp_path: Path) -> None:
    layer = torch.nn.LSTM(8, 16)
    path = captured(tmp_path / "t.json", lambda: layer(torch.randn(5, 3, 8))[0].mean().backward())
    facts = build(path).effective["replay"]
    assert (facts["skipped"], facts["unlike_recorded"]) == ([], [])
    with torch.no_grad():
        path = captured(tmp_path / "eval.json", lambda: layer(torch.randn(5, 3, 8)))
    made = replay.prepared(str(path), {}, "cpu")
    assert not made.facts()["unlike_recorded"] and not any(item.with_grad for item in made.fitted.found.values())


def test_a_script_says_what_the_recording_lacks(tmp_path: Path) -> None:
    layer = torch.nn.LSTM(8, 16)

    def step() -> None:
        out = layer(torch.randn(5, 3, 8))[0]
        (out[out > 0].mean() * 0.25 + out.repeat_interleave(torch.tensor([1, 0, 2, 1, 1]), 0).mean()).backward()

    path = captured(tmp_path / "t.json", step)
    text = script.script_of(replay.prepared(str(path), {}, "cpu"), {"iterations": 2, "warmup": 1})
    assert "with_grad(OPS.aten.mkldnn_rnn_layer.default" in text and ", 0.5)" in text
    (tmp_path / "replay.py").write_text(text)
    done = subprocess.run([sys.executable, "replay.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "ms per iteration" in done.stdout, done.stderr


@pytest.mark.parametrize(("total", "greatest", "count"), [(7, 4, 3), (12, 4, 3), (6, 4, 3), (5, 0, 3), (0, 0, 2), (3, 3, 1)])
def test_lengths_add_up_and_fall_from_the_greatest(total: int, greatest: int, count: int) -> None:
    found = parts_of(total, greatest, count)
    assert sum(found) == total and len(found) == count and found == sorted(found, reverse=True)
    assert not greatest or (found[0] == greatest and found[-1] > 0)
