"""comm_replay's flags: message sizes without a run, figures and files of one, and what cannot be done here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steelyard.cli.main import main
from tests.engine.drive import steelyard
from tests.traces import spoken


def test_a_dry_run_tells_message_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = spoken.pair(tmp_path / "traces")
    assert (
        main(
            [
                "as",
                "param",
                "comm-replay",
                "--trace-path",
                str(folder),
                "--dry-run",
                "--allow-ops",
                "all_reduce,wait",
                "--colls-per-batch",
                "4",
            ]
        )
        == 0
    )
    out, aside = capsys.readouterr()
    assert "--colls-per-batch changes nothing" in aside and "--enable-profiler" not in aside
    assert "rank 1: 8 calls, 2 ranks recorded" in out
    assert "2 calls   sent 320 B   received 320 B   message 64 / 256 / 256 B" in out and "barrier" not in out
    assert main(["trace", "comms", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["messages"][0]["calls"] == 2
    assert main(["trace", "comms", str(folder / "rank-0.json")]) == 0
    assert "all_to_allv" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bitwidth", "8"], "messages are not quantized"), (["--backend", "mpi"], "gloo or NCCL"), (["--allow-ops", "shout"], "shout"),
        (["--output-ranks", "0,x"], "'x'"), (["--output-ranks", "0,2"], "the ranks are 0 to 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told_before_anything_runs(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = spoken.pair(tmp_path / "traces")
    assert main(["as", "param", "comm-replay", "--trace-path", str(folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert main(["as", "param", "comm-replay", "--trace-path", str(tmp_path)]) == 2
    assert "there is no rank-N.json" in capsys.readouterr().err


def test_below_a_launcher_rank_0_replays_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert main(["as", "param", "comm-replay", "--trace-path", str(spoken.pair(tmp_path / "traces"))]) == 0
    assert not (tmp_path / "replayed_trace").exists()


@pytest.mark.torch
@pytest.mark.deep
def test_figures_and_files_are_those_of_the_original(tmp_path: Path) -> None:
    spoken.pair(tmp_path / "traces")
    words = ["--trace-path", "traces", "-b", "--c", "1", "--num-replays", "3", "--warmup-iter", "1", "--output-ranks", "all"]
    said = steelyard("as", "param", "comm-replay", *words, cwd=tmp_path).stdout
    for word in ("total (us)", "max (us)", "min (us)", "avg (us)", "p50 (us)", "p95 (us)", "all_reduce", "Data check passed"):
        assert word in said
    for rank in range(2):
        rows = json.loads((tmp_path / "replayed_trace" / f"replayedCommsPerf.rank-{rank}.json").read_text())
        assert [row["comms"] for row in rows][:3] == ["all_reduce", "broadcast", "all_gather"]
        assert rows[0] | {"latency_us": 0, "global_latency_us": 0} == {
            "comms": "all_reduce", "req": None, "in_msg_size": 64, "out_msg_size": 64, "dtype": "float32", "pg_id": 0, "world_size": 2,
            "et_id": 4, "latency_us": 0, "global_latency_us": 0,
        }  # fmt: skip
        assert all(0 < row["latency_us"] <= row["global_latency_us"] for row in rows if row["comms"] not in ("send", "recv"))
