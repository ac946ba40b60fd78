"""Exports of Nsight Systems: each measured call gets its own parts, and other files are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.param.nsys import breakdown
from steelyard.errors import NothingMeasured, UsageError

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
    color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaDeviceSynchronize_v3020'), (3, 'gemm'), (4, 'copy');
"""
PROCESS, OTHER = 77 << 24, 78 << 24
MAIN, AUTOGRAD = PROCESS | 100, PROCESS | 101
FORWARD, BACKWARD = "[param|torch.mm|0|0|1_2|measure|forward]", "[param|torch.mm|0|0|1_2|measure|backward]"


class Export:
    """An export in the making, in the tables that nsys writes."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows, self.correlation = path, SCHEMA, 0

    def range(self, label: str, start: int, end: int | None, thread: int = MAIN, *, by_number: bool = False) -> Export:
        text, number = f"'{label}'", "NULL"
        if by_number:
            self.rows += f"INSERT INTO StringIds SELECT max(id) + 1, {text} FROM StringIds;\n"
            text, number = "NULL", f"(SELECT id FROM StringIds WHERE value = {text})"
        self.rows += f"INSERT INTO NVTX_EVENTS VALUES ({start}, {end or 'NULL'}, 60, 1, 0, 0, {text}, {thread}, {thread}, {number}, 0);\n"
        return self

    def kernel(self, called: int, start: int, end: int, name: int = 3, thread: int = MAIN) -> Export:
        self.call(called, called + 5, 1, thread)
        process = thread >> 24 << 24
        self.rows += (
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {end}, 0, 7, {self.correlation}, {process}, {name}, {name});\n"
        )
        return self

    def call(self, start: int, end: int, name: int, thread: int = MAIN) -> Export:
        self.correlation += 1
        self.rows += f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {end}, 0, {thread}, {self.correlation}, {name}, 0, NULL);\n"
        return self

    def read(self) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as database:
            database.executescript(self.rows)
        return breakdown(self.path)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite")


def test_a_call_is_split_into_its_parts(export: Export) -> None:
    export.range(FORWARD, 1000, 2000).kernel(1010, 1100, 1300).kernel(1020, 1300, 1450, name=4).call(1030, 1900, 2)
    (line,) = export.read()
    assert (line["op_name"], line["id"]) == ("torch.mm", "0|0|1_2")
    assert line["analysis"] == {"T1": [1000], "T2": [100], "T3": [350], "T4": [550], "T5": [870]}
    (found,) = line["ranges"].values()
    assert (found["name"], found["start"], found["end"]) == ("forward", 1000, 2000)
    launch = {"name": "cudaLaunchKernel_v7000", "start": 1010, "end": 1015}
    assert found["cuda_kernel"][0] == [1, {"name": "gemm", "start": 1100, "end": 1300}, launch]
    assert found["cuda_sync"] == [[3, {"name": "cudaDeviceSynchronize_v3020", "start": 1030, "end": 1900}]]


def test_kernels_of_other_threads_count_and_those_of_other_processes_do_not(export: Export) -> None:
    export.range(BACKWARD, 0, 1000).kernel(10, 100, 300, thread=AUTOGRAD).kernel(20, 100, 500, thread=OTHER)
    (line,) = export.read()
    assert line["analysis"]["T3"] == [200]


def test_equal_correlation_ids_of_two_processes_are_two_launches(export: Export) -> None:
    export.range(FORWARD, 0, 1000).kernel(10, 100, 300)
    export.correlation = 0
    export.kernel(20, 400, 900, thread=OTHER)
    (line,) = export.read()
    assert line["analysis"]["T3"] == [200]


def test_calls_are_told_from_the_phase_around_them_and_from_warmup(export: Export) -> None:
    export.range("[param|torch.mm|0|0|1_2|warmup|forward]", 0, 90).kernel(10, 20, 40)
    export.range("[param|measure]", 90, 1000).range(FORWARD, 100, 900)
    export.range(FORWARD, 100, 300).kernel(110, 120, 220).range(FORWARD, 400, 600).kernel(410, 420, 430)
    (line,) = export.read()
    assert line["analysis"]["T1"] == [200, 200] and line["analysis"]["T3"] == [100, 10]


def test_a_call_without_kernels_has_no_times_of_them(export: Export) -> None:
    (line,) = export.range(FORWARD, 0, 50).kernel(60, 70, 80).read()
    assert line["analysis"] == {"T1": [50], "T2": [None], "T3": [None], "T4": [None], "T5": [None]}


@pytest.mark.parametrize(
    ("label", "op", "id"),
    [
        ("[param|aten::add.Tensor|3|0_1|12|measure|forward_backward]", "aten::add.Tensor", "3|0_1|12"),
        ("[param|my|op|0|0|0|measure|forward]", "my|op", "0|0|0"),
    ],
)
def test_labels_are_read_from_their_end_also_where_the_text_is_kept_apart(export: Export, label: str, op: str, id: str) -> None:
    (line,) = export.range(label, 0, 50, by_number=True).read()
    assert (line["op_name"], line["id"]) == (op, id)


def test_each_operator_and_id_has_a_line(export: Export) -> None:
    for number in (0, 1, 0):
        export.range(f"[param|torch.mm|0|0|{number}|measure|forward]", 10 + export.correlation * 100, 20 + export.correlation * 100)
        export.call(0, 1, 1)
    assert [(line["id"], len(line["ranges"])) for line in export.read()] == [("0|0|0", 2), ("0|0|1", 1)]


def test_a_whole_graph_counts_as_one_kernel(export: Export) -> None:
    export.rows += "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, correlationId INTEGER, globalPid INTEGER);\n"
    export.range(FORWARD, 0, 500).call(10, 15, 1)
    export.rows += f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100, 180, 1, {PROCESS});\n"
    (line,) = export.read()
    assert line["analysis"]["T3"] == [80] and next(iter(line["ranges"].values()))["cuda_kernel"][0][1]["name"] == "CUDA graph"


def test_an_export_without_our_ranges_is_nothing_measured(export: Export) -> None:
    with pytest.raises(NothingMeasured, match="no measured operator"):
        export.range("[param|measure]", 0, 10).range(FORWARD, 20, None).read()


def test_the_export_is_not_written_to(export: Export) -> None:
    export.range(FORWARD, 0, 50).read()
    export.path.chmod(0o444)
    before = export.path.read_bytes()
    assert breakdown(export.path) and export.path.read_bytes() == before
    assert [path.name for path in export.path.parent.iterdir()] == [export.path.name]


def test_what_is_no_export_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        breakdown(tmp_path / "absent.sqlite")
    text, plain, odd = (tmp_path / name for name in ("text.sqlite", "plain.sqlite", "odd.sqlite"))
    text.write_text("this is no database, " * 100)
    for path, rows in (
        (plain, "CREATE TABLE t (x);"),
        (odd, SCHEMA + f"INSERT INTO NVTX_EVENTS VALUES ('a', 'b', 60, 1, 0, 0, '{FORWARD}', 'c', 0, 0, 0);"),
    ):
        with closing(sqlite3.connect(path)) as database:
            database.executescript(rows)
    for path in (text, plain, odd):
        with pytest.raises(UsageError, match="not an Nsight Systems export"):
            breakdown(path)


def test_an_export_without_nvtx_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE VIEW NVTX_EVENTS AS SELECT 1;")
    with pytest.raises(UsageError) as caught:
        breakdown(path)
    assert "no table NVTX_EVENTS" in caught.value.why
