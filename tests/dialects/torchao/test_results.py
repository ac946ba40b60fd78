"""TorchAO's own result files: its CSV of both versions and its records for CI of both, as show, compare, gate and report read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.analyze import foreign
from steelyard.cli.main import main
from steelyard.dialects.torchao import results
from steelyard.errors import PASS
from steelyard.model.record import Record

SEED = """\
name,quantization,sparsity,m,k,n,high_precision_dtype,use_torch_compile,torch_compile_mode,device,model_type,output_dir,enable_profiler,\
enable_memory_profiler,baseline_inference_time_in_ms,model_inference_time_in_ms,speedup,profiler_json_path,memory_profile_path,\
memory_visualization_path,memory_stats
small,int8wo,,1024,1024,1024,torch.bfloat16,True,max-autotune,cuda,linear,out/inference,False,False,0.02,0.016,1.25,,,,\
"{'allocated_bytes.all.peak': 12.5, 'active_bytes.all.peak': 12.5, 'reserved_bytes.all.peak': 20.0}"
small,baseline,semi-sparse,1024,1024,1024,torch.bfloat16,True,max-autotune,cuda,linear,out/inference,False,False,0.03,0.015,2.0,,,,
small,float8wo,,1024,1024,1024,torch.bfloat16,False,,cuda,linear,out/inference,False,False,0.05,0.1,0.5,,,,
"""
LAST = """\
name,quantization,sparsity,m,k,n,high_precision_dtype,torch_compile_mode,device,model_type,output_dir,enable_profiler,\
enable_memory_profiler,baseline_model_eager_inference_time_in_ms,quantized_model_eager_inference_time_in_ms,\
baseline_model_compiled_inference_time_in_ms,quantized_model_compiled_inference_time_in_ms,eager speedup on baseline,\
compile speedup on baseline,eager vs compile speedup,profiler_json_path,memory_profile_path,memory_visualization_path,memory_stats
small,int8dq,,64,32,16,torch.bfloat16,default,cpu,linear,out/inference,False,False,0.04,0.08,0.03,0.02,0.5,1.5,4.0,,,,
"""
POINT = "foreign/torchao/linear[dtype=bf16,k=1024,m=1024,n=1024]@torch"


def record(name: str, values: list[float], dtype: str = "int8wo", shape: str = "1024-1024-1024", **extra: str) -> dict[str, Any]:
    """As the original's CI runner writes it."""
    return {
        "benchmark": {
            "name": "micro-benchmark api", "mode": "inference", "dtype": dtype,
            "extra_info": {"device": "cuda", "arch": "NVIDIA A100-SXM4-80GB", **extra},
        },
        "model": {"name": shape, "type": "micro-benchmark custom layer", "origins": ["torchao"]},
        "metric": {"name": name, "benchmark_values": values, "target_value": 0.0}, "runners": [], "dependencies": {},
    }  # fmt: skip


def four(shape: str) -> list[dict[str, Any]]:
    named = {"Fwd Speedup (x)": 1.5, "Bfloat16 Fwd Time (ms)": 0.03, "Quantized Fwd Time (ms)": 0.02, "Allocated Memory (MB)": 7.0}
    return [record(name, [value], "int4wo-32", f"int4wo-32-{shape}", torch_compile_mode="max-autotune") for name, value in named.items()]


def read(tmp_path: Path, text: str, name: str = "x.csv") -> dict[str, Record]:
    (tmp_path / name).write_text(text)
    [run] = foreign.read_file(tmp_path / name)
    return {record.id: record for record in run.records}


def test_a_csv_of_the_first_version_has_a_time_for_each_side_and_a_speedup(tmp_path: Path) -> None:
    found = read(tmp_path, SEED)
    compiled = "compile[mode=max-autotune]:eval:device=cuda"
    assert list(found) == [f"{POINT}/{name}" for name in (
        compiled, f"int8wo+{compiled}", f"semi-sparse+{compiled}", "eager:eval:device=cuda", "float8wo:eval:device=cuda",
    )]  # fmt: skip
    base, int8wo = found[f"{POINT}/{compiled}"], found[f"{POINT}/int8wo+{compiled}"]
    assert base.metrics["time"].value == pytest.approx(25e-6) and base.metrics["time"].n == 2, "timed anew in each row"
    assert int8wo.metrics["time"].value == pytest.approx(16e-6)
    assert (int8wo.metrics["speedup"].value, int8wo.metrics["speedup"].better) == (1.25, "higher")
    assert int8wo.metrics["peak_allocated"].value == pytest.approx(12.5e6)


def test_a_csv_of_the_last_version_has_four_times_and_three_speedups(tmp_path: Path) -> None:
    found = {id.partition("/")[2].split("@")[1]: record for id, record in read(tmp_path, LAST).items()}
    times = {name: record.metrics["time"].value for name, record in found.items()}
    expected = {"eager": 40e-6, "int8dq": 80e-6, "compile": 30e-6, "int8dq+compile": 20e-6}
    assert times == {f"torch/{name}:eval": pytest.approx(value) for name, value in expected.items()}
    assert found["torch/int8dq:eval"].metrics["speedup"].value == 0.5
    figures = found["torch/int8dq+compile:eval"].metrics
    assert (figures["speedup"].value, figures["compile_speedup"].value) == (1.5, 4.0)


def test_records_of_the_first_version_are_speedups_alone(tmp_path: Path) -> None:
    listed = [record("speedup(wrt bf16)", [1.25]), record("speedup(wrt bf16)", [1.5], sparsity="2:4"), record("speedup(wrt bf16)", [], "x")]
    found = read(tmp_path, json.dumps(listed), "x.json")
    point = "foreign/torchao/layer[k=1024,m=1024,n=1024]@torch"
    assert [(id, item.status) for id, item in found.items()] == [
        (f"{point}/int8wo:eval:device=cuda", "ok"), (f"{point}/int8wo+semi-sparse:eval:device=cuda", "ok"),
        (f"{point}/x:eval:device=cuda", "failed"),
    ]  # fmt: skip
    assert found[f"{point}/int8wo:eval:device=cuda"].metrics["speedup"].value == 1.25


def test_records_of_the_last_version_are_one_result_and_its_baseline(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(four("64-32-16") + four("64-32-32")), "x.json")
    point = "foreign/torchao/layer[k=32,m=64,n=16]@torch/{}compile[mode=max-autotune]:eval:device=cuda"
    assert len(found) == 4
    assert found[point.format("")].metrics["time"].value == pytest.approx(30e-6)
    figures = found[point.format("int4wo-32+")].metrics
    assert figures["time"].value == pytest.approx(20e-6) and figures["speedup"].value == 1.5
    assert figures["peak_allocated"].value == pytest.approx(7e6)


def test_what_failed_keeps_its_status_and_a_form_that_worked_its_figures(tmp_path: Path) -> None:
    header, row = LAST.splitlines()
    half = row.replace(",0.03,0.02,0.5,1.5,4.0,", ",0.03,,0.5,,,")
    found = read(tmp_path, f"{header},status,reason\n{half},unsupported,quantized compiled: no kernel\n")
    told = {id.rpartition("/")[2]: (record.status, record.reason) for id, record in found.items()}
    assert told == {
        "eager:eval": ("ok", ""), "int8dq:eval": ("ok", ""), "compile:eval": ("ok", ""),
        "int8dq+compile:eval": ("unsupported", "quantized compiled: no kernel"),
    }  # fmt: skip


@pytest.mark.parametrize("ending", [",,,,,\n", "\n", ',"', ',{"a": 1}\n', "\x00,\xff\n"])
def test_what_is_bent_is_read_as_far_as_it_goes(tmp_path: Path, ending: str) -> None:
    found = read(tmp_path, SEED + f"small,int8dq,,x,1e999,-3,torch.bfloat61,True,max autotune,cu da,lin ear,,,,nan,-1,inf{ending}")
    assert len(found) >= 5 and all(record.status in ("ok", "failed") for record in found.values())
    assert results.lines(b"name,a,b\n", "x.csv") is None and not results.fits([{"benchmark": 3}])


def test_show_compare_gate_and_report_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(LAST)
    Path("b.csv").write_text(LAST.replace("0.03,0.02,0.5,1.5", "0.03,0.04,0.5,0.75"))
    Path("a.json").write_text(json.dumps([record("speedup(wrt bf16)", [1.25])]))
    Path("b.json").write_text(json.dumps([record("speedup(wrt bf16)", [1.0])]))
    assert main(["show", "a.csv/4"]) == PASS and "higher is better" in capsys.readouterr().out
    assert main(["compare", "a.csv", "b.csv"]) == PASS and "int8dq+compile" in capsys.readouterr().out
    assert main(["compare", "a.json", "b.json", "--metric", "speedup"]) == PASS
    assert "1.25" in capsys.readouterr().out
    assert main(["gate", "a.csv", "b.csv"]) == PASS
    assert main(["report", "a.csv", "b.csv", "-o", "x.html"]) == PASS and Path("x.html").exists()
    assert main(["check", "a.csv", "a.json"]) == PASS and "from torchao" in capsys.readouterr().out
