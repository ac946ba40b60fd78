"""Each layout: a sample is recognised, read without running it, posed, drawn, and a candidate for it seated and called."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine.referee import layouts
from steelyard.engine.referee.layouts import _loading, backendbench, flashinfer, gpumode, kernelbench, plain
from steelyard.engine.referee.posed import Posed, Provisions
from steelyard.errors import Unsupported, UsageError
from steelyard.model.judging import Contract, Problem, Submission

SAMPLES = Path(__file__).parent / "samples"
EXAMPLES = Path(__file__).parents[3] / "examples" / "judge"
LEVELS, RUN = SAMPLES / "kernelbench", SAMPLES / "kernelbench" / "run"
TASK = SAMPLES / "gpumode" / "scale"
DATASET, OPERATORS = SAMPLES / "flashinfer", SAMPLES / "backendbench"


@pytest.fixture(autouse=True)
def _process_left_alone() -> Iterator[None]:
    """Layouts load users' files into a worker of their own; here that is the tests' process."""
    path, finders = list(sys.path), list(sys.meta_path)
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name in ("task", "shared", "parts", "parts.norm"):
        sys.modules.pop(name, None)


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (list, tuple)) else [value]


def equal(one: Any, other: Any, atol: float = 0.0) -> bool:
    """Whether two answers agree in every leaf, type and shape included."""
    import torch

    pairs = list(zip(flat(one), flat(other), strict=True))
    return all(
        type(a) is type(b)
        and (
            a.shape == b.shape and torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=0, atol=atol)
            if hasattr(a, "shape")
            else a == b
        )
        for a, b in pairs
    )


def played(problem: Problem, candidate: Submission, atol: float = 1e-5) -> tuple[Posed, Any]:
    """Pose a problem, look at its draws, seat a candidate, and compare its answer with the reference's on inputs of its own."""
    layout = layouts.named(problem.layout)
    posed = layout.pose(problem, "cpu")
    assert equal(posed.draw(3), posed.draw(3)), "equal seeds give equal inputs"
    assert not equal(posed.draw(3), posed.draw(2**61 + 1)), "other seeds give others"
    call = layout.seat(candidate, Provisions(posed.init, posed.weights))
    expected = posed.reference(*posed.draw(8))
    assert equal(call(*posed.draw(8)), expected, atol)
    return posed, call


@pytest.mark.parametrize(
    ("path", "layout"),
    [
        (SAMPLES / "plain" / "affine.py", plain), (f"{SAMPLES}/plain/affine.py::doubled", plain), (SAMPLES / "plain" / "arrays.py", plain),
        (LEVELS, kernelbench), (LEVELS / "level1", kernelbench), (LEVELS / "level1" / "7_Scaled.py", kernelbench),
        (TASK, gpumode), (TASK / "task.yml", gpumode), (DATASET, flashinfer),
        (DATASET / "definitions" / "norm" / "rms_h8.json", flashinfer), (OPERATORS / "trace.txt", backendbench),
        (OPERATORS / "generated_kernels", backendbench), ("aten.mul.Tensor", backendbench), ("aten::relu", backendbench),
    ],
)  # fmt: skip
def test_each_sample_is_in_one_layout(path: Any, layout: Any) -> None:
    assert [found for found in layouts.LAYOUTS.values() if found.recognise(str(path))] == [layout]
    assert layouts.find(str(path)) is layout
    assert all(layouts.named(problem.layout) is layout for problem in layout.problems(str(path)))


def test_what_is_in_no_layout_is_told_what_each_looks_for(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("def f(): pass\n")
    with pytest.raises(UsageError, match="no problem is written in") as found:
        layouts.find(str(other))
    assert all(f"{name}: " in str(found.value) for name in layouts.LAYOUTS)
    with pytest.raises(UsageError, match="no such file"):
        layouts.find(str(tmp_path / "missing.py"))
    other.write_text("def f(:\n")
    with pytest.raises(UsageError, match=r"other\.py:1  SyntaxError"):
        layouts.find(str(other))
    with pytest.raises(UsageError, match="no layout named 'plane'"):
        layouts.named("plane")


def test_reading_runs_nothing(tmp_path: Path) -> None:
    trap = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
    body = "def reference(x): return x\ndef inputs(seed): return (1,)\nclass Model: ...\nclass ModelNew: ...\ndef get_inputs(): return []\n"
    file = tmp_path / "7_Trap.py"
    file.write_text(trap + body)
    for layout in (plain, kernelbench):
        (problem,) = layout.problems(str(file))
        layout.submission(str(file), problem)
    assert not file.with_suffix(".ran").exists()


@pytest.mark.torch
def test_plain_files_with_their_contract() -> None:
    file = SAMPLES / "plain" / "affine.py"
    (problem,) = plain.problems(str(file))
    assert problem.contract == Contract(in_place=True, persistent=(1,), precision="bf16")
    assert (problem.rtol, problem.atol, problem.label) == (1e-3, None, "affine")
    candidate = plain.submission(str(SAMPLES / "plain" / "candidate.py"), problem)
    assert candidate.name == "candidate"
    played(problem, candidate)


@pytest.mark.torch
def test_another_function_is_named_behind_the_file_and_finds_its_namesake(tmp_path: Path) -> None:
    (problem,) = plain.problems(f"{SAMPLES}/plain/affine.py::doubled")
    namesake = tmp_path / "namesake.py"
    namesake.write_text("def doubled(x, weight): return 2 * x @ weight\ndef other(x): return x\n")
    assert plain.submission(str(namesake), problem).name == "doubled"
    played(problem, plain.submission(str(namesake), problem))
    played(problem, plain.submission(f"{SAMPLES}/plain/candidate.py::doubled", problem))


@pytest.mark.torch
def test_plain_numpy_stays_numpy_and_the_only_public_function_is_the_candidate() -> None:
    (problem,) = plain.problems(str(SAMPLES / "plain" / "arrays.py"))
    posed, _ = played(problem, plain.submission(str(SAMPLES / "plain" / "only.py"), problem))
    assert [type(item).__name__ for item in posed.draw(1)] == ["ndarray", "int"]


@pytest.mark.torch
def test_kernelbench_carries_weights_and_keeps_integers() -> None:
    pairs = kernelbench.batch(str(RUN), str(LEVELS))
    assert [(problem.label, candidate.label) for problem, candidate in pairs] == [
        ("level1/7_Scaled", "level_1_problem_7_sample_0"), ("level1/7_Scaled", "level_1_problem_7_sample_1"),
        ("level1/12_Relu", "level_1_problem_12_sample_0"),
    ]  # fmt: skip
    told = []
    for problem, candidate in pairs:
        posed, call = played(problem, candidate)
        told.append(call.facts["weights"])
    assert told[0] == "carried from the reference by name"
    assert told[1].startswith("drawn under the reference's seed: 2 of 2 have no place")
    assert told[2] == "the reference has none"
    assert posed.draw(0)[0].shape == (3, 5)


@pytest.mark.torch
def test_kernelbench_precision_is_for_floats_alone_and_grads_are_off() -> None:
    import torch

    (problem,) = kernelbench.problems(str(LEVELS), only=["7"])
    half = replace(problem, options={"precision": "bf16", "seed": 5, "eval": True})
    candidate = kernelbench.submission(str(RUN / "level_1_problem_7_sample_0_kernel.py"), half)
    posed, call = played(half, candidate)
    x, rows = posed.draw(1)
    assert (x.dtype, rows.dtype) == (torch.bfloat16, torch.int64)
    assert {value.dtype for value in posed.weights.values()} == {torch.bfloat16}
    assert not call(x, rows)[0].requires_grad
    other = kernelbench.pose(problem, "cpu").weights["linear.weight"]
    assert not torch.equal(other.bfloat16(), posed.weights["linear.weight"]), "the seed decides the weights"


def test_kernelbench_problems_are_chosen_by_number() -> None:
    names = [
        [problem.label for problem in kernelbench.problems(str(LEVELS), only=only)] for only in ([], ["12"], ["level1/7"], ["12_Relu"])
    ]
    assert names == [["level1/7_Scaled", "level1/12_Relu"], ["level1/12_Relu"], ["level1/7_Scaled"], ["level1/12_Relu"]]
    with pytest.raises(UsageError, match="no problem named '8'"):
        kernelbench.problems(str(LEVELS), only=["8"])


@pytest.mark.torch
def test_gpumode_tasks_with_nested_data_and_their_own_check() -> None:
    listed = gpumode.problems(str(TASK))
    assert [problem.label for problem in listed] == [
        "scale test.0 n: 5; shape: (2, 3); kind: even; seed: 11", "scale test.1 n: 6; shape: (1, 2); kind: odd; seed: 12",
        "scale benchmark.0 n: 16; shape: (4, 4); kind: even; seed: 13",
    ]  # fmt: skip
    assert [len(gpumode.problems(str(TASK), only=[word])) for word in ("test", "benchmark", "test.1")] == [2, 1, 1]
    problem = listed[1]
    assert problem.contract.in_place
    json.dumps(problem.options)
    import torch

    posed = gpumode.pose(problem, "cpu")
    (data,) = posed.draw(3)
    assert torch.equal(data["x"], posed.draw(3)[0]["x"])
    assert not torch.equal(data["x"], posed.draw(4)[0]["x"])
    call = gpumode.seat(gpumode.submission(str(TASK), problem), Provisions())
    answer = call(data)
    assert torch.equal(answer, data["x"] * 3)
    assert posed.check is not None
    assert posed.check([data], answer) == ""
    assert posed.check([data], answer + 1) == "the answer is off"


def test_gpumode_seeds_are_paired_as_theirs_and_fit_64_bits() -> None:
    assert gpumode.mixed(2, 3) == 2 + 5 * 6 // 2
    assert len({gpumode.mixed(own, seed) for own in range(20) for seed in range(20)}) == 400
    assert gpumode.mixed(10**6, 2**63 - 1) < 2**63


@pytest.mark.torch
def test_flashinfer_workloads_sizes_and_both_ways_to_answer() -> None:
    import torch

    (problem,) = flashinfer.problems(str(DATASET), only=["first"])
    assert problem.options["axes"] == {"batch": 3, "hidden": 8, "twice": 6}
    json.dumps(problem.options)
    for name in ("filling", "giving"):
        candidate = flashinfer.submission(str(DATASET / "solutions" / f"{name}.json"), problem)
        posed, call = played(problem, candidate, atol=0.02)
        y, total = call(*posed.draw(1))
        assert (y.dtype, total.dtype, total.shape) == (torch.bfloat16, torch.int64, ())
    assert [getattr(item, "dtype", item) for item in posed.draw(1)] == [torch.bfloat16, torch.float32, 1e-5, torch.int32]


def safetensors(path: Path, name: str, values: list[float]) -> None:
    header = json.dumps({name: {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, 4 * len(values)]}}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}f", *values))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A copy of the sample that a test may change."""
    import shutil

    return Path(shutil.copytree(DATASET, tmp_path / "dataset"))


@pytest.mark.torch
def test_flashinfer_reads_stored_arrays_and_tolerances(dataset: Path) -> None:
    safetensors(dataset / "blob" / "weight.safetensors", "weight", [float(n) for n in range(8)])
    (problem,) = flashinfer.problems(str(dataset), only=["second"])
    assert (problem.rtol, problem.atol, problem.options["tolerance"]["required_matched_ratio"]) == (0.05, 0.02, 0.99)
    posed = flashinfer.pose(problem, "cpu")
    assert posed.draw(1)[1].tolist() == posed.draw(2)[1].tolist() == [float(n) for n in range(8)]
    safetensors(dataset / "blob" / "weight.safetensors", "weight", [1.0])
    with pytest.raises(UsageError, match=r"weight does not match its file\n  it contains \[1\] of torch.float32"):
        flashinfer.pose(problem, "cpu")
    safetensors(dataset / "blob" / "weight.safetensors", "other", [1.0])
    with pytest.raises(UsageError, match="it has no array 'weight'\n  it has other"):
        flashinfer.pose(problem, "cpu")
    (dataset / "blob" / "weight.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(UsageError, match="not a safetensors file"):
        flashinfer.pose(problem, "cpu")


@pytest.mark.torch
def test_a_folder_of_one_problem_with_inputs_of_its_own_making(tmp_path: Path) -> None:
    source = "import torch\ndef run(rows):\n    return rows + 1\ndef made(axes, device):\n    return {'rows': torch.randperm(axes['n'])}\n"
    rows = {"shape": ["n"], "dtype": "int64"}
    definition = {"name": "one", "axes": {"n": {"type": "var"}}, "inputs": {"rows": rows}, "outputs": {"y": rows}, "reference": source}
    (tmp_path / "definition.json").write_text(json.dumps({**definition, "custom_inputs_entrypoint": "made"}))
    (tmp_path / "workload.jsonl").write_text(json.dumps({"uuid": "u", "axes": {"n": 9}, "inputs": {"rows": {"type": "custom"}}}))
    (problem,) = layouts.find(str(tmp_path)).problems(str(tmp_path))
    posed = flashinfer.pose(problem, "cpu")
    assert sorted(posed.draw(1)[0].tolist()) == list(range(9))
    assert posed.draw(1)[0].tolist() == posed.draw(1)[0].tolist() != posed.draw(2)[0].tolist()


@pytest.mark.torch
def test_solutions_that_cannot_be_built_say_why(dataset: Path) -> None:
    (problem,) = flashinfer.problems(str(dataset), only=["first"])
    file = dataset / "solutions" / "native.json"
    spec = {"language": "cuda", "entry_point": "k.cu::run"}
    solution = {"name": "native", "definition": "rms_h8", "spec": spec, "sources": [{"path": "k.cu", "content": ""}]}
    file.write_text(json.dumps(solution))
    with pytest.raises(Unsupported, match="its binding is tvm-ffi"):
        flashinfer.seat(flashinfer.submission(str(file), problem), Provisions())


@pytest.mark.deep
@pytest.mark.torch
def test_a_solution_in_cpp_is_built_and_called(tmp_path: Path) -> None:
    array = {"shape": ["n"], "dtype": "float32"}
    definition = {"name": "add", "axes": {"n": {"type": "const", "value": 4}}, "inputs": {"x": array}, "outputs": {"y": array}}
    (tmp_path / "definition.json").write_text(json.dumps({**definition, "reference": "def run(x):\n    return x + 1\n"}))
    (tmp_path / "workload.jsonl").write_text('{"uuid": "u", "inputs": {}}')
    text = (
        "#include <torch/extension.h>\nvoid run(torch::Tensor x, torch::Tensor y) { y.copy_(x + 1); }\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }\n'
    )
    spec = {"language": "cpp", "entry_point": "k.cpp::run", "binding": "torch"}
    solution = {"name": "s", "definition": "add", "spec": spec, "sources": [{"path": "k.cpp", "content": text}]}
    (tmp_path / "solution.json").write_text(json.dumps(solution))
    (problem,) = flashinfer.problems(str(tmp_path))
    played(problem, flashinfer.submission(str(tmp_path / "solution.json"), problem))


@pytest.mark.torch
def test_backendbench_lines_are_problems_and_folders_hold_candidates() -> None:
    listed = backendbench.problems(str(OPERATORS / "trace.txt"))
    assert [problem.label.split()[0] for problem in listed] == [
        "aten.add.Tensor/0", "aten.add.Tensor/1", "aten.relu.default/0", "aten.cat.default/0", "aten._to_copy.default/0",
    ]  # fmt: skip
    json.dumps([problem.options for problem in listed])
    for problem in (*listed[:3], listed[4]):
        played(problem, backendbench.submission(str(OPERATORS / "generated_kernels"), problem), atol=0)
    strided = backendbench.pose(listed[1], "cpu").draw(0)
    assert [(list(item.shape), item.stride()) for item in strided] == [([4, 6], (1, 4))], "numbers are no inputs"
    nested = backendbench.pose(listed[3], "cpu")
    assert nested.reference(*nested.draw(0)).shape == (3, 3)


@pytest.mark.torch
def test_backendbench_shapes_of_its_own_fit_their_operators() -> None:
    for name in backendbench.BUILT_IN:
        for problem in backendbench.problems(f"aten.{name}"):
            posed = backendbench.pose(problem, "cpu")
            assert posed.reference(*posed.draw(1)) is not None
    named = {problem.name for problem in backendbench.problems(str(OPERATORS / "generated_kernels"))}
    assert named == {"add.Tensor", "relu.default"}, "there are no shapes for a cast"


@pytest.mark.torch
@pytest.mark.parametrize("name", ["from_file.default", "_print.default", "no_such_thing.default"])
def test_operators_that_are_no_computation_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no operator named"):
        backendbench.pose(Problem("backendbench", "", name, {"args": [], "kwargs": {}}), "cpu")


@pytest.mark.torch
@pytest.mark.parametrize("name", ["softmax", "linear_gelu"])
def test_the_examples_agree(name: str) -> None:
    reference, candidate = (str(EXAMPLES / f"{name}_{part}.py") for part in ("reference", "candidate"))
    layout = layouts.find(reference)
    (problem,) = layout.problems(reference)
    played(problem, layout.submission(candidate, problem))


@pytest.mark.torch
def test_sources_are_written_below_their_folder_alone(tmp_path: Path) -> None:
    folder = _loading.written({"a/b.py": "x = 1\n"}, "there")
    assert (folder / "a" / "b.py").read_text() == "x = 1\n"
    for path in ("../b.py", "/b.py", "a/../../b.py", "", "a\\b.py"):
        with pytest.raises(UsageError, match="leaves its folder"):
            _loading.written({path: ""}, "there")


def test_draws_are_those_of_torch_s_own_seed() -> None:
    torch = pytest.importorskip("torch")
    found = [_loading.seeded(lambda: torch.rand(3).tolist(), 5) for _ in range(2)]
    torch.manual_seed(5)
    assert found == [torch.rand(3).tolist()] * 2
