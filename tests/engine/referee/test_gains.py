"""When calls one by one support what blocks of calls seem to save."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from steelyard.engine.referee.charges import amortised
from steelyard.engine.referee.evidence import Block, Evidence
from steelyard.engine.referee.gains import beyond, excess, saved_alone, shown_alone, undecided
from steelyard.engine.referee.trial import Hearing


def noisy(centre: float, spread: float, count: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(centre, spread) for _ in range(count)]


def evidence(saved: float, spread: float, count: int) -> Evidence:
    """Blocks of calls of 100 us against 50 us, and single calls that save some of that."""
    seen = Evidence()
    for number in range(20):
        for arm, each in enumerate((100e-6, 50e-6)):
            took = 100 * each * (1 + 0.01 * (number % 3))
            seen.blocks.append(Block(0, number, 0, arm, 100, 0.0, took, None, took, 0.0))
    seen.serial = list(zip(noisy(150e-6, spread, count, 1), noisy(150e-6 - saved, spread, count, 2), strict=True))
    return seen


def test_chance_is_taken_off_an_excess() -> None:
    assert excess([1.0, 1.0, 1.0], [3.0, 3.0, 3.0]) == 2.0
    assert 0 < excess(noisy(1, 0.1, 50, 1), noisy(3, 0.1, 50, 2)) < 2
    assert excess(noisy(1, 0.5, 9, 1), noisy(1, 0.5, 9, 2)) < 0
    assert excess([1.0], [3.0]) == 0.0


def test_a_candidate_cannot_hide_time_behind_a_spread_of_its_own() -> None:
    base, head = noisy(4, 0.4, 6, 1), noisy(8, 4, 6, 2)
    assert beyond(base, head) > 0 > excess(base, head)
    assert beyond(base, noisy(4, 0.4, 6, 3)) < 0
    assert beyond([1.0], head) == 0.0 == beyond(base, [])


def test_a_gain_that_calls_one_by_one_do_not_have_is_amortised() -> None:
    seen = evidence(0.0, 5e-6, 40)
    assert seen.gain == pytest.approx(50e-6, rel=0.1)
    assert not undecided(seen.gain, seen.serial)
    found = amortised(seen, "cpu")
    assert [trick.kind for trick in found] == ["amortised"] and "one by one" in found[0].words


def test_a_gain_that_calls_one_by_one_have_too_is_supported() -> None:
    seen = evidence(50e-6, 5e-6, 40)
    low, high = saved_alone(seen.serial)
    assert low < 50e-6 < high and low > 0
    assert not undecided(seen.gain, seen.serial) and not amortised(seen, "cpu")


def test_noise_leaves_it_undecided_and_accuses_nobody() -> None:
    seen = evidence(0.0, 200e-6, 10)
    assert undecided(seen.gain, seen.serial) and not amortised(seen, "cpu")
    assert not undecided(-1e-6, seen.serial) and not undecided(1e-6, [])


def test_a_gain_that_noise_hides_in_blocks_is_still_asked_for_one_by_one() -> None:
    seen = evidence(0.0, 5e-6, 40)
    seen.blocks = [replace(block, took=block.took * (1.0 if block.round % 2 else 3.0)) for block in seen.blocks]
    assert seen.gain <= 0 < seen.claim
    assert not shown_alone(seen.serial) and shown_alone(evidence(50e-6, 5e-6, 40).serial)
    alike = evidence(0.0, 5e-6, 40)
    alike.blocks = [replace(block, took=1.0 + block.arm * 0.01 + block.round) for block in alike.blocks]
    assert alike.claim == 0.0


def test_a_block_no_longer_than_an_empty_one_has_no_time_that_accuses() -> None:
    seen = evidence(0.0, 5e-6, 10)
    clear = seen.surely(1)
    assert clear == pytest.approx(50e-6, rel=0.1)
    seen.empty = [2 * block.took for block in seen.blocks]
    assert seen.per_call(1)[0] < 1e-9 and seen.surely(1) == pytest.approx(clear)


def judged(seen: Evidence, device: str = "cpu") -> Hearing:
    """A hearing with this evidence; doubts need no process."""
    return Hearing(SimpleNamespace(options=SimpleNamespace(device=device)), SimpleNamespace(), seen)  # type: ignore[arg-type]


def test_on_a_device_a_gain_that_a_launch_can_hide_is_no_evidence() -> None:
    seen = evidence(0.0, 5e-6, 40)
    assert amortised(seen, "cpu") and amortised(seen, "cuda")
    longer = [(base + 300e-6, head + 300e-6) for base, head in seen.serial]
    assert amortised(replace(seen, serial=longer), "cpu") and not amortised(replace(seen, serial=longer), "cuda")


def test_a_pair_whose_single_calls_speak_against_the_candidate_is_measured_again() -> None:
    seen = evidence(0.0, 5e-6, 40)
    assert not judged(seen).in_doubt(0, last=False)
    assert judged(seen).in_doubt(0, last=True)
    assert seen.blocks == [] and seen.serial == []


def test_a_pair_that_spends_time_before_its_calls_is_measured_again_and_others_stay() -> None:
    seen = evidence(50e-6, 5e-6, 40)
    seen.blocks += [replace(block, pair=1, land=5e-3 * block.arm) for block in seen.blocks]
    assert not judged(seen).in_doubt(0, last=True)
    assert judged(seen).in_doubt(1, last=False)
    assert {block.pair for block in seen.blocks} == {0} and seen.serial


def test_the_centre_of_few_calls_is_surer_than_their_median() -> None:
    serial = list(zip(noisy(150e-6, 10e-6, 60, 3), noisy(140e-6, 10e-6, 60, 4), strict=True))
    low, high = saved_alone(serial)
    assert 0 < low < 10e-6 < high < 20e-6
