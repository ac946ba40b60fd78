"""Recorded communication made again between ranks: alone and between operators, checked, and with ranks that are lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from steelyard import registry
from steelyard.errors import UsageError
from steelyard.model.experiment import Settings
from steelyard.traces.comms import CommCall
from tests.engine.drive import processes_below, run_json, steelyard
from tests.traces import spoken
from tests.workloads.traces import recorded as made

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.workloads.traces import comms  # noqa: E402
from steelyard.workloads.traces._comms import CommChoice, schedule  # noqa: E402
from steelyard.workloads.traces._exchanges import Buffers, ExchangeMaker, Joined, carried, split_of  # noqa: E402
from steelyard.workloads.traces._meeting import Meeting, _distinct, rebalanced  # noqa: E402

FAULTS = Path(__file__).parent / "faults.py"
QUICK = ("--budget", "50ms")
TRAIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 32)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


class TestMeeting:
    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            ([CommCall(1, "all_reduce", sends=(4,))], [CommCall(1, "barrier")], "rank 0 all_reduce of 4 float32 .node 1., rank 1 barrier"),
            ([CommCall(1, "all_reduce", sends=(4,))], [CommCall(1, "all_reduce", sends=(5,))], "ranks make different calls: call 0"),
            ([CommCall(1, "barrier")], [], "rank 0 1, rank 1 0"),
            ([CommCall(1, "send", sends=(4,), peer=1)], [], "rank 0 sends 1 messages of 4 elements to rank 1, which expects 0"),
            ([], [CommCall(1, "recv", receives=(4,), peer=0)], "sends 0 messages"),
        ],
    )
    def test_calls_that_would_never_meet_are_refused(self, first: list[CommCall], second: list[CommCall], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            Meeting(0, 2, [first, second], {"": (0, 1)})._check("t.json")

    def test_partners_that_are_not_there_are_refused(self) -> None:
        with pytest.raises(UsageError, match="with rank 7 of a group of 2"):
            Meeting(0, 2, [[CommCall(1, "broadcast", sends=(4,), peer=7)], []], {"": (0, 1)})._check("t.json")
        with pytest.raises(UsageError, match="in group 3, to which it does not belong"):
            Meeting(0, 2, [[CommCall(1, "barrier", "3")], []], {"3": (1,)})._check("t.json")

    def test_one_name_for_groups_of_other_ranks_means_each_of_them(self) -> None:
        calls = [[CommCall(1, "barrier", "5")], [CommCall(1, "barrier", "5")], [CommCall(1, "barrier", "6")]]
        groups, renamed = _distinct([{"5": [0, 2]}, {"5": [1]}, {"6": [2]}], calls)
        assert groups == {"5 of 0,2": (0, 2), "5 of 1": (1,), "6": (2,)}
        assert [one[0].group for one in renamed] == ["5 of 0,2", "5 of 1", "6"]

    def test_a_group_of_more_ranks_than_there_are_is_refused(self) -> None:
        with pytest.raises(UsageError, match="group 3 has rank 5, but only 2 ranks replay"):
            Meeting(0, 2, [[], []], {"3": (1, 5)})._check("t.json")

    def test_an_uneven_exchange_gets_equal_parts(self) -> None:
        calls = [CommCall(1, "all_to_allv", sends=(8,), in_splits=(2, 6)), CommCall(1, "all_to_allv", sends=(4,), in_splits=(0, 4))]
        assert {(call.sends, call.in_splits, call.out_splits) for call in rebalanced(calls)} == {((6,), (3, 3), (3, 3))}
        assert split_of(calls[0], 2) == [2, 6] and split_of(CommCall(1, "all_to_all_single", sends=(9,)), 3) == [3, 3, 3]


class TestSchedule:
    CALLS = (
        CommCall(1, "all_reduce", request=1), CommCall(2, "send", peer=1), CommCall(3, "recv", peer=1), CommCall(4, "barrier", waits=True),
        CommCall(5, "wait", request=1), CommCall(6, "broadcast", request=2, start=2.0),
    )  # fmt: skip

    def test_calls_are_waited_for_where_the_recording_waited(self) -> None:
        turns = [(turn.begins, turn.waits) for turn in schedule(self.CALLS, blocking=False, timestamps=False)]
        assert turns == [(0, ()), (1, ()), (2, (1, 2)), (3, (3,)), (-1, (0,)), (5, ()), (-1, (5,))]

    def test_blocking_waits_at_once_but_for_messages_that_follow_each_other(self) -> None:
        turns = [(turn.begins, turn.waits) for turn in schedule(self.CALLS, blocking=True, timestamps=False)]
        assert turns == [(0, (0,)), (1, ()), (2, (1, 2)), (3, (3,)), (-1, ()), (5, (5,))]

    def test_recorded_moments_count_from_the_first(self) -> None:
        calls = [CommCall(1, "barrier", start=10.0), CommCall(2, "barrier", start=10.5)]
        assert [turn.moment for turn in schedule(calls, blocking=True, timestamps=True)][:2] == [0, 500_000_000]


class TestExchanges:
    def test_what_arrives_wrong_is_counted(self) -> None:
        maker = ExchangeMaker(Joined(None, (0, 1), 0), Buffers(torch.device("cpu"), reuse=True), "gloo")
        call = CommCall(1, "recv", receives=(10,), peer=1)
        item = maker.make(call, [call])
        assert item.wrong() > 0, "nothing has arrived yet"
        sender = ExchangeMaker(Joined(None, (0, 1), 1), Buffers(torch.device("cpu")), "gloo")._moved(torch.zeros(10))[0][1]
        room: Any = item.issue.__closure__ and next(
            cell.cell_contents for cell in item.issue.__closure__ if torch.is_tensor(cell.cell_contents)
        )
        room.copy_(torch.from_numpy(sender))
        assert item.wrong() == 0
        room[3] += 1
        assert item.wrong() == 1

    def test_formats_that_a_transport_lacks_travel_as_bytes(self) -> None:
        assert [carried(dtype, "gloo") for dtype in ("bfloat16", "bool", "int16")] == ["bfloat16", "uint8", "uint8"]
        assert carried("bool", "nccl") == "bool"

    def test_memory_is_shared_where_that_is_asked_for(self) -> None:
        shared, own = (Buffers(torch.device("cpu"), reuse=reuse) for reuse in (True, False))
        assert shared.get("in0", "float32", 8).data_ptr() == shared.get("in0", "float32", 4).data_ptr()
        assert own.get("in0", "float32", 8).data_ptr() != own.get("in0", "float32", 8).data_ptr() and own.nbytes == 0


class TestTwoRanks:
    def test_every_call_is_made_timed_and_checked(self, tmp_path: Path) -> None:
        found = run_json(f"comms:{spoken.pair(tmp_path / 'traces')}", *QUICK, cwd=tmp_path)
        [record] = found["records"]
        assert (record["status"], record["case"]["ranks"], record["verification"]["status"]) == ("ok", 2, "passed")
        rows = {row["kind"]: row for row in record["effective"]["communication_times"]}
        assert set(rows) == {"all_reduce", "broadcast", "all_gather", "all_to_allv", "send", "recv", "barrier"}
        assert rows["all_reduce"]["calls"] == 2 and rows["all_reduce"]["message_bytes"] == 320
        for row in rows.values():
            assert 0 < row["min"] <= row["p50"] <= row["p95"] <= row["max"] and row["min"] <= row["avg"] <= row["max"]
        assert record["metrics"]["all_gather_time"]["value"] == rows["all_gather"]["p50"]
        assert record["metrics"]["all_gather_bus_bandwidth"]["value"] == pytest.approx(32 / rows["all_gather"]["total"])
        first, second = record["effective"]["communication_ranks"]
        assert [row["kind"] for row in first] == [row["kind"] for row in second]
        for one, other in zip(first, second, strict=True):
            if one["kind"] not in ("send", "recv"):
                assert one["slowest"] == other["slowest"] >= max(one["time"], other["time"])
        assert processes_below(tmp_path) == []

    def test_in_one_process_the_calls_are_refused_with_what_to_do(self, tmp_path: Path) -> None:
        file = spoken.pair(tmp_path / "traces") / "rank-0.json"
        with pytest.raises(UsageError, match="2 ranks were recorded, and 1 replays them") as told:
            comms.build(str(file), None, "", Torch(), CommChoice())
        assert told.value.do == "give --ranks 2, or shrink=true to leave the others out"

    @pytest.mark.deep
    def test_all_choices_work(self, tmp_path: Path) -> None:
        folder = spoken.pair(tmp_path / "traces")
        found = run_json(f"comms:{folder}", "-a", "blocking=true", "-a", "reuse=true,false", "-a", "rebalance=true", *QUICK, cwd=tmp_path)
        assert [record["status"] for record in found["records"]] == ["ok", "ok"]
        words = ["-a", "most=3", "-a", "check=false", "-a", "allow=all_reduce+broadcast"]
        [record] = run_json(f"comms:{folder}", *words, *QUICK, cwd=tmp_path)["records"]
        assert record["status"] == "ok" and record["effective"]["communication"]["left_out"] == {"not among the allowed kinds": 5}
        [record] = run_json(f"comms:{folder / 'rank-0.json'}", "--ranks", "2", "-a", "allow=all_reduce+barrier", *QUICK, cwd=tmp_path)[
            "records"
        ]
        assert record["status"] == "ok", "one trace is read by both"
        [record] = run_json(f"comms:{folder}", "-a", "timestamps=true", *QUICK, cwd=tmp_path, check=3)["records"]
        assert "the trace has no times" in record["reason"]

    @pytest.mark.deep
    def test_a_rank_that_is_lost_or_hangs_costs_the_case_with_its_name(self, tmp_path: Path) -> None:
        folder = spoken.pair(tmp_path / "traces")
        words = [f"comms:{folder}", str(FAULTS), *QUICK, "--timeout", "60s"]
        for how, reason in (
            ("dies", "rank 1 was ended by SIGKILL"),
            ("raises", "rank 1: ValueError: told to fail"),
            ("hangs", r"rank 1 gave no answer to run within [\d.]+ s and hangs"),
        ):
            records = run_json(*words, "-V", f"faulty[how={how}]", cwd=tmp_path, check=3)["records"]
            assert [record["status"] for record in records] == ["failed"] and re.search(reason, records[0]["reason"])
            assert records[0]["wall_s"] < 60
        assert processes_below(tmp_path) == []

    @pytest.mark.deep
    def test_groups_of_some_ranks_are_made_and_one_that_hangs_is_named(self, tmp_path: Path) -> None:
        for rank in range(4):
            half: Any = {"group": (str(1 + rank // 2), "half"), "place": (rank // 2 * 2, 1, 2)}
            everyone: Any = {"group": ("0", "all"), "place": (0, 1, 4)}
            nodes = [
                spoken.backend(4, "allreduce", 16, **everyone), spoken.backend(5, "broadcast", 8, rank=1, **half),
                spoken.backend(6, "allreduce", 32, request=3, **half), spoken.backend(7, "wait", 0, request=3, **half),
                spoken.backend(8, "_allgather_base", 8, **half),
            ]  # fmt: skip
            spoken.write(tmp_path / "traces" / f"rank-{rank}.json", *nodes)
        [record] = run_json("comms:traces", *QUICK, "--timeout", "120s", cwd=tmp_path)["records"]
        assert (record["status"], record["reason"]) == ("ok", "")
        rows = record["effective"]["communication_ranks"]
        assert [[(row["kind"], row["ranks"]) for row in own] for own in rows] == [
            [("all_reduce", 4), ("broadcast", 2), ("all_reduce", 2), ("all_gather_base", 2)]
        ] * 4
        words = ["comms:traces", str(FAULTS), *QUICK, "-a", "blocking=true", "--timeout", "80s", "-V", "faulty[how=hangs,rank=3]"]
        [record] = run_json(*words, cwd=tmp_path, check=3)["records"]
        assert re.search(r"rank 3 gave no answer to run within [\d.]+ s and hangs", record["reason"])
        assert processes_below(tmp_path) == []

    @pytest.mark.deep
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("size", [2, 4])
    def test_a_captured_step_of_data_parallel_training_is_replayed(self, tmp_path: Path, size: int) -> None:
        script = tmp_path / "train.py"
        script.write_text(TRAIN)
        steelyard("capture", "-o", "traces", "--ranks", str(size), "--steps", "2", "train.py", cwd=tmp_path)
        found = run_json("trace:traces", "-a", "what=full,compute,communication", *QUICK, "--timeout", "120s", cwd=tmp_path, within=400)
        whole, compute, spoken_only = found["records"]
        assert [record["status"] for record in found["records"]] == ["ok"] * 3
        assert all(record["case"]["ranks"] == size for record in found["records"])
        told = whole["effective"]["replay"]
        assert not [row for row in told["skipped"] if "collective" in row["why"]]
        names = {row["operator"] for row in whole["effective"]["replay_operators"]}
        assert "c10d::allreduce_" in names and any("mm" in name for name in names)
        assert not any("c10d" in row["operator"] for row in compute["effective"]["replay_operators"])
        kinds = {row["kind"]: row for row in spoken_only["effective"]["communication_times"]}
        assert kinds["all_reduce"]["message_bytes"] == 4 * (32 * 64 + 64 + 64 * 8 + 8)
        assert len(spoken_only["effective"]["communication_ranks"]) == size


def test_in_one_process_collectives_between_operators_are_skipped_with_the_reason(tmp_path: Path) -> None:
    relu = made.call(3, made.RELU, [made.tensor(10, [4, 4])], [made.tensor(11, [4, 4])])
    path = made.write(tmp_path / "t.json", relu, spoken.all_reduce(4), spoken.backend(5, "wait", 0))
    body = registry.built_ins().workloads["trace"].bodies["torch"]
    words = {"what": "full", "subgraph": "", "step": None, "skip": None, "imports": None, "allocation": "auto", "coverage": 0}
    told = body(file=str(path), be=Torch(), settings=Settings(), **words).effective["replay"]
    assert (told["operators"], told["replayed"]) == (2, 1)
    assert told["skipped"] == [{"operator": "c10d::allreduce_", "count": 1, "why": "a collective: a single process replays none"}]
