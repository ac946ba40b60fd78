"""Batches under ncu and nsys: what is started, with which file, and what comes back to which config."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.param.batch import Queue, check, summary, visible_device
from steelyard.dialects.param.expand import Config
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.lines import record
from steelyard.dialects.param.shim import batch as shim
from steelyard.errors import UsageError
from steelyard.measuring.ncu_table import COLUMNS, Kernel

FAKE = Path(__file__).with_name("fake_ncu.py")
TENSOR = {"type": "tensor", "dtype": "float", "shape": [4, 4]}
FILTER = "param_measure"
KEEPER = "import os, pathlib, sys; p = sys.argv; pathlib.Path(p[1]).open('a').write(pathlib.Path(p[3]).read_text() + chr(10))"
"""A batch command that keeps each file it was given, and the place of the last in `argv`."""


def config(id: str, op: str = "torch.mm", **rest: Any) -> Config:
    spec = {"args": [TENSOR, TENSOR]}
    return Config(**{"op": op, "id": id, "build": None, "input": spec, "path": "", "generators": ("", "Default"), "seed": None, **rest})


def measured(item: Config, **ours: Any) -> dict[str, Any]:
    metric = {} if ours.get("status") == "failed" else {"forward": {"measure.time": [1.0]}}
    return record(item.op, item.id, item.build, item.input, metric, **{"status": "ok", **ours})


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """A run with a stand-in for ncu, in a folder of its own."""
    program = tmp_path / "ncu"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    command = shlex.join([sys.executable, "-c", KEEPER, str(tmp_path / "kept.jsonl")])
    return Options(device="cuda", ncu=True, ncu_bin=str(program), batch_cmd=command, output_prefix="result")


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "kept.jsonl").read_text().splitlines()]


def run(options: Options, *configs: Config) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of all batches, and the records afterwards."""
    queue, records, lines = Queue(options), [measured(item) for item in configs], list[dict[str, Any]]()
    for item, its in zip(configs, records, strict=True):
        lines += queue.flush() if queue.due(item) else ()
        queue.add(item, its)
    return [*lines, *queue.flush()], records


def test_a_batch_is_a_file_a_command_and_a_line(options: Options, tmp_path: Path) -> None:
    first, second = config("0|2|0_0", seed=7), config("0|2|0_1", seed=7)
    (line,), records = run(replace(options, backward=True, pt2_model=True, ncu_warmup=3), first, second)
    (told,) = kept(tmp_path)
    ours = told.pop("steelyard")
    assert ours == {"files": [], "entries": [], "seed": 7, "threads": 1}
    assert told == line["config"]
    assert (told["op_name"], told["config_build_id"]) == ("torch.mm", "0|2")
    assert told["op_info"]["config"] == [{"build": None, "input": [{**first.input, "id": "0_0"}, {**second.input, "id": "0_1"}]}]
    asked = {"device": "cuda", "pass_type": "backward", "warmup": 3, "iteration": 1, "pt2_model": True, "cuda_graph": False}
    assert asked.items() <= told["run_options"].items()
    assert list(line) == ["ncu_file", "ncu_cmd_str", "config", "start_run_id", "end_run_id", "steelyard"]
    assert (line["start_run_id"], line["end_run_id"]) == ("0|2|0_0", "0|2|0_1")
    assert line["ncu_file"].startswith("result_") and line["ncu_file"].endswith("_ncu.log") and Path(line["ncu_file"]).is_file()
    assert "id" not in first.input
    words = shlex.split(line["ncu_cmd_str"])
    assert not Path(words[words.index("-f") + 1]).parent.exists()
    assert [its["steelyard"]["ncu"] for its in records] == [line["steelyard"]["ncu"][its["id"]] for its in records]


def test_counters_come_back_to_the_config_they_belong_to(options: Options) -> None:
    (line,), (first, second) = run(replace(options, backward=True, ncu_iteration=2), config("0|0|0"), config("0|0|1"))
    assert line["steelyard"]["status"] == "ok" and line["steelyard"]["unmatched_kernels"] == 1
    for its in (first, second):
        counted = its["steelyard"]["ncu"]
        assert [item["pass"] for item in counted["kernels"]] == ["forward", "backward"] * 2
        assert counted["kernels"][0]["name"] == "kernel, forward"
        one = {"duration": pytest.approx(1e-6), "dram_bytes": pytest.approx(2048), "occupancy": 0.5, "tensor": 0.5}
        assert counted["totals"] == {"forward": one, "backward": one} and counted["iterations"] == 2


def test_batches_end_with_the_build_and_with_their_size(options: Options, tmp_path: Path) -> None:
    ids = [("torch.mm", "0|0|0"), ("torch.mm", "0|0|1"), ("torch.mm", "0|0|2"), ("torch.mm", "0|1|0"), ("torch.bmm", "0|1|0")]
    lines, _ = run(replace(options, run_batch_size=2), *(config(id, op) for op, id in ids))
    assert [(line["start_run_id"], line["end_run_id"]) for line in lines] == [
        ("0|0|0", "0|0|1"), ("0|0|2", "0|0|2"), ("0|1|0", "0|1|0"), ("0|1|0", "0|1|0"),
    ]  # fmt: skip
    assert [told["op_name"] for told in kept(tmp_path)] == ["torch.mm"] * 3 + ["torch.bmm"]
    assert len({line["ncu_file"] for line in lines}) == 4


def test_a_queue_says_when_its_batch_is_due_and_forgets_what_it_ran(options: Options) -> None:
    queue = Queue(replace(options, run_batch_size=2))
    assert not queue.due(config("0|0|0"))
    queue.add(config("0|0|0"), measured(config("0|0|0")))
    assert not queue.due(config("0|0|1")) and queue.due(config("0|1|0")) and queue.due(config("0|0|1", "torch.bmm"))
    queue.add(config("0|0|1"), measured(config("0|0|1")))
    assert queue.due(config("0|0|2"))
    assert len(list(queue.flush())) == 1 and list(queue.flush()) == [] and not queue.due(config("0|0|2"))


def test_a_config_that_could_not_run_is_not_run_again(options: Options) -> None:
    queue = Queue(options)
    queue.add(config("0|0|0"), measured(config("0|0|0"), status="failed", error="no"))
    assert list(queue.flush()) == []


def test_ncu_is_asked_for_process_ranges_by_a_plain_name(options: Options) -> None:
    (line,), _ = run(options, config("0|0|0"))
    words = shlex.split(line["ncu_cmd_str"])
    text = " ".join(words[1 : words.index(sys.executable)])
    assert text == (
        f"--log-file {line['ncu_file']} --csv --nvtx --nvtx-include {FILTER} --target-processes all "
        f"--clock-control none --page raw --print-units base --metrics {','.join(COLUMNS.values())}"
    )
    assert not set(FILTER) & set("/@[]+*,:\\\"'$")


def test_a_file_of_options_takes_the_place_of_ours(options: Options, tmp_path: Path) -> None:
    (tmp_path / "args").write_text('--page raw\n--metrics "gpu__time_duration.sum"  # only this\n')
    (line,), (its,) = run(replace(options, ncu_args_file=str(tmp_path / "args")), config("0|0|0"))
    assert f"--target-processes all --page raw --metrics gpu__time_duration.sum {shlex.quote(sys.executable)}" in line["ncu_cmd_str"]
    assert its["steelyard"]["ncu"]["totals"] == {"forward": {"duration": pytest.approx(1e-6)}}


def test_a_counter_the_device_lacks_is_asked_for_no_more(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU", f"lacks {COLUMNS['tensor']}")
    (line,), (its,) = run(options, config("0|0|0"))
    assert line["steelyard"]["status"] == "ok" and COLUMNS["tensor"] not in line["ncu_cmd_str"]
    assert set(its["steelyard"]["ncu"]["totals"]["forward"]) == {"duration", "dram_bytes", "occupancy"}


def test_a_batch_that_fails_is_a_line_and_the_next_one_runs(options: Options, tmp_path: Path) -> None:
    said = "import json, sys; data = json.load(open(sys.argv[2])); sys.exit(9 if data['op_name'] == 'torch.bad' else 0)"
    command = shlex.join([sys.executable, "-c", said])
    (bad, good), (first, _) = run(replace(options, batch_cmd=command), config("0|0|0", "torch.bad"), config("0|0|0"))
    assert bad["steelyard"]["status"] == "failed"
    assert bad["steelyard"]["error"] == "ncu exited with code 9: ==ERROR== The application returned an error code (9)."
    assert bad["steelyard"]["ncu"] == {} and "ncu" not in first["steelyard"]
    assert good["steelyard"]["status"] == "ok"


def test_a_tool_that_saw_nothing_or_cannot_be_started_is_a_failure(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU", "silent")
    (line,), _ = run(options, config("0|0|0"))
    assert line["steelyard"]["error"] == "ncu saw no kernel: " + "; ".join(Path(line["ncu_file"]).read_text().splitlines())
    (line,), _ = run(replace(options, ncu_bin="./absent"), config("0|0|0"))
    assert "No such file" in line["steelyard"]["error"]


def test_both_tools_run_each_batch_with_calls_of_their_own(options: Options, tmp_path: Path) -> None:
    program = tmp_path / "nsys"
    program.write_text('#!/bin/sh\n[ "$1 $2 $3 $4" = "profile -t cuda,nvtx -o" ] || exit 2\necho report >"$5"\nshift 5\nexec "$@"\n')
    program.chmod(0o755)
    said: list[str] = []
    queue = Queue(replace(options, nsys=True, nsys_bin=str(program), log_level="debug", batch_cmd="echo heard"), echo=said.append)
    queue.add(config("0|0|0"), measured(config("0|0|0")))
    ncu, nsys = queue.flush()
    assert nsys["nsys_file"].endswith("_nsys.nsys-rep") and Path(nsys["nsys_file"]).read_text() == "report\n"
    assert nsys["steelyard"] == {"status": "ok"} and nsys["nsys_cmd_str"].endswith("batch.json -v")
    assert [line["config"]["run_options"]["iteration"] for line in (ncu, nsys)] == [1, 10]
    assert len(said) == 2 and all(line.startswith("heard -f ") for line in said)


@pytest.mark.parametrize(
    ("device", "named", "outside", "seen"),
    [
        ("cuda", None, "", "0"), ("cuda:2", None, "", "2"), ("cuda:1", None, "4, 5", "5"), ("cuda", None, "GPU-8a", "GPU-8a"),
        ("cuda:1", 3, "4,5", "3"), ("cuda", 0, "", "0"), ("cuda:7", None, "4", "7"),
    ],
)  # fmt: skip
def test_a_batch_runs_on_the_device_of_the_run_unless_told(device: str, named: Any, outside: str, seen: str) -> None:
    assert visible_device(Options(device=device, batch_cuda_device=named), {"CUDA_VISIBLE_DEVICES": outside}) == seen


def test_what_cannot_be_had_is_said_before_the_run(options: Options, tmp_path: Path) -> None:
    check(options)
    check(Options())
    (tmp_path / "args").write_text('--metrics "open')
    for wrong, words in [
        ({"ncu_bin": "no-such-ncu"}, "--ncu needs Nsight Compute, and there is no 'no-such-ncu'"),
        ({"nsys": True, "nsys_bin": "no-such-nsys"}, "--nsys needs Nsight Systems"),
        ({"ncu_iteration": 0}, "--ncu-iteration is 0"),
        ({"ncu_args_file": str(tmp_path / "absent")}, "no such file"),
        ({"ncu_args_file": str(tmp_path / "args")}, "cannot read a file of options"),
        ({"batch_cmd": "'open"}, "cannot be read"),
        ({"batch_cmd": " "}, "is empty"),
        ({"batch_cmd": "no-such-program x"}, "there is no program 'no-such-program'"),
    ]:
        with pytest.raises(UsageError, match=words):
            check(replace(options, **wrong))


def test_totals_are_of_one_call_and_shares_are_weighted_by_time() -> None:
    slow, quick = Kernel("a", 3e-6, 300.0, 0.9, 1.0), Kernel("b", 1e-6, 100.0, 0.1, 0.0)
    total = summary([("forward", slow), ("forward", quick), ("forward", slow), ("forward", quick)], 2)["totals"]["forward"]
    assert total == {k: pytest.approx(v) for k, v in {"duration": 4e-6, "dram_bytes": 400, "occupancy": 0.7, "tensor": 0.75}.items()}
    part = summary([("backward", slow), ("backward", replace(quick, dram_bytes=None, duration=None))], 1)["totals"]
    assert part == {}


ADD = {"args": [TENSOR, TENSOR]}
WRONG = {"args": [TENSOR, {**TENSOR, "shape": [3]}]}


def written(folder: Path, inputs: list[dict[str, Any]], **asked: Any) -> str:
    """A batch file as somebody writes it by hand."""
    batch = {
        "op_name": "torch.add",
        "config_build_id": "0|0",
        "op_info": {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": [{"input": inputs}]},
        "run_options": {"device": "cpu", "pass_type": "forward", "warmup": 1, "iteration": 2, **asked},
    }
    (folder / "batch.json").write_text(json.dumps(batch))
    return str(folder / "batch.json")


@pytest.mark.torch
def test_measured_calls_run_inside_the_ranges_that_ncu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from steelyard.backends._torch_fixed import TorchLabels
    from steelyard.measuring.fixed import Stopwatch, take
    from steelyard.model.protocol import Fixed
    from steelyard.model.task import Task
    from steelyard.workloads.operators._gradient import backward_of

    active: dict[int, str] = {}
    seen: list[list[str]] = []
    numbers = itertools.count()

    def start(label: str) -> int:
        number = next(numbers)
        active[number] = label
        return number

    monkeypatch.setattr(torch.cuda.nvtx, "range_start", start)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", active.pop)

    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            seen.append(list(active.values()))
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(list(active.values()))
            return 2 * grad * ctx.saved_tensors[0]

    task = Task(Square.apply, (torch.ones(2, requires_grad=True),), back=backward_of(None))
    take(task, Fixed(1, 2, backward=True, ranges="param"), Stopwatch(), TorchLabels(False, True), "my.op|0|0|7", position=5)
    warmup, measured = seen[:2], seen[2:]
    assert all(FILTER not in ranges for ranges in warmup)
    parts = ["forward", "backward"] * 2
    assert [ranges[-3:] for ranges in measured] == [
        [FILTER, f"param_input_5_{part}", f"[param|my.op|0|0|7|measure|{part}]"] for part in parts
    ]
    assert active == {}


@pytest.mark.torch
def test_a_batch_runs_what_it_can_and_names_the_rest(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert shim.main(["-f", written(tmp_path, [ADD, {**ADD, "id": "9_9"}]), "-v"]) == 0
    assert capfd.readouterr().err.splitlines() == ["torch.add|0|0|0", "torch.add|0|0|9_9"]
    assert shim.main(["-f", written(tmp_path, [WRONG, ADD, {**WRONG, "id": "x"}])]) == 3
    said = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in said] == ["torch.add|0|0|0", "torch.add|0|0|x"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "cannot read the batch"), ("[]", "cannot read"), ("{}", "no 'op_info'"), ('{"op_info": {}, "run_options": {}}', "no 'config'")],
)
def test_a_batch_that_cannot_be_read_is_said(tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "batch.json").write_text(text)
    assert shim.main(["-f", str(tmp_path / "batch.json")]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.torch
def test_the_whole_way_through_a_tool_and_back(options: Options) -> None:
    """On the CPU, where the stand-in says what ncu would say of the calls that really ran."""
    away = replace(options, device="cpu", batch_cmd=None, backward=True, log_level="DEBUG")
    said: list[str] = []
    queue, its = Queue(away, echo=said.append), measured(config("0|0|3", "torch.add"))
    queue.add(config("0|0|3", "torch.add", input=ADD, generators=("", "PyTorch:DefaultDataGenerator")), its)
    [good] = queue.flush()
    queue.add(config("0|1|0", "torch.add", input=WRONG, generators=("", "PyTorch:DefaultDataGenerator")), measured(config("0|1|0")))
    [bad] = queue.flush()
    assert good["steelyard"]["status"] == "ok" and its["steelyard"]["ncu"]["totals"]["backward"]["duration"] == pytest.approx(1e-6)
    assert said[0] == "torch.add|0|0|3"
    assert bad["steelyard"]["error"].startswith("ncu exited with code 3: error: torch.add|0|1|0: ")
