"""Kinds of machines by what they do in a second, and hosts that should not measure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.analyze.machines import differs
from steelyard.engine.farm import devices
from steelyard.engine.farm.calibrating import calibrate
from steelyard.engine.farm.kinds import HostSpeed, MachineKind, MachineKinds, disturbed, throttled, unfit
from steelyard.engine.farm.placing import GroupNeeds, HostOffer, misfit
from steelyard.engine.farm.wire import Calibrated
from steelyard.errors import UsageError
from steelyard.store.runs import read_run
from tests.engine.farm.fleet import answer, plan_of, play, staged

KEY = "d1c3b4565dc5"


def speed(factor: float = 1.0, spread: float = 0.01, waited: float = 0.0, **works: float) -> Calibrated:
    """A host that takes so much longer than usual, with rounds that lie so far apart."""
    usual = {"arithmetic": 1e-3, "copies": 2e-3} | works
    rounds = {name: tuple(factor * value * (1 + spread * step) for step in (-0.5, 0.0, 0.5)) for name, value in usual.items()}
    return Calibrated(rounds, (waited,) * 3)


def test_a_calibration_times_every_kind_of_work_three_times() -> None:
    found = calibrate()
    assert found.seconds.keys() == {"arithmetic", "hashing", "copies"}
    assert all(len(values) == 3 and min(values) > 0 for values in found.seconds.values())
    assert len(found.waited) == 3 and all(0 <= share < 1 for share in found.waited)


def test_the_share_that_others_had_is_what_the_wall_clock_has_beyond_the_threads_own() -> None:
    wall = iter([0.0, 4.0, 4.0, 8.0, 8.0, 12.0])
    ticks = iter(range(10**6))
    found = calibrate(now=lambda: next(wall), spent=lambda: next(ticks) / 50)
    assert found.waited[0] == pytest.approx(1 - (2 * 3 * 8 + 1) / 50 / 4.0, abs=1e-9)


def test_hosts_that_differ_beyond_their_noise_are_different_kinds_and_stay_so(tmp_path: Path) -> None:
    kinds = MachineKinds(tmp_path)
    one, alike, other = (HostSpeed.of(found) for found in (speed(), speed(1.05), speed(copies=2.6e-3)))
    assert kinds.of(KEY, one) == MachineKind(KEY, "", {"arithmetic": 1e-3, "copies": 2e-3, "spread": pytest.approx(0.01)})
    assert kinds.of(KEY, alike) == kinds.of(KEY, one), "records of one kind tell one speed"
    assert (kinds.of(KEY, other).name, kinds.of(KEY, other).differing) == (f"{KEY}.2", "copies takes 30 % more")
    again = MachineKinds(tmp_path)
    assert [again.of(KEY, host).name for host in (other, one)] == [f"{KEY}.2", KEY]
    assert kinds.of(KEY, HostSpeed.of(speed(1.3, spread=0.1))).name == KEY, "a host that spreads so much is told from nothing"


@pytest.mark.parametrize("text", ["", "[[]]", '{"a": 1}', "[" * 5000, '[{"copies": "fast"}]'])
def test_a_damaged_file_of_kinds_is_begun_anew(text: str, tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.json").write_text(text)
    assert MachineKinds(tmp_path).of(KEY, HostSpeed.of(speed())).name in (KEY, f"{KEY}.2")
    assert json.loads((tmp_path / f"{KEY}.json").read_text())


def test_kinds_that_cannot_be_kept_hold_for_the_run(tmp_path: Path) -> None:
    (tmp_path / "kinds").write_text("in the way")
    kinds = MachineKinds(tmp_path / "kinds")
    found = [kinds.of(KEY, HostSpeed.of(host)).name for host in (speed(), speed(copies=2.6e-3), speed())]
    assert found == [KEY, f"{KEY}.2", KEY]


def test_a_noisy_host_has_a_kind_and_stands_for_no_other(tmp_path: Path) -> None:
    kinds = MachineKinds(tmp_path)
    slow = kinds.of(KEY, HostSpeed.of(speed(2.0, waited=0.4)))
    assert slow.name == KEY and slow.speed["copies"] == pytest.approx(4e-3) and list(tmp_path.glob("*.json")) == []
    kinds.of(KEY, HostSpeed.of(speed()))
    assert kinds.of(KEY, HostSpeed.of(speed(2.0, waited=0.4))).name == f"{KEY}.2"


def test_a_key_that_is_none_names_no_file(tmp_path: Path) -> None:
    assert MachineKinds(tmp_path).of("../../etc/x", HostSpeed.of(speed())).name == "../../etc/x"
    assert list(tmp_path.iterdir()) == []


def test_a_noisy_or_shared_host_is_unfit_unless_all_of_its_kind_are() -> None:
    quiet, loud, shared = (HostSpeed.of(found) for found in (speed(), speed(spread=0.2), speed(waited=0.4)))
    assert unfit(quiet, [loud]) == ""
    assert unfit(loud, [quiet, quiet]) == "its speed changes by 20 % within a second, and those of its kind 1.0 %"
    assert unfit(shared, [quiet]) == "other programs had its CPU for 40 % of a calibration"
    assert unfit(loud, [loud, loud]) == ""


def test_a_host_that_becomes_busy_is_noticed_by_its_records() -> None:
    assert disturbed([0.0, 1.0, 1.1, 0.9], [0.1, 0.0]) == "other programs kept 1.0 CPUs busy beside its last 3 cases"
    assert disturbed([1.0, 1.1], []) == ""
    assert disturbed([1.0, 0.2, 1.1], []) == ""
    assert disturbed([1.0, 1.1, 0.9], [1.0, 1.2]) == ""


def test_a_host_whose_gpu_is_slowed_by_heat_is_set_aside(tmp_path: Path) -> None:
    assert throttled([("heat",), ("heat", "power brake"), ("heat",)]).endswith("beside its last 3 cases: heat, power brake")
    assert throttled([("heat",)] * 2) == throttled([("heat",), (), ("heat",)]) == ""
    plan = plan_of([number * 1e-3 for number in range(1, 6)])

    async def scene() -> None:
        async with staged(plan, tmp_path, "one", "two") as stage:
            one, two = await stage.station("one"), await stage.station("two")
            for _ in range(3):
                offer = await one.offer()
                hot = {"telemetry": {"slowed_by": ["power cap", "heat"]}}
                one.channel.send(answer(offer, offer.jobs[0].case.id, effective=hot))
                one.finish(offer)
            for _ in range(len(plan.jobs) - 3):
                two.measure(await two.offer())
        [aside] = stage.events("aside")
        assert (aside.text("station"), aside.text("reason")) == ("one", "its GPU was slowed down beside its last 3 cases: heat")

    play(scene)


def test_speeds_of_nonsense_are_none() -> None:
    for seconds, waited in (({}, (0.0,)), ({"a": (0.0, 1.0)}, (0.0,)), ({"a": (1.0,)}, ()), ({"a": (float("nan"),)}, (0.0,))):
        with pytest.raises(ValueError, match="a calibration without"):
            HostSpeed.of(Calibrated(seconds, waited))
    assert differs({"a": 1.0}, {"b": 2.0}, 0.0) == ""


def test_a_group_goes_to_a_host_that_fits() -> None:
    host = HostOffer("kind", {"cpu": 1, "cuda": 2}, 8 << 30, ("jax",))
    assert misfit(GroupNeeds((("cuda", 2),), 4 << 30, ("jax",)), host) == ""
    assert misfit(GroupNeeds((("tpu", 1),)), host) == "it has no tpu"
    assert misfit(GroupNeeds((("cuda", 4),)), host) == "it has 2 cuda and the case needs 4"
    assert misfit(GroupNeeds(memory=16 << 30), host).startswith("it has 8")
    assert misfit(GroupNeeds(envs=("iree",)), host) == "it has no environment iree"


def test_devices_are_counted_without_a_framework() -> None:
    machine = {"gpus": [{"name": "a"}, {"name": "b"}]}
    assert devices.count(machine, {}) == {"cpu": 1, "cuda": 2}
    assert devices.count(machine, {"CUDA_VISIBLE_DEVICES": "1"}) == {"cpu": 1, "cuda": 1}
    assert devices.count(machine, {"CUDA_VISIBLE_DEVICES": ""}) == {"cpu": 1}
    assert devices.count({}, {"STEELYARD_DEVICES": "tpu=4,xpu"}) == {"cpu": 1, "tpu": 4, "xpu": 1}
    with pytest.raises(UsageError, match="STEELYARD_DEVICES"):
        devices.count({}, {"STEELYARD_DEVICES": "npu=1"})


REAL = plan_of([1e-3, 2e-3, 3e-3, 4e-3])


def test_a_noisy_host_is_set_aside_with_the_reason_and_its_cases_go_elsewhere(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(REAL, tmp_path, "one", "two", calibrate=True) as stage:
            loud = await stage.station("one", key=KEY)
            loud.channel.send(speed(waited=0.5))
            quiet = await stage.station("two", key=KEY)
            quiet.channel.send(speed())
            for _ in REAL.jobs:
                quiet.measure(await quiet.offer())
            assert loud.offers == []
        assert [event.text("reason") for event in stage.events("aside")] == ["other programs had its CPU for 50 % of a calibration"]
        assert any(line.startswith("set aside: host-one (one): other programs") for line in stage.writer.warnings)
        assert {record.effective["host"]["machine"] for record in read_run(stage.writer.path).records} == {KEY}

    play(scene)


def test_a_host_that_was_set_aside_comes_back_where_all_of_its_kind_are_like_that(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(REAL, tmp_path, "one", "two", calibrate=True) as stage:
            one, two = await stage.station("one", key=KEY), await stage.station("two", key=KEY)
            one.channel.send(speed(waited=0.5))
            await one.until(lambda: bool(stage.events("aside")))
            two.channel.send(speed(2.0, waited=0.5))
            first = await one.offer()
            for peer, offer in ((one, first), (two, await two.offer())):
                peer.measure(offer)
            one.measure(await one.offer())
            two.measure(await two.offer())
        assert len(stage.events("back")) == 1
        assert {record.effective["host"]["machine"] for record in read_run(stage.writer.path).records} == {KEY}, "no kind is told by noise"

    play(scene)


def test_a_host_that_becomes_noisy_gives_back_what_it_has_not_begun(tmp_path: Path) -> None:
    plan = plan_of([number * 1e-3 for number in range(1, 9)])

    async def scene() -> None:
        async with staged(plan, tmp_path, "one", "two") as stage:
            one, two = await stage.station("one"), await stage.station("two")
            for _ in range(3):
                offer = await one.offer()
                one.channel.send(answer(offer, offer.jobs[0].case.id, effective={"other_load": 1.5}))
                one.channel.send(replace(answer(offer, offer.jobs[0].case.id), number=1))
                one.finish(offer)
            for _ in range(len(plan.jobs) - 3):
                two.measure(await two.offer())
        assert [event.text("station") for event in stage.events("aside")] == ["one"]
        assert len(read_run(stage.writer.path).records) == len(plan.jobs)

    play(scene)


def test_the_only_host_there_is_measures_although_it_is_noisy_and_that_is_told(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path, calibrate=True) as stage:
            one = await stage.station(key=KEY)
            one.channel.send(speed(spread=0.5))
            one.measure(await one.offer())
        assert any("measures anyway because no quieter host is left" in line for line in stage.writer.warnings)

    play(scene)


def test_what_was_begun_on_one_machine_is_ended_on_one_of_its_kind(tmp_path: Path) -> None:
    plan = plan_of([1e-3, 2e-3], variant=("eager", "half"), settings={"vs": "eager"})

    async def scene() -> None:
        async with staged(plan, tmp_path, "one", "two", "three") as stage:
            one = await stage.station("one", key="a" * 12)
            offer = await one.offer()
            one.channel.send(answer(offer, offer.jobs[0].case.id))
            await one.until(lambda: bool(one.kept))
            other = await stage.station("two", key="b" * 12)
            alike = await stage.station("three", key="a" * 12)
            one.channel.close()
            again = await alike.offer()
            while again.mark.group != offer.mark.group:
                alike.measure(again)
                again = await alike.offer()
            assert again.mark.attempt == 2 and len(again.held) == 1
            assert offer.mark.group not in {found.mark.group for found in other.offers}
            stage.run.stopped = True

    play(scene)


def test_what_no_host_fits_is_unsupported_once_all_are_there(tmp_path: Path) -> None:
    from steelyard.engine.farm.placing import GroupNeeds

    async def scene() -> None:
        async with staged(plan_of([1e-3]), tmp_path) as stage:
            stage.conductor.dispatcher.waiting.remove(0)
            stage.conductor.dispatcher.waiting.add(0, GroupNeeds((("tpu", 1),)))
            await stage.station()
        [record] = read_run(stage.writer.path).records
        assert (record.status, record.reason) == ("unsupported", "no host can run it: it has no tpu")

    play(scene)
