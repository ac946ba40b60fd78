from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from steelyard.measuring.calm import calm


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collecting(request: pytest.FixtureRequest) -> Iterator[bool]:
    """The collector on or off beforehand, and on again afterwards."""
    (gc.enable if request.param else gc.disable)()
    yield request.param
    gc.enable()


def test_nothing_is_collected_inside_and_what_was_loaded_is_out_of_sight() -> None:
    loaded = [[]]  # type: ignore[var-annotated]
    with calm():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert not any(item is loaded for item in gc.get_objects())
    assert any(item is loaded for item in gc.get_objects())


def test_the_collector_is_afterwards_as_it_was_even_if_a_call_fails(collecting: bool) -> None:
    with pytest.raises(ZeroDivisionError), calm():
        _ = 1 / 0
    assert gc.isenabled() is collecting
    assert gc.get_freeze_count() == 0
