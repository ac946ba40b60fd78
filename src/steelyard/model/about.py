"""Facts about a backend that are known before its framework is imported, read from the backend's own file."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_WRITTEN = re.compile(r"^ABOUT = (\{[^\n]*\}|\{\n.*?^\})(?:  # fmt: skip)?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class About:
    """A backend's packages, its environment, and how its workers start; the backend's file has it as the dict `ABOUT` of plain values.

    `package` is what it imports; `stack` is the environment that has it, built from `requires` with the versions in `pins`, and `why` is
    what that environment is for. `forks` means that its workers may be forked from a process that has imported it, `returns` that a process
    can release all device memory and go on, and `virtual` that its clock is scripted, so that it needs no part of the machine and has no
    peak rates. `variables` are environment variables set before a worker starts, `graphs` those set if it is to write every graph to
    a file; in both, `{device}` (by the names in `devices`), `{threads}`, `{file}` and `{form}` are filled in. `extra` is the extra of
    Steelyard that installs it, and `usual` the variant that its cases have if none is named (`eager` if empty). `refusals` are
    regular expressions for what its library prints before it ends the process because it does not support something: such a case
    counts as unsupported, not as crashed. `flags` is the environment variable for its compiler's flags, and `compiles` means that
    every first call compiles, whatever the variant.
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
        """How to install the backend."""
        ways = [f"pip install 'steelyard[{self.extra}]'"] if self.extra else []
        ways += [f"steelyard env create {self.stack}"] if self.stack else []
        return ", or ".join(ways) or "see the documentation of its package"
