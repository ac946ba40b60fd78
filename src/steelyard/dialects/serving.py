"""Serves another system's import names: a dialect lists the modules and the names in each of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class NameServer(MetaPathFinder, Loader):
    """An importer for processes that run users' files written for the other system."""

    @classmethod
    def serve(cls) -> None:
        """Serve these imports in this process from now on."""
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Our module for a name; None for other names."""
        raise NotImplementedError

    def names_of(self, module: str) -> Mapping[str, Any]:
        """The names of a module."""
        raise NotImplementedError

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As usual."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give it its names."""
        vars(module).update(self.names_of(module.__name__))
