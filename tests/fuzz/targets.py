"""What is fuzzed: for each parser its seeds, how input is written, what reads it in process, and what a user would type."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import mutate, traces

ROOT = Path(__file__).parents[2]
Write = Callable[[Random, Any], bytes]


@dataclass(frozen=True)
class Target:
    """One parser. `file` is what its input is saved as, `read` what reads it, `words` command lines that do, with FILE for its path."""

    name: str
    file: str
    seeds: Callable[[], Sequence[Any]]
    write: Write
    read: Callable[[Path], Any]
    words: Sequence[Sequence[str]] = ()
    around: Callable[[Path], None] | None = None

    def made(self, rng: Random) -> bytes:
        """One input: a seed bent as data, as text, or both."""
        seeds = self.seeds()
        kind = rng.random()
        data = mutate.bent(rng, seeds) if kind < 0.75 else rng.choice(seeds)
        raw = data if isinstance(data, bytes) else self.write(rng, data)
        return mutate.text(rng, raw, rng.choice((0, 1, 1, 2, 5))) if kind > 0.6 or isinstance(data, bytes) else raw


EXPERIMENT: dict[str, Any] = {
    "name": "sweep", "description": "all of it",
    "settings": {"budget": "10ms", "precision": "1%", "rtol": 0.1, "runs": 3, "memory": "1GiB", "isolate": "none", "seed": 1},
    "matrix": [
        {"workload": ["op/softmax", "op/g*"], "axes": {"n": [16, 32], "dtype": ["fp32"]}, "backend": ["numpy"], "variant": ["eager"],
         "mode": "eval", "device": "cpu", "threads": [1, 2], "flags": [{"A": "1"}, {}]},
        {"workload": "op/matmul", "axes": {"size": "small"}},
    ],
    "include": ["op/softmax[m=4,n=8]@numpy/eager:eval"],
    "exclude": [{"axes": {"n": 32}, "threads": 2, "reason": "known"}],
    "deny": [{"workload": "op/gelu", "flags": {"A": "1"}, "reason": "broken"}],
}  # fmt: skip
SMALL: list[dict[str, Any]] = [
    EXPERIMENT,
    {"matrix": [{"workload": "op/softmax", "axes": {"n": [16, 32]}, "backend": "numpy"}]},
    {
        "include": ["op/softmax[m=4,n=8]@torch/eager:eval", "op/softmax[m=4,n=8]@torch/compile:eval"],
        "settings": {"vs": "eager", "margin": "2%", "timeout": 60},
    },
]
POLICY: dict[str, Any] = {
    "floor": "1%", "alpha": 0.02, "missing": "warn", "unclear": "fail", "margins": {"time": "5%", "peak_memory": 0.1},
    "cases": {"op/a*": {"time": "9%"}}, "expected": {"op/a[n=2]*": "failed", "op/b*": {"outcome": "slower", "reason": "known"}},
    "allowed": {"op/c*": "flaky"},
}  # fmt: skip
EXPECTED: dict[str, Any] = {
    "expect": [{"case": "op/*", "status": "failed", "reason": "x"}, {"workload": "op/a", "axes": {"n": 1}, "status": "oom"}],
}
TORCHBENCH: dict[str, Any] = {
    "skip": {"all": ["a", ["b"]], "test": {"training": ["c"]}, "device": {"cpu": ["d"]}}, "batch_size": {"training": {"a": 4}},
    "tolerance": {"higher": ["a"], "x": 0.1}, "dtype": {"force_fp16_for_bf16_models": ["a"]}, "non_deterministic": ["e"],
    "deny": {"a": [{"test": "train"}]}, "expected_failures": {"b": [{"test": "eval"}]},
}  # fmt: skip
TORCHAO: dict[str, Any] = {
    "benchmark_mode": "inference", "quantization_config_recipe_names": ["int8wo", "baseline", "float8dq-row"],
    "sparsity_config_recipe_names": [None, "semi-sparse", "block"], "output_dir": "out",
    "model_params": [
        {"name": "a", "matrix_shapes": [{"name": "custom", "shapes": [[16, 32, 64]]}, {"name": "pow2", "min_power": 3, "max_power": 4}],
         "high_precision_dtype": "torch.bfloat16", "use_torch_compile": True, "torch_compile_mode": "max-autotune", "device": "cpu",
         "model_type": "ln_linear_gelu", "enable_profiler": True, "enable_memory_profiler": False},
    ],
}  # fmt: skip
OPENXLA: dict[str, Any] = {
    "trigger": {"timestamp": "1690405293"}, "execution_environment": {"python_environment": [{"name": "jax", "version": "0.4.25"}]},
    "benchmarks": [
        {"definition": {"benchmark_name": "models/A_BATCH1/inputs/I", "framework": "ModelFrameworkType.JAX", "data_type": "fp32",
                        "batch_size": 1, "compiler": "xla", "device": "host-cpu", "tags": ["a"], "num_threads": 4},
         "metrics": {"framework_level": {"median_latency_ms": 1.5, "stddev_latency_ms": 0.1, "benchmark_iterations": 100,
                                         "compile_time_ms": 40.0, "device_memory_peak_mb": None},
                     "compiler_level": {"error": "timeout"}},
         "steelyard": {"status": "wrong", "reason": "NaN", "latencies_ms": [1.0, 2.0],
                       "verification": {"status": "failed", "against": "x", "message": "NaN"}}},
        {"definition": {"benchmark_name": "models/B/inputs/I"}, "metrics": {"framework_level": {"error": "boom"}}},
    ],
}  # fmt: skip
HF_CONFIGS: list[Any] = [
    [{"name": "x", "warmup_iterations": 3, "measurement_iterations": 10, "gpu_monitoring": True, "continuous_batching": True,
      "batch_size": 1, "sequence_length": 128, "num_tokens_to_generate": 64, "attn_implementation": "paged|sdpa",
      "compile_kwargs": {"mode": "default", "fullgraph": False}, "kernelize": True, "tp_plan": "auto"}],
    [{"attn_implementation": "flex_attention", "compile_kwargs": {}}, {}],
]  # fmt: skip
IDS = (
    "op/softmax[dtype=fp32,m=4,n=8]@numpy/eager:eval", 'op/a[x="a b",y=[1,2.5,true],z=#0123456789ab]@torch/int8wo+compile[mode=max]:train',
    "op/a@torch/eager:fwd:device=cuda:threads=4:ranks=2:env=jax:flag.XLA_FLAGS=\"--a=b\"", "n=[1024,8192]", "compile[mode=max-autotune]",
    "8GiB", "200ms", "1.5%", "op/softmax[n=1024]", "latest~3..latest", "k3f9/2",
)  # fmt: skip


@cache
def _run_lines() -> list[Any]:
    """A run as its own writer writes it."""
    import tempfile

    from steelyard.store.runs import Store
    from tests.store.made import arrays, filled, pair, record

    with tempfile.TemporaryDirectory() as folder:
        run = filled(Store(Path(folder)), seal=False, machine_key="k", cases=[record(1).id], created="2026-01-02T03:04:05Z", id="aaaa")
        with Store(Path(folder)).resume(ref=run.id) or _none() as writer:
            writer.append_pair(pair(2), arrays(1.0, 2.0))
            writer.seal()
        return [json.loads(line) for line in (run.path / "run.jsonl").read_text().splitlines()]


def _none() -> Any:
    raise AssertionError("the run that was just made cannot be resumed")


def _read_run(path: Path) -> None:
    from steelyard.analyze.history import histories
    from steelyard.report.detail import record_detail
    from steelyard.report.text import run_table
    from steelyard.store.runs import Store, read_run

    store = Store(path.parents[2])
    store.runs()
    run = read_run(path.parent)
    run_table(run.header, run.records, run.pairs)
    for record in run.records[:2]:
        record_detail(record, run)
    histories(store, [record.id for record in run.records], run.header.machine_key)


def _store_around(path: Path) -> None:
    """A sound run beside the one that is bent, and its samples."""
    header, *rest = _run_lines()
    good = path.parents[1] / "20250102T030405-good" / "run.jsonl"
    good.parent.mkdir()
    good.write_bytes(mutate.as_lines(Random(0), [{"header": {**header["header"], "id": "good", "created": "2025-01-02T03:04:05Z"}}, *rest]))
    (path.parent / "samples.bin").write_bytes(bytes(range(128)))


def _sidecar(path: Path) -> None:
    """A sound run, whose samples are the input."""
    target = path.parent / "run.jsonl"
    if not target.exists():
        target.write_bytes(mutate.as_lines(Random(0), _run_lines()))


def _read_samples(path: Path) -> None:
    from steelyard.store.runs import read_run

    run = read_run(path.parent)
    for series in (series for item in (*run.records, *run.pairs) for series in item.samples):
        run.array(series)


def _index_around(path: Path) -> None:
    run = path.parent / "runs" / "20260102T030405-aaaa" / "run.jsonl"
    if not run.exists():
        run.parent.mkdir(parents=True)
        run.write_bytes(mutate.as_lines(Random(0), _run_lines()))


def _read_index(path: Path) -> None:
    from steelyard.store.index import Index
    from steelyard.store.runs import Store

    with Index(Store(path.parent)) as index:
        index.refresh()
        found = index.every_series()
    assert len(found) == 3, "a damaged index lost records"


@cache
def _index_bytes() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.sqlite"
        _index_around(path)
        _read_index(path)
        return [path.read_bytes()]


def _param_seeds() -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted((ROOT / "examples" / "param").glob("*.json"))]


def _read_param(path: Path) -> None:
    from steelyard.dialects.param import expand, native

    sheet = expand.sheet(path, most=2000)
    if sheet.configs:
        native.experiment(sheet)


def _read_param_lines(path: Path) -> None:
    from steelyard.dialects.param import lines

    lines.read(path)


def _param_lines() -> list[Any]:
    run = {"run_options": {"device": "cpu", "op_args": {}}}
    line = {
        "op_name": "torch.add", "id": "0|0|0", "metric": {"device": "cpu", "forward": {"time": [1e-3, 2e-3]}},
        "config": {"build": {}, "input": {"args": []}}, "steelyard": {"status": "ok"},
    }  # fmt: skip
    return [[run, line, {"finish_time": "2026-01-02T03:04:05"}], [run, {**line, "id": "1|0|0"}, {"ncu_file": "x", "report": "y"}]]


def _ptxla_rows() -> list[Any]:
    from tests.dialects.ptxla.stored import steady, stored

    rows = [stored("a", (None, None), steady(1.0, 2.0)), stored("b", ("openxla", "PJRT"), {"error": "CUDA out of memory"}, when=1e9)]
    return [rows, [json.loads(line) for line in (ROOT / "examples" / "ptxla" / "nights.jsonl").read_text().splitlines()[:6]]]


def _read_ptxla(path: Path) -> None:
    from steelyard.dialects.ptxla.rows import RowTally, read

    tally = RowTally()
    for row in read(path, tally):
        assert row.plain() and row.moment != "" and row.backend != "" and row.error is not None
    tally.lines()


def _nights() -> list[Any]:
    night = {
        "date": "2026-01-02", "run": "aaaa", "experiment": "x", "machine_key": "k", "outcome": "pass", "exit_code": 0,
        "created": "2026-01-02T03:04:05Z", "commit": "abc", "dirty": False, "versions": {"torch": "2.9"}, "schema": 1,
    }  # fmt: skip
    return [[night, {**night, "run": "bbbb", "date": "2026-01-03"}]]


def _read_nights(path: Path) -> None:
    from steelyard.engine.nightly.archive import Archive

    Archive(path.parent).nights()


def _read_foreign(path: Path) -> None:
    from steelyard.analyze.foreign import read_file
    from steelyard.report.text import run_table

    for run in read_file(path)[:3]:
        run_table(run.header, run.records, run.pairs)


def _foreign_seeds(tool: str) -> Callable[[], Sequence[Any]]:
    @cache
    def seeds() -> list[Any]:
        import tempfile

        from tests.analyze import foreign_samples as samples

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.json"
            if tool == "pyperf":
                samples.pyperf_file(path, {"a": [[1e-3, 2e-3], [3e-3]], "b": [[7e-3] * 8]})
            elif tool == "pytest-benchmark":
                samples.pytest_file(path, data=[1e-3, 2e-3] * 5)
            elif tool == "google-benchmark":
                samples.google_file(
                    path, [samples.repetition("a", 0, 5.0), samples.repetition("a", 1, 6.0), samples.aggregate("a", "mean", 5.5)]
                )
            elif tool == "nvbench":
                samples.nvbench_file(
                    path, [samples.nvbench_state("N=1", 1e-3), samples.nvbench_state("N=2", 2e-3, samples.summary("x", value=1))]
                )
            else:
                samples.write(path, samples.TRITONBENCH)
            return [json.loads(path.read_text())]

    return seeds


def _read_word(path: Path) -> None:
    """A word as the command line takes it, in every place that has a grammar."""
    from steelyard import files
    from steelyard.errors import UsageError
    from steelyard.model import units
    from steelyard.model.case import Case, parse_variants
    from steelyard.model.values import parse_value, value_text

    word = path.read_bytes().decode("utf-8", "replace")
    value_text(parse_value(word))
    files.existing(word)
    for read in (parse_variants, units.parse_bytes, units.parse_seconds, units.parse_share, units.parse_count):
        try:
            read(word)  # type: ignore[operator]
        except UsageError:
            continue
    case = Case.parse(word)
    assert Case.parse(case.id).id == case.id, "an id that is not its own"
    assert Case.from_plain(json.loads(json.dumps(case.plain(), default=str))).workload == case.workload


@cache
def _words() -> list[Any]:
    """Ids of every form, the first of which are complete."""
    from steelyard.errors import UsageError
    from steelyard.model.case import Case

    rng, found = Random(0), list(IDS)
    plain = [item for item in mutate.ODD if not isinstance(item, dict)]
    for _ in range(200):
        params = [(rng.choice("abcdn"), rng.choice(plain)) for _ in range(rng.randrange(4))]
        with contextlib.suppress(UsageError, ValueError):
            variant = rng.choice(("eager", "compile", "a+b", "a[x=1,y=z]+b"))
            found.append(Case("op/a", tuple(dict(params).items()), variant=variant, flags=(("A", rng.choice(plain)),)).id)
    return [word.encode() for word in found]


RUN = "runs/20260102T030405-aaaa/run.jsonl"
AGGREGATE = ("as", "ptxla", "aggregate", "--accelerator=v100", "--report=latest", "FILE")
DRY = ("run", "FILE", "--dry-run", "--json")
HF = ("as", "hf", "v2", "--model-id", "mock", "-b", "1", "-s", "8", "-n", "2", "-i", "1", "--enable-tp", "--config-file", "FILE")
"""Tensor parallel configs are planned and told, and nothing is measured."""
TARGETS: tuple[Target, ...] = (
    Target("toml experiment", "x.toml", lambda: SMALL, mutate.as_toml, lambda path: _experiment(path), [DRY]),
    Target("yaml experiment", "x.yaml", lambda: SMALL, mutate.as_yaml, lambda path: _experiment(path), [DRY]),
    Target("json experiment", "x.json", lambda: SMALL, mutate.as_json, lambda path: _experiment(path), [DRY]),
    Target("policy", "gate.toml", lambda: [POLICY], mutate.as_toml, lambda path: _policy(path), [("gate", "a", "b", "--policy", "FILE")]),
    Target("expected failures", "x.toml", lambda: [EXPECTED, POLICY], mutate.as_toml, lambda path: _expected(path)),
    Target("torchbench policy", "x.yaml", lambda: [TORCHBENCH], mutate.as_yaml, lambda path: _torchbench(path)),
    Target("param config", "x.json", _param_seeds, mutate.as_json, _read_param, [DRY, ("convert", "FILE")]),
    Target("torchao config", "x.yml", lambda: [TORCHAO], mutate.as_yaml, lambda path: _torchao(path), [DRY]),
    Target("torchao rows", "x.csv", lambda: _torchao_files("csv"), mutate.as_json, _read_foreign, [("show", "FILE")]),
    Target("torchao records", "x.json", lambda: _torchao_files("json"), mutate.as_json, _read_foreign, [("show", "FILE")]),
    Target("openxla results", "x.json", lambda: [OPENXLA], mutate.as_json, _read_foreign, [("show", "FILE"), DRY]),
    Target("manifest", "manifest.json", lambda: [_manifest()], mutate.as_json, lambda path: _read_manifest(path)),
    Target("hf configs", "x.jsonl", lambda: HF_CONFIGS, mutate.as_lines, lambda path: _hf_configs(path), [HF]),
    Target("hf results", "x.json", lambda: _hf_files(), mutate.as_json, _read_foreign, [("show", "FILE"), ("compare", "FILE", "FILE")]),
    Target("hf rows", "x.jsonl", lambda: _hf_rows(), mutate.as_lines, _read_foreign, [("show", "FILE")]),
    Target("execution trace", "x.json", traces.seeds, mutate.as_json, traces.read,
           [("trace", "list", "--detail", "FILE"), ("trace", "validate", "FILE"), ("trace", "tree", "FILE"), ("trace", "graph", "FILE")]),
    Target("chakra trace", "x.json", traces.chakra_seeds, mutate.as_lines, traces.read),
    Target("profiler trace", "x.json", traces.profiles, mutate.as_json, traces.read_profile),
    Target("param results", "x.json", _param_lines, mutate.as_lines, _read_param_lines),
    Target(
        "run", RUN, lambda: [_run_lines()], mutate.as_lines, _read_run,
        [("show", "aaaa", "--store", "ROOT"), ("list", "runs", "--store", "ROOT"), ("compare", "good", "aaaa", "--store", "ROOT"),
         ("show", "aaaa/1", "--history", "--store", "ROOT"), ("show", "aaaa", "--samples", "--store", "ROOT"),
         ("gate", "aaaa", "--no-summary", "--store", "ROOT"), ("report", "aaaa", "-o", "ROOT/x.md", "--store", "ROOT")],
        _store_around,
    ),
    Target("samples", RUN.replace("run.jsonl", "samples.bin"), lambda: [bytes(range(200))], mutate.as_json, _read_samples, (), _sidecar),
    Target("index", "index.sqlite", _index_bytes, mutate.as_json, _read_index, [("list", "runs", "--store", "ROOT")], _index_around),
    Target("nights", "nights.jsonl", _nights, mutate.as_lines, _read_nights),
    Target("words", "word", _words, mutate.as_json, _read_word),
    Target("ptxla results", "x.jsonl", _ptxla_rows, mutate.as_lines, _read_ptxla, [AGGREGATE]),
    Target("ptxla as runs", "x.jsonl", _ptxla_rows, mutate.as_lines, _read_foreign, [("show", "FILE")]),
    *(
        Target(tool, "x.json", _foreign_seeds(tool), mutate.as_json, _read_foreign, [("show", "FILE"), ("compare", "FILE", "FILE")])
        for tool in ("pyperf", "pytest-benchmark", "google-benchmark", "nvbench", "tritonbench")
    ),
)  # fmt: skip


@cache
def _manifest() -> Any:
    import tempfile

    from tests.artifacts.made import small

    with tempfile.TemporaryDirectory() as folder:
        small(Path(folder))
        return json.loads((Path(folder) / "manifest.json").read_text())


def _read_manifest(path: Path) -> None:
    from steelyard.artifacts import manifest

    manifest.check(path.parent, manifest.read(path.parent))


def _experiment(path: Path) -> None:
    """As `run --dry-run` reads it, without asking a worker: a mistake of a name is told by the plan."""
    from steelyard import registry
    from steelyard.codec import load_experiment
    from steelyard.engine.plan import expand

    experiment = load_experiment(path)
    if not experiment.files:
        expand(experiment, registry.catalogue())


def _torchao(path: Path) -> None:
    """As `as torchao` reads it, and as `run` does."""
    from steelyard import registry
    from steelyard.dialects.torchao import config
    from steelyard.dialects.torchao.lines import untried
    from steelyard.dialects.torchao.reading import read_rows

    config.recognise(path)
    for row in config.checked(read_rows(path, lenient=True)[0][:100], registry.catalogue()):
        untried(row)
    read_rows(path)


def _torchao_files(ending: str) -> list[Any]:
    """What `as torchao` writes, both versions."""
    files = [ROOT / "tests" / "dialects" / "torchao" / "goldens" / f"{form}.{ending}" for form in ("seed", "last")]
    return [path.read_bytes() if ending == "csv" else json.loads(path.read_text()) for path in files]


def _hf_configs(path: Path) -> None:
    from steelyard.dialects.hf import levels

    for config in levels.read_configs(path)[0]:
        found, _ = levels.valid(config, flash=False)
        assert found.hash and found.case("mock").id and found.case("llama").id and found.name(compact=False)


def _hf_files() -> list[Any]:
    from tests.dialects.hf.test_results import head, seed

    return [seed("a", "b"), seed("a", ending="_seconds"), head()]


def _hf_rows() -> list[Any]:
    from tests.dialects.hf.test_results import head

    return [[{"benchmark_config_hash": hash, **row} for hash, row in head().items()]]


def _policy(path: Path) -> None:
    from steelyard.codec.policy import load_policy

    policy = load_policy(path)
    policy.margins_of("op/a[n=2]@torch/eager:eval")
    assert all(item.fits("x") in (True, False) for item in (*policy.expected, *policy.allowed))


def _expected(path: Path) -> None:
    from steelyard.codec.expectations import load_expectations
    from steelyard.model.case import Case

    for item in load_expectations(path):
        item.fits(Case("op/a", (("n", 1),)))
        str(item)


def _torchbench(path: Path) -> None:
    from steelyard.dialects.ptxla.torchbench import read_policy

    read_policy(path)


def emptied(folder: Path) -> None:
    """A folder as it was before the input: what a parser wrote must not help the next."""
    for item in os.scandir(folder):
        if item.is_dir(follow_symlinks=False):
            shutil.rmtree(item.path)
        else:
            Path(item.path).unlink()
