"""One run of `as ptxla runner`: plan, continue what is there, a process of its own for every config, and every row written here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from steelyard import registry
from steelyard.dialects.ptxla import matrix, rows, torchbench
from steelyard.dialects.ptxla.flags import Options
from steelyard.dialects.ptxla.matrix import Experiment, Facts, Matrix, Model
from steelyard.dialects.ptxla.rows import Row, Tally
from steelyard.dialects.ptxla.torchbench import Policy
from steelyard.errors import FAILED, NOTHING, PASS, SteelyardError, Unsupported, exit_code, unknown
from steelyard.version import __version__

SKIP = "SKIP"
NOT_RUN, NOT_VERIFIED, WRONG = "VERIFIER_DIDNT_RUN", "VERIFIER_SKIPPED", "FAIL"
TAIL = 2000
ROW_ORDER = (
    "accelerator", "accelerator_model", "xla", "xla_flags", "dynamo", "torch_xla2", "keep_model_data_on_cuda", "test", "batch_size",
    "enable_functionalization",
)  # fmt: skip
TIMM = ("convnext_tiny", "efficientnet_b0", "mobilenetv3_large_100", "resnet18", "resnet50", "swin_tiny_patch4_window7_224",
        "vit_small_patch16_224")  # fmt: skip
TRANSFORMERS = ("AlbertForMaskedLM", "BertForMaskedLM", "DistilBertForMaskedLM", "ElectraForMaskedLM", "GPT2LMHeadModel",
                "RobertaForMaskedLM")  # fmt: skip
XLA_VARIABLES = ("PJRT_DEVICE", "XRT_TPU_CONFIG", "XLA_FLAGS")
LOCAL_TPU = "localservice;0;localhost:51011"


class Talk(Protocol):
    """A worker, as far as a run needs one; `engine.converse` has the real thing."""

    stderr: str

    def ask(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]: ...


Talking = Callable[[Experiment, Mapping[str, str], int, float], AbstractContextManager[Talk]]
"""Starts a process for an experiment with these variables, threads and limit in seconds; Unsupported where there is none for it."""


class Watch:
    """Who looks on; this one sees nothing."""

    def say(self, level: str, text: str) -> None:
        """Something happened, of one of the original's log levels."""

    def printed(self, text: str) -> None:
        """What a measuring process printed."""

    def finished(self, row: Row, done: int, total: int) -> None:
        """A row is written."""


@dataclass(frozen=True)
class Plan:
    """What is to be run, in this order."""

    configs: tuple[tuple[Model, Experiment], ...]
    experiments: Matrix
    models: tuple[str, ...]


@dataclass
class Run:
    """What a run holds while it lasts; the caller reads from it how it went."""

    options: Options
    talking: Talking
    watch: Watch = field(default_factory=Watch)
    statuses: list[str] = field(default_factory=list)
    surprises: dict[str, list[str]] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)

    @property
    def file(self) -> Path:
        """Where the rows go."""
        return Path(self.options.output_dirname) / self.options.output_basename

    def run(self) -> int:
        """Do all of it and answer the exit code: 0, as the original, unless the strict one was asked for."""
        options, say = self.options, self.watch.say
        self.policy = read_policy(options)
        made = plan(options)
        say("info", f"Number of selected experiment configs: {len(made.experiments.kept)}")
        say("info", f"Number of selected model configs: {len(made.models)}")
        for dropped in made.experiments.dropped:
            say("info" if options.dry_run else "debug", str(dropped))
        held = {} if options.dry_run else self._open()
        for number, (model, experiment) in enumerate(made.configs, 1):
            say("info", f"Run with {matrix.line(model, experiment)}")
            if not options.dry_run:
                self._take(model, experiment, held, number, len(made.configs))
        for kind, names in self.surprises.items():
            say("warning", f"{kind}: {', '.join(names)}")
        return self._judged()

    def _open(self) -> dict[str, Row]:
        """The rows that are there already, by config; nothing is thrown away unless that was asked for."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.options.model_config is not None:
            return {}
        if self.options.no_resume:
            self.file.unlink(missing_ok=True)
        if not self.file.exists():
            return {}
        tally, held = Tally(), {}
        for row in rows.read(self.file, tally):
            held[fingerprint_of(row, self.options)] = row
        for text in tally.lines():
            self.watch.say("warning", f"{self.file.name}: {text}")
        return held

    def _take(self, model: Model, experiment: Experiment, held: Mapping[str, Row], number: int, total: int) -> None:
        mark = matrix.fingerprint(self.options.suite_name, model, experiment, self.options)
        name = str(model["model_name"])
        reason = "" if self.options.no_skip else self.policy.skip(name, experiment)
        known = held.get(mark) or held.get(original_fingerprint(self.options.suite_name, model, experiment, self.options))
        if known is not None and not self._again(known, reason):
            hint = "; --retry failed runs it again" if outcome(known) == "failed" else ""
            self.watch.say("info", f"there is a row for it already ({outcome(known)}){hint}")
            self.statuses.append(outcome(known))
            return
        if reason:
            found = self._failed(model, experiment, mark, "skipped", SKIP, reason=reason)
        elif (rule := matrix.dropping(experiment)) is not None:
            found = self._failed(model, experiment, mark, "unsupported", f"unsupported: {rule.why}", rule=rule.number)
        else:
            found = self._measured(model, experiment, mark)
        status = str(found.others["steelyard"]["status"])
        self._expect(name, experiment, found, status)
        rows.append(self.file, found)
        self.statuses.append(status)
        self.watch.finished(found, number, total)

    def _again(self, known: Row, reason: str) -> bool:
        """Failures are tried again where that was asked for, and a skip where nothing speaks for it any more."""
        how = outcome(known)
        return (how == "failed" and self.options.retry == "failed") or (how == "skipped" and not reason)

    def _measured(self, model: Model, experiment: Experiment, mark: str) -> Row:
        """Ask a process of its own, and make the row of what it says; when it dies, that is a row too."""
        options, name = self.options, str(model["model_name"])
        folder = Path(options.output_dirname).resolve() / matrix.folder(model)
        threads, base = options.threads or len(os.sched_getaffinity(0)), matrix.basename(model, experiment)
        job = {
            "do": "shim", "dialect": "ptxla", "options": _absolute(options), "model": model, "experiment": experiment, "threads": threads,
            "policy": self.policy.for_worker(name, experiment["test"], options.batch_size), "folder": str(folder), "basename": base,
        }  # fmt: skip
        said: dict[str, Any] = {}
        talk: Talk | None = None
        try:
            with self.talking(experiment, variables(model, experiment, options, folder), threads, options.subprocess_timeout) as talk:
                for message in talk.ask(job):
                    said |= message
        except Unsupported as error:
            said["failed"] = {"status": "unsupported", "error": _line(error)}
        except SteelyardError as error:
            said.setdefault("failed", {"status": "failed", "error": _line(error)})
        printed = talk.stderr if talk is not None else ""
        if options.print_subprocess and printed:
            self.watch.printed(printed)
        if "measured" in said:
            return self._made(model, experiment, mark, said["measured"], said.get("lost"))
        failed = said.get("failed") or {
            "status": said.get("lost", {}).get("status", "crashed"),
            "error": said.get("lost", {}).get("reason", "the process gave no answer"),
        }
        more: dict[str, Any] = {"trace": failed["trace"]} if failed.get("trace") else {}
        if printed and failed["status"] not in ("unsupported", "not_applicable"):
            more |= {"tail": printed[-TAIL:], "log": _keep(folder, base, printed)}
        return self._failed(model, experiment, mark, failed["status"], f"{failed['status']}: {failed['error']}", **more)

    def _made(self, model: Model, experiment: Experiment, mark: str, found: Mapping[str, Any], lost: Any) -> Row:
        checked = found["verification"]
        ours = {"status": "wrong" if checked["code"] == WRONG else "ok"} | {
            key: found[key] for key in ("versions", "fallbacks", "dtype", "files") if found.get(key)
        }
        if self.options.verify:
            ours["verification"] = {key: value for key, value in checked.items() if value not in (None, "")}
        if lost:
            ours["ended"] = lost["reason"]
        row = self._row(model, experiment, mark, found["metrics"], str(checked["code"]), ours, found)
        others = dict(row.others)
        if self.options.verify:
            others = {"verification_mean_rel_error": checked.get("mean_rel_error"), **others}
        if "outputs_file" in found:
            others = {"outputs_file": found["outputs_file"], **others}
        return replace(row, others=others)

    def _failed(self, model: Model, experiment: Experiment, mark: str, status: str, error: str, **more: Any) -> Row:
        code = NOT_VERIFIED if error == SKIP else NOT_RUN
        return self._row(model, experiment, mark, {"error": error}, code, {"status": status, **more}, {})

    def _row(
        self, model: Model, experiment: Experiment, mark: str, metrics: Mapping[str, Any], code: str, ours: dict[str, Any], found: Any
    ) -> Row:
        device = found.get("accelerator_model") or (cpu_model() if experiment["accelerator"] == "cpu" else None)
        asked = {"accelerator_model": device, "batch_size": found.get("batch_size") or self.options.batch_size}
        told = {**experiment, **asked}
        ours |= {"fingerprint": mark, "version": __version__}
        if self.options.size is not None:
            ours["size"] = self.options.size
        return Row(
            {"suite_name": self.options.suite_name, **model}, {key: told[key] for key in ROW_ORDER}, metrics,
            self.options.timestamp, self.options.repeat, self.options.iterations_per_run, code, {"steelyard": ours},
        )  # fmt: skip

    def _expect(self, name: str, experiment: Experiment, row: Row, status: str) -> None:
        """Say where a failure is new, and where one that was expected is gone."""
        if not self.policy.expected or status == "skipped":
            return
        expected = self.policy.expects_failure(name, experiment)
        if expected == (status != "ok"):
            row.others["steelyard"]["expected"] = True
            return
        kind = "new passes" if expected else "new failures"
        row.others["steelyard"]["expected"] = False
        words = (name, experiment["accelerator"], experiment["test"], rows.backend_name(experiment["dynamo"], experiment["xla"]) or "")
        self.surprises.setdefault(kind, []).append(" ".join(words).strip())

    def _judged(self) -> int:
        if not self.options.strict_exit or self.options.dry_run:
            return PASS
        bad = any(status not in ("ok", "skipped", "unsupported", "not_applicable") for status in self.statuses)
        if self.policy.expected:
            bad = bool(self.surprises)
        return exit_code(([FAILED] if bad else []) + ([] if {"ok", "wrong"} & {*self.statuses} else [NOTHING]))


def _line(error: SteelyardError) -> str:
    return "; ".join(" ".join(part.split()) for part in str(error).splitlines() if part.strip())


def _absolute(options: Options) -> dict[str, Any]:
    """The options for a process that starts in a folder of its own choice."""
    plain = options.plain()
    if options.torchbench is not None:
        plain["torchbench"] = str(Path(options.torchbench).resolve())
    return plain


def _keep(folder: Path, base: str, printed: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"log-{base}.txt"
    path.write_text(printed, encoding="utf-8")
    return str(path)


def begin(options: Options, talking: Talking, watch: Watch) -> Run:
    """A run whose rows all carry one time."""
    return Run(options if options.timestamp is not None else replace(options, timestamp=time.time()), talking, watch)


def plan(options: Options) -> Plan:
    """Every model with every experiment, or the one config that was named; no model's code is touched for it."""
    if options.model_config is not None and options.experiment_config is not None:
        model, experiment = matrix.read_model(options.model_config), matrix.read_experiment(options.experiment_config)
        return Plan(((model, experiment),), Matrix((experiment,), ()), (str(model["model_name"]),))
    found = matrix.expand(options, Facts(lambda accelerator, xla: accelerator in options.accelerator or has_device(accelerator, xla)))
    names = tuple(matrix.choose(listing(options), options))
    return Plan(tuple(({"model_name": name}, dict(point)) for name in names for point in found.kept), found, names)


def has_device(accelerator: str, xla: str) -> bool:
    """Whether XLA could have such a device here, as far as a look at the system tells; who names one gets a row in any case."""
    if accelerator == "cpu":
        return xla == "PJRT"
    return Path("/dev/nvidiactl").exists() if accelerator == "cuda" else any(Path("/dev").glob("accel*"))


def listing(options: Options) -> Sequence[str]:
    """The models of a suite, always in the same order."""
    if options.suite_name == "torchbench":
        return torchbench.models(Path(options.torchbench or ""))
    if options.suite_name == "steelyard":
        names = sorted(name.removeprefix("model/") for name in registry.catalogue().workloads if name.startswith("model/"))
        if options.size is not None and not any(options.size in registry.catalogue().workloads[f"model/{name}"]["sizes"] for name in names):
            known = {size for name in names for size in registry.catalogue().workloads[f"model/{name}"]["sizes"]}
            raise unknown("size", options.size, known)
        return names
    return {"dummy": ("dummy",), "timm": TIMM, "transformers": TRANSFORMERS}[options.suite_name]


def read_policy(options: Options) -> Policy:
    """The user's policy file, or the one of the checkout; models of TorchBench have the original's deny list in any case."""
    bench = options.suite_name == "torchbench"
    named = Path(options.policy) if options.policy is not None else None
    if named is None and bench:
        named = torchbench.policy_file(Path(options.torchbench or ""))
    return torchbench.read_policy(named, torchbench.DENIED if bench else None)


def outcome(row: Row) -> str:
    """How a row that is there already came out."""
    ours = row.others.get("steelyard")
    if row.error == SKIP:
        return "skipped"
    if row.error:
        return "failed"
    return str(ours.get("status", "ok")) if isinstance(ours, Mapping) else "ok"


def fingerprint_of(row: Row, options: Options) -> str:
    """Which config a row answers: told by us in the row, or put together from what the original wrote.

    The original wrote the batch size that a model chose, so it counts only where one is asked for.
    """
    ours = row.others.get("steelyard")
    if isinstance(ours, Mapping) and isinstance(ours.get("fingerprint"), str):
        return str(ours["fingerprint"])
    batch = None if options.batch_size is None else row.experiment.get("batch_size")
    verified = options.verify if row.error else row.verification_code not in (None, NOT_VERIFIED)
    return _original(row.model.get("suite_name"), row.name, row.experiment, row.repeat, row.iterations_per_run, batch, verified)


def original_fingerprint(suite: str, model: Model, experiment: Experiment, options: Options) -> str:
    """How a row of the original tool for this config would be told."""
    return _original(
        suite, str(model["model_name"]), experiment, options.repeat, options.iterations_per_run, options.batch_size, options.verify
    )


def _original(suite: Any, name: str, experiment: Mapping[str, Any], repeat: Any, iterations: Any, batch: Any, verified: bool) -> str:
    points = [str(experiment.get(key) or None) for key in matrix.AXES]
    return "-".join(map(str, (suite, name, *points, repeat, iterations, batch, verified)))


def cpu_model() -> str | None:
    """The processor's name, for rows of configs that did not run."""
    from steelyard.machine import cpu

    return cpu.model(cpu.cpuinfo(Path("/")))


def variables(model: Model, experiment: Experiment, options: Options, folder: Path) -> dict[str, str]:
    """What must be set before a config's process starts; with XLA, nothing of what the user had set for it stays."""
    xla, accelerator = experiment["xla"], str(experiment["accelerator"])
    found: dict[str, str] = dict.fromkeys(XLA_VARIABLES, "") if xla is not None else {}
    if xla == "PJRT":
        found["PJRT_DEVICE"] = accelerator.upper()
    elif xla == "XRT" and accelerator == "tpu":
        found |= {"TPU_NUM_DEVICES": "1", "XRT_TPU_CONFIG": LOCAL_TPU}
    flags = [str(experiment["xla_flags"])] if experiment["xla_flags"] else []
    base = matrix.basename(model, experiment)
    if options.dump_hlo:
        flags = flags or ([os.environ["XLA_FLAGS"]] if xla is None and os.environ.get("XLA_FLAGS") else [])
        flags.append(f"--xla_dump_to={folder / 'hlo' / base}")
    if flags:
        found["XLA_FLAGS"] = " ".join(flags)
    if not experiment["enable_functionalization"]:
        found["XLA_DISABLE_FUNCTIONALIZATION"] = "1"
    if experiment["torch_xla2"] is not None:
        found["JAX_PLATFORMS"] = accelerator
    if options.save_ir_format is not None:
        found |= {"XLA_SAVE_TENSORS_FMT": options.save_ir_format, "XLA_SAVE_TENSORS_FILE": str(folder / f"dump-{base}")}
    if model["model_name"] in torchbench.GENERATING:
        found["XLA_COMPILATION_CACHE_SIZE"] = "2048"
    return found
