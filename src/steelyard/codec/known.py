"""Changes that are known or expected: a small file in the store, which the gate, `nightly` and the report use.

["op/softmax*"]
reason = "rounds correctly now"
most = "5%"                       # optional: a change beyond it still counts

"layer/attention*" = "waits for the new kernel"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.codec.parsing import load
from steelyard.codec.policy import Excuse
from steelyard.codec.reading import CheckedFile, quantity, text_value
from steelyard.model.units import parse_share

FILE = "known-changes.toml"
KEYS = frozenset({"reason", "most"})
SLOWER = "slower"
_most = quantity(parse_share, "a share such as 5% or 0.05", lambda share: 0 < share < 10)


def load_known(store: Path) -> tuple[Excuse, ...]:
    """The known changes in a store's file, or none if it is missing; one error names every mistake in the file."""
    path = store / FILE
    if not path.exists():
        return ()
    data, text = load(path, "toml")
    page = CheckedFile(str(path), text)
    found = tuple(_entry(page, pattern, value) for pattern, value in data.items())
    page.finish()
    return found


def _entry(page: CheckedFile, pattern: str, value: Any) -> Excuse:
    table: Mapping[str, Any] = {"reason": value} if isinstance(value, str) else page.table(value, f'"{pattern}"')
    page.known(table, f'"{pattern}"', KEYS)
    reason = page.read(table, f'"{pattern}"', "reason", text_value, "")
    if not reason.strip() and "reason" not in table:
        page.wrong(f'"{pattern}".reason', "missing: give a reason for later readers", near=f'"{pattern}"')
    return Excuse(pattern, SLOWER, reason, page.read(table, f'"{pattern}"', "most", _most, None))


def known_reason(known: Sequence[Excuse], case: str, ratio: float) -> str:
    """The reason why a change of a case's time is known or expected; empty if it is not."""
    return next((item.reason or "known" for item in known if item.fits(case) and item.covers(SLOWER, ratio)), "")
