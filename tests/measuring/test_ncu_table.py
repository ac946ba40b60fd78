"""Nsight Compute's CSV is read as it is written."""

from __future__ import annotations

import pytest

from steelyard.measuring.ncu_table import COLUMNS, Kernel, lacking, last_words, marked


def parse(text: str) -> list[Kernel]:
    return [kernel for kernel, _ in marked(text)]


PAGE = '''==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be inconsistent.
==PROF== Connected to process 2231 (/usr/bin/python3.11)
==PROF== Profiling "cunn_SoftMaxForward" - 0: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 2231
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes.sum","gpu__time_duration.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",\
"sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","Mbyte","us","%","%"
"0","2231","python3.11","127.0.0.1","void cunn_SoftMaxForward<8, float, float>(T3 *, const T2 *, int)","1","7","(1024, 1, 1)",\
"(4,096, 1, 1)","0","9.0","16.80","1,124.5","0","71.35"
==WARNING== a line that is no row
"1","2231","python3.11","127.0.0.1","sm90_xmma_gemm, ""quoted""","1","7","(128, 1, 1)","(64, 1, 1)","0","9.0","2,001.2","0.5","88.10","n/a"
'''
THREAD, PROCESS = (
    f"{which}:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg" for which in ("thread Domain:Push/Pop_Range", "Id:Domain:Start/Stop_Range")
)


def test_a_raw_page_is_rows_in_plain_units() -> None:
    first, second = parse(PAGE)
    assert first.name == "void cunn_SoftMaxForward<8, float, float>(T3 *, const T2 *, int)"
    assert first.duration == pytest.approx(1124.5e-6) and first.dram_bytes == pytest.approx(16.8e6)
    assert first.occupancy == pytest.approx(0.7135) and first.tensor == 0
    assert second.name == 'sm90_xmma_gemm, "quoted"' and second.occupancy is None and second.dram_bytes == pytest.approx(2001.2e6)


def test_a_counter_the_device_lacks_is_unknown() -> None:
    page = '"ID","Kernel Name","gpu__time_duration.sum"\n"","","nsecond"\n"0","gemm","1,500"\n'
    assert parse(page) == [Kernel("gemm", pytest.approx(1.5e-6), None, None, None)]


@pytest.mark.parametrize("text", ["", "==ERROR== ERR_NVGPUCTRPERM\n", '"ID","Kernel Name"\n', '"ID","Name"\n"","ns"\n"0","gemm"\n'])
def test_a_page_without_kernels_is_no_rows(text: str) -> None:
    assert parse(text) == []


def test_ranges_come_with_the_kernel_that_was_launched_in_them() -> None:
    cells = [
        '1  ""<default domain>:outer:none:none:none:none:none:none"" ',
        '3  ""<default domain>:process:none:none:none:none:none:none"" ',
    ]
    page = f'"ID","{THREAD}","{PROCESS}","Kernel Name"\n"","","",""\n"0","{cells[0]}","{cells[1]}","gemm"\n"1","","","copy"\n'
    (gemm, within), (copy, nothing) = marked(page)
    assert (gemm.name, copy.name) == ("gemm", "copy")
    assert "<default domain>:outer:" in within and "<default domain>:process:" in within and not nothing.strip()


def test_a_details_page_has_a_line_per_metric() -> None:
    lines = [
        f'"ID","Process ID","{PROCESS}","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"',
        *(f'"{number}","7","in","gemm","Command line profiler metrics","{COLUMNS["duration"]}","us","{number + 1}"' for number in range(2)),
        f'"0","7","in","gemm","Command line profiler metrics","{COLUMNS["dram_bytes"]}","Mbyte","1,024"',
        '"0","7","in","gemm","Speed Of Light","SM Frequency","Ghz","1.2"',
    ]
    (first, within), (second, _) = marked("\n".join(lines))
    assert first == Kernel("gemm", pytest.approx(1e-6), pytest.approx(1024e6), None, None) and within == "in"
    assert second == Kernel("gemm", pytest.approx(2e-6), None, None, None)


def test_what_ncu_says_is_understood() -> None:
    said = "==PROF== Connected\n==ERROR== Failed to find metric b.sum\nmore\n"
    assert lacking(said, ["a.sum", "b.sum"]) == ["b.sum"]
    assert last_words(said) == "==ERROR== Failed to find metric b.sum"
    assert last_words("one\n\ntwo\n three \nfour\n") == "two; three; four"
