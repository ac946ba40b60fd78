"""What a worker says when a job cannot be done at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import worker
from steelyard.engine.messages import Expand, Fault, Sources


@pytest.mark.parametrize(
    ("raised", "what", "do"),
    [
        ("import torch_xla_that_nobody_has", "ModuleNotFoundError: No module named 'torch_xla_that_nobody_has'", ""),
        (
            "raise ModuleNotFoundError('gone', name='torch')",
            "torch is not installed here",
            "pip install 'steelyard[torch]', or steelyard env",
        ),
        ("raise ModuleNotFoundError('gone', name='torchax')", "torchax is not installed here", "steelyard env create torchax"),
        ("1 / 0", "ZeroDivisionError: division by zero", ""),
    ],
)
def test_a_framework_that_is_missing_is_told_with_how_to_get_it(
    raised: str, what: str, do: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_shim.py").write_text(f"def perform(*args):\n    {raised}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "a_shim", raising=False)
    said: list[Any] = []
    worker.answer(Expand(Sources(), "a_shim", {}), {}, said.append, lambda: None)
    (found,) = said
    assert isinstance(found, Fault) and found.what == what and found.do.startswith(do)
    assert bool(found.why) == (not do)
