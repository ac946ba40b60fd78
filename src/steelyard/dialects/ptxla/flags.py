"""The options of `as ptxla runner`: one table from which the command line is built, and the plain object that everything else reads."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.dialects.options import Flag, PlainOptions, check_count
from steelyard.dialects.ptxla.torchbench import find_checkout
from steelyard.errors import UsageError, unknown

SUITES = ("dummy", "torchbench", "steelyard", "timm", "transformers")
ACCELERATORS = ("cpu", "cuda", "tpu")
XLAS = ("None", "PJRT", "XRT")
DYNAMOS = ("None", "inductor", "openxla")
TESTS = ("eval", "train")
TORCH_XLA2S = ("None", "extract_jax", "torch_export")
PRECISIONS = ("default", "high", "highest")
FORMATS = ("text", "hlo", "stablehlo")
LEVELS = ("critical", "error", "warning", "info", "debug")
MOST_PARTITIONS = 9
LONGEST_TIMEOUT = 1_000_000
END_OF_CALENDAR = 253402300800
SAME = "same"
NULL = "None"
"""How the command line spells an axis value that is null."""


@dataclass(frozen=True)
class RunnerOptions(PlainOptions):
    """The options, with the original's names and defaults; those from `torchbench` on are ours."""

    suite_name: str = ""
    filter: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    filter_by_tier: tuple[int, ...] = ()
    exclude_by_tier: tuple[int, ...] = ()
    total_partitions: int = 1
    partition_id: int = 0
    no_skip: bool = False
    dry_run: bool = False
    accelerator: tuple[str, ...] = ()
    xla: tuple[str, ...] = ()
    dynamo: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    xla_flags: tuple[str, ...] = ()
    torch_xla2: tuple[str, ...] = ()
    enable_functionalization: bool = False
    keep_model_data_on_cuda: bool = False
    repeat: int = 10
    iterations_per_run: int = 1
    batch_size: int | str | None = None
    randomize_input: bool = False
    collect_full_output: bool = False
    pure_wall_time: bool = False
    filter_by_single_graph: bool = False
    output_dirname: str = "./output/"
    output_basename: str = "results.jsonl"
    no_resume: bool = False
    timestamp: float | None = None
    save_output: bool = False
    progress_bar: bool = False
    print_subprocess: bool = False
    log_level: str = "info"
    subprocess_timeout: float = 1800
    experiment_config: str | None = None
    model_config: str | None = None
    verify: bool = False
    verify_iterations: int = 1
    disable_tf32: bool = False
    matmul_precision: str | None = None
    dump_hlo: bool = False
    save_ir_format: str | None = None
    dump_dynamo_counters: bool = False
    collect_dynamo_counters: bool = False
    dump_pytorch_profiles: bool = False
    dump_pytorch_xla_metrics: bool = False
    profile_cuda_cpu: bool = False
    profile_cuda_cpu_individual_ops: bool = False
    profile_xla: bool = False
    profile_xla_duration_ms: int = 5000
    torchbench: str | None = None
    policy: str | None = None
    size: str | None = None
    retry: str | None = None
    threads: int = 0
    strict_exit: bool = False
    env: str | None = None

    @property
    def precision(self) -> str:
        """The precision of matrix products: the original uses `high`, whatever the flag says, unless TF32 is disabled."""
        return (self.matmul_precision or "highest") if self.disable_tf32 else "high"

    @property
    def profiles(self) -> bool:
        """Whether a pass under torch's profiler follows the timed repeats."""
        return self.profile_cuda_cpu or self.profile_cuda_cpu_individual_ops or self.dump_pytorch_profiles


FLAGS = (
    Flag(("--suite-name",), "suite_name", "choice", "Where the models come from.", choices=SUITES, required=True),
    Flag(("-k", "--filter"), "filter", "texts", "Only models in whose name this regex is found, in any case; repeatable.", "REGEX"),
    Flag(("-x", "--exclude"), "exclude", "texts", "Leave out models in whose name this is found; repeatable.", "REGEX"),
    Flag(("--filter-by-tier",), "filter_by_tier", "integers", "Only models of this tier; repeatable.", "N"),
    Flag(("--exclude-by-tier",), "exclude_by_tier", "integers", "Leave out models of this tier; repeatable.", "N"),
    Flag(("--total-partitions",), "total_partitions", "integer", f"Parts the models are cut into, 1 to {MOST_PARTITIONS}."),
    Flag(("--partition-id",), "partition_id", "integer", "The part to run, from 0."),
    Flag(("--no-skip",), "no_skip", "switch", "Run what a skip rule would leave out."),
    Flag(("--dry-run",), "dry_run", "switch", "Print what would run, and run nothing."),
    Flag(("--accelerator",), "accelerator", "choices", "Device; repeatable.", choices=ACCELERATORS),
    Flag(("--xla",), "xla", "choices", "XLA runtime; repeatable.", choices=XLAS),
    Flag(("--dynamo",), "dynamo", "choices", "Compiler of torch.compile; repeatable.", choices=DYNAMOS),
    Flag(("--test",), "test", "choices", "Inference or training; repeatable.", choices=TESTS),
    Flag(("--xla-flags",), "xla_flags", "texts", "XLA_FLAGS of a config, or None; repeatable.", "FLAGS"),
    Flag(("--torch-xla2",), "torch_xla2", "choices", "PyTorch on JAX; repeatable.", choices=TORCH_XLA2S),
    Flag(("--enable-functionalization",), "enable_functionalization", "switch", "Leave XLA's functionalization on."),
    Flag(("--keep-model-data-on-cuda",), "keep_model_data_on_cuda", "switch", "Keep model and data on CUDA (openxla only)."),
    Flag(("--repeat",), "repeat", "integer", "Measurements per config; the first one compiles."),
    Flag(("--iterations-per-run",), "iterations_per_run", "integer", "Calls per measurement."),
    Flag(("--batch-size",), "batch_size", "text", "Batch size, instead of the model's own; same: that of a model's first stack.", "N"),
    Flag(("--randomize-input",), "randomize_input", "switch", "New random numbers in floating-point inputs for every call."),
    Flag(("--collect-full-output",), "collect_full_output", "switch", "With --save-output: gradients and weights too."),
    Flag(("--pure-wall-time",), "pure_wall_time", "switch", "The fastest of many calls instead of one per iteration."),
    Flag(("--filter-by-single-graph",), "filter_by_single_graph", "switch", "Fail if a model is not one graph (fullgraph)."),
    Flag(("--output-dirname",), "output_dirname", "text", "Folder for all output.", "DIR"),
    Flag(("--output-basename",), "output_basename", "text", "File for the rows in the output folder.", "FILE"),
    Flag(("--no-resume",), "no_resume", "switch", "Delete the file of rows first, instead of continuing it."),
    Flag(("--timestamp",), "timestamp", "seconds", "Timestamp of all rows, in seconds since 1970; now by default.", "SECONDS"),
    Flag(("--save-output",), "save_output", "switch", "Save the model's answers."),
    Flag(("--progress-bar",), "progress_bar", "switch", "Count the configs as they are done."),
    Flag(("--print-subprocess",), "print_subprocess", "switch", "Print what the measuring process printed."),
    Flag(("--log-level",), "log_level", "choice", "How much is logged.", choices=LEVELS),
    Flag(("--subprocess-timeout",), "subprocess_timeout", "seconds", "Time limit for one config.", "SECONDS"),
    Flag(("--experiment-config",), "experiment_config", "text", "One experiment, with --model-config.", "JSON"),
    Flag(("--model-config",), "model_config", "text", "One model, with --experiment-config.", "JSON"),
    Flag(("--verify",), "verify", "switch", "Compare the answers with those of plain eager PyTorch, besides timing."),
    Flag(("--verify-iterations",), "verify_iterations", "integer", "Calls before answers are compared."),
    Flag(("--disable-tf32",), "disable_tf32", "switch", "No TF32; --matmul-precision has no effect without it."),
    Flag(("--matmul-precision",), "matmul_precision", "choice", "Precision of products without TF32.", choices=PRECISIONS),
    Flag(("--dump-hlo",), "dump_hlo", "switch", "Write XLA's HLO."),
    Flag(("--save-ir-format",), "save_ir_format", "choice", "Write the lazy tensors' graphs.", choices=FORMATS),
    Flag(("--dump-dynamo-counters",), "dump_dynamo_counters", "switch", "Write torch.compile's counters of each repeat."),
    Flag(("--collect-dynamo-counters",), "collect_dynamo_counters", "switch", "Put torch.compile's counters into the row."),
    Flag(("--dump-pytorch-profiles",), "dump_pytorch_profiles", "switch", "Write a profile of each repeat."),
    Flag(("--dump-pytorch-xla-metrics",), "dump_pytorch_xla_metrics", "switch", "Write XLA's counters of each repeat."),
    Flag(("--profile-cuda-cpu",), "profile_cuda_cpu", "switch", "Total CPU and CUDA time from a profile."),
    Flag(("--profile-cuda-cpu-individual-ops",), "profile_cuda_cpu_individual_ops", "switch", "CPU and CUDA time of each operator."),
    Flag(("--profile-xla",), "profile_xla", "switch", "XLA's own profile of each repeat."),
    Flag(("--profile-xla-duration-ms",), "profile_xla_duration_ms", "integer", "Accepted and ignored: the profile covers one repeat."),
    Flag(("--torchbench",), "torchbench", "text", "TorchBench checkout, for --suite-name=torchbench.", "DIR"),
    Flag(("--policy",), "policy", "text", "Skip rules, batch sizes, tolerances and expected failures (YAML).", "FILE"),
    Flag(("--size",), "size", "text", "Size of the models of --suite-name=steelyard, such as small.", "NAME"),
    Flag(("--retry",), "retry", "choice", "When continuing, run failed configs again.", choices=("failed",)),
    Flag(("--threads",), "threads", "integer", "CPU threads of the measuring process; 0 means all."),
    Flag(("--env",), "env", "text", "One environment for all stacks, made by 'steelyard env create'.", "NAME"),
    Flag(("--strict-exit",), "strict_exit", "switch", "Exit with 3 if something failed and 5 if nothing was measured."),
)  # fmt: skip
"""In the order of the specification, ours last."""


def settle(options: RunnerOptions) -> RunnerOptions:
    """Return consistent options; impossible ones are errors before anything runs."""
    if not options.suite_name:
        raise UsageError("--suite-name is missing", do=f"name one of {', '.join(SUITES)}")
    for flag in FLAGS:
        value = getattr(options, flag.key)
        if flag.kind == "choice" and value is not None and value not in flag.choices:
            raise unknown(flag.names[0], str(value), flag.choices)
        for value in getattr(options, flag.key) if flag.kind == "choices" else ():
            if value not in flag.choices:
                raise unknown(flag.names[0], value, flag.choices)
    for key, least, most in (("repeat", 1, 10**6), ("iterations_per_run", 1, 10**6), ("verify_iterations", 1, 10**6), ("threads", 0, 4096),
                             ("profile_xla_duration_ms", 1, 10**9)):  # fmt: skip
        check_count(key, getattr(options, key), least, most)
    check_count("total_partitions", options.total_partitions, 1, MOST_PARTITIONS)
    check_count("partition_id", options.partition_id, 0, options.total_partitions - 1)
    batch = options.batch_size
    if isinstance(batch, str) and batch != SAME:
        batch = int(batch) if batch.isdecimal() and len(batch) < 12 else batch
    if batch is not None and batch != SAME:
        check_count("batch_size", batch, 1, 10**9)
    if not 0 < options.subprocess_timeout <= LONGEST_TIMEOUT:
        raise UsageError(f"--subprocess-timeout must be a number of seconds, more than 0 and up to {LONGEST_TIMEOUT}")
    if options.timestamp is not None and not 0 <= options.timestamp < END_OF_CALENDAR:
        raise UsageError(f"--timestamp must be a number of seconds since 1970, not {options.timestamp}")
    if options.no_resume and options.retry:
        raise UsageError("--no-resume deletes the rows that --retry reads", do="use one of them")
    if options.size is not None and options.suite_name != "steelyard":
        raise UsageError(f"--size is for --suite-name=steelyard, not {options.suite_name}", do="leave it out")
    if (options.model_config is None) != (options.experiment_config is None):
        raise UsageError("--model-config and --experiment-config belong together", do="use both, or neither")
    if options.profile_xla and options.profiles:
        raise UsageError("--profile-xla and torch's profiler cannot run at once", do="run it once with each")
    bench = options.torchbench
    if options.suite_name == "torchbench" and bench is None:
        if (found := find_checkout(Path.cwd())) is None:
            raise UsageError(
                "--suite-name=torchbench needs a checkout of TorchBench", why="there is none here or in the three folders above",
                do="name it: --torchbench DIR",
            )  # fmt: skip
        bench = str(found)
    if re.search(r"[/\\\0]", options.output_basename) or options.output_basename in ("", ".", ".."):
        raise UsageError(f"--output-basename must be a name without a folder, not {options.output_basename!r}", do="see --output-dirname")
    for key in ("filter", "exclude"):
        for text in getattr(options, key):
            try:
                re.compile(text)
            except re.error as error:
                raise UsageError(f"--{key} {text!r} is not a regular expression", why=str(error)) from None
    return replace(options, batch_size=batch, torchbench=bench)
