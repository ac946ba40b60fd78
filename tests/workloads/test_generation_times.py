"""What hears tokens and what looks at the model, on a faked clock and with stand-ins: nothing here needs a framework."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from steelyard import clocks
from steelyard.errors import NotApplied
from steelyard.measuring.requests import Stamps
from steelyard.workloads.generation.generate import SeenPrefill, TokenTimes, UsedModel

DAY, MS = 86_400 * 10**9, 10**6


def tensor(*shape: int) -> Any:
    return SimpleNamespace(shape=shape, ndim=len(shape))


@pytest.mark.parametrize("new", [2, 4, 8, 32])
@pytest.mark.parametrize("days", [0, 7, 60])
def test_the_times_of_a_stream_are_exact_after_any_uptime(new: int, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [days * DAY + 12_345]
    monkeypatch.setattr(clocks, "perf_counter_ns", lambda: now[0])
    heard, began = TokenTimes(), now[0]
    heard.put(tensor(3, 64))
    for number in range(new):
        now[0] += 47 * MS if number == 0 else 10 * MS
        heard.put(tensor(3))
    now[0] += 1_000
    heard.end()
    found = Stamps(began, [heard.stamps[1:]], now[0], 3).reading(new)
    assert found.parts == {"ttft": 47 * MS, "itl": 10 * MS, "tpot": 10 * MS} and found.series["tail"] == [1_000]
    assert found.series["itl"] == [10 * MS] * (new - 1), "the end of the stream is no token"
    assert round(found.seconds * 1e9) == 47 * MS + (new - 1) * 10 * MS + 1_000


def test_tokens_that_come_at_once_have_one_time_each() -> None:
    heard = TokenTimes()
    for value in (tensor(1, 64), tensor(1, 3), tensor(1, 1)):
        heard.put(value)
    assert len(heard.stamps[1:]) == 4


def looking(*, asked: str = "sdpa", used: str = "sdpa", cache: str = "dynamic", **seen: Any) -> UsedModel:
    """A look at a model that did so for a prompt of 64 tokens."""
    found = SeenPrefill()
    found.places, found.fused, found.cache = seen.get("places", 64), seen.get("fused", 4), seen.get("held", "DynamicCache")
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation=used), dtype="torch.float32")
    how = SimpleNamespace(attention=asked, cache=cache, ask=None)
    module = SimpleNamespace(how=how, model=model, seen_at_first=lambda prompt: found)
    return UsedModel([module], tensor(1, 64), SimpleNamespace(dtype_name=lambda used: "fp32"))


def test_what_was_asked_for_and_used_is_told() -> None:
    look = looking()
    assert look() == look() == {"attention": "sdpa", "prompt": 64, "dtype": "fp32"}
    eager = looking(asked="eager", used="eager", fused=0, cache="static", held="StaticCache")
    assert eager()["attention"] == eager()["attention"] == "eager"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"asked": "eager"}, "attention eager was asked for, and sdpa was used"),
        ({"places": 32}, "a prompt of 64 tokens was asked for, and 32 were read"),
        ({"fused": 0}, "attention sdpa was asked for, and none of torch's fused attention was used"),
        ({"asked": "eager", "used": "eager"}, "attention eager was asked for, and fused attention of torch was used"),
        ({"cache": "static"}, "a static cache was asked for, and a DynamicCache was used"),
        ({"held": "StaticCache"}, "a dynamic cache was asked for, and a StaticCache was used"),
    ],
)
def test_a_silent_substitution_is_not_applied(seen: dict[str, Any], words: str) -> None:
    look = looking(**seen)
    with pytest.raises(NotApplied) as raised:
        look()
        look()
    assert raised.value.what == words
