"""Calls between ranks out of traces: what PyTorch's operators and NCCL's backend write, in every schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steelyard.errors import UsageError
from steelyard.traces.comms import COLLECTIVES, bus_share, kind_of, rank_files, read_comms, shrunk
from tests.traces import spoken


def test_operators_of_c10d_tell_kind_sizes_partner_and_waiting(tmp_path: Path) -> None:
    found = read_comms(spoken.pair(tmp_path) / "rank-0.json")
    told = [(call.kind, call.sends, call.receives, call.peer, call.waits) for call in found.calls]
    assert told == [
        ("all_reduce", (64,), (64,), None, True), ("broadcast", (8,), (8,), 1, True), ("all_gather", (8,), (8, 8), None, True),
        ("all_to_allv", (8,), (8,), None, True), ("send", (8,), (), 1, False), ("recv", (), (8,), 1, False),
        ("barrier", (), (), None, True), ("all_reduce", (16,), (16,), None, False),
    ]  # fmt: skip
    assert found.calls[3].in_splits == (2, 6) and found.world == 2 and not found.unread


@pytest.mark.parametrize(
    "schema", ["1.0.1", "1.0.2-chakra.0.0.4", "1.0.3-chakra.0.0.4", "1.0.4-chakra.0.0.4", "1.1.0-chakra.0.0.4", "1.1.1-chakra.0.0.4"]
)
@pytest.mark.parametrize(("group", "place"), [(("7", "dp"), (0, 1, 4)), (93, None), (93, (2, 2, 2))])
def test_the_backends_nodes_are_read_in_every_schema(tmp_path: Path, schema: str, group: Any, place: Any) -> None:
    where: dict[str, Any] = {"group": group, "place": place}
    nodes = [
        spoken.backend(4, "allreduce", 32, request=5, **where), spoken.backend(5, "wait", 0, request=5, **where),
        spoken.backend(6, "broadcast", 4, rank=1, **where), spoken.backend(7, "init", 0, **where),
        spoken.backend(8, "all_to_allv", 8, splits=([3, 5], [4, 4]), **where), spoken.backend(9, "send", 8, rank=1, **where),
    ]  # fmt: skip
    found = read_comms(spoken.write(tmp_path / "t.json", *nodes, schema=schema))
    assert [(call.kind, call.sends, call.peer) for call in found.calls] == [
        ("all_reduce", (32,), None), ("wait", (), None), ("broadcast", (4,), 1), ("all_to_allv", (8,), None), ("send", (8,), 1),
    ]  # fmt: skip
    assert found.calls[0].request == found.calls[1].request == 5
    assert found.calls[3].in_splits == (3, 5) and found.calls[3].out_splits == (4, 4)
    name = "7" if isinstance(group, tuple) else "93"
    assert {call.group for call in found.calls} == {name}
    assert found.groups.get(name) is None if place is None else found.groups[name].ranks == ((0, 1, 2, 3) if place[2] == 4 else (2, 4))


def test_an_operator_and_its_backends_node_are_one_call(tmp_path: Path) -> None:
    path = spoken.write(tmp_path / "t.json", spoken.all_reduce(4, 32), spoken.backend(5, "allreduce", 32, request=9, parent=4))
    [call] = read_comms(path).calls
    assert (call.node, call.kind, call.group, call.request, call.waits) == (4, "all_reduce", "7", 9, True)


def test_a_group_that_is_not_recorded_is_told_by_its_size(tmp_path: Path) -> None:
    part = {"pg_name": "1", "pg_desc": "tp", "backend_config": "cpu:gloo", "ranks": [0, 2], "group_size": 2, "group_count": 2}
    path = spoken.write(tmp_path / "t.json", spoken.groups(3, spoken.whole(4), part), spoken.all_gather(4, 2), spoken.all_gather(5, 4))
    assert [call.group for call in read_comms(path).calls] == ["1", ""]


def test_unknown_calls_are_counted(tmp_path: Path) -> None:
    found = read_comms(
        spoken.write(tmp_path / "t.json", spoken.backend(4, "teleport"), spoken.operator(5, "c10d::whisper(Tensor x) -> ()"))
    )
    assert found.calls == () and found.unread == {"?": 1, "whisper": 1}


def test_messages_are_summed_by_kind(tmp_path: Path) -> None:
    rows = {row["kind"]: row for row in read_comms(spoken.pair(tmp_path) / "rank-1.json").messages()}
    assert rows["all_reduce"] == {
        "kind": "all_reduce", "calls": 2, "sent_bytes": 320, "received_bytes": 320, "smallest": 64, "median": 256, "largest": 256,
    }  # fmt: skip
    assert rows["all_gather"]["received_bytes"] == 64 and rows["barrier"]["largest"] == 0


def test_fewer_ranks_make_smaller_calls(tmp_path: Path) -> None:
    nodes = [
        spoken.all_gather(4, 4), spoken.swap(5, [1, 2, 3, 4], [4, 3, 2, 1]), spoken.broadcast(6, 3), spoken.send(7, 3), spoken.send(8, 1),
    ]  # fmt: skip
    found = shrunk(read_comms(spoken.write(tmp_path / "t.json", spoken.groups(3, spoken.whole(4)), *nodes)), 0, 2)
    assert [(call.kind, call.sends, call.receives, call.peer) for call in found.calls] == [
        ("all_gather", (8,), (8, 8), None), ("all_to_allv", (7,), (3,), None), ("broadcast", (8,), (8,), 0), ("send", (8,), (), 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "message"),
    [(["rank-0.json", "rank-2.json"], "no trace of rank 1"), (["rank-0.json", "rank-0.json.gz"], "two traces of rank 0")],
)
def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=message):
        rank_files(tmp_path)


def test_names_and_shares_are_those_of_nccl() -> None:
    assert len(COLLECTIVES) == 17
    assert kind_of("nccl:_reduce_scatter_base") == "reduce_scatter_base" and kind_of("nothing") is None
    assert (
        bus_share("all_reduce", 4) == 1.5
        and bus_share("all_gather_base", 4) == 0.75
        and bus_share("broadcast", 4) == 1 == bus_share("send", 2)
    )
    assert bus_share("all_reduce", 1) == bus_share("barrier", 8) == 0
