"""Wraps long text to a width without losing any of it."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

from steelyard.report.cells import cut


def wrap_text(line: str, width: int) -> list[str]:
    """A line of prose, of a traceback or of code; words longer than the width are broken at the width."""
    width = max(width, 4)
    indent = " " * min(len(line) - len(line.lstrip(" ")), width // 2)
    pieces = [indent]
    for word in filter(None, line.split(" ")):
        glue = " " if pieces[-1] != indent else ""
        if cell_len(pieces[-1]) + len(glue) + cell_len(word) <= width:
            pieces[-1] += glue + word
            continue
        if pieces[-1] != indent:
            pieces.append(indent)
        pieces[-1:] = [indent + part for part in chop_cells(word, width - len(indent)) or [word]]
    return pieces


def wrap_words(text: str, width: int) -> list[str]:
    """Break between the words of an `a · b · c` line, never inside one that fits."""
    made: list[str] = []
    for word in text.split(" · "):
        if made and cell_len(made[-1]) + 3 + cell_len(word) <= width:
            made[-1] += f" · {word}"
        else:
            made.append(cut(word, width))
    return made


def wrap_facts(text: str, width: int) -> list[str]:
    """Break an `a · b · c` line between its words, and inside a word only if it is longer than the width; nothing is lost."""
    fits = all(cell_len(word) <= width for word in text.split(" · "))
    return wrap_words(text, width) if fits else wrap_text(text, width)
