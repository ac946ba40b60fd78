"""A library that ends its process over what it cannot do: the case is unsupported in the library's words, and no crash."""

from __future__ import annotations

import pytest

from steelyard import registry
from steelyard.engine.conversation import Lost

FLAG = "F0000 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_nonsense=1\n*** Check failure stack trace: ***\n"


@pytest.mark.parametrize(
    ("backend", "stderr", "words"),
    [
        ("xla", FLAG, "Unknown flag in XLA_FLAGS: --xla_nonsense=1"), ("jax", FLAG, "Unknown flag in XLA_FLAGS: --xla_nonsense=1"),
        ("interpreter", "LLVM ERROR: Unsupported op: chlo.erfc\nmore", "LLVM ERROR: Unsupported op: chlo.erfc"),
        ("xla", "LLVM ERROR: out of memory", ""), ("torch", FLAG, ""), ("xla", "Segmentation fault", ""),
    ],
)  # fmt: skip
def test_last_words_by_which_a_library_refuses(backend: str, stderr: str, words: str) -> None:
    refusals = registry.about_backend(backend).refusals
    found = Lost("crashed", "the worker was ended by SIGABRT", stderr).understood(refusals)
    assert (found.status, found.reason) == (("unsupported", words) if words else ("crashed", "the worker was ended by SIGABRT"))
    assert Lost("oom", "too much", stderr).understood(refusals).status == "oom"
