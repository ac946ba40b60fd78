"""Peaks measured, kept, read back and put to use, and what vendors promise."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import steelyard
from steelyard.cli import doctor as cli
from steelyard.engine.roofs import under_roof
from steelyard.errors import StoreError, UsageError
from steelyard.machine import facts, kept, peaks
from steelyard.machine.peaks import Peaks
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.record import Figure, Record
from tests.engine.drive import steelyard as drive

KEY = "0123456789ab"
MADE = Peaks({"fp32": 1e12, "bf16": 2.5e12}, 1e11, "measured", "", {"fp32": "op/matmul@torch/eager:eval"}, {"torch": "2.13.0"}, "now")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(kept.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "peaks"


def spoiled(**changes: Any) -> str:
    """The text of a good file with something wrong in it."""
    return json.dumps({"schema": peaks.SCHEMA, "key": KEY, **asdict(MADE), **changes})


class TestKeeping:
    def test_what_is_saved_is_read_back(self, cache: Path) -> None:
        assert peaks.save(MADE, KEY, "cpu", 4) == cache / f"{KEY}-cpu-4.json"
        assert peaks.load(KEY, "cpu", 4) == (MADE, "")
        assert peaks.load(KEY, "cpu", 1) == peaks.load("f" * 12, "cpu", 4) == (None, "")
        assert peaks.saved(KEY) == {"cpu-4": MADE} and not peaks.saved("f" * 12)
        assert [file.name for file in cache.iterdir()] == [f"{KEY}-cpu-4.json"]

    def test_what_was_left_out_is_kept_and_may_be_missing_in_an_older_file(self, cache: Path) -> None:
        told = replace(MADE, left_out={"fp8e4m3": "no such GPU"})
        peaks.save(told, KEY, "cpu", 1)
        assert peaks.load(KEY, "cpu", 1) == (told, "")
        file = cache / f"{KEY}-cpu-1.json"
        file.write_text(
            json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name not in ("left_out", "filled")})
        )
        assert peaks.load(KEY, "cpu", 1) == (MADE, "")

    def test_an_accelerator_has_one_file_whatever_the_threads(self) -> None:
        assert peaks.path(KEY, "cuda", 8) == peaks.path(KEY, "cuda", 1) != peaks.path(KEY, "cpu", 1)

    @pytest.mark.parametrize(
        "text",
        [
            "", "{", "[]", "3", "null", '{"schema": 1}', "\x00\xff", "[" * 100_000,
            spoiled(schema=2), spoiled(key="other"), spoiled(compute={"fp32": -1}), spoiled(bandwidth=True), spoiled(bandwidth=1e999),
            spoiled(bandwidth=10**400),
        ],
    )  # fmt: skip
    def test_a_file_that_holds_no_peaks_is_ignored_with_a_warning(self, cache: Path, text: str) -> None:
        cache.mkdir(parents=True)
        (cache / f"{KEY}-cpu-1.json").write_text(text, encoding="latin-1")
        found, warning = peaks.load(KEY, "cpu", 1)
        assert found is None and "is ignored" in warning and "steelyard doctor --peaks" in warning
        assert peaks.saved(KEY) == {}

    def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv(kept.VARIABLE, str(tmp_path / "file"))
        for attempt in (
            peaks.check_writable,
            lambda: peaks.save(MADE, KEY, "cpu", 1),
            lambda: cli.measure_peaks("cpu", 1, "10ms", as_json=True),
        ):
            with pytest.raises(StoreError) as error:
                attempt()
            assert kept.VARIABLE in error.value.do and str(tmp_path / "file") in error.value.where

    def test_the_folder_follows_the_users_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(kept.VARIABLE)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert peaks.SHELF.folder() == tmp_path / "xdg" / "steelyard" / "peaks"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert peaks.SHELF.folder() == tmp_path / ".cache" / "steelyard" / "peaks"

    @pytest.mark.parametrize("device", ["../cpu", "cpu/x", "", "..", "cpu-1"])
    def test_a_device_name_never_leads_out_of_the_folder(self, device: str) -> None:
        with pytest.raises(StoreError):
            peaks.path(KEY, device, 1)
        assert peaks.load(KEY, device, 1) == (None, "")


class TestDatasheets:
    @pytest.mark.parametrize(
        ("name", "bf16", "bandwidth"),
        [
            ("NVIDIA H100 80GB HBM3", 989.4e12, 3.35e12), ("NVIDIA H100 PCIe", 756.5e12, 2.0e12), ("NVIDIA H200", 989.4e12, 4.8e12),
            ("NVIDIA A100-SXM4-40GB", 312e12, 1.555e12), ("NVIDIA A100-SXM4-80GB", 312e12, 2.039e12),
            ("NVIDIA A100 80GB PCIe", 312e12, 1.935e12), ("NVIDIA L4", 121e12, 0.3e12), ("NVIDIA L40S", 362.05e12, 0.864e12),
            ("NVIDIA GeForce RTX 4090", 165.2e12, 1.008e12), ("NVIDIA B200", 2250e12, 8e12), ("AMD Instinct MI300X", 1307.4e12, 5.3e12),
        ],
    )  # fmt: skip
    def test_known_gpus_by_the_name_their_driver_gives(self, name: str, bf16: float, bandwidth: float) -> None:
        sheet = peaks.datasheet(name)
        assert sheet is not None and sheet.source == "datasheet"
        assert (sheet.compute["bf16"], sheet.bandwidth) == pytest.approx((bf16, bandwidth))
        assert sheet.compute["fp32"] <= sheet.compute["tf32"] <= sheet.compute["bf16"]

    @pytest.mark.parametrize(
        "name",
        [None, "", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H200 NVL", "Tesla T4", "NVIDIA L40"],
    )
    def test_others_have_none(self, name: str | None) -> None:
        assert peaks.datasheet(name) is None

    def test_measured_comes_first_where_it_is_the_same_device(self) -> None:
        mine = replace(MADE, name="NVIDIA H200")
        assert peaks.choose(MADE, None) is MADE
        other = peaks.choose(mine, "NVIDIA L4")
        assert other is not None and (other.source, other.name) == ("datasheet", "NVIDIA L4")
        assert peaks.choose(mine, "Tesla T4") is peaks.choose(None, None) is None
        assert peaks.choose(replace(mine, name="Tesla T4"), "Tesla T4") == replace(mine, name="Tesla T4")

    @pytest.mark.parametrize("name", ["NVIDIA H200", None])
    def test_a_format_that_was_not_measured_has_the_vendors_rate_and_says_so(self, name: str | None) -> None:
        mine = replace(MADE, name="NVIDIA H200")
        found = peaks.choose(mine, name)
        assert found is not None and (found.source, found.bandwidth) == ("measured", MADE.bandwidth)
        assert {format: (found.compute[format], found.source_of(format)) for format in ("bf16", "int8", "fp8e4m3")} == {
            "bf16": (2.5e12, "measured"), "int8": (1978.9e12, "datasheet"), "fp8e4m3": (1978.9e12, "datasheet"),
        }  # fmt: skip


def answered(case: str, rate: float, metric: str = "compute", *, fast: float = 0.8, **more: Any) -> Record:
    """A record as the engine gives it, whose quick samples took a share of the median."""
    parsed = steelyard.Case.parse(case)
    metrics = {"time": Figure(1.0, "s"), "time_q10": Figure(fast, "s"), metric: Figure(rate, "1/s")}
    return Record(parsed.id, parsed.plain(), more.pop("status", "ok"), metrics=metrics, **more)


def numpy_copy() -> Experiment:
    return Experiment("copy", matrix=(Matrix(("op/copy",), {"n": (65536,)}, ("numpy",)),), settings=Settings(budget=0.01))


class TestRuns:
    """Real runs, where peaks are known and where they are not."""

    def test_a_run_uses_the_peaks_of_its_machine_and_keeps_its_fingerprint(self, tmp_path: Path) -> None:
        before = steelyard.run(numpy_copy(), store=tmp_path / "store")
        assert "roof" not in before.records[0].metrics and "bound" not in before.records[0].effective
        peaks.save(MADE, facts.key(facts.collect()), "cpu", 1)
        after = steelyard.run(numpy_copy(), store=tmp_path / "store")
        record = after.records[0]
        assert record.metrics["roof"].value == pytest.approx(record.metrics["bandwidth"].value / MADE.bandwidth)
        assert (record.effective["bound"], record.effective["roof_source"]) == ("memory", "measured")
        assert record.requested == before.records[0].requested and after.header.settings == before.header.settings
        assert after.header.fingerprint == before.header.fingerprint

    def test_peaks_for_other_threads_do_not_count(self, tmp_path: Path) -> None:
        peaks.save(MADE, facts.key(facts.collect()), "cpu", 2)
        assert "roof" not in steelyard.run(numpy_copy(), store=tmp_path / "store").records[0].metrics

    def test_a_corrupt_file_is_a_warning_and_no_more(self, cache: Path, tmp_path: Path) -> None:
        cache.mkdir(parents=True)
        (cache / f"{facts.key(facts.collect())}-cpu-1.json").write_text("{")
        done = drive("run", "op/copy", "-B", "numpy", "-a", "n=4096", "--budget", "10ms", cwd=tmp_path)
        assert done.stderr.startswith("warning: ") and "is ignored" in done.stderr and "1 ok" in done.stdout

    def test_the_table_shows_the_share(self, tmp_path: Path) -> None:
        peaks.save(replace(MADE, bandwidth=1e18), facts.key(facts.collect()), "cpu", 1)
        done = drive("run", "op/copy", "-B", "numpy", "-a", "n=4096", "--budget", "10ms", cwd=tmp_path)
        assert " peak " in done.stdout and "<0.1 %" in done.stdout and " predicted " in done.stdout

    def test_a_known_gpu_without_measured_peaks_falls_back_on_its_datasheet(self) -> None:
        made = answered(
            "op/matmul[dtype=fp32]@torch/tf32:eval:device=cuda", 247.35e12, environment={"device": "NVIDIA H200"}, effective={"tf32": True}
        )
        found = under_roof(made, {})
        assert found.metrics["roof"].value == pytest.approx(0.5) and found.effective["roof_source"] == "datasheet"

    @pytest.mark.parametrize(
        ("arithmetic", "share", "source"), [("", 0.4, "measured"), ("int8", 1e12 / 1978.9e12, "datasheet")], ids=["bf16", "int8"]
    )
    def test_measured_peaks_do_not_hide_the_datasheet_of_other_formats(self, arithmetic: str, share: float, source: str) -> None:
        case, mine = "op/linear[dtype=bf16]@torch/int8dq:eval:device=cuda", replace(MADE, name="NVIDIA H200")
        effective = {"arithmetic": arithmetic} if arithmetic else {}
        found = under_roof(answered(case, 1e12, environment={"device": "NVIDIA H200"}, effective=effective), {("cuda", 1): mine})
        assert found.metrics["roof"].value == pytest.approx(share) and found.effective["roof_source"] == source
        assert found.metrics["predicted_time"].value == pytest.approx(share * found.metrics["time"].value)

    @pytest.mark.torch
    def test_quantized_weights_are_predicted_by_the_bytes_that_they_have_now(self, tmp_path: Path) -> None:
        pytest.importorskip("torchao")
        peaks.save(MADE, facts.key(facts.collect()), "cpu", 1)
        axes = {"m": (1,), "k": (512,), "n": (512,), "dtype": ("bf16",)}
        chosen = Matrix(("torchao/linear",), axes, ("torch",), variant=("eager", "int8wo"))
        run = steelyard.run(Experiment("bytes", matrix=(chosen,), settings=Settings(budget=0.01)), store=tmp_path / "store")
        plain, quantized = (record.metrics["predicted_time"].value for record in run.records)
        assert plain == pytest.approx(2 * (512 * 512 + 2 * 512) / MADE.bandwidth)
        assert quantized == pytest.approx((512 * 512 + 2 * 512 + 2 * 2 * 512) / MADE.bandwidth, rel=0.02)

    def test_a_virtual_clock_has_no_roof(self) -> None:
        made = answered("fake/work@fake/eager:eval", 1e9, "bandwidth")
        assert under_roof(made, {("cpu", 1): MADE}) is made


class TestCommand:
    @pytest.mark.torch
    def test_measured_kept_and_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        cli.measure_peaks("cpu", 1, "10ms", as_json=False, scale=0.05)
        said = capsys.readouterr().out.splitlines()
        found, warning = peaks.load(facts.key(facts.collect()), "cpu", 1)
        assert found is not None and not warning and set(found.compute) == {"fp32", "fp64", "bf16", "fp16", "int8"}
        assert set(found.left_out) == {"fp8e4m3"} and "compute capability 8.9" in found.left_out["fp8e4m3"]
        assert [line.split()[0] for line in said[2:-2]] == ["fp32", "fp64", "bf16", "fp16", "int8", "memory"]
        assert said[-2].startswith("fp8e4m3 left out: ")
        assert max(map(len, said[:-1])) <= 100 and said[-1].startswith("saved ")
        shown = CliRunner().invoke(cli.command, ["--json"])
        assert json.loads(shown.stdout)["peaks"]["cpu-1"]["bandwidth"] == found.bandwidth

    def test_the_doctor_suggests_what_is_missing(self) -> None:
        assert "steelyard doctor --peaks" in CliRunner().invoke(cli.command, []).stdout.splitlines()[-1]
        peaks.save(MADE, facts.key(facts.collect()), "cpu", 2)
        assert CliRunner().invoke(cli.command, []).stdout.splitlines()[-1] == "peaks: cpu-2"

    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (["--threads", "2"], "go with --peaks"),
            (["-d", "cuda"], "go with --peaks"),
            (["--peaks", "-d", "gpu"], "no device named 'gpu'"),
            (["--peaks", "--strict"], "do not go with --peaks"),
            (["--peaks", "--budget", "0s"], "more than 0"),
        ],
    )
    def test_options_that_do_not_fit_are_told(self, words: list[str], what: str) -> None:
        result = CliRunner().invoke(cli.command, words)
        assert isinstance(result.exception, UsageError) and what in result.exception.what

    def test_the_vendors_figures_stand_beside(self) -> None:
        cases = {name: f"op/{'copy' if name == 'memory' else 'matmul'}[n=8192]@torch/eager:eval" for name in ("fp32", "int4", "memory")}
        found = Peaks({"fp32": 50.25e12, "int4": 1e15}, 4.32e12, "measured", "NVIDIA H200", cases)
        lines = cli._peak_lines("cuda · NVIDIA H200", found, peaks.datasheet("NVIDIA H200"))
        assert lines[0].split() == ["cuda", "·", "NVIDIA", "H200", "measured", "datasheet", "share"]
        assert lines[1].split() == ["fp32", "op/matmul", "n=8192", "50.2", "TFLOP/s", "67.0", "TFLOP/s", "75", "%"]
        assert lines[2].split() == ["int4", "op/matmul", "n=8192", "1.00", "PFLOP/s"]
        assert lines[3].split()[-2:] == ["90", "%"]
