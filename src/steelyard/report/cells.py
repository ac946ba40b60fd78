"""Texts for single values: a status, a time, a speedup, a case in few words. Plain strings, no drawing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from steelyard.errors import UsageError
from steelyard.model import effects
from steelyard.model.case import ENV, HERE, IDENTITY, Case
from steelyard.model.pair import MARGIN, Delta, Verdict, judge
from steelyard.model.programs import ARGV, NAME, PROGRAM, filled, used, values_of, words_of
from steelyard.model.record import BAD, Figure, Record
from steelyard.model.units import measured, with_error
from steelyard.model.values import is_file_value, value_text
from steelyard.report import calls

VERDICT_GLYPHS: dict[Verdict, str] = {
    "faster": "▲",
    "slower": "▼",
    "same": "≈",
    "unclear": "?",
    "missing": "–",
    "failed": "✗",
    "incomparable": "–",
}
COMMAND = PROGRAM
UNVERIFIED, IDENTICAL = "○", "="
LONGEST_REASON = 500
RANGE = " to "
THIN = "\u202f"
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
Parts = tuple[str, str, str]


def clean(text: object) -> str:
    """One line without control characters: messages come from frameworks and must not control the terminal."""
    shown = visible(str(text))
    return " ".join(word for word in shown.split(" ") if word) if " " in shown else shown


def lines_of(text: object) -> list[str]:
    """The lines of a text without control characters; indents are kept."""
    return [visible(line.expandtabs(4)).rstrip(" ") for line in str(text).splitlines()]


def visible(text: str) -> str:
    """Remove escape sequences and turn other control characters into spaces; the thin space inside numbers stays."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == THIN else " " for char in _ESCAPES.sub("", text))


def cut(text: str, width: int) -> str:
    """The beginning of a text, with an ellipsis if it was cut."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…" if width > 0 else ""


def pad(text: str, width: int, align: str = "<") -> str:
    """Fill with spaces to a number of columns."""
    space = " " * max(0, width - cell_len(text))
    return space + text if align == ">" else text + space


def glyph(status: str) -> str:
    """A sign for a status, so that colour is not needed: ok, bad, or not measured."""
    return "✓" if status == "ok" else "✗" if status in BAD else "–"


def status_words(record: Record) -> str:
    """`✗ failed`, `– not applied`."""
    return f"{glyph(record.status)} {record.status.replace('_', ' ')}"


def reason(record: Record) -> str:
    """Why a record is not ok: its error, or for a wrong answer what verification found."""
    return record.reason or (record.verification.message if record.verification and record.status == "wrong" else "")


def unverified(record: Record) -> str:
    """Why the answer of an ok record was not verified; empty if it was verified, or has no answer."""
    found = record.verification
    if record.status != "ok" or (found is not None and found.status != "none"):
        return ""
    if found is None:
        return "verification was switched off" if record.requested.get("verify") is False else ""
    return clean(found.message) or "no reference"


def identical_to(record: Record) -> str:
    """What a variant's answer is bit-identical to, or empty; a variant that changes nothing is bit-identical to the plain task."""
    found = record.verification
    same = record.status == "ok" and found is not None and found.identical and f" {IDENTITY}" in found.against
    return clean(found.against) if same and found else ""


def check_mark(record: Record) -> str:
    """`○` not verified, `=` bit-identical to the plain task."""
    return UNVERIFIED if unverified(record) else IDENTICAL if identical_to(record) else ""


def verified_mark(record: Record) -> str:
    """`✓` verified, `○` not verified, `✓ =` bit-identical to the plain task; empty if there was nothing to check."""
    found = record.verification
    passed = record.status == "ok" and found is not None and found.status == "passed"
    return f"✓ {check_mark(record)}".rstrip() if passed else check_mark(record)


def check_words(record: Record) -> str:
    """A remark on a verification that did not simply pass."""
    if why := unverified(record):
        return f"not verified: {why}"
    return f"bit-identical to {same}" if (same := identical_to(record)) else ""


def shortened(text: str, longest: int = LONGEST_REASON) -> str:
    """The beginning of an error for a table; exceptions may print whole arrays, and the record keeps the whole text."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def parts_of(figure: Figure | None) -> Parts | None:
    """Number, half-width and unit of a figure, or None if it was not measured."""
    return None if figure is None else measured(figure.value, figure.low, figure.high, clean(figure.unit))


def figure_text(figure: Figure) -> str:
    """`11.42 ± 0.06 µs`."""
    return with_error(figure.value, figure.low, figure.high, figure.unit)


def aligned(column: Sequence[Parts | None]) -> list[str]:
    """The texts of one column, with decimal points and ± signs aligned; `3 to 7` spans both parts and is aligned to the right."""
    known = [parts for parts in column if parts]
    if not known:
        return ["" for _ in column]
    numbers = _at_point(["" if RANGE in parts[0] else parts[0] for parts in known])
    halves = _at_point([parts[1] for parts in known])
    unit = max(cell_len(parts[2]) for parts in known)
    shown = []
    for number, half, (bare, spread, _) in zip(numbers, halves, known, strict=True):
        between = (f" ± {half}" if spread else " " * (3 + len(half))) if half else ""
        shown.append(bare if RANGE in bare else f"{number}{between}")
    width = max(map(len, shown))
    joined = [f"{text:>{width}} {pad(parts[2], unit)}" if unit else f"{text:>{width}}" for text, parts in zip(shown, known, strict=True)]
    texts = iter(joined)
    return [next(texts) if parts else "" for parts in column]


def _at_point(numbers: Sequence[str]) -> list[str]:
    split = [number.partition(".") for number in numbers]
    whole = max(len(head) for head, _, _ in split)
    rest = max(len(point + tail) for _, point, tail in split)
    return [f"{head:>{whole}}{point + tail:<{rest}}" for head, point, tail in split]


def delta_text(delta: Delta) -> str:
    """`▲ 14 % faster [13, 15]`: a sign for the verdict and the effect in words."""
    return f"{VERDICT_GLYPHS[delta.verdict]} {clean(delta.effect)}"


def unpaired_words(speedup: float, low: float | None, high: float | None) -> tuple[Verdict | None, str]:
    """Verdict and words for a speedup of two cases that are not a pair, by the rules for pairs; without an interval it has no verdict."""
    if not low or not high:
        return None, effects.speedup(speedup)
    ratio, ends = 1 / speedup, (1 / high, 1 / low)
    verdict = judge(*ends, MARGIN)
    return verdict, effects.effect(ratio, *ends, verdict, margin=MARGIN)


def unpaired_text(speedup: float, low: float | None, high: float | None) -> str:
    """The words for such a speedup, after the sign of its verdict."""
    verdict, words = unpaired_words(speedup, low, high)
    return f"{VERDICT_GLYPHS[verdict]} {words}" if verdict else f"  {words}"


def facets(case: Mapping[str, Any]) -> dict[str, str]:
    """Everything that can differ between cases of a workload, except backend and variant, each as the text to show."""
    params = dict(case.get("params") or {})
    found: dict[str, str] = {}
    if case.get("workload") == COMMAND and ARGV in params:
        found[ARGV], params = program_words(params)
    if case.get("workload") == calls.CALL:
        found, params = {key: clean(text) for key, text in calls.facets(params).items()}, {}
    dtype = params.pop("dtype", None)
    found.update({key: clean(value_text(value) if is_file_value(value) else f"{key}={value_text(value)}") for key, value in params.items()})
    if dtype is not None:
        found["dtype"] = clean(dtype)
    found["mode"] = clean(case.get("mode", "eval"))
    found["device"] = clean(case.get("device", "cpu"))
    for key in ("threads", "ranks"):
        found[key] = clean(f"{key}={case.get(key, 1)}")
    found[ENV] = clean(f"env={case.get('env') or HERE}")
    found.update({f"flag.{key}": clean(f"{key}={value}") for key, value in (case.get("flags") or {}).items()})
    return found


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A nested table as flat `name.part` values, without empty ones."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        elif value not in (None, "", []):
            yield f"{prefix}{name}", value


USUAL = {"mode": "eval", "device": "cpu", "threads": "threads=1", "ranks": "ranks=1", ENV: f"env={HERE}"}


def command_line(argv: Any) -> str:
    """A command as it would be typed."""
    return clean(shlex.join(str(item) for item in argv) if isinstance(argv, (list, tuple)) else argv)


def program_words(params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A program's name, else its command line, and the parameters that neither contains."""
    name, values = params.get(NAME), values_of(params)
    said = clean(filled(name, values)) if isinstance(name, str) else ""
    told = [name] if said and isinstance(name, str) else [str(word) for word in params[ARGV]] if isinstance(params[ARGV], list) else []
    known = {ARGV, NAME, *used(told, values)}
    return said or command_line(words_of(params) or params[ARGV]), {key: value for key, value in params.items() if key not in known}


def brief(id: str) -> str:
    """A case in few words for a live line: `op/softmax n=1024 bf16 compile`."""
    try:
        case = Case.parse(id)
    except UsageError:
        return clean(id)
    words = [text for key, text in facets(case.plain()).items() if USUAL.get(key) != text]
    return " ".join(words if case.workload == COMMAND else [case.workload, *words, case.variant])


def case_line(record: Record) -> str:
    """One finished case on one plain line, for logs and pipes, with the name that its experiment file gives it."""
    time = record.metrics.get("time")
    shown = [f"{status_words(record)}  {clean(shortened(str(record.effective.get('label') or record.id)))}"]
    if time:
        shown.append(figure_text(time))
        shown.append(f"n={time.n}" if time.n else "")
        shown.append(clean(f"noise {record.effective['noise']}") if record.effective.get("noise") else "")
    if record.status != "ok":
        shown.append(clean(shortened(reason(record))))
    return "  ".join(text for text in shown if text)
