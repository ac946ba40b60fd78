"""Every case once, whatever stations and connections do: attempts are numbered, and only the last one counts."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

from steelyard.engine.farm.groups import groups_of
from steelyard.engine.farm.launchers import Invitation, StationState
from steelyard.engine.farm.launchers.local import LocalLauncher
from steelyard.engine.farm.roster import LATE, Roster
from steelyard.engine.farm.running import undone
from steelyard.engine.farm.wire import AttemptMark, Calibrated, CaseBegun, Delayed, GroupDone
from steelyard.store.runs import Store, read_run
from tests.engine.farm.fleet import NamedLauncher, answer, plan_of, play, staged

TWO = plan_of([1e-3, 2e-3])


def test_two_stations_share_the_groups_and_every_case_is_kept_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(TWO, tmp_path, "one", "two") as stage:
            one, two = await stage.station("one"), await stage.station("two")
            first, second = await one.offer(), await two.offer()
            one.measure(first)
            two.measure(second)
        run = read_run(stage.writer.path)
        assert sorted(record.id for record in run.records) == sorted(job.case.id for job in TWO.jobs)
        assert {record.effective["host"]["name"] for record in run.records} == {"host-one", "host-two"}
        assert {record.effective["host"]["attempt"] for record in run.records} == {1}

    play(scene)


def test_an_attempt_is_in_the_journal_before_its_station_hears_of_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path) as stage:
            one = await stage.station()
            offer = await one.offer()
            [begun] = stage.events("begun")
            assert (begun.number("group"), begun.number("attempt"), begun.text("station")) == (0, 1, "one")
            one.measure(offer)

    play(scene)


def test_what_a_lost_station_had_is_done_elsewhere_and_its_late_answers_are_dropped_and_told(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path, "one", "two") as stage:
            one = await stage.station("one", life="first")
            old = await one.offer()
            one.channel.close()
            two = await stage.station("two")
            new = await two.offer()
            assert (old.mark, new.mark) == (AttemptMark(0, 1), AttemptMark(0, 2))
            back = await stage.station("one", life="first", at=(old.mark,))
            await back.until(lambda: back.withdrawn == [old.mark])
            back.channel.send(answer(old, old.jobs[0].case.id, wall_s=99.0))
            await back.until(lambda: len(back.kept) == 1)
            assert stage.writer.done == {}
            two.measure(new)
        [record] = read_run(stage.writer.path).records
        assert record.wall_s == 0.0 and record.effective["host"]["attempt"] == 2
        assert len(stage.events("dropped")) == 1
        assert any("dropped answers of host-one (one) to attempt 1" in note for note in stage.watch.notes)

    play(scene)


def test_a_station_that_lost_its_connection_comes_back_and_its_repeated_answers_count_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(TWO, tmp_path) as stage:
            one = await stage.station()
            offer, other = await one.offer(), await one.offer()
            one.channel.send(answer(offer, offer.jobs[0].case.id))
            await one.until(lambda: bool(one.kept))
            assert (one.kept[0].mark, one.kept[0].number) == (offer.mark, 1)
            one.channel.close()
            back = await stage.station(at=(offer.mark, other.mark))
            back.measure(offer)
            back.measure(other)
        assert len(read_run(stage.writer.path).records) == 2
        assert not stage.events("lost") and not stage.events("dropped")

    play(scene)


def test_an_offer_that_was_lost_on_its_way_is_made_again_with_the_next_number(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path) as stage:
            one = await stage.station()
            await one.offer()
            one.channel.close()
            back = await stage.station(at=())
            again = await back.offer()
            assert again.mark == AttemptMark(0, 2)
            back.measure(again)

    play(scene)


def test_a_case_that_takes_its_station_with_it_again_and_again_is_crashed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path) as stage:
            for life in "123":
                one = await stage.station(life=life)
                offer = await one.offer()
                one.channel.send(CaseBegun(offer.mark, offer.jobs[0].case.id))
                await one.until(lambda: stage.conductor.ledger.states[0].begun)
                one.channel.close()
            await stage.station(life="4")
        [record] = read_run(stage.writer.path).records
        assert record.status == "crashed" and record.reason.startswith("3 stations were lost while measuring it: host-one (one)")

    play(scene)


def test_a_group_that_a_host_cannot_do_goes_to_another_one(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path, "one", "two") as stage:
            one, two = await stage.station("one"), None
            offer = await one.offer()
            two = await stage.station("two")
            one.channel.send(GroupDone(offer.mark, 1, "cannot open the lock cpu0"))
            two.measure(await two.offer())
        [record] = read_run(stage.writer.path).records
        assert record.status == "ok" and record.effective["host"]["station"] == "two"
        assert any("could not measure" in note and "cannot open the lock" in note for note in stage.watch.notes)

    play(scene)


def test_a_conductor_that_goes_on_uses_numbers_that_were_never_used(tmp_path: Path) -> None:
    async def first() -> None:
        async with staged(TWO, tmp_path) as stage:
            one = await stage.station()
            offer = await one.offer()
            one.channel.send(answer(offer, offer.jobs[0].case.id))
            await one.until(lambda: bool(one.kept))
            stage.run.stopped = True

    async def second() -> None:
        writer = Store(tmp_path / ".steelyard").resume()
        assert writer is not None
        left = [group for group in groups_of(TWO) if undone(group, writer)]
        assert [group.number for group in left] == [1]
        async with staged(TWO, tmp_path, writer=writer) as stage:
            one = await stage.station()
            seen = [await one.offer(), await one.offer()]
            assert all(offer.mark.attempt == 2 for offer in seen)
            for offer in seen:
                one.measure(offer)
        assert len(read_run(stage.writer.path).records) == 2

    play(first)
    play(second)


def test_a_silent_station_is_cut_off_and_lost(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path, "one", "two") as stage:
            one = await stage.station("one", silent=True)
            await one.offer()
            two = await stage.station("two")
            two.measure(await two.offer())
        assert [event.text("station") for event in stage.events("lost")] == ["one"]
        assert stage.launcher.dropped == ["one"]

    play(scene)


def test_a_station_here_that_hangs_is_ended_when_it_is_dropped() -> None:
    """It would keep the locks of its host, and the one that follows it would wait for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        launcher = LocalLauncher(1)
        launcher.start(1, Invitation("k3f9", "127.0.0.1", silent.getsockname()[1], b"s" * 32))
        [station] = launcher.stations
        station.process.send_signal(signal.SIGSTOP)
        launcher.drop("local-1")
        assert station.process.wait(30) == -signal.SIGKILL
        launcher.drop("local-1")
        launcher.end()


def test_a_station_that_waits_for_its_machine_says_so(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path, calibrate=True) as stage:
            one = await stage.station("one")
            one.channel.send(Delayed("waiting for run k3f9, which measures on that machine"))
            one.channel.send(Calibrated({"arithmetic": (1.0,) * 3}, (0.0,) * 3))
            one.measure(await one.offer())
        assert [event.text("reason") for event in stage.events("waits")] == ["waiting for run k3f9, which measures on that machine"]

    play(scene)


def test_a_station_is_followed_once_however_often_its_end_is_told(tmp_path: Path) -> None:
    """Its silence is noticed first, and what its launcher says later is no news."""

    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path, "one", "two") as stage:
            stage.conductor.roster.ask = lambda: asked.append("one more")
            one = await stage.station("one", silent=True)
            await one.offer()
            two = await stage.station("two")
            offer = await two.offer()
            stage.launcher.known["one"] = StationState("one", "gone", "its node failed")
            stage.conductor._look(stage.conductor.clock())
            stage.conductor._look(stage.conductor.clock())
            assert [event.text("station") for event in stage.events("lost")] == ["one"] and stage.events("gone") == []
            assert asked == ["one more"]
            two.measure(offer)

    asked: list[str] = []
    play(scene)


def test_the_last_station_is_replaced_even_if_its_end_is_noticed_by_the_launcher_first(tmp_path: Path) -> None:
    """The run ended in the moment in which it had requested the replacement."""

    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path, "one") as stage:
            launcher = stage.launcher
            stage.conductor.roster.ask = lambda: launcher.known.update(two=StationState("two", "waiting"))
            one = await stage.station("one", silent=True)
            await one.offer()
            one.channel.close()
            while stage.conductor.fleet.get("one").channel is not None:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            launcher.known["one"] = StationState("one", "gone", "its node failed")
            stage.conductor._look(stage.conductor.clock())
            assert [event.text("station") for event in stage.events("lost")] == ["one"] and "two" in launcher.known
            two = await stage.station("two")
            two.measure(await two.offer())

    play(scene)


def test_a_station_that_runs_and_never_joins_is_not_waited_for_for_ever() -> None:
    launcher = NamedLauncher("one")
    roster = Roster(launcher)
    roster.look(0.0)
    assert [state.name for state in roster.coming([], LATE - 1)] == ["one"] and roster.coming(["one"], 0.0) == []
    assert roster.coming([], LATE) == [] and "did not join within 30 minutes" in roster.reasons()[0]
    launcher.known["one"] = StationState("one", "waiting", "Priority")
    roster.look(LATE)
    assert [state.name for state in roster.coming([], 100 * LATE)] == ["one"], "a queue may be as long as it likes"
