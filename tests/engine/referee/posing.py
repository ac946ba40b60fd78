"""Problems posed by hand, so that examiner tests need no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from steelyard.engine.referee.examiner import Examiner
from steelyard.engine.referee.posed import Posed
from steelyard.model.judging import Problem

NONCE = b"a secret of the judge"


def examiner(reference: Callable[..., Any], draw: Callable[[Any], Sequence[Any]], check: Any = None, **problem: Any) -> Examiner:
    """An examiner of a function; `draw` gets torch's generator of the draw's seed."""
    import torch

    def drawn(seed: int) -> Sequence[Any]:
        return draw(torch.Generator().manual_seed(seed))

    return Examiner(Problem("by hand", "", **problem), "cpu", 1, Posed(reference, drawn, check=check))


def normal(*shapes: tuple[int, ...], dtype: str = "float32") -> Callable[[Any], Sequence[Any]]:
    """Inputs of normal numbers."""
    import torch

    return lambda source: [torch.randn(*shape, generator=source).to(getattr(torch, dtype)) for shape in shapes]


def uniform(*shapes: tuple[int, ...]) -> Callable[[Any], Sequence[Any]]:
    """Inputs between 0 and 1, as public benchmarks have them."""
    import torch

    return lambda source: [torch.rand(*shape, generator=source) for shape in shapes]


def outcomes(exam: Examiner, candidate: Callable[..., Any], draws: int = 3) -> list[str]:
    """What the examiner says of a candidate on some draws."""
    found = []
    for number in range(draws):
        inputs = exam.draw(NONCE, number)
        found.append(exam.check(inputs, candidate(*inputs)).status)
    return found
