"""Experiment: a matrix of cases with rules, as written in a file or built in Python."""

from __future__ import annotations

import fnmatch
import functools
import itertools
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from steelyard.errors import UsageError, unknown
from steelyard.model.case import HERE, Case
from steelyard.model.protocol import Fixed
from steelyard.model.units import check_tolerance, is_amount

Sampling = Literal["blocks", "calls"]
Isolation = Literal["shared", "case", "workload", "none"]
"""`shared`: cases of a workload share a worker; cases that need a fresh interpreter share one per backend and device."""
Reference = Literal["eager", "fp64", "interpreter"]
GraphForm = Literal["hlo", "stablehlo", "text", "optimized"]
"""Forms of saved graphs; `optimized` is the compiler's output: optimised HLO, or the phases of IREE."""
Saved = Literal["answer", "state"]

DEVICES = ("cpu", "cuda", "xpu", "mps", "tpu", "rocm")
"""Kinds of devices; the index of a device is not part of a case."""
_SPOKEN = {"gpu": "cuda", "nvidia": "cuda", "amd": "rocm", "hip": "rocm", "intel": "xpu", "metal": "mps", "host": "cpu"}
"""Words that are refused as device kinds, with a hint; a case says cuda on every machine, so there is no `auto` or `gpu`."""
_TABLES = {"axes": "params", "flags": "flags"}
MOST_SETTLING = 100.0
OWN_RULE, NO_RULE = "steelyard", "none"
BESIDE = ("sqnr",)
"""Rules that are applied in addition to our own, not instead of it."""
PASSES = ("profile", "peak_memory", "memory_snapshot", "ncu", "nsys", "compile_time", "dump_ir", "runtime_profile", "save_output")
"""Settings that request a pass besides the timing."""
BUDGETS: dict[str, float] = {"quick": 0.3, "normal": 1.0, "thorough": 5.0}


def device_kind(name: str, known: Collection[str] = DEVICES) -> str:
    """Check a device kind; the error for another word suggests the right one."""
    if name not in known:
        meant = _SPOKEN.get(name.lower(), "")
        raise unknown("device", name, known, meant=meant if meant in known else "")
    return name


@dataclass(frozen=True)
class Settings:
    """How to measure: everything that changes a figure's precision but not its meaning.

    `settle` is how many more budgets a comparison may take while its margin is not settled; with 0 it ends with its budget.

    `verify` may be "full": then large answers on a device are also compared with numpy, however long that takes.

    `reference` is what variants are compared with: the plain task of their own backend (`eager`), or the reference of that plain task,
    which is the same for all stacks (`fp64`); an exported program may be compared with StableHLO's reference interpreter (`interpreter`)
    instead of its recorded outputs. `allow` names what an exported program may do besides computing, such as a custom call of the host,
    which Triton kernels of a trace may run, and which modules a trace may import. `warmup_runs` is how many blocks (of a program: runs)
    are not timed, including the first call; it replaces the warm-up time.

    `peak_memory` to `save_output` request passes besides the timing; `compile_time` is how many processes each of its figures comes
    from, and `profile` may be "stacks", which makes a flame graph possible. `fixed` is another system's protocol instead of budget and
    precision, and `rule` the name of a verification rule instead of our own.
    """

    budget: float = BUDGETS["normal"]
    precision: float = 0.01
    sampling: Sampling = "blocks"
    warmup: float | None = None
    rtol: float | None = None
    atol: float | None = None
    verify: bool | Literal["full"] = True
    reference: Reference = "eager"
    seed: int = 0
    timeout: float = 300.0
    memory: int | None = None
    isolate: Isolation = "shared"
    vs: str | None = None
    runs: int | None = None
    margin: float = 0.02
    settle: float = 4.0
    telemetry: bool = True
    peak_memory: bool = False
    memory_snapshot: bool = False
    profile: bool | Literal["stacks"] = False
    ncu: bool = False
    nsys: bool = False
    compile_time: int | None = None
    dump_ir: GraphForm | None = None
    runtime_profile: bool = False
    save_output: Saved | None = None
    fixed: Fixed | None = None
    rule: str | None = None
    allow: tuple[str, ...] = ()
    warmup_runs: int | None = None

    def __post_init__(self) -> None:
        words = {"sampling": Sampling, "reference": Reference, "isolate": Isolation, "dump_ir": GraphForm, "save_output": Saved}
        for name, choices in words.items():
            if (value := getattr(self, name)) is not None and value not in get_args(choices):
                raise unknown(name, str(value), get_args(choices))
        for name in ("rtol", "atol"):
            if (value := getattr(self, name)) is not None:
                check_tolerance(value, name)
        for name in ("budget", "precision", "margin", "warmup", "timeout"):
            if (value := getattr(self, name)) is not None and not is_amount(value):
                raise UsageError(f"{name} is {str(value)[:60]}", do="give a finite number of at least 0")

        if self.warmup is not None and self.warmup_runs is not None:
            raise UsageError("warmup and warmup_runs are both given", do="give one of them")

    @property
    def scrutinised(self) -> bool:
        """Whether answers are checked by our own rule."""
        return bool(self.verify) and (self.rule in (None, OWN_RULE) or str(self.rule).partition("[")[0] in BESIDE)

    @property
    def other_rule(self) -> str:
        """The rule by which answers are checked instead of our own; empty if there is none."""
        return "" if not self.verify or self.rule in (None, OWN_RULE, NO_RULE) else str(self.rule)

    def plain(self) -> dict[str, Any]:
        """The settings as JSON-ready data, without unset values."""
        return dict(_plain(self))

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Settings:
        """The inverse of `plain`, for the worker's side of the pipe."""
        fixed = Fixed(**data["fixed"]) if data.get("fixed") else None
        return cls(**{**data, "fixed": fixed, "allow": tuple(data.get("allow", ()))})


@functools.lru_cache(8)
def _plain(settings: Settings) -> Mapping[str, Any]:
    """Settings as plain data, cached: every record of a run has the same."""
    return {key: value for key, value in asdict(settings).items() if value not in (None, ())}


@dataclass(frozen=True)
class Matrix:
    """A product of axes; `axes` are workload parameters, everything else is how and where. A key `m,n,k` gives all three the same value.

    Without a variant, cases have their backend's usual one. `env` are the environments that its cases run in; `here` is the one of the
    run, or the backend's own. `origin` is the matrix's position in a file, and `label` what its cases are called there. `rule` is the
    verification rule of its cases, if it is not that of the whole experiment. `weight` is how often each of its cases is called in the
    step that they were taken from.
    """

    workload: tuple[str, ...]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    backend: tuple[str, ...] = ()
    variant: tuple[str, ...] = ()
    mode: tuple[str, ...] = ("eval",)
    device: tuple[str, ...] = ("cpu",)
    threads: tuple[int, ...] = (1,)
    ranks: tuple[int, ...] = (1,)
    flags: tuple[Mapping[str, str], ...] = ({},)
    env: tuple[str, ...] = (HERE,)
    origin: str = field(default="", compare=False)
    label: str = field(default="", compare=False)
    rule: str = field(default="", compare=False)
    weight: float = field(default=0.0, compare=False)

    def apart(self) -> list[Matrix]:
        """One matrix for each value of axes that share a key, such as `m,n,k` for square products; only itself if no axes do."""
        linked = [key for key in self.axes if "," in key]
        if not linked:
            return [self]
        free = {key: values for key, values in self.axes.items() if key not in linked}
        found = []
        for chosen in itertools.product(*(self.axes[key] for key in linked)):
            fixed = {name: (value,) for key, value in zip(linked, chosen, strict=True) for name in key.split(",")}
            found.append(replace(self, axes={**free, **fixed}))
        return found


@dataclass(frozen=True)
class Rule:
    """Drops the cases for which every key listed is equal, and says why."""

    match: Mapping[str, Any]
    reason: str = ""

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.match.items())

    def fits(self, case: Case, tags: Collection[str] = ()) -> bool:
        """Whether the rule matches a case; text may be a pattern, a list is a choice, and `tags` are those of the case's workload."""
        plain = case.plain()
        have = {key: [value] for key, value in plain.items()} | {"tag": list(tags), "env": [case.env or HERE]}
        have |= {f"{table}.{name}": [value] for table, key in _TABLES.items() for name, value in plain[key].items()}
        return all(any(_equal(value, wanted) for value in have.get(key, ())) for key, wanted in self.match.items())


def _equal(have: Any, wanted: Any) -> bool:
    """Whether a value matches; a wanted list may be one value of an axis or a choice of values. As in a case id, True is not a number."""
    choices = [wanted, *wanted] if isinstance(wanted, (list, tuple)) else [wanted]
    return any(
        (have == choice and isinstance(have, bool) == isinstance(choice, bool))
        or (isinstance(have, str) and isinstance(choice, str) and fnmatch.fnmatchcase(have, choice))
        for choice in choices
    )


@dataclass(frozen=True)
class ResultRow:
    """A row of another system's results: the cases and the pairs (head, base) that it consists of, and its key in the file.

    Several rows may name a case or a pair, which is measured once.
    """

    key: str
    cases: tuple[Case, ...]
    pairs: tuple[tuple[Case, Case], ...] = ()


@dataclass(frozen=True)
class UserScript:
    """A user's Python file whose own code decides what is measured: it calls the runner of another system.

    `shim` is the module that replaces that system's modules; its `put_in_place` is called before the file runs.
    """

    shim: str
    file: str
    argv: tuple[str, ...] = ()
    backend: str = "torch"
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True)
class Experiment:
    """Named matrices, exact cases added to them, and rules; `mistakes` are parts of a file that cannot run, one line each.

    Cases that an `exclude` rule drops are not part of the experiment. Cases that a `deny` rule drops are, and are recorded as skipped.
    `recorded` is how long, in seconds, the step took that weighted cases were taken from.
    `pairs` are the comparisons, head first: cases, their ids, or words such as `compile` and `torch/eager`. A pair of words compares every
    case that the first word describes with the same point as the second word describes it. A case may have several bases. The cases of
    pairs and rows are measured even if they are not included. A `script` replaces all of these: its cases are known when it runs them.
    """

    name: str = "command line"
    description: str = ""
    matrix: tuple[Matrix, ...] = ()
    include: tuple[str | Case, ...] = ()
    pairs: tuple[tuple[str | Case, str | Case], ...] = ()
    rows: tuple[ResultRow, ...] = ()
    exclude: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    settings: Settings = Settings()
    files: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    recorded: float | None = None
    script: UserScript | None = None
