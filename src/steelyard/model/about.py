"""Facts about a backend that are known before its framework is imported, read from the backend's own file."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_WRITTEN = re.compile(r"^ABOUT = (\{[^\n]*\}|\{\n.*?^\})(?:  # fmt: skip)?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class About:
    """A backend's packages, its environment, and how its workers start; in its file the dict `ABOUT`, made of plain values alone.

    `package` is what it imports and `stack` the environment that holds it, built of `requires` by the versions in `pins`; `why` is
    what such an environment is for. `forks` says that its workers may be forked from a process that has imported it, `returns` that
    a process of it can give all memory of a device back and go on, and `virtual` that its clock is scripted, so that it needs no
    part of the machine and knows no peak of it. `variables` are set before a worker starts and `graphs` where one shall write every
    graph to a file: `{device}`, by the names in `devices`, `{threads}`, `{file}` and `{form}` stand in them. `extra` is an extra of
    Steelyard's own that installs it, and `usual` the variant that its cases have where none is named, `eager` if it is empty.
    `refusals` are expressions for what its library prints before it ends the process over something that it cannot do: such a case counts
    as unsupported, not as crashed. `flags` is the variable in which its compiler takes flags, and `compiles` says that every first call
    compiles, whatever the variant.
    """

    package: str = ""
    stack: str = ""
    requires: tuple[str, ...] = ()
    pins: str = ""
    why: str = ""
    forks: bool = False
    returns: bool = False
    virtual: bool = False
    devices: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    graphs: Mapping[str, str] = field(default_factory=dict)
    extra: str = ""
    usual: str = ""
    refusals: tuple[str, ...] = ()
    flags: str = ""
    compiles: bool = False

    @classmethod
    def read(cls, source: str) -> About:
        """Read `ABOUT` from a backend's source without executing it; without one, the defaults."""
        found = _WRITTEN.search(source)
        told = ast.literal_eval(found[1]) if found else {}
        return cls(**{**told, "requires": tuple(told.get("requires", ())), "refusals": tuple(told.get("refusals", ()))})

    def set(self, names: Mapping[str, str], device: str = "", **values: object) -> dict[str, str]:
        """The environment variables with their placeholders filled in."""
        return {key: text.format(device=self.devices.get(device, device), **values) for key, text in names.items()}

    @property
    def remedy(self) -> str:
        """How to install it."""
        ways = [f"pip install 'steelyard[{self.extra}]'"] if self.extra else []
        ways += [f"steelyard env create {self.stack}"] if self.stack else []
        return ", or ".join(ways) or "see the documentation of its package"
