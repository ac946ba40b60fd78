"""Case: one point of an experiment, whose id is its identity and its repro string.

    case     = workload [ "[" pairs "]" ] "@" backend "/" variants ":" mode { ":" field "=" value }
    workload = name { "/" name }                     op/softmax
    variants = variant { "+" variant }               int8wo+compile[mode=max-autotune]
    variant  = name [ "[" pairs "]" ]
    pairs    = key "=" value { "," key "=" value }   keys sorted
    field    = device | threads | ranks | env | flag.NAME  only where not the default, in this order
    value    = null | true | false | number | word | "JSON string" | [flat,list] | #digest

Device index, host and versions are provenance: they are in the Record, not here. So is the environment, unless an experiment
names it as an axis: `env` is then part of the case, and one run may measure the same point in several environments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from steelyard.errors import UsageError, unknown
from steelyard.model.dtypes import canonical
from steelyard.model.values import KEY, Digest, Pairs, Scanner, render, render_pairs

MODES = ("eval", "train", "fwd", "bwd", "call")
IDENTITY = "eager"
HERE = "here"
"""The word for the environment that the run is made in; ids leave it out."""
RESERVED = ("PYTHONHOME", "PYTHONEXECUTABLE", "PYTHONPLATLIBDIR", "PYTHONSAFEPATH", "STEELYARD_SESSION")
"""Environment variables that a worker needs in order to start and to be found; a case cannot set them as flags."""
ENV = ":env"
"""Key for the environment among a case's properties; no parameter can have this name."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


def sorted_pairs(pairs: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Pairs:
    """Pairs sorted by key, so that a case's id does not depend on the order in which parameters were written."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return tuple(sorted(((key, _settle(key, value)) for key, value in items), key=lambda pair: pair[0]))


def _settle(key: str, value: Any) -> Any:
    if isinstance(value, tuple):
        value = list(value)
    if key == "dtype" and not (value is None or isinstance(value, (str, Digest))):
        raise UsageError(f"a dtype is a name such as fp32, not {render(value)}")
    return canonical(value) if key == "dtype" and isinstance(value, str) else value


def _flag(value: Any) -> str | Digest:
    """The value of a flag, which is always text; the id has a digest for a long one."""
    return value if isinstance(value, (str, Digest)) else render(value)


@dataclass(frozen=True)
class VariantSpec:
    """One step of a variant chain: a name and its options."""

    name: str
    options: Pairs = ()

    def __str__(self) -> str:
        return f"{self.name}[{render_pairs(self.options)}]" if self.options else self.name


@lru_cache(1024)
def parse_variants(text: str) -> tuple[VariantSpec, ...]:
    """Read `a+b[k=v]`; the identity variant is the empty chain."""
    scanner = Scanner(text)
    chain = _chain(scanner)
    if not scanner.done():
        raise scanner.fail("'+' or the end of the variant")
    return chain


def parse_base(text: str) -> tuple[str, str]:
    """Backend and variant of a base: `torch/eager` is one base for all cases; `eager`, with an empty backend, each case's own."""
    name, sign, rest = text.partition("/")
    if not sign or "[" in name:
        return "", text
    if not name or not rest:
        raise UsageError(f"not a base: {text!r}", do="write a variant, such as eager, or backend and variant, such as torch/eager")
    return name, rest


def _chain(scanner: Scanner) -> tuple[VariantSpec, ...]:
    chain = []
    while True:
        step = VariantSpec(scanner.match(_NAME, "a variant name"), sorted_pairs(scanner.pairs()))
        if any(render(value).startswith("#") for _, value in step.options):
            raise UsageError(f"an option of variant {step.name} is too long for a case id", why=scanner.text, do="use a shorter value")
        chain.append(step)
        if not scanner.take("+"):
            break
    return tuple(step for step in chain if step != VariantSpec(IDENTITY))


@dataclass(frozen=True, eq=False)
class Case:
    """What is measured and how; two cases are the same when their ids are."""

    workload: str
    params: Pairs = ()
    backend: str = "torch"
    variant: str = IDENTITY
    mode: str = "eval"
    device: str = "cpu"
    threads: int = 1
    ranks: int = 1
    flags: Pairs = field(default=())
    env: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", sorted_pairs(self.params))
        object.__setattr__(self, "flags", tuple(sorted(((key, _flag(value)) for key, value in self.flags), key=lambda pair: pair[0])))
        object.__setattr__(self, "variant", "+".join(map(str, parse_variants(self.variant))) or IDENTITY)
        for name, text in (("workload", self.workload), ("backend", self.backend), ("device", self.device)):
            if not (_PATH if name == "workload" else _NAME).fullmatch(text):
                raise UsageError(f"not a {name} name: {text!r}", do="use letters, digits, '_', '.', '-' and, in workloads, '/'")
        for key, _ in (*self.params, *self.flags):
            if not KEY.fullmatch(key):
                raise UsageError(f"not a parameter name: {key!r}", do="use letters, digits, '_', '.' and '-', beginning with a letter")
        for key, value in self.flags:
            if key in RESERVED:
                raise UsageError(f"{key} cannot be a flag", why="a worker needs it to start", do="set what the workload itself reads")
            if isinstance(value, str) and "\0" in value:
                raise UsageError(f"flag {key} holds a zero byte", why="no environment variable can")
        if self.mode not in MODES:
            raise unknown("mode", self.mode, MODES)
        object.__setattr__(self, "env", "" if self.env == HERE else self.env)
        if self.env and not _NAME.fullmatch(self.env):
            raise UsageError(f"not an environment's name: {self.env!r}", do="use letters, digits, '_', '.' and '-'")
        if self.threads < 1 or self.ranks < 1:
            raise UsageError(f"threads and ranks must be at least 1, not {self.threads} and {self.ranks}")

    @cached_property
    def id(self) -> str:
        """The canonical text; parsing it gives an equal case. Cached, since it is used more than a dozen times per case."""
        params = f"[{render_pairs(self.params)}]" if self.params else ""
        fields = [("device", self.device, "cpu"), ("threads", self.threads, 1), ("ranks", self.ranks, 1), ("env", self.env, "")]
        tail = [f":{key}={render(value)}" for key, value, usual in fields if value != usual]
        tail += [f":flag.{key}={render(value)}" for key, value in self.flags]
        return f"{self.workload}{params}@{self.backend}/{self.variant}:{self.mode}{''.join(tail)}"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def chain(self) -> tuple[VariantSpec, ...]:
        """The variants in the order in which they are applied."""
        return parse_variants(self.variant)

    @property
    def settled(self) -> bool:
        """False if a parameter or a flag is known only by digest; the case must then be looked up before it can run."""
        return not any(isinstance(value, Digest) for _, value in (*self.params, *self.flags))

    def with_variant(self, variant: str) -> Case:
        """The same point under another variant: the other arm of a comparison."""
        return replace(self, variant=variant)

    def against(self, base: str) -> Case:
        """The same point with the backend and variant of a base."""
        backend, variant = parse_base(base)
        return replace(self, backend=backend or self.backend, variant=variant)

    @classmethod
    def parse(cls, text: str) -> Case:
        """Read an id; the error shows the place that is wrong."""
        scanner = Scanner(text)
        workload = scanner.match(_PATH, "a workload name")
        params = scanner.pairs()
        if not scanner.take("@"):
            raise scanner.fail("'@backend/variant:mode'")
        backend = scanner.match(_NAME, "a backend name")
        if not scanner.take("/"):
            raise scanner.fail("'/variant'")
        variant = "+".join(map(str, _chain(scanner))) or IDENTITY
        if not scanner.take(":"):
            raise scanner.fail("':mode'")
        mode = scanner.match(_NAME, f"a mode ({', '.join(MODES)})")
        return cls(workload, params, backend, variant, mode, **_fields(scanner))

    def plain(self) -> dict[str, Any]:
        """The case as JSON-ready data, with long parameters in full."""
        home = {"env": self.env} if self.env else {}
        return {
            "workload": self.workload, "params": dict(self.params), "backend": self.backend, "variant": self.variant,
            "mode": self.mode, "device": self.device, "threads": self.threads, "ranks": self.ranks, "flags": dict(self.flags), **home,
        }  # fmt: skip

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Case:
        """The inverse of `plain`, for the worker's side of the pipe and for stored records."""
        known = {key: data[key] for key in ("backend", "variant", "mode", "device", "threads", "ranks", "env") if key in data}
        return cls(data["workload"], tuple(data.get("params", {}).items()), flags=tuple(data.get("flags", {}).items()), **known)

    @classmethod
    def sent(cls, data: Mapping[str, Any]) -> Case:
        """The inverse of `plain` for cases that our own conductor sent with their id; they are not checked again."""
        made = object.__new__(cls)
        lists = {"params": tuple(data["params"].items()), "flags": tuple(data["flags"].items())}
        vars(made).update({"env": "", **data, **lists})
        return made


def _fields(scanner: Scanner) -> dict[str, Any]:
    found: dict[str, Any] = {}
    flags: dict[str, Any] = {}
    while scanner.take(":"):
        key = scanner.key()
        if not scanner.take("="):
            raise scanner.fail("'='")
        if key in found or key in flags:
            raise UsageError(f"field {key!r} is given twice", why=scanner.text)
        value = scanner.value()
        if key.startswith("flag."):
            flags[key] = value
        elif type(value) is {"device": str, "threads": int, "ranks": int, "env": str}.get(key):
            found[key] = value
        else:
            raise scanner.fail("device=NAME, threads=N, ranks=N, env=NAME or flag.NAME=VALUE")
    if not scanner.done():
        raise scanner.fail("the end of the id")
    return {**found, "flags": tuple((key.removeprefix("flag."), value) for key, value in flags.items())}
