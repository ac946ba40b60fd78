"""Checks that a stand's answer has the form that its harness gives it: a candidate may have replaced the harness in its process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEEPEST = 32
TOLD, LONGEST_TOLD = ("weights",), 2000
"""Facts that a layout may report about loading a candidate, and the most characters of each."""
NUMBERS = {"start", "bytes"}
LISTS = {"shape", "strides"}


def sound_answer(do: str, asked: Mapping[str, Any], words: Mapping[str, Any]) -> bool:
    """Whether the words of an answer have the form that the harness gives them for this step."""
    if do == "show":
        count = len(asked["which"])
        return _shown(words.get("outputs"), count) and _shown(words.get("inputs"), count if asked["inputs"] else 0)
    if do == "state":
        changed = words.get("changed")
        return isinstance(changed, list) and all(isinstance(name, str) for name in changed)
    if do == "kernels":
        kernels = words.get("kernels")
        return isinstance(kernels, dict) and all(isinstance(count, int) for count in kernels.values())
    return True


def sound_facts(given: Any) -> dict[str, str]:
    """Return the known facts about loading a candidate, shortened; they are shown, but have no influence on the ruling."""
    facts = given if isinstance(given, Mapping) else {}
    return {name: facts[name][:LONGEST_TOLD] for name in TOLD if isinstance(facts.get(name), str)}


def _shown(given: Any, count: int) -> bool:
    return isinstance(given, list) and len(given) == count and all(_described(item, 0) for item in given)


def _described(spec: Any, depth: int) -> bool:
    """Whether a value is described as `parcel.pack` does it."""
    if not isinstance(spec, dict) or depth > DEEPEST:
        return False
    if "items" in spec:
        return isinstance(spec["items"], list) and all(_described(item, depth + 1) for item in spec["items"])
    if "library" not in spec:
        return True
    lists = [spec.get(name, []) for name in LISTS]
    whole = all(isinstance(each, list) and all(isinstance(number, int) for number in each) for each in lists)
    return whole and all(isinstance(spec.get(name), int) and spec[name] >= 0 for name in NUMBERS)
