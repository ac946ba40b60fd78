"""`steelyard farm`: what a journal says, as a table and as lines."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.farm import lines_of
from steelyard.cli.main import main
from steelyard.engine.farm.journal import FILE, Journal, JournalEvent, JournalTail, read_journal
from steelyard.engine.farm.overview import FarmOverview, told
from steelyard.store.runs import Header, Store

T = "2026-01-02T03:04:{:02d}Z"
AT = 1767323040.0


def event(kind: str, second: int, **words: Any) -> JournalEvent:
    return JournalEvent(kind, T.format(second), words)


EVENTS = [
    event("opened", 0, on="ssh:a,b", cases=4, groups=4),
    event("joined", 1, station="ssh-1", host="a", machine="aaaaaaaaaaaa"),
    event("joined", 1, station="ssh-2", host="b", machine="aaaaaaaaaaaa"),
    event("aside", 2, station="ssh-2", host="b", reason="other programs had its CPU for 40 % of a calibration"),
    event("begun", 2, station="ssh-1", group=0, attempt=1),
    event("case", 3, station="ssh-1", group=0, case="op/add@numpy/eager:eval"),
    event("kept", 5, station="ssh-1", group=0, case="op/add@numpy/eager:eval", status="ok"),
    event("done", 5, station="ssh-1", group=0, attempt=1),
    event("begun", 5, station="ssh-1", group=1, attempt=1),
    event("case", 6, station="ssh-1", group=1, case="op/sub@numpy/eager:eval"),
    event("kept", 10, station="ssh-1", group=1, case="op/sub@numpy/eager:eval", status="failed"),
    event("case", 10, station="ssh-1", group=2, case="op/mul@numpy/eager:eval"),
]


def test_the_table_has_stations_rate_time_left_and_who_was_set_aside() -> None:
    assert lines_of(FarmOverview.of(EVENTS), AT + 10) == [
        "on ssh:a,b · 2 of 4 cases · 0.2 per second · about 10 s left",
        "1 failed · 1 ok",
        "a (ssh-1)  at work         2 done  aaaaaaaaaaaa  op/mul@numpy/eager:eval",
        "b (ssh-2)  set aside       0 done  aaaaaaaaaaaa  other programs had its CPU for 40 % of a calibration",
    ]


def test_a_host_that_is_set_aside_stays_so_while_it_ends_what_it_had_begun() -> None:
    events = [
        *EVENTS[:2],
        event("begun", 2, station="ssh-1", group=0, attempt=1),
        event("case", 3, station="ssh-1", group=0, case="op/add@numpy/eager:eval"),
        event("aside", 4, station="ssh-1", host="a", reason="its speed changes by 30 % within a second"),
        event("kept", 5, station="ssh-1", group=0, case="op/add@numpy/eager:eval", status="ok"),
        event("case", 6, station="ssh-1", group=0, case="op/sub@numpy/eager:eval"),
        event("done", 7, station="ssh-1", group=0, attempt=1),
    ]
    for count in range(5, len(events) + 1):
        [line] = [line for line in lines_of(FarmOverview.of(events[:count]), AT + 8) if line.startswith("a (ssh-1)")]
        assert "set aside" in line and line.endswith("its speed changes by 30 % within a second")
    [station] = FarmOverview.of([*events, event("back", 8, station="ssh-1", reason="no quieter host is left")]).stations.values()
    assert station.state == "idle" and station.reason == ""


def test_a_station_that_waits_for_its_machine_is_shown_so_until_it_begins() -> None:
    wait = event("waits", 2, station="ssh-1", reason="waiting for run k3f9, which measures on that machine")
    [line] = lines_of(FarmOverview.of([*EVENTS[:2], wait]), AT + 3)[1:]
    assert line == "a (ssh-1)  waiting         0 done  aaaaaaaaaaaa  waiting for run k3f9, which measures on that machine"
    assert told(wait).endswith("ssh-1 is waiting for run k3f9, which measures on that machine")
    [station] = FarmOverview.of([*EVENTS[:2], wait, event("case", 3, station="ssh-1", case="x")]).stations.values()
    assert (station.state, station.reason) == ("at work", "x")


def test_lost_refused_and_dropped_are_told() -> None:
    more = [
        event("lost", 11, station="ssh-1", reason="it stopped answering"),
        event("refused", 12, peer="10.0.0.9", station="", reason="a peer does not have the secret of this run"),
        event("dropped", 13, station="ssh-1", group=2, attempt=1),
        event("closed", 14, reason="complete"),
    ]
    lines = lines_of(FarmOverview.of([*EVENTS, *more]), AT + 14)
    assert lines[0].endswith("complete") and any(line.startswith("a (ssh-1)  lost") for line in lines)
    assert lines[-2:] == ["refused: 10.0.0.9: a peer does not have the secret of this run", "late results dropped: 1"]
    assert [told(item).split("  ", 1)[1] for item in more] == [
        "ssh-1 is lost: it stopped answering",
        "10.0.0.9 was refused: a peer does not have the secret of this run",
        "late answers of ssh-1 to attempt 1 at group 2 were dropped",
        "the run is over: complete",
    ]


def test_a_run_that_went_on_is_counted_from_there() -> None:
    found = FarmOverview.of([*EVENTS, event("opened", 20, on="local:2", cases=2, groups=2)])
    assert (found.kept, found.cases, found.stations) == (0, 2, {})


def test_a_torn_line_and_foreign_ones_are_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note("begun", group=0, attempt=3, station="one")
    journal.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'[1]\nnot json\n{"event": 7}\n{"event": "begun", "group": 0, "att')
    again = Journal(tmp_path)
    again.note("done", group=0)
    again.close()
    assert again.attempts() == {0: 3}
    assert [item.kind for item in read_journal(tmp_path)] == ["begun", "done"]


def test_a_journal_that_grows_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note("begun", group=0, attempt=1, station="one")
    tail = JournalTail(tmp_path)
    assert [item.kind for item in tail.more()] == ["begun"] and list(tail.more()) == []
    whole = b'{"event": "done", "time": "", "group": 0, "station": "one"}\n'
    for part, kinds in ((whole[:20], []), (whole[20:], ["done"]), (b"[7]\n", [])):
        with (tmp_path / FILE).open("ab") as file:
            file.write(part)
        assert [item.kind for item in tail.more()] == kinds
    journal.close()


def test_the_command_tells_lines_or_json_and_refuses_a_run_that_was_made_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    with store.create(Header()) as writer:
        writer.seal()
    assert main(["farm", "--store", str(tmp_path)]) == 2
    assert "was not made on other machines" in capsys.readouterr().err
    with Store(tmp_path / "others").create(Header(farm="ssh:a,b")) as other:
        other.seal()
    assert main(["farm", "--store", str(tmp_path / "others")]) == 2
    assert "it was made on ssh:a,b" in capsys.readouterr().err
    journal = Journal(writer.path)
    journal.write([(item.kind, {**item.words}) for item in [*EVENTS, event("closed", 11, reason="complete")]])
    journal.close()
    assert main(["farm", "--store", str(tmp_path), "--follow"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "4 cases in 4 groups on ssh:a,b" in lines[0] and lines[-1].endswith("the run is over: complete")
    assert main(["farm", "--store", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kept"], found["closed"], found["stations"][0]["done"]) == (2, "complete", 2)


def test_a_run_whose_conductor_was_killed_is_followed_no_further(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path).create(Header()) as writer:
        gone = subprocess.Popen(["true"])
        gone.wait()
        journal = Journal(writer.path)
        journal.note("opened", on="local:1", cases=1, groups=1, pid=gone.pid, host=socket.gethostname())
        journal.close()
    assert main(["farm", "--store", str(tmp_path), "--follow"]) == 0
    assert capsys.readouterr().out.endswith("the run is not over: its conductor has ended; continue: the same command with --resume\n")
    alive = FarmOverview.of([event("opened", 0, pid=os.getpid(), host=socket.gethostname())])
    assert alive.over == "" and FarmOverview.of([event("opened", 0, pid=gone.pid, host="elsewhere")]).over == ""
