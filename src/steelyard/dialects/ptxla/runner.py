"""One run of `as ptxla runner`: plan the configs, continue an existing file, have the engine measure, write each row as it comes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from steelyard import registry
from steelyard.dialects.ptxla import matrix, native, torchbench
from steelyard.dialects.ptxla.flags import SAME, RunnerOptions
from steelyard.dialects.ptxla.ledger import SKIP, Ledger
from steelyard.dialects.ptxla.matrix import Combinations, Facts, Model, RunnerPoint
from steelyard.dialects.ptxla.sink import UNTRIED, RunnerConfig, RunnerSink, RunnerWatch
from steelyard.dialects.ptxla.torchbench import ModelPolicy
from steelyard.engine import conduct, plan
from steelyard.engine.plan import Job
from steelyard.engine.run import WaitTold
from steelyard.errors import FAILED, NOTHING, PASS, SteelyardError, exit_code, unknown
from steelyard.model.experiment import Experiment, Matrix
from steelyard.store.runs import Store

TIMM = ("convnext_tiny", "efficientnet_b0", "mobilenetv3_large_100", "resnet18", "resnet50", "swin_tiny_patch4_window7_224",
        "vit_small_patch16_224")  # fmt: skip
TRANSFORMERS = ("AlbertForMaskedLM", "BertForMaskedLM", "DistilBertForMaskedLM", "ElectraForMaskedLM", "GPT2LMHeadModel",
                "RobertaForMaskedLM")  # fmt: skip
GONE = (
    ("xla", "XRT", "XRT was removed from PyTorch/XLA; --xla=PJRT"),
    ("keep_model_data_on_cuda", True, "PyTorch/XLA no longer moves data between CUDA and XLA; leave --keep-model-data-on-cuda out"),
)
"""Features missing in every installable version of PyTorch/XLA."""


@dataclass(frozen=True)
class RunnerPlan:
    """The configs to run, in order."""

    configs: tuple[tuple[Model, RunnerPoint], ...]
    experiments: Combinations
    models: tuple[str, ...]


@dataclass
class MatrixRun:
    """A run in progress; afterwards the caller reads its outcome."""

    options: RunnerOptions
    watch: RunnerWatch = field(default_factory=RunnerWatch)
    store: Store | None = None
    """The folder for the engine's run; a temporary one if there is no store."""
    command: Sequence[str] = ()
    policy: ModelPolicy = field(default_factory=ModelPolicy)
    sink: RunnerSink | None = None

    @property
    def file(self) -> Path:
        """The path of the rows."""
        return Path(self.options.output_dirname) / self.options.output_basename

    @property
    def statuses(self) -> list[str]:
        """The status of each config."""
        return self.sink.statuses if self.sink else []

    @property
    def surprises(self) -> dict[str, list[str]]:
        """New failures and new passes, if the policy says what was expected."""
        return self.sink.surprises if self.sink else {}

    def run(self) -> int:
        """Run everything and return the exit code: 0, as the original, unless --strict-exit was given."""
        options, say = self.options, self.watch.say
        self.policy = read_policy(options)
        native.place(options)
        made = plan_configs(options)
        say("info", f"Number of selected experiment configs: {len(made.experiments.kept)}")
        say("info", f"Number of selected model configs: {len(made.models)}")
        for dropped in made.experiments.dropped:
            say("info" if options.dry_run else "debug", str(dropped))
        if options.dry_run:
            for config in made.configs:
                say("info", f"Run with {matrix.line(*config)}")
            return PASS
        ledger = Ledger(self.file, options, lambda text: say("warning", text), self.policy)
        try:
            self._measure(made, ledger)
        finally:
            ledger.close()
        for kind, names in self.surprises.items():
            say("warning", f"{kind}: {', '.join(names)}")
        return self._judged()

    def _measure(self, made: RunnerPlan, ledger: Ledger) -> None:
        options = self.options
        configs = [RunnerConfig(number, model, point, ledger.mark(model, point)) for number, (model, point) in enumerate(made.configs, 1)]
        sink = self.sink = RunnerSink(options, self.watch, configs, ledger, self.policy)
        for config in configs:
            self._settle(config, sink)
        left = [config for config in configs if config.row is None]
        firsts = list({config.group: config for config in reversed(left)}.values())[::-1] if options.batch_size == SAME else []
        with tempfile.TemporaryDirectory(prefix="steelyard-") as folder:
            store = self.store or Store(Path(folder))
            for part in ([config for config in left if config in firsts], [config for config in left if config not in firsts]):
                self._execute(part, sink, store)
        sink.advance()

    def _settle(self, config: RunnerConfig, sink: RunnerSink) -> None:
        """Set the row of a config that needs no process: it is skipped, impossible, or of an unknown model."""
        config.reason = "" if self.options.no_skip else self.policy.skip(config.name, config.experiment)
        gone = next((why for axis, value, why in GONE if config.experiment[axis] == value), "")
        if config.reason:
            config.row = sink.without_times(config, "skipped", SKIP, reason=config.reason)
        elif (rule := matrix.dropping(config.experiment)) is not None:
            config.row = sink.without_times(config, "unsupported", f"unsupported: {rule.why}", rule=rule.number)
        elif gone:
            config.row = sink.without_times(config, "unsupported", f"unsupported: {gone}")
        else:
            try:
                self._expanded([self._matrix(config, sink)])
            except SteelyardError as error:
                said = "; ".join(" ".join(part.split()) for part in str(error).splitlines() if part.strip())
                config.row = sink.without_times(config, "failed", f"failed: {said}")

    def _matrix(self, config: RunnerConfig, sink: RunnerSink) -> Matrix:
        asked = self.options.batch_size
        batch = asked if isinstance(asked, int) else sink.batches.get(config.group, (None, ""))[0] if asked == SAME else None
        return native.asked(config.name, config.experiment, self.options, self.policy, batch, config.mark)

    def _expanded(self, matrices: Sequence[Matrix]) -> plan.Plan:
        name = f"ptxla {self.options.suite_name}"
        experiment = Experiment(name, matrix=tuple(matrices), settings=native.settings(self.options))
        return plan.expand(experiment, registry.catalogue(), place=native.place(self.options))

    def _execute(self, configs: Sequence[RunnerConfig], sink: RunnerSink, store: Store) -> None:
        configs = [config for config in configs if not sink.answered(config)]
        if not configs:
            return
        ready = self._expanded([self._matrix(config, sink) for config in configs])
        by_mark = {config.mark: config for config in configs}
        jobs = tuple(self._dumping(job, by_mark[job.label.split()[0]]) for job in ready.jobs)
        ready = replace(ready, env=self.options.env or "", jobs=jobs)

        told = WaitTold(lambda text: self.watch.say("info", text))
        conduct.execute(ready, store, self.command, lambda writer: told, sink=sink)

    def _dumping(self, job: Job, config: RunnerConfig) -> Job:
        """Return the job, set to write XLA's files where they are requested."""
        folder = Path(self.options.output_dirname).resolve() / matrix.folder(config.model)
        dumps = native.dumps(config.name, config.experiment, self.options, folder, dict(job.case.flags).get("XLA_FLAGS", ""))
        if not dumps:
            return job
        folder.mkdir(parents=True, exist_ok=True)
        return replace(job, place=replace(job.place, flags=tuple((dict(job.place.flags) | dumps).items())))

    def _judged(self) -> int:
        if not self.options.strict_exit:
            return PASS
        bad = any(status != "ok" and status not in UNTRIED for status in self.statuses)
        if self.policy.expected:
            bad = bool(self.surprises)
        bad = bad or bool(self.sink and self.sink.doubts)
        return exit_code(([FAILED] if bad else []) + ([] if {"ok", "wrong"} & {*self.statuses} else [NOTHING]))


def begin(options: RunnerOptions, watch: RunnerWatch, store: Store | None = None, command: Sequence[str] = ()) -> MatrixRun:
    """Return a run whose rows all have one timestamp; a single config may set its own batch size."""
    if options.experiment_config is not None:
        options = replace(options, batch_size=matrix.read_batch_size(options.experiment_config, options.batch_size))
    if options.timestamp is None:
        options = replace(options, timestamp=datetime.now(UTC).timestamp())
    return MatrixRun(options, watch, store, command)


def plan_configs(options: RunnerOptions) -> RunnerPlan:
    """Return every model with every experiment, or the one config that was named; no model's code is run."""
    if options.model_config is not None and options.experiment_config is not None:
        model, experiment = matrix.read_model(options.model_config, options.suite_name), matrix.read_experiment(options.experiment_config)
        return RunnerPlan(((model, experiment),), Combinations((experiment,), ()), (str(model["model_name"]),))
    found = matrix.expand(options, Facts(lambda accelerator, xla: accelerator in options.accelerator or has_device(accelerator, xla)))
    names = tuple(matrix.choose(listing(options), options))
    return RunnerPlan(tuple(({"model_name": name}, dict(point)) for name in names for point in found.kept), found, names)


def has_device(accelerator: str, xla: str) -> bool:
    """Whether XLA could have such a device here, judging by device files; an explicitly named accelerator gets a row in any case."""
    if accelerator == "cpu":
        return xla == "PJRT"
    return Path("/dev/nvidiactl").exists() if accelerator == "cuda" else any(Path("/dev").glob("accel*"))


def listing(options: RunnerOptions) -> Sequence[str]:
    """Return the models of a suite, always in the same order."""
    if options.suite_name == "torchbench":
        return torchbench.models(Path(options.torchbench or ""))
    if options.suite_name == "steelyard":
        names = native.models_of_ours()
        if options.size is not None and not any(options.size in registry.catalogue().workloads[f"model/{name}"]["sizes"] for name in names):
            known = {size for name in names for size in registry.catalogue().workloads[f"model/{name}"]["sizes"]}
            raise unknown("size", options.size, known)
        return names
    return {"dummy": ("dummy",), "timm": TIMM, "transformers": TRANSFORMERS}[options.suite_name]


def read_policy(options: RunnerOptions) -> ModelPolicy:
    """Read the user's policy file, or the one of the checkout; models of TorchBench have the original's deny list in any case."""
    bench = options.suite_name == "torchbench"
    named = Path(options.policy) if options.policy is not None else None
    if named is None and bench:
        named = torchbench.policy_file(Path(options.torchbench or ""))
    return torchbench.read_policy(named, torchbench.DENIED if bench else None)
