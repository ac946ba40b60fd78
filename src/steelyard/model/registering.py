"""Definitions that users' files register by a call (`register_recipe`, `register_model`) rather than by an attribute of their module.

A call may be in a loop, in a function, or in another module than the named file, so the loader of a file takes everything registered
while it loads.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
KEPT = "__steelyard_registered__"
"""The attribute of a module that keeps what was registered while it was loaded: a process loads it once, and may need the list again."""
_made: list[tuple[str, Any]] = []
"""Everything that this process has registered, in order, with the module in which its function was written."""


def register(definition: T, function: Callable[..., Any]) -> T:
    """Register a definition with the file that is being loaded now."""
    _made.append((function.__module__, definition))
    return definition


def loaded(load: Callable[[], ModuleType]) -> ModuleType:
    """Load a module, and keep with it what is registered while it loads; if that fails, those registrations are dropped."""
    before = len(_made)
    try:
        module = load()
    except BaseException:
        del _made[before:]
        raise
    vars(module).setdefault(KEPT, [definition for _, definition in _made[before:]])
    return module


def registered(module: ModuleType) -> list[Any]:
    """The definitions registered while a module was loaded, and those of its own functions, which an earlier import may have registered."""
    own = [definition for home, definition in _made if home == module.__name__]
    return list({id(item): item for item in [*vars(module).get(KEPT, ()), *own]}.values())
