"""A problem in the examiner's process, and what a layout needs to bring it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from steelyard.model.judging import Problem, Submission


@dataclass(frozen=True)
class Posed:
    """A problem as the examiner asks it: the reference, and `draw`, which gives the inputs of a call for a seed.

    Inputs are arrays on the device, plain values, and tuples, lists and dicts of these; equal seeds give equal ones. `init` and
    `weights` are what a candidate that is a model is built with: arguments, and arrays by name. `check` is the problem's own check of
    an answer, by inputs and output: what is wrong, or nothing. It is asked besides ours.
    """

    reference: Callable[..., Any]
    draw: Callable[[int], Sequence[Any]]
    init: Sequence[Any] = ()
    weights: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Sequence[Any], Any], str] | None = None


@dataclass(frozen=True)
class Provisions:
    """What a candidate gets besides its own files: arguments of its constructor, weights by name, the device, and a seed for those that
    draw their own."""

    init: Sequence[Any] = ()
    weights: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    seed: int = 0


class Layout(Protocol):
    """What a module in `layouts` has. The first three run no code of the user's; the others are called in a worker.

    `LOOKS_FOR` says in words what a file or folder in this layout has.
    """

    LOOKS_FOR: str

    def recognise(self, path: str) -> bool:
        """Whether a file or folder is in this layout, by its names and its text."""

    def problems(self, path: str, only: Sequence[str] = ()) -> list[Problem]:
        """The problems of a file or folder; `only` names some of them."""

    def submission(self, path: str, problem: Problem) -> Submission:
        """A candidate for a problem."""

    def pose(self, problem: Problem, device: str) -> Posed:
        """Load the reference and its inputs."""

    def seat(self, submission: Submission, given: Provisions) -> Callable[..., Any]:
        """Load a candidate: the function that is called with the inputs of a draw."""
