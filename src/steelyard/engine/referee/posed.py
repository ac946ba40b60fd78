"""A problem that is loaded in the examiner's process, and the interface of the layouts that load it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from steelyard.model.judging import Problem, Submission


@dataclass(frozen=True)
class Posed:
    """A loaded problem: the reference, and `draw`, which returns the inputs of a call for a seed.

    Inputs are arrays on the device, plain values, and tuples, lists and dicts of these; equal seeds give equal inputs. A candidate that
    is a model is built with the arguments `init` and the named arrays `weights`. `check` is the problem's own check: it takes inputs and
    output, and returns what is wrong, or nothing. It is used in addition to ours.
    """

    reference: Callable[..., Any]
    draw: Callable[[int], Sequence[Any]]
    init: Sequence[Any] = ()
    weights: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Sequence[Any], Any], str] | None = None


@dataclass(frozen=True)
class Provisions:
    """What a candidate gets besides its own files: arguments of its constructor, weights by name, the device, and a seed for weights that
    it draws itself."""

    init: Sequence[Any] = ()
    weights: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    seed: int = 0


class Layout(Protocol):
    """The interface of a module in `layouts`. The first three functions run no user code; the other two are called in a worker.

    `LOOKS_FOR` describes a file or folder in this layout, for error messages.
    """

    LOOKS_FOR: str

    def recognise(self, path: str) -> bool:
        """Whether a file or folder is in this layout, by its names and its text."""

    def problems(self, path: str, only: Sequence[str] = ()) -> list[Problem]:
        """Return the problems of a file or folder; `only` selects some of them."""

    def submission(self, path: str, problem: Problem) -> Submission:
        """Return a candidate for a problem, by its path."""

    def pose(self, problem: Problem, device: str) -> Posed:
        """Load the reference and its inputs."""

    def seat(self, submission: Submission, given: Provisions) -> Callable[..., Any]:
        """Load a candidate; return the function to call with the inputs of a draw."""
