"""What a problem or a candidate needs of its process, by the words in its file."""

from __future__ import annotations

import contextlib
from pathlib import Path

from steelyard.files import read_text
from steelyard.model.judging import Problem, Submission

NOT_FORKED = ("compile(", "triton", "load_inline", "cpp_extension", "numba", "jax", "multiprocessing", "tensorflow")
"""Words in a candidate's file that mean it needs its own interpreter: what they name does not survive a fork."""


def uses_torch(problem: Problem) -> bool:
    """Whether a problem is written for torch; plain ones may need only numpy."""
    if problem.layout != "plain":
        return True
    return "torch" in read_text(Path(problem.file))


def names_triton(submission: Submission) -> bool:
    """Whether a candidate's file mentions Triton."""
    with contextlib.suppress(Exception):
        return "triton" in read_text(Path(submission.file))
    return False


def calls_for_fresh(submission: Submission) -> bool:
    """Whether a candidate uses something that does not survive a fork."""
    with contextlib.suppress(Exception):
        text = read_text(Path(submission.file))
        return any(word in text for word in NOT_FORKED)
    return True
