"""When calls one by one support what blocks of calls seem to save."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from steelyard.engine.referee.charges import supported
from steelyard.engine.referee.evidence import Block, Evidence
from steelyard.engine.referee.gains import excess, saved_alone, shown_alone, undecided


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


def test_a_gain_that_calls_one_by_one_do_not_have_is_amortised() -> None:
    seen = evidence(0.0, 5e-6, 40)
    assert seen.gain == pytest.approx(50e-6, rel=0.1)
    assert not undecided(seen.gain, seen.serial)
    found = supported(seen, "cpu")
    assert [trick.kind for trick in found] == ["amortised"] and "one by one" in found[0].words


def test_a_gain_that_calls_one_by_one_have_too_is_supported() -> None:
    seen = evidence(50e-6, 5e-6, 40)
    low, high = saved_alone(seen.serial)
    assert low < 50e-6 < high and low > 0
    assert not undecided(seen.gain, seen.serial) and not supported(seen, "cpu")


def test_noise_leaves_it_undecided_and_accuses_nobody() -> None:
    seen = evidence(0.0, 200e-6, 10)
    assert undecided(seen.gain, seen.serial) and not supported(seen, "cpu")
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
