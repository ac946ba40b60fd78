"""One run of `as ptxla runner`: plan, continue what is there, a process of its own for every config, and every row written here."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from steelyard import registry
from steelyard.dialects.ptxla import matrix, rows, torchbench
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.ledger import SKIP, Ledger, outcome
from steelyard.dialects.ptxla.matrix import Combinations, Experiment, Facts, Model
from steelyard.dialects.ptxla.rows import Row
from steelyard.dialects.ptxla.torchbench import ModelPolicy
from steelyard.errors import FAILED, NOTHING, PASS, SteelyardError, Unsupported, exit_code, unknown
from steelyard.machine.locks import LockError
from steelyard.version import __version__

UNTRIED = ("skipped", "unsupported", "not_applicable")
"""Statuses that are neither a failure nor a success."""
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
SHIM = "steelyard.dialects.ptxla.shim.perform"


class Answering(Protocol):
    """A worker, as far as a run needs one; `engine.converse` has the real thing."""

    stderr: str

    def ask(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]: ...


Talking = Callable[[Experiment, Mapping[str, str], int, float], AbstractContextManager[Answering]]
"""Starts a process for an experiment with these variables, threads and limit in seconds; Unsupported where there is none for it."""


class RunnerWatch:
    """Who looks on; this one sees nothing."""

    def say(self, level: str, text: str) -> None:
        """Something happened, of one of the original's log levels."""

    def printed(self, text: str) -> None:
        """What a measuring process printed."""

    def finished(self, row: Row, done: int, total: int) -> None:
        """A row is written."""


@dataclass(frozen=True)
class RunnerPlan:
    """What is to be run, in this order."""

    configs: tuple[tuple[Model, Experiment], ...]
    experiments: Combinations
    models: tuple[str, ...]


@dataclass
class MatrixRun:
    """What a run holds while it lasts; the caller reads from it how it went."""

    options: RunnerOptions
    talking: Talking
    watch: RunnerWatch = field(default_factory=RunnerWatch)
    statuses: list[str] = field(default_factory=list)
    surprises: dict[str, list[str]] = field(default_factory=dict)
    policy: ModelPolicy = field(default_factory=ModelPolicy)

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
        if options.dry_run:
            for config in made.configs:
                say("info", f"Run with {matrix.line(*config)}")
            return PASS
        ledger = Ledger.open(self.file, options, lambda text: say("warning", text))
        try:
            for number, (model, experiment) in enumerate(made.configs, 1):
                say("info", f"Run with {matrix.line(model, experiment)}")
                self._take(model, experiment, ledger, number, len(made.configs))
        finally:
            ledger.close()
        for kind, names in self.surprises.items():
            say("warning", f"{kind}: {', '.join(names)}")
        return self._judged()

    def _take(self, model: Model, experiment: Experiment, ledger: Ledger, number: int, total: int) -> None:
        mark = matrix.fingerprint(self.options.suite_name, model, experiment, self.options)
        reason = "" if self.options.no_skip else self.policy.skip(str(model["model_name"]), experiment)

        def done() -> Row | None:
            known = ledger.known(model, experiment)
            return None if known is None or self._again(known, reason) else known

        known, found = done(), None
        if known is None and reason:
            found = self._failed(model, experiment, mark, "skipped", SKIP, reason=reason)
        elif known is None and (rule := matrix.dropping(experiment)) is not None:
            found = self._failed(model, experiment, mark, "unsupported", f"unsupported: {rule.why}", rule=rule.number)
        elif known is None:
            found = self._measured(model, experiment, mark, done)
        if found is None:
            self._pass_over(known or done(), model, experiment)
            return
        status = outcome(found)
        expected = self._expect(model, experiment, status)
        if expected is not None:
            found.others["steelyard"]["expected"] = expected
        ledger.add(found)
        self.statuses.append(status)
        self.watch.finished(found, number, total)

    def _pass_over(self, known: Row | None, model: Model, experiment: Experiment) -> None:
        """A config that has its row already, which counts for how the run came out."""
        how = outcome(known) if known is not None else "failed"
        hint = "" if how in ("ok", "skipped") else "; --retry failed runs it again"
        self.watch.say("info", f"there is a row for it already ({how}){hint}")
        self._expect(model, experiment, how)
        self.statuses.append(how)

    def _again(self, known: Row, reason: str) -> bool:
        """What is not ok is tried again where that was asked for, and a skip where nothing speaks for it any more."""
        how = outcome(known)
        return not reason if how == "skipped" else how != "ok" and self.options.retry == "failed"

    def _measured(self, model: Model, experiment: Experiment, mark: str, done: Callable[[], Row | None]) -> Row | None:
        """Ask a process of its own, and make the row of what it says; when it dies, that is a row too.

        None where another runner had the devices first and wrote the row meanwhile.
        """
        options, name = self.options, str(model["model_name"])
        folder = Path(options.output_dirname).resolve() / matrix.folder(model)
        threads, base = options.threads or len(os.sched_getaffinity(0)), matrix.basename(model, experiment)
        job = {
            "do": "shim", "shim": SHIM, "options": _absolute(options), "model": model, "experiment": experiment, "threads": threads,
            "policy": self.policy.for_worker(name, experiment["test"], options.batch_size), "folder": str(folder), "basename": base,
        }  # fmt: skip
        said: dict[str, Any] = {}
        talk: Answering | None = None
        try:
            with self.talking(experiment, variables(model, experiment, options, folder), threads, options.subprocess_timeout) as talk:
                if done() is not None:
                    return None
                for message in talk.ask(job):
                    said |= message
        except Unsupported as error:
            said["failed"] = {"status": "unsupported", "error": _line(error)}
        except LockError:
            raise
        except SteelyardError as error:
            said.setdefault("failed", {"status": "failed", "error": _line(error)})
        except OSError as error:
            said.setdefault("failed", {"status": "failed", "error": f"its process could not be started: {error.strerror or error}"})
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
            more |= {"tail": printed[-TAIL:], **_kept(folder, base, printed)}
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

    def _expect(self, model: Model, experiment: Experiment, status: str) -> bool | None:
        """Whether it came out as the policy says, where it says anything; a new failure and a new pass are both told at the end."""
        if not self.policy.expected or status in UNTRIED:
            return None
        name = str(model["model_name"])
        expected = self.policy.expects_failure(name, experiment)
        if expected == (status != "ok"):
            return True
        words = (name, experiment["accelerator"], experiment["test"], rows.backend_name(experiment["dynamo"], experiment["xla"]) or "")
        self.surprises.setdefault("new passes" if expected else "new failures", []).append(" ".join(words).strip())
        return False

    def _judged(self) -> int:
        if not self.options.strict_exit:
            return PASS
        bad = any(status != "ok" and status not in UNTRIED for status in self.statuses)
        if self.policy.expected:
            bad = bool(self.surprises)
        return exit_code(([FAILED] if bad else []) + ([] if {"ok", "wrong"} & {*self.statuses} else [NOTHING]))


def _line(error: SteelyardError) -> str:
    return "; ".join(" ".join(part.split()) for part in str(error).splitlines() if part.strip())


def _absolute(options: RunnerOptions) -> dict[str, Any]:
    """The options for a process that starts in a folder of its own choice."""
    plain = options.plain()
    if options.torchbench is not None:
        plain["torchbench"] = str(Path(options.torchbench).resolve())
    return plain


def _kept(folder: Path, base: str, printed: str) -> dict[str, str]:
    """Where all that a process printed lies, if it can be kept at all; a row is worth more than its log."""
    path = folder / f"log-{base}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(printed, encoding="utf-8")
    except OSError:
        return {}
    return {"log": str(path)}


def begin(options: RunnerOptions, talking: Talking, watch: RunnerWatch) -> MatrixRun:
    """A run whose rows all carry one time; a single config may bring its own batch size."""
    if options.experiment_config is not None:
        options = replace(options, batch_size=matrix.read_batch_size(options.experiment_config, options.batch_size))
    return MatrixRun(options if options.timestamp is not None else replace(options, timestamp=time.time()), talking, watch)


def plan(options: RunnerOptions) -> RunnerPlan:
    """Every model with every experiment, or the one config that was named; no model's code is touched for it."""
    if options.model_config is not None and options.experiment_config is not None:
        model, experiment = matrix.read_model(options.model_config, options.suite_name), matrix.read_experiment(options.experiment_config)
        return RunnerPlan(((model, experiment),), Combinations((experiment,), ()), (str(model["model_name"]),))
    found = matrix.expand(options, Facts(lambda accelerator, xla: accelerator in options.accelerator or has_device(accelerator, xla)))
    names = tuple(matrix.choose(listing(options), options))
    return RunnerPlan(tuple(({"model_name": name}, dict(point)) for name in names for point in found.kept), found, names)


def has_device(accelerator: str, xla: str) -> bool:
    """Whether XLA could have such a device here, as far as a look at the system tells; who names one gets a row in any case."""
    if accelerator == "cpu":
        return xla == "PJRT"
    return Path("/dev/nvidiactl").exists() if accelerator == "cuda" else any(Path("/dev").glob("accel*"))


def listing(options: RunnerOptions) -> Sequence[str]:
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


def read_policy(options: RunnerOptions) -> ModelPolicy:
    """The user's policy file, or the one of the checkout; models of TorchBench have the original's deny list in any case."""
    bench = options.suite_name == "torchbench"
    named = Path(options.policy) if options.policy is not None else None
    if named is None and bench:
        named = torchbench.policy_file(Path(options.torchbench or ""))
    return torchbench.read_policy(named, torchbench.DENIED if bench else None)


def cpu_model() -> str | None:
    """The processor's name, for rows of configs that did not run."""
    from steelyard.machine import cpu

    return cpu.model(cpu.cpuinfo(Path("/")))


def variables(model: Model, experiment: Experiment, options: RunnerOptions, folder: Path) -> dict[str, str]:
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
        flags.append(f"--xla_dump_to={_quoted(str(folder / f'hlo-{base}'))}")
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


def _quoted(path: str) -> str:
    """A path in XLA_FLAGS, which blanks take apart unless it stands in quotes."""
    if not re.search(r"[\s'\"\\]", path):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
