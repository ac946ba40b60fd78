"""A page of named sections, for things that are shown one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from steelyard.report.cells import clean, cut, lines_of, pad
from steelyard.report.wrap import wrap_text

Rows = Sequence[tuple[str, str]]


class Page:
    """Sections drawn one below the other, all within one width; an empty one is left out."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[Text] = []

    def title(self, name: str, aside: str = "", style: str = "dim") -> None:
        """Add the title of the page, with a word or two at the right."""
        first, *rest = wrap_text(clean(name), self.width - cell_len(aside) - 2)
        self.lines.append(Text.assemble((pad(first, self.width - cell_len(aside)), "bold"), (aside, style)))
        self.lines += [Text(part, "bold") for part in rest]

    def rows(self, head: str, rows: Rows) -> None:
        """Add a section of names and values, in two columns."""
        shown = [(clean(name), value) for name, value in rows if value]
        if not shown:
            return
        self._head(head)
        column = min(max(cell_len(name) for name, _ in shown), self.width // 3)
        for name, value in shown:
            parts = [piece for line in lines_of(value) for piece in wrap_spaced(line, self.width - column - 4)]
            for index, part in enumerate(parts or [""]):
                label = pad(cut(name, column), column) if index == 0 else " " * column
                self.lines.append(Text.assemble((f"  {label}", "dim"), f"  {part}"))

    def text(self, head: str, text: str) -> None:
        """Add a section of free text, wrapped."""
        if text:
            self._head(head)
            self.lines += [piece for line in lines_of(text) for piece in wrapped(line, self.width, indent="  ")]

    def drawn(self) -> Text:
        """The whole page."""
        return joined(self.lines)

    def _head(self, head: str) -> None:
        if head:
            self.lines += [Text(""), Text(head, "bold")]


def joined(lines: Iterable[Text]) -> Text:
    """Join lines, which fit already, to one text without spaces at line ends."""
    whole = list(lines)
    for line in whole:
        line.rstrip()
    return Text("\n", no_wrap=True, overflow="crop").join(whole)


def wrapped(text: str, width: int, style: str = "", indent: str = "") -> list[Text]:
    """A text wrapped into lines of one style, all with the indent."""
    return [Text(f"{indent}{line}", style) for line in wrap_text(text, width - len(indent))]


def wrap_spaced(line: str, width: int) -> list[str]:
    """The line unchanged if it fits, which keeps its alignment; else wrapped."""
    return [line] if cell_len(line) <= width else wrap_text(line, width)
