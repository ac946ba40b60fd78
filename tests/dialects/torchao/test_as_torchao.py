"""`as torchao` from end to end on the virtual clock: its CSV, table and records, what failed included, and what `run` makes of a config.

The goldens hold whole files. To write them again after a change that is meant: python -m tests.dialects.torchao.test_as_torchao
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from base64 import b64encode
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.codec.torchao import SPEEDUPS, TIMES
from steelyard.dialects.torchao import lines, selftest, session
from steelyard.dialects.torchao.layers import LayerRow
from steelyard.dialects.torchao.shapes import LayerShape
from steelyard.errors import FAILED, NOTHING, PASS, USAGE
from steelyard.model.experiment import Settings
from steelyard.model.record import Attachment, Figure, Record
from steelyard.store.runs import Store
from tests.engine.drive import steelyard

HERE = Path(__file__).parent
LAYER = str(HERE / "standins.py")
CONFIG = """\
benchmark_mode: "inference"
quantization_config_recipe_names: ["int8wo", "int8dq", "float8wo", "uintx-4-64", "my_new", "baseline"]
sparsity_config_recipe_names: [null, "semi-sparse", "block"]
output_dir: "out"
model_params:
  - name: "small"
    matrix_shapes:
      - {name: "custom", shapes: [[64, 32, 16]]}
    use_torch_compile: true
    torch_compile_mode: "max-autotune"
    device: "cpu"
    model_type: "standin"
"""
ONE = re.sub(r"(quantization.*: ).*\n(sparsity.*: ).*", r'\1["int8wo"]\n\2[]', CONFIG)
LAST = re.sub(r" *use_torch_compile: true\n", "", CONFIG)
RUN = ("as", "torchao", "--config", "x.yml", "--file", LAYER, "--budget", "20ms")


def plain(text: str) -> str:
    """Without what differs from run to run and from machine to machine."""
    text = re.sub(r"\d{8}T\d{6}-\w{4}", "RUN", text.replace("\r\n", "\n"))
    text = re.sub(r"\{'peak_memory': [\d.e-]+\}", "{'peak_memory': 1.0}", text)
    text = re.sub(r'("name": "Allocated Memory \(MB\)",\s+"benchmark_values": \[\s+)[\d.e-]+', r"\g<1>1.0", text)
    return re.sub(r'"arch": ".*"', '"arch": "ARCH"', text)


@dataclass(frozen=True)
class Made:
    """What one run wrote, and said."""

    folder: Path
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        [file] = (self.folder / "out" / "inference").iterdir()
        return rows(file)

    @property
    def records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "benchmark_results.json").read_text())
        return found

    def files(self, form: str) -> dict[str, str]:
        [file] = (self.folder / "out" / "inference").iterdir()
        texts = {"csv": file, "json": self.folder / "benchmark_results.json"}
        return {f"{form}.{ending}": plain(path.read_bytes().decode()) for ending, path in texts.items()}


def make(folder: Path, text: str, *words: str) -> Made:
    (folder / "x.yml").write_text(text)
    apart = {f"STEELYARD_{name}": str(folder / name.lower()) for name in ("LOCKS", "ENVS", "CACHE")}
    done = steelyard(*RUN, *words, cwd=folder, env=apart)
    return Made(folder, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("seed"), CONFIG)


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("last"), LAST, "--form", "last")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yml").write_text(CONFIG)
    return tmp_path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("form", ["seed", "last"])
def test_the_files_are_those_of_the_goldens(form: str, seed: Made, last: Made) -> None:
    for name, text in (seed if form == "seed" else last).files(form).items():
        assert text == (HERE / "goldens" / name).read_text(), name


def test_the_first_columns_are_the_originals() -> None:
    seed = (
        "name,quantization,sparsity,m,k,n,high_precision_dtype,use_torch_compile,torch_compile_mode,device,model_type,output_dir,"
        "enable_profiler,enable_memory_profiler,baseline_inference_time_in_ms,model_inference_time_in_ms,speedup,profiler_json_path,"
        "memory_profile_path,memory_visualization_path,memory_stats"
    )
    assert ",".join(lines.WRITTEN["seed"]).startswith(f"{seed},status,reason")
    last = seed.replace("use_torch_compile,", "").replace(
        "baseline_inference_time_in_ms,model_inference_time_in_ms,speedup",
        "baseline_model_eager_inference_time_in_ms,quantized_model_eager_inference_time_in_ms,baseline_model_compiled_inference_time_in_ms,"
        "quantized_model_compiled_inference_time_in_ms,eager speedup on baseline,compile speedup on baseline,eager vs compile speedup",
    )
    assert ",".join(lines.WRITTEN["last"]).startswith(f"{last},status,reason")


def test_rows_are_in_the_originals_folder_and_table_and_none_is_dropped(seed: Made) -> None:
    [file] = (seed.folder / "out" / "inference").iterdir()
    assert re.fullmatch(r"results_\d{8}_\d{6}\.csv", file.name)
    found = {(row["quantization"], row["sparsity"]): row for row in seed.rows}
    assert [(key, row["status"]) for key, row in found.items()] == [
        (("int8wo", ""), "ok"), (("int8dq", ""), "ok"), (("float8wo", ""), "not_applied"), (("uintx-4-64", ""), "failed"),
        (("my_new", ""), "failed"), (("baseline", ""), "ok"), (("int8dq", "semi-sparse"), "ok"), (("baseline", "semi-sparse"), "ok"),
        (("baseline", "block"), "unsupported"),
    ]  # fmt: skip
    assert [row["speedup"] for row in found.values()] == ["2.0", "4.0", "", "", "", "", "8.0", "2.0", ""]
    assert found["uintx-4-64", ""]["reason"] == "quantized compiled: ValueError: no such kernel"
    assert found["my_new", ""]["reason"] == "quantization_config_recipe_names: no recipe named 'my_new'; all: steelyard list recipes"
    assert f"warning: x.yml  {found['my_new', '']['reason']}" in seed.err
    assert "block sparsity needs triton" in found["baseline", "block"]["reason"]
    assert [record["metric"]["benchmark_values"] for record in seed.records] == [[2.0], [4.0], [], [], [], [], [8.0], [2.0], []]
    assert "| Name   | Quantization   | Sparsity    | Shape               |" in seed.out
    assert "2.00x [2.00, 2.00]" in seed.out and "| not_applied " in seed.out
    assert "[9/9] small baseline+block custom (64, 32, 16)  unsupported" in seed.err
    assert "5 ok · 1 not_applied · 2 failed · 1 unsupported · saved out/inference/results_" in seed.err


def test_the_records_of_the_documented_version_have_its_keys_in_its_order(seed: Made) -> None:
    record = seed.records[0]
    assert list(record) == ["benchmark", "model", "metric", "runners", "dependencies"]
    assert list(record["benchmark"]) == ["name", "mode", "dtype", "extra_info"]
    assert list(record["benchmark"]["extra_info"])[:2] == ["device", "arch"]
    assert record["benchmark"] | {"extra_info": 0} == {
        "name": "micro-benchmark api", "mode": "inference", "dtype": "int8wo", "extra_info": 0,
    }  # fmt: skip
    assert record["model"] == {"name": "64-32-16", "type": "micro-benchmark custom layer", "origins": ["torchao"]}
    metric = {key: record["metric"][key] for key in list(record["metric"])[:3]}
    assert metric == {"name": "speedup(wrt bf16)", "benchmark_values": [2.0], "target_value": 0.0}
    assert (record["runners"], record["dependencies"]) == ([], {})
    told = [value for part in (record["benchmark"], record["metric"]) for value in part["extra_info"].values()]
    assert all(isinstance(value, str) for value in told), "the database has text there"


def test_the_last_version_has_four_records_and_three_speedups(last: Made) -> None:
    row, records = last.rows[0], last.records[:4]
    assert [row[name] for name in SPEEDUPS.values()] == ["2.0", "2.0", "1.25"]
    assert [row[name] for name in TIMES.values()] == ["0.064", "0.032", "0.0512", "0.0256"]
    assert [record["metric"]["name"] for record in records] == [
        "Fwd Speedup (x)", "Bfloat16 Fwd Time (ms)", "Quantized Fwd Time (ms)", "Allocated Memory (MB)",
    ]  # fmt: skip
    assert [record["metric"]["benchmark_values"] for record in records[:3]] == [[2.0], [0.0512], [0.0256]]
    assert records[3]["metric"]["benchmark_values"][0] >= 0 and records[3]["metric"]["extra_info"]["unit"] == "MB"
    assert {record["model"]["name"] for record in records} == {"int8wo-64-32-16"}
    assert list(records[0]["benchmark"]["extra_info"])[:3] == ["device", "arch", "torch_compile_mode"]
    assert "Eager vs Compile Speedup" in last.out


def test_without_the_switch_the_documented_version_compiles_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "x.yml").write_text(ONE.replace("    use_torch_compile: true\n", ""))
    main([*RUN, "--csv", "x.csv"])
    row = rows(here / "x.csv")[0]
    assert (row["use_torch_compile"], row["speedup"], row["model_inference_time_in_ms"]) == ("False", "2.0", "0.032")
    assert (row["baseline_inference_time_in_ms"], row["torch_compile_mode"]) == ("0.064", "")
    assert {row[name] for name in (*SPEEDUPS.values(), *TIMES.values()) if "compile" in name} == {""}
    assert "without use_torch_compile nothing is compiled; --form last times both" in capsys.readouterr().err
    [record] = json.loads((here / "benchmark_results.json").read_text())
    assert record["benchmark"]["extra_info"]["use_compile"] == "false" and record["metric"]["benchmark_values"] == [2.0]
    main(["run", "x.yml", LAYER, "--budget", "20ms", "--json"])
    assert len(json.loads(capsys.readouterr().out)["records"]) == 4, "a mode without a switch is the last version's"


def test_only_recipes_may_stand_where_recipes_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("compile", "bf16", "eager", "int8wo+compile", "semi-spars"):
        (here / "x.yml").write_text(ONE.replace("int8wo", name))
        told = f"x.yml  quantization_config_recipe_names: no recipe named '{name}'"
        assert main(["run", "x.yml", LAYER, "--dry-run"]) == USAGE and told in capsys.readouterr().err, name
    assert main([*RUN, "--csv", "x.csv", "--strict-exit"]) == FAILED
    said = "warning: x.yml  quantization_config_recipe_names: no recipe named 'semi-spars'; did you mean semi-sparse"
    assert said in capsys.readouterr().err
    assert [(row["status"], row["speedup"]) for row in rows(here / "x.csv")] == [("failed", "")]


def test_a_workload_with_sizes_of_its_own_is_one_row_that_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ONE.replace('"standin"', '"net/standin"').replace("[[64, 32, 16]]", "[[64, 32, 16], [1, 2, 3]]")
    (here / "x.yml").write_text(text.replace("true", "false"))
    note = "net/standin has no m, k, n, dtype: it runs with seq=8"
    assert main([*RUN, "--csv", "x.csv"]) == PASS
    said = capsys.readouterr()
    assert f"warning: x.yml  model_params[0]: {note}" in said.err and "| own sizes " in said.out
    [row] = rows(here / "x.csv")
    assert [row[name] for name in ("m", "k", "n", "shape_name", "high_precision_dtype")] == ["", "", "", "own sizes", ""]
    assert (row["status"], row["speedup"], row["notes"], row["model_type"]) == ("ok", "2.0", note, "net/standin")
    assert row["case"] == "net/standin[seq=8]@fake/int8wo:eval"
    [record] = json.loads((here / "benchmark_results.json").read_text())
    assert record["model"]["name"] == "net/standin" and all(isinstance(item, str) for item in record["benchmark"]["extra_info"].values())
    assert main(["run", "x.yml", LAYER, "--budget", "20ms", "--json"]) == PASS
    said = capsys.readouterr()
    assert f"warning: x.yml  model_params[0]: {note}" in said.err and len(json.loads(said.out)["records"]) == 2
    assert main(["show", "x.csv"]) == PASS and "net/standin" in capsys.readouterr().out
    assert main(["as", "v3", "convert", "x.csv", "-o", "v3.json"]) == PASS
    assert {record["model"]["name"] for record in json.loads((here / "v3.json").read_text())} == {"net/standin"}


def test_a_part_of_the_rows_can_be_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*RUN, "--csv", "x.csv", "-k", "int8dq custom", "-k", "baseline+semi"])
    assert [(row["quantization"], row["sparsity"]) for row in rows(here / "x.csv")] == [("int8dq", ""), ("baseline", "semi-sparse")]
    assert main([*RUN, "-k", "int7"]) == NOTHING
    assert "no row matches --filter" in capsys.readouterr().err


def test_a_wrong_layer_hides_no_wrong_recipe_and_a_spreadsheet_runs_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ONE.replace('"int8wo"', '"=cmd()"').replace('"standin"', '"stand"').replace('"small"', '"=1+1"')
    (here / "x.yml").write_text(text)
    assert main(["run", "x.yml", LAYER]) == USAGE
    said = capsys.readouterr().err
    assert "model_params[0].model_type: no workload named 'torchao/stand'" in said and "no recipe named '=cmd()'" in said
    assert main([*RUN, "--csv", "x.csv"]) == PASS
    assert [(row["name"], row["quantization"], row["status"]) for row in rows(here / "x.csv")] == [("'=1+1", "'=cmd()", "failed")]


def test_exit_codes_are_the_originals_unless_asked(here: Path) -> None:
    for recipe, code in (("uintx-4-64", FAILED), ("my_new", FAILED), ("float8wo", NOTHING)):
        (here / "x.yml").write_text(ONE.replace("int8wo", recipe))
        assert main([*RUN, "--strict-exit"]) == code, recipe


def test_rows_of_training_are_steps_in_files_of_their_own_and_read_as_such(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ONE.replace('"inference"', '"training"').replace("use_torch_compile: true", "use_torch_compile: false")
    text = text.replace('"int8wo"', '"qat-intxwo-4-32", "int8wo"').replace("[[64, 32, 16]]", "[[16, 32, 32]]")
    (here / "x.yml").write_text(text.replace('"standin"', '"linear"'))
    steelyard("as", "torchao", "--config", "x.yml", "--budget", "20ms", "--strict-exit", cwd=here)
    [file] = (here / "out" / "training").iterdir()
    trained, inferred = rows(file)
    assert trained["status"] == "ok" and float(trained["speedup"]) > 0 and trained["case"].endswith("/qat-intxwo-4-32:train")
    assert inferred["status"] == "not_applicable" and "not for train" in inferred["reason"] and not inferred["speedup"]
    assert {record["benchmark"]["mode"] for record in json.loads((here / "benchmark_results.json").read_text())} == {"training"}
    for name in (str(file), "benchmark_results.json"):
        capsys.readouterr()
        assert main(["show", name, "--json"]) == PASS
        assert {record["case"]["mode"] for record in json.loads(capsys.readouterr().out)["records"]} == {"train"}
    assert main(["convert", str(file), "--to", "v3", "-o", "v3.json"]) == PASS
    assert {record["benchmark"]["mode"] for record in json.loads((here / "v3.json").read_text())} == {"training"}


def test_a_device_that_is_not_here_is_the_cpu_with_a_warning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "x.yml").write_text(ONE.replace('device: "cpu"', 'device: "mps"'))
    main([*RUN, "--csv", "x.csv"])
    assert rows(here / "x.csv")[0]["device"] == "cpu"
    assert "there is no mps here, so the CPU is used" in capsys.readouterr().err


def test_an_interrupted_run_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    measured, made = lines.measured, list[str]()

    def ended(row: Any, *rest: Any) -> Any:
        made.append(row.key)
        if len(made) == 2:
            raise KeyboardInterrupt
        return measured(row, *rest)

    monkeypatch.setattr(lines, "measured", ended)
    assert main([*RUN, "--csv", "x.csv"]) == 130
    assert "interrupted: 1 ok" in capsys.readouterr().err and len(rows(here / "x.csv")) == 1
    assert [row["quantization"] for row in rows(here / "x.csv")] == ["baseline"], "its turn had not come, and it is kept"
    assert len(json.loads((here / "benchmark_results.json").read_text())) == 1
    monkeypatch.setattr(lines, "measured", measured)
    assert main([*RUN, "--csv", "x.csv", "--resume"]) == PASS
    assert [row["status"] for row in rows(here / "x.csv")].count("ok") == 5
    assert main(["list", "runs"]) == PASS and capsys.readouterr().out.count("torchao x.yml") == 1, "it is one run"


def test_there_may_be_nothing_to_go_on_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "x.yml").write_text(ONE)
    assert main([*RUN, "--resume"]) == PASS
    assert "so nothing is continued and all cases are measured" in capsys.readouterr().err


def test_run_is_strict_and_makes_the_same_cases_and_pairs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "x.yml", LAYER, "--dry-run"]) == USAGE
    told = capsys.readouterr().err
    assert "x.yml  quantization_config_recipe_names: no recipe named 'my_new'" in told
    (here / "x.yml").write_text(LAST.replace('"float8wo", "uintx-4-64", "my_new", ', "").replace(', "block"', ""))
    assert main(["run", "x.yml", LAYER, "--budget", "20ms", "--json"]) == PASS
    found = json.loads(capsys.readouterr().out)
    assert {record["status"] for record in found["records"]} == {"ok"}
    assert len(found["records"]) == 10 and len(found["pairs"]) == 3 * 4 + 1
    assert main(["check", "x.yml", "--file", LAYER]) == PASS
    assert "TorchAO config · 10 cases would run" in capsys.readouterr().out
    assert main(["convert", "x.yml", "--file", LAYER, "-o", "native.toml"]) == PASS
    text = (here / "native.toml").read_text()
    assert text.startswith("# From the TorchAO config x.yml.") and text.count("@fake/int8wo:eval") == 3


def test_wrong_words_are_told_before_anything_is_measured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (("--config", "none.yml"), "no such file: 'none.yml'"), (("--config", "x.yml", "--device", "gpu"), "did you mean cuda"),
        (("--config", "x.yml", "--budget", "0"), "a budget must be more than 0"), (("--confg", "x.yml"), "did you mean --config"),
        (("--config", "x.yml", "--output", "no/such/x.json"), "there is no such folder"),
        (("--config", "x.yml", "--self-test"), "leave out --config"),
        (("--config", "x.yml", "--output-dir", "/proc/none"), "name another folder with --output-dir"), ((), "Usage: steelyard as torchao"),
    ):  # fmt: skip
        assert main(["as", "torchao", *words]) == USAGE, words
        assert said in capsys.readouterr().err, words
    assert not (here / "benchmark_results.json").exists()


def test_the_self_test_says_what_works(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest.run("cpu", Settings(budget=0.05), [LAYER], model_type="standin") == FAILED
    told = capsys.readouterr().out
    assert "✓ int8wo without torch.compile: works" in told and "– baseline+block without torch.compile: unsupported" in told
    assert "✗ uintx-4-64 without torch.compile: failed" in told and "✓ int8wo with torch.compile: works" in told
    assert "✓ rows.csv is written, and read again as" in told and "broken" in told
    assert not (here / ".steelyard").exists()


@pytest.mark.deep
@pytest.mark.torch
def test_a_recipe_of_torchao_has_accuracy_and_profiles_in_the_originals_folders(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(
        "quantization_config_recipe_names: [int8wo]\noutput_dir: out\nmodel_params:\n  name: my/layer\n"
        "  matrix_shapes: [{name: custom, shapes: [[8, 32, 32]]}]\n  high_precision_dtype: torch.float32\n  use_torch_compile: false\n"
        "  device: cpu\n  model_type: linear\n  enable_profiler: true\n  enable_memory_profiler: true\n"
    )
    done = steelyard("as", "torchao", "--config", "x.yml", "--budget", "50ms", "--csv", "x.csv", cwd=tmp_path)
    [row] = rows(tmp_path / "x.csv")
    assert row["status"] == "ok" and float(row["speedup"]) > 0, row["reason"]
    assert float(row["sqnr"]) > 30 and float(row["model_bytes"]) < 0.5 * float(row["baseline_model_bytes"])
    assert row["profiler_json_path"] == "out/inference/profiler/my_layer_8_32_32_quant_int8wo_sparsity_None_profile.json"
    trace = json.loads((tmp_path / row["profiler_json_path"]).read_text())
    assert any("aten::" in str(event.get("name")) for event in trace["traceEvents"])
    assert row["memory_profile_path"] == "" and "peak_memory" in row["memory_stats"]
    assert "memory snapshot: unsupported: backend torch on cpu keeps no history" in row["notes"] and row["notes"] in done.stderr


def test_a_snapshot_of_memory_is_kept_with_a_page_that_shows_it_and_rows_of_one_name_have_one_each(tmp_path: Path) -> None:
    (tmp_path / "snapshot").write_bytes(b"snap")
    row = LayerRow("a/b", "int8wo", "2:4", LayerShape("custom", 1, 2, 3), output_dir=str(tmp_path / "out"), memory_profiler=True)
    peaks = {f"peak_{name}": Figure(size, "B") for name, size in (("allocated", 2e6), ("active", 3e6), ("reserved", 4e6))}
    record = Record("x", {}, "ok", metrics=peaks, attachments=[Attachment("memory", "snapshot", ""), Attachment("trace", "snapshot", "")])
    done: Any = SimpleNamespace(run=SimpleNamespace(attachment=lambda kept: tmp_path / kept.path))
    made = session.TorchaoRun(session.TorchaoOptions(tmp_path), print, Store(tmp_path / "store"))
    first, second = lines.config_line(row), lines.config_line(row)
    made._keep_profiles(row, first, record, done)
    made._keep_profiles(row, second, record, done)
    stem = "a_b_1_2_3_quant_int8wo_sparsity_2:4_memory_profile"
    assert first["memory_profile_path"] == str(tmp_path / "out" / "memory_profiler" / "pickle" / f"{stem}.pickle")
    assert Path(second["memory_profile_path"]).name == f"{stem}_2.pickle" and Path(first["memory_profile_path"]).read_bytes() == b"snap"
    page = Path(first["memory_visualization_path"])
    assert page.parent.name == "html" and b64encode(b"snap\0\0").decode() in page.read_text()
    assert first["memory_stats"] == {"allocated_bytes.all.peak": 2.0, "active_bytes.all.peak": 3.0, "reserved_bytes.all.peak": 4.0}
    assert first["profiler_json_path"] is None, "nobody asked for a trace"
    made._keep_profiles(replace(row, profiler=True), first, record, done)
    assert first["profiler_json_path"] == str(tmp_path / "out" / "profiler" / "a_b_1_2_3_quant_int8wo_sparsity_2:4_profile.json")


if __name__ == "__main__":
    (HERE / "goldens").mkdir(exist_ok=True)
    for form, text in (("seed", CONFIG), ("last", LAST)):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in make(Path(folder), text, "--form", form).files(form).items():
                (HERE / "goldens" / name).write_text(content)
