"""Bent input: valid data with a part replaced, moved or multiplied, and text with bytes changed; the same seed gives the same input."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from steelyard.codec.toml import key_of, value
from steelyard.errors import UsageError
from steelyard.model.values import deeper_than

Path = tuple[Any, ...]

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 10**30, 10**310, 10**420, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, math.nan,
    math.inf, -math.inf, "", " ", "a", "0", "nan", "1e999", "-1", "1%", "30s", "8GiB", "*", "op/*", "[", "]", "#0123456789ab",
    "~nosuch/x", "a" * 5000, "9" * 5000, "\0", "\x1b[31m", "\u202e", "\ud7ff", "é", "../../x", "x.py", "a" * 300 + ".py", [], {}, [[]],
    {"": 0}, [None], {"a": {"a": 1}}, [[[[1]]]], ["a", 1, None], {"size": {"a": 1}}, "2026-01-02T03:04:05Z", "9999-99-99", "tag:smoke",
    "eager", "torch", "command",
)  # fmt: skip
TOKENS: tuple[bytes, ...] = (
    b"[", b"]", b"{", b"}", b'"', b"'", b'"""', b"'''", b"\\", b"\\u0000", b"\\ud800", b"#", b",", b":", b"=", b".", b"-", b"+", b"@",
    b"/", b"\n", b"\r\n", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xae", b"null", b"true", b"NaN", b"Infinity", b"-",
    b"1e999", b"0x", b"0b1", b"1_0", b"2026-01-02", b"12:59:59", b"!!bool ", b"!!int ", b"!!float ", b"!!timestamp ", b"!!binary ",
    b"!!set ", b"!!omap ", b"!!null ", b"!!merge ", b"<<: ", b"!x ", b"&a ", b"*a", b"? ", b"- ", b"| ", b"> ", b"%YAML 9\n", b"---\n",
    b"...\n", b"[[a]]\n", b"[a.b]\n", b"a.b=1\n", b"#0123456789ab", b"n=", b":flag.X=", b":threads=",
)  # fmt: skip
LONG: tuple[bytes, ...] = (
    b"[",
    b"{",
    b"(",
    b"9",
    b"f",
    b"a.",
    b":59",
    b"- ",
    b'{"a":',
    b"{a=",
    b"a/",
    b"+a",
    b",1",
    b'"',
    b"\\",
    b" ",
    b"\n",
)


def bent(rng: Random, seeds: Sequence[Any]) -> Any:
    """One of the seeds with up to four parts changed."""
    data = copy.deepcopy(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        data = _changed(rng, data)
    return data


def _changed(rng: Random, data: Any) -> Any:
    places = list(_places(data))
    if not places:
        return copy.deepcopy(rng.choice(ODD))
    *way, last = rng.choice(places)
    holder = data
    for step in way:
        holder = holder[step]
    old = holder[last]
    kind = rng.randrange(9)
    if kind == 0:
        del holder[last]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice((*map(str, holder), "", "a.b", "\0", "size", "x" * 200, "name", "type", "value"))] = holder.pop(last)
    elif kind == 2:
        holder[last] = [old] * rng.choice((1, 2, 50))
    elif kind == 3:
        holder[last] = {rng.choice(("a", "size", "value", "")): old}
    elif kind == 4:
        other = _at(data, rng.choice(places))
        holder[last] = None if deeper_than(other, 250) else copy.deepcopy(other)
    elif kind == 5:
        holder[last] = _nested(rng, old)
    elif kind == 6 and isinstance(old, str) and old:
        holder[last] = text(rng, old.encode(), 1).decode("utf-8", "replace")
    elif kind == 7 and isinstance(old, (int, float)) and not isinstance(old, bool):
        holder[last] = rng.choice((-old, old * 10**20 if isinstance(old, int) else old * 1e20, str(old), [old], old + 1))
    else:
        holder[last] = copy.deepcopy(rng.choice(ODD))
    return data


def _nested(rng: Random, inner: Any) -> Any:
    wrap: Callable[[Any], Any] = rng.choice((lambda item: [item], lambda item: {"a": item}))
    for _ in range(rng.choice((3, 19, 21, 60, 300))):
        inner = wrap(inner)
    return inner


def _places(data: Any) -> list[Path]:
    found: list[Path] = []
    queue: list[tuple[Path, Any]] = [((), data)]
    while queue:
        place, item = queue.pop()
        for key, part in item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ():
            found.append((*place, key))
            if len(place) < 12:
                queue.append(((*place, key), part))
    return found


def _at(data: Any, place: Path) -> Any:
    for step in place:
        data = data[step]
    return data


def text(rng: Random, raw: bytes, changes: int) -> bytes:
    """Bytes with pieces cut, doubled, moved, flipped and put in."""
    data = bytearray(raw)
    for _ in range(changes):
        at = rng.randrange(len(data) + 1)
        until = min(len(data), at + rng.choice((1, 1, 2, 8, 40)))
        kind = rng.randrange(8)
        if kind == 0:
            del data[at:until]
        elif kind == 1:
            data[at:at] = data[at:until] * rng.choice((1, 2, 100))
        elif kind == 2 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:at] = rng.choice(LONG) * rng.choice((10, 400, 3000))
        elif kind == 5:
            other = rng.randrange(len(data) + 1)
            data[at:at] = data[other : other + 40]
        else:
            at = _before_value(data, at) if rng.random() < 0.6 else at
            data[at:at] = rng.choice(TOKENS)
    return bytes(data)


def _before_value(data: bytearray, at: int) -> int:
    """Where the next value begins, after what the formats put before one."""
    found = [data.find(mark, at) + len(mark) for mark in (b": ", b"= ", b"- ", b"[", b",", b"=") if data.find(mark, at) >= 0]
    return min(found, default=at)


def as_json(rng: Random, data: Any) -> bytes:
    """JSON, with NaN and lone surrogates as Python writes them."""
    return json.dumps(data, indent=rng.choice((None, None, 1)), default=str).encode()


def as_lines(rng: Random, data: Any) -> bytes:
    """A JSON object a line."""
    return b"".join(json.dumps(item, default=str).encode() + b"\n" for item in (data if isinstance(data, list) else [data]))


def as_toml(rng: Random, data: Any) -> bytes:
    """A key a line; what TOML has no word for is text."""
    if not isinstance(data, dict):
        return repr(data).encode("utf-8", "replace")
    lines = []
    for key, item in data.items():
        try:
            lines.append(f"{key_of(str(key))} = {value(item)}")
        except (UsageError, ValueError, RecursionError):
            lines.append(f"{key_of(str(key))} = {json.dumps(str(type(item)))}")
    return "\n".join(lines).encode("utf-8", "replace")


def as_yaml(rng: Random, data: Any) -> bytes:
    """YAML in its own form or as JSON, which it reads too."""
    import yaml

    if rng.random() < 0.3:
        return as_json(rng, data)
    try:
        return yaml.safe_dump(data, default_flow_style=rng.choice((None, True, False)), allow_unicode=True).encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError, RecursionError):
        return as_json(rng, data)
