"""Long text in pieces that fit a width, without losing any of it."""

from __future__ import annotations

from steelyard.report.cells import cells, cut


def wrap_text(line: str, width: int) -> list[str]:
    """A line of prose, of a traceback or of code; words longer than the width are broken where it ends."""
    width = max(width, 4)
    indent = " " * min(len(line) - len(line.lstrip(" ")), width // 2)
    pieces = [indent]
    for word in filter(None, line.split(" ")):
        glue = " " if pieces[-1] != indent else ""
        if cells(pieces[-1]) + len(glue) + cells(word) <= width:
            pieces[-1] += glue + word
            continue
        if pieces[-1] != indent:
            pieces.append(indent)
        while cells(pieces[-1]) + cells(word) > width:
            taken = _fitting(word, width - len(indent))
            pieces[-1], word = indent + word[:taken], word[taken:]
            pieces.append(indent)
        pieces[-1] += word
    return pieces if pieces[-1] != indent or len(pieces) == 1 else pieces[:-1]


def _fitting(word: str, width: int) -> int:
    """How many characters of a word fit; at least one, so that breaking ends."""
    used = 0
    for index, char in enumerate(word):
        used += cells(char)
        if used > width:
            return max(1, index)
    return len(word)


def wrap_words(text: str, width: int) -> list[str]:
    """Break between the words of an `a · b · c` line, never inside one that fits."""
    made: list[str] = []
    for word in text.split(" · "):
        if made and cells(made[-1]) + 3 + cells(word) <= width:
            made[-1] += f" · {word}"
        else:
            made.append(cut(word, width))
    return made


def wrap_facts(text: str, width: int) -> list[str]:
    """An `a · b · c` line broken between its words, and inside of them only where one is longer than the width: none of it is lost."""
    fits = all(cells(word) <= width for word in text.split(" · "))
    return wrap_words(text, width) if fits else wrap_text(text, width)
