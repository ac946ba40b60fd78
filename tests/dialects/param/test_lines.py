"""The output file as the original writes it, and read back after whatever happened to it."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.dialects.param import lines
from steelyard.dialects.param.flags import Options
from steelyard.errors import StoreError, UsageError
from steelyard.store.rowfile import RowFile

NOW = datetime(2026, 3, 4, 5, 6, 7, 890)
SAMPLE = (
    '{"op_name": "torch.add", "id": "0|0|0", "metric": {"forward": {"warmup.time": [13.525825], "warmup.gpu.memory": [0], '
    '"measure.time": [0.38901], "measure.gpu.memory": [0]}}, "config": {"build": null, "input": {"args": [{"dtype": "float", '
    '"shape": [256, 256], "type": "tensor"}, {"dtype": "float", "shape": [256, 256], "type": "tensor"}]}}'
)
TENSOR = {"dtype": "float", "shape": [256, 256], "type": "tensor"}
INPUT = {"args": [TENSOR, TENSOR]}
METRIC = {
    "forward": {"warmup.time": [13.525825], "warmup.gpu.memory": [0], "measure.time": [0.38901], "measure.gpu.memory": [0]},
}


def record(id: str = "0|0|0", **ours: Any) -> lines.Line:
    return lines.record("torch.add", id, None, INPUT, METRIC, **({"status": "ok"} | ours))


def written(path: Path, *records: lines.Line) -> Path:
    output = RowFile(path)
    for line in (lines.header(Options(), {}, NOW), *records):
        output.write(line)
    output.close()
    return path


def test_a_record_begins_as_the_original_writes_it(tmp_path: Path) -> None:
    text = written(tmp_path / "out.json", record()).read_text().splitlines()[1]
    assert text == SAMPLE + ', "steelyard": {"status": "ok"}}'


def test_the_header_has_the_original_keys_and_plain_values() -> None:
    found = lines.header(Options(backward=True, cuda_l2_cache="off", exec_mode="continuous"), {"hostname": "h"}, NOW)
    assert list(found) == ["run_options", "sys_info", "start_time"]
    assert found["start_time"] == "2026-03-04T05:06:07"
    asked = found["run_options"]
    keys = (
        "device pass_type warmup iteration op_exec_mode cuda_l2_cache time_unit out_file_prefix out_stream run_ncu ncu_bin ncu_args "
        "ncu_warmup ncu_iteration run_nsys nsys_bin nsys_args nsys_warmup nsys_iteration run_batch_size batch_cuda_device batch_cmd "
        "resume_op_run_id stop_op_run_id cmd_args"
    )
    assert set(keys.split()) <= set(asked)
    assert (asked["pass_type"], asked["op_exec_mode"], asked["cuda_l2_cache"]) == ("backward", "continuous", False)
    assert json.loads(json.dumps(found)) == found


def test_names_are_made_from_the_prefix_or_taken_as_they_are() -> None:
    made = lines.place(Options(output_prefix="out/run"), 12, 34)
    assert (str(made.file), made.stem) == ("out/run_12_34.json", "out/run_12_34")
    exact = lines.place(Options(output_prefix="out/run.json"), 12, 34)
    assert (str(exact.file), exact.stem) == ("out/run.json", "out/run_12_34")


def test_what_was_run_is_known_and_what_was_only_expanded_is_not(tmp_path: Path) -> None:
    path = written(tmp_path / "out.json", record("0|0|0"), record("0|0|1", status="skipped"), record("0|0|2", status="crashed"))
    found = lines.read(path)
    assert [bool(found.holds("torch.add", f"0|0|{n}", None, INPUT)) for n in range(4)] == [True, False, True, False]
    assert found.holds("torch.add", "0|0|0", None, {"args": [TENSOR]}) is None
    assert found.whole == path.stat().st_size


def test_a_number_that_is_none_does_not_make_a_config_another(tmp_path: Path) -> None:
    input = {"args": [{"type": "float", "value": float("nan")}]}
    path = written(tmp_path / "out.json", lines.record("torch.add", "0|0|0", None, input, METRIC, status="ok"))
    assert lines.read(path).holds("torch.add", "0|0|0", None, json.loads(json.dumps(input)))


def test_counters_are_laid_into_the_records_of_their_batch(tmp_path: Path) -> None:
    counted = {"0|0|0": {"iterations": 1}, "7|0|0": {"iterations": 2}}
    batch = {"ncu_file": "x.log", "config": {"op_name": "torch.add"}, "steelyard": {"status": "ok", "ncu": counted}}
    strange = [{"ncu_file": "y.log"}, {"ncu_file": "z.log", "config": {}, "steelyard": {"ncu": [1]}}]
    found = lines.read(written(tmp_path / "out.json", record(), record("0|0|1"), batch, *strange)).records
    assert found["torch.add|0|0|0"]["steelyard"] == {"status": "ok", "ncu": {"iterations": 1}}
    assert found["torch.add|0|0|1"]["steelyard"] == {"status": "ok"}


def test_a_file_of_the_original_itself_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    path.write_text('{"run_options": {}, "sys_info": {}, "start_time": ""}\n' + SAMPLE + "}\n")
    assert lines.read(path).holds("torch.add", "0|0|0", None, INPUT)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(min_size=1, max_size=5), max_size=4, unique=True), st.data())
def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path: Path, ids: list[str], data: st.DataObject) -> None:
    path = written(tmp_path / "cut.json", *map(record, ids))
    text = path.read_bytes()
    header = text.index(b"\n") + 1
    kept = text[: data.draw(st.integers(header, len(text)))]
    path.write_bytes(kept)
    found = lines.read(path)
    assert list(found.records) == [f"torch.add|{id}" for id in ids[: kept.count(b"\n") - 1]]
    output = RowFile(path, found.whole)
    output.write(record("another"))
    output.close()
    again = lines.read(path)
    assert list(again.records) == [*found.records, "torch.add|another"] and again.whole == path.stat().st_size


@pytest.mark.parametrize("text", ["hello\n", "[1]\n", '{"torch.add": {"config": []}}\n', "no end", '{"op_name": "a", "id": 3}\n'])
def test_any_other_file_is_neither_read_nor_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    for use in (lines.read, lines.check_writable):
        with pytest.raises(StoreError, match="not an output file"):
            use(path)
    assert path.read_text() == text


def test_a_place_that_cannot_be_written_is_found_out_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        lines.check_writable(tmp_path / "missing" / "out.json")
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path, tmp_path / "pipe.json"):
        with pytest.raises(UsageError, match="is a folder, a pipe or a device"):
            lines.check_writable(path)
    with pytest.raises(StoreError, match="name too long"):
        lines.check_writable(tmp_path / f"{'x' * 300}.json")
    lines.check_writable(tmp_path / "new.json")


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    first = RowFile(tmp_path / "out.json")
    first.write(record())
    with pytest.raises(StoreError, match="another run is writing to it"):
        RowFile(tmp_path / "out.json")
    first.close()
    assert lines.read(tmp_path / "out.json").records
    RowFile(tmp_path / "out.json").close()


def test_a_full_disk_is_told_once_and_costs_no_line_before(tmp_path: Path) -> None:
    output, limits = RowFile(tmp_path / "out.json"), resource.getrlimit(resource.RLIMIT_FSIZE)
    output.write(lines.header(Options(), {}, NOW))
    size = (tmp_path / "out.json").stat().st_size
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
        with pytest.raises(StoreError, match="cannot write the output file"):
            output.write(record())
        output.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert lines.read(tmp_path / "out.json").whole == size


def test_a_file_whose_very_first_line_was_cut_is_begun_again(tmp_path: Path) -> None:
    path = written(tmp_path / "out.json")
    path.write_bytes(path.read_bytes()[:40])
    lines.check_writable(path)
    assert lines.read(path).whole == 0


def test_a_missing_file_of_options_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        lines.header(replace(Options(), ncu_args_file=str(tmp_path / "none")), {}, NOW)
