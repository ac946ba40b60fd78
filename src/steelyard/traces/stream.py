"""Read JSON as a stream: a file's objects one by one from a sliding window, so that a large file takes no more memory than an object.

Libraries for this (ijson) are not in the standard library, and a worker has only that; the standard decoder on a window is as fast
as on the whole file.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from steelyard import files
from steelyard.traces.nodes import BadTrace

FILE = 16 * 2**30
"""The largest trace that is read, in bytes when unpacked."""
WINDOW, TAIL = 2**20, 2**10
NEAR = 16
"""An error this close to the end of the window may just be a value that continues after it."""
_BLANK = re.compile(r"[ \t\r\n]*")
_GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[JsonWindow]:
    """Open a trace's text, unpacked if it is gzip, as a window that moves over it."""
    with files.open_named(path, do="name a trace: a .json or .json.gz file") as file:
        packed = file.peek(2)[:2] == _GZIP if hasattr(file, "peek") else False
        size = os.fstat(file.fileno()).st_size
        most = files.limit(FILE)
        if size > most:
            raise files.too_large(str(path), size, most)
        if not packed:
            yield JsonWindow(file, str(path), most)
            return
        with gzip.GzipFile(fileobj=file) as inside:
            yield JsonWindow(inside, str(path), most)


class JsonWindow:
    """A place in a JSON text that only moves forward."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, where: str, most: int = FILE) -> None:
        self._file, self.where, self._most = file, where, most
        self._text, self._place, self._seen, self._over = "", 0, 0, False
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._json = json.JSONDecoder(parse_constant=_constant)

    @property
    def position(self) -> int:
        """The number of characters consumed so far."""
        return self._seen - len(self._text) + self._place

    def peek(self) -> str:
        """The next character that is not blank; empty at the end of the text."""
        while True:
            match = _BLANK.match(self._text, self._place)
            assert match is not None
            self._place = match.end()
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._more():
                return ""

    def skip(self, expected: str) -> None:
        """Consume a character that must come next."""
        if (found := self.peek()) != expected:
            raise self.broken(f"expected {expected!r}, not {found!r}" if found else "the file ends too early", cut=not found)
        self._place += 1

    def take(self, character: str) -> bool:
        """Consume a character if it comes next; return whether it did."""
        if self.peek() != character:
            return False
        self._place += 1
        return True

    def value(self, what: str = "a value") -> Any:
        """Consume and return the next value, complete."""
        if not self.peek():
            raise self.broken(f"the file ends before {what}", cut=True)
        most = files.limit(files.LINE)
        while True:
            try:
                found, end = self._json.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                goes_on = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - NEAR
                if goes_on and len(self._text) - self._place > most:
                    raise files.too_large(f"{what} in {self.where}", len(self._text) - self._place, most) from None
                if goes_on and self._more(len(self._text) - self._place):
                    continue
                raise self.broken(f"{what} is not valid JSON: {error.msg}", cut=goes_on and self._over) from None
            except RecursionError:
                raise self.broken(f"{what} is nested too deep") from None
            except ValueError as error:
                raise self.broken(f"{what} cannot be read: {str(error)[:80]}") from None
            if end >= len(self._text) - NEAR and type(found) in (int, float) and self._more():
                continue
            self._place = end
            return found

    def tail(self) -> str:
        """The last characters of the text, without parsing what is before them; nothing can be read after this call.

        A packed file has to be unpacked for that, which also shows whether it can be.
        """
        end = self._text[self._place :]
        if not self._over and not isinstance(self._file, gzip.GzipFile):
            size = os.fstat(self._file.fileno()).st_size
            self._file.seek(max(self._file.tell(), size - TAIL))
        while chunk := self._chunk(WINDOW):
            self._count(len(chunk))
            end = (end + chunk.decode("utf-8", errors="replace"))[-TAIL:]
        self._over = True
        return end

    def broken(self, what: str, *, cut: bool = False) -> BadTrace:
        """The error for a mistake at this place."""
        do = "copy or capture it again: the file is cut off" if cut else ""
        return BadTrace(what, why=f"about {self.position} characters into it", do=do, where=self.where)

    def _more(self, at_least: int = 0) -> bool:
        """Move the window forward; it grows with a value that does not fit, so that reading a value takes time linear in its size."""
        if self._over:
            return False
        chunk = self._chunk(max(WINDOW, at_least))
        try:
            text = self._decode(chunk, final=not chunk)
        except UnicodeDecodeError:
            raise BadTrace("not a text file", why="it is not UTF-8", where=self.where) from None
        if not chunk:
            self._over = True
            return False
        self._count(len(text))
        self._text, self._place = self._text[self._place :] + text, 0
        return True

    def _count(self, more: int) -> None:
        """Add to the number of characters read, and raise beyond the limit; a small packed file may contain any number."""
        self._seen += more
        if self._seen > self._most:
            raise files.too_large(f"{self.where} unpacked", self._seen, self._most)

    def _chunk(self, size: int) -> bytes:
        """The next bytes of the file; none at its end."""
        try:
            return self._file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise BadTrace("cannot be unpacked", why=str(error), do="copy it again: it is damaged or cut off", where=self.where) from None


def _constant(word: str) -> float:
    return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[word]
