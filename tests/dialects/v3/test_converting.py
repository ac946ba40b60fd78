"""Other systems' results as records of the database, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steelyard.analyze.foreign import read_file
from steelyard.codec.torchao import COLUMNS
from tests.dialects.v3.made import Said, row, write

ROOT = Path(__file__).parents[3]


# convert

SEED = f"""{",".join(COLUMNS["seed"])}
bench_a,int8wo,None,1024,1024,1024,torch.bfloat16,True,default,cuda,linear,results,False,False,0.41,0.3,1.37,,,,
bench_a,int8wo,semi,1024,1024,1024,torch.bfloat16,False,,cuda,linear,results,False,False,0.41,0.6,0.68,trace.json,,,"peak 3, now 1"
bench_b,baseline,None,2048,1024,512,torch.bfloat16,False,,cpu,ln_linear_relu,results,True,False,5.5,5.5,1.0,,,,
"""
LAST = f"""{",".join(COLUMNS["last"])}
bench_a,int8wo,None,1024,1024,1024,torch.bfloat16,default,cuda,linear,results,False,False,0.41,0.6,0.39,0.3,0.68,1.3,2.0,,,,
bench_a,float8wo,None,1024,1024,1024,torch.bfloat16,default,cuda,linear,results,False,False,0.41,0.5,0.39,,0.82,,,,,,
"""


def test_the_columns_are_torchaos() -> None:
    assert COLUMNS["seed"][:4] == ("name", "quantization", "sparsity", "m") and COLUMNS["seed"][7] == "use_torch_compile"
    assert COLUMNS["seed"][14:17] == ("baseline_inference_time_in_ms", "model_inference_time_in_ms", "speedup")
    assert len(COLUMNS["seed"]) == 21
    assert COLUMNS["last"][17:20] == ("eager speedup on baseline", "compile speedup on baseline", "eager vs compile speedup")
    assert "use_torch_compile" not in COLUMNS["last"] and len(COLUMNS["last"]) == 24


@pytest.mark.parametrize("text", [SEED, LAST], ids=["seed", "last"])
def test_torchaos_csv_becomes_records_and_a_csv_again(said: Said, tmp_path: Path, text: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    said("as", "v3", "convert", "r.csv", "-o", "r.json")
    assert "✓" in said("as", "v3", "check", "r.json")[0]
    assert said("as", "v3", "convert", "r.json", "--to", "torchao")[0] == text
    rows = json.loads((tmp_path / "r.json").read_text())
    assert rows[0]["benchmark"]["dtype"] == "int8wo" and rows[0]["model"]["name"] == "1024-1024-1024"
    assert {item["metric"]["name"] for item in rows} >= {"Quantized Fwd Time (ms)", "Fwd Speedup (x)", "Bfloat16 Fwd Time (ms)"}
    assert "ok" in said("show", "r.json")[0]


def test_sparse_and_compiled_rows_do_not_collide(said: Said, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(SEED)
    said("as", "v3", "convert", "r.csv", "-o", "r.json")
    runs = read_file(tmp_path / "r.json")
    assert [len(run.records) for run in runs] == [2, 1] and not any(run.warnings for run in runs)


def test_torchaos_own_ci_records_become_rows(said: Said, tmp_path: Path) -> None:
    records = [row("Fwd Speedup (x)", [1.3], model="int8wo-64-32-16"), row("Quantized Fwd Time (ms)", [0.3], model="int8wo-64-32-16")]
    write(tmp_path / "ci.json", records)
    head, line = said("as", "v3", "convert", "ci.json", "--to", "torchao-seed")[0].splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["m"], cells["k"], cells["n"], cells["speedup"], cells["model_inference_time_in_ms"]) == ("64", "32", "16", "1.3", "0.3")


def test_convert_to_v3_is_the_same_by_both_commands(said: Said, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(SEED)
    assert said("convert", "r.csv", "--to", "v3")[0] == said("as", "v3", "convert", "r.csv")[0]
    assert "r.csv · saved r.json" in said("convert", "r.csv", "--to", "v3", "-o", "r.json")[1]
    assert "r.json exists" in said("convert", "r.csv", "--to", "v3", "-o", "r.json", code=2)[1]
    assert "a CSV file holds results" in said("convert", "r.csv", code=2)[1]
    assert "no format for results named 'v4'" in said("convert", "r.csv", "--to", "v4", code=2)[1]


def test_every_number_of_tritonbench_is_a_record(said: Said, tmp_path: Path) -> None:
    point = "tritonbench_softmax_fwd[x_256-triton]_"
    write(tmp_path / "t.json", {f"{point}latency": 0.02, f"{point}speedup": 2.0, f"{point}accuracy": 1, f"{point}best_config": "BLOCK 4"})
    rows = json.loads(said("convert", "t.json", "--to", "v3")[0])
    told = {item["metric"]["name"]: item["metric"] for item in rows}
    assert set(told) == {"latency (ms)", "speedup (x)"} and told["speedup (x)"]["extra_info"]["direction"] == "higher"
    assert told["speedup (x)"]["benchmark_values"] == [2.0]


def test_tritonbenchs_results_become_records_and_failures_stay_failures(said: Said, tmp_path: Path) -> None:
    data = {
        "tritonbench_softmax_fwd[x_(256,)-triton]_latency": 0.02, "tritonbench_softmax_fwd[x_(256,)-triton]_tflops": 1.5,
        "tritonbench_softmax_fwd[x_(256,)-eager]_latency": "CUDA OOM",
    }  # fmt: skip
    write(tmp_path / "t.json", data)
    rows = json.loads(said("as", "v3", "convert", "t.json")[0])
    told = {(item["model"]["backend"], item["metric"]["name"]): item for item in rows}
    assert set(told) == {("triton", "latency (ms)"), ("triton", "tflops"), ("eager", "latency (ms)")}
    assert told["triton", "tflops"]["metric"]["benchmark_values"] == [1.5]
    failed = told["eager", "latency (ms)"]
    assert failed["metric"]["benchmark_values"] == [] and failed["metric"]["extra_info"]["reason"] == "CUDA OOM"
    assert failed["benchmark"]["mode"] == "fwd" and failed["inputs"]["x"]["extra_info"] == {"x_val": "(256,)"} and "runners" not in failed
    write(tmp_path / "v3.json", rows)
    assert "1 failed" in said("show", "v3.json")[0]
    assert "is already a file of the database" in said("as", "v3", "convert", "v3.json", code=2)[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n", "not a results file of TorchAO"),
        ("", "not a results file of TorchAO"),
        (SEED.splitlines()[0] + "\n", "no row has a figure"),
        (SEED.replace("0.41,0.3", "0.41,fast"), "r.csv:2  model_inference_time_in_ms: expected a number, not 'fast'"),
        (SEED.replace("0.41,0.3", "0.41,inf"), "expected a number, not 'inf'"),
        (SEED.replace("bench_b,", "bench_b,1,2,3,4,5,"), "r.csv:4  a row has more cells"),
    ],
)
def test_wrong_csv_is_refused_with_its_line(said: Said, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    assert told in said("as", "v3", "convert", "r.csv", code=2)[1]


def test_what_cannot_be_converted_is_told(said: Said, tmp_path: Path) -> None:
    write(tmp_path / "r.json", [row()])
    assert "no record fits a row of TorchAO's file" in said("as", "v3", "convert", "r.json", "--to", "torchao", code=2)[1]
    write(tmp_path / "x.json", {"a": 1})
    assert "not a file of results" in said("as", "v3", "convert", "x.json", code=2)[1]
    said("as", "v3", "convert", "gone.json", code=2)
