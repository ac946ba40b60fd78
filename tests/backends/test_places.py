"""What stands in the place of arrays that cannot be changed."""

from __future__ import annotations

from steelyard.backends._places import Places


def test_what_was_put_in_the_place_of_one_is_found_in_any_structure() -> None:
    one, two, other = object(), object(), object()
    places = Places()
    assert places.all((one, {"a": [two]})) == (one, {"a": [two]})
    places.put(one, other)
    assert places.now(one) is other and places.now(two) is two
    assert places.all((one, {"a": [two, one]}, -1)) == (other, {"a": [two, other]}, -1)


def test_a_place_is_known_by_the_thing_and_not_by_its_value() -> None:
    places = Places()
    first, same = [1], [1]
    places.put(first, [2])
    assert places.now(first) == [2] and places.now(same) is same
