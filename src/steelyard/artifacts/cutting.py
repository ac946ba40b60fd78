"""Smaller versions of a program of MLIR text: fewer outputs, an earlier end, a later beginning. Only text is changed; nothing is executed.

A program is its entry function as a list of statements. Only a compiler can check whether a smaller program is still valid.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from steelyard.errors import Unsupported

MOST_TRIED = 48
_VALUE = re.compile(r"%[\w$.\-]+")
_RESULTS = re.compile(r"\s*(%[\w$.\-]+)(?::(\d+))?\s*=\s")
_CALLED = re.compile(r'@"?([\w$.\-]+)"?')
_LOCATION = re.compile(r"\s+loc\((?:[^()\"]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\")*\))*\)\s*$")
_FUNCTION = re.compile(r'^[ \t]*func\.func\s+(?:(?:public|private|nested)\s+)?@"?([\w$.\-]+)"?\s*\(', re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """One operation: its text, the value that it makes, the type of that value, and the values that it uses.

    A statement that makes several values, or whose type is not clear from its text, has no type; it can only be kept or left out.
    """

    text: str
    made: str = ""
    type: str = ""
    used: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CutProgram:
    """An entry function with its arguments, statements and outputs, each argument and output a value and its type."""

    arguments: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]
    outputs: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...] = ()
    """The other functions of the module, by name."""
    entry: str = "main"

    @property
    def size(self) -> tuple[int, int, int]:
        """Sizes to compare programs by: statements first, then outputs and arguments."""
        return len(self.statements), len(self.outputs), len(self.arguments)

    def text(self) -> str:
        """The text of the module, with the other functions that are still called."""
        arguments = ", ".join(f"{name}: {kind}" for name, kind in self.arguments)
        kinds = ", ".join(kind for _, kind in self.outputs)
        body = textwrap.indent(textwrap.dedent("\n".join(statement.text.rstrip() for statement in self.statements)), "    ")
        names = ", ".join(name for name, _ in self.outputs)
        head = f'  func.func public @"{self.entry}"({arguments}) -> ({kinds}) {{'
        called = _called("\n".join(statement.text for statement in self.statements), dict(self.others))
        rest = [text for name, text in self.others if name in called]
        return "\n".join(["module {", head, body, f"    return {names} : {kinds}", "  }", *rest, "}", ""])

    def pruned(self) -> CutProgram:
        """The program without the statements and arguments that no output needs."""
        needed, kept = {name for name, _ in self.outputs}, list[Statement]()
        for statement in reversed(self.statements):
            if statement.made in needed:
                kept.append(statement)
                needed |= statement.used
        arguments = tuple(item for item in self.arguments if item[0] in needed)
        return replace(self, arguments=arguments, statements=tuple(reversed(kept)))


def _called(text: str, others: dict[str, str]) -> set[str]:
    """The functions that a text calls, directly or through other functions."""
    found: set[str] = set()
    queue = [text]
    while queue:
        for name in _CALLED.findall(queue.pop()):
            if name in others and name not in found:
                found.add(name)
                queue.append(others[name])
    return found


def read_program(text: str, entry: str = "main") -> CutProgram:
    """The function named `entry`, or else the first; text that MLIR's printers did not write cannot be cut."""
    functions = {found[1]: _function(text, found.start()) for found in _FUNCTION.finditer(text)}
    entry = entry if entry in functions else next(iter(functions), "")
    if not entry:
        raise Unsupported("the program cannot be cut", why="no function was found in its text")
    head, body = _parts(functions[entry])
    arguments = [tuple(part.split(":", 1)) for part in _split(head)]
    statements = [_statement(chunk) for chunk in _chunks(body)]
    if not statements or not statements[-1].text.lstrip().startswith(("return", "func.return")):
        raise Unsupported("the program cannot be cut", why="its entry has no return at the end")
    last = _LOCATION.sub("", statements.pop().text.strip()).partition(" ")[2]
    names, _, kinds = last.partition(" : ")
    outputs = tuple(zip(map(str.strip, names.split(",")), _split(kinds), strict=False))
    if not last or any("#" in name for name, _ in outputs) or len(outputs) != len(names.split(",")):
        raise Unsupported("the program cannot be cut", why="it returns nothing, or parts of what one statement made")
    known = tuple((name.strip(), _bare(kind)) for name, kind in arguments)
    others = tuple((name, found) for name, found in functions.items() if name != entry)
    return CutProgram(known, tuple(statements), outputs, others, entry)


def _bare(kind: str) -> str:
    """A type without the attributes of an argument."""
    return kind.partition("{")[0].strip()


def _function(text: str, start: int) -> str:
    """A function from its head to the bracket that closes its body."""
    place = _after(text, text.index("(", start))
    place = text.index("{", place)
    while (closed := _after(text, place)) < len(text) and not text[closed:].lstrip(" ").startswith(("\n", "loc(", "}")):
        place = text.find("{", closed)
        if place < 0:
            break
    return text[start:closed]


def _parts(function: str) -> tuple[str, str]:
    """The text in the brackets of the arguments, and the body."""
    opened = function.index("(")
    head = function[opened + 1 : _after(function, opened) - 1]
    place, inside = len(function) - 1, 0
    for place in range(len(function) - 1, -1, -1):
        inside += (function[place] == "}") - (function[place] == "{")
        if not inside:
            break
    return head, function[place + 1 : -1]


def _after(text: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`, ignoring strings; the end of the text if there is none."""
    depth, place = 0, start
    while place < len(text):
        if text[place] == '"':
            place = _past_string(text, place)
            continue
        depth += (text[place] in "({[") - (text[place] in ")}]")
        place += 1
        if not depth:
            return place
    return place


def _past_string(text: str, place: int) -> int:
    end = place + 1
    while end < len(text) and text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    return end + 1


def _split(text: str) -> list[str]:
    """Parts between commas that are outside all brackets."""
    found, depth, begin, place = list[str](), 0, 0, 0
    while place < len(text):
        if text[place] == '"':
            place = _past_string(text, place)
            continue
        arrow = text[place] == ">" and text[place - 1 : place] == "-"
        depth += (text[place] in "({[<") - (text[place] in ")}]>" and not arrow)
        if text[place] == "," and not depth:
            found.append(text[begin:place].strip())
            begin = place + 1
        place += 1
    return [part for part in (*found, text[begin:].strip()) if part]


def _chunks(body: str) -> Iterator[str]:
    """Yield statements: lines, joined while a bracket is open or if the next line continues with a region."""
    chunk, depth = list[str](), 0
    lines = body.splitlines()
    for number, line in enumerate(lines):
        if not line.strip() and not chunk:
            continue
        chunk.append(line)
        place = 0
        while place < len(line):
            if line[place] == '"':
                place = _past_string(line, place)
                continue
            depth += (line[place] in "({[") - (line[place] in ")}]")
            place += 1
        following = lines[number + 1].lstrip() if number + 1 < len(lines) else ""
        if depth <= 0 and not following.startswith(("cond {", "do {", "reducer(", "}, {", "{")):
            yield "\n".join(chunk)
            chunk, depth = [], 0
    if chunk:
        yield "\n".join(chunk)


def _statement(text: str) -> Statement:
    found = _RESULTS.match(text)
    made = found[1] if found else ""
    kind = _type_of(text) if found and found[2] is None else ""
    return Statement(text, made, kind, frozenset(_VALUE.findall(text)) - {made})


def _type_of(text: str) -> str:
    """The type of the one value that a statement makes, read from the end of its text; empty if it is not clear."""
    last = _LOCATION.sub("", text.splitlines()[-1].rstrip())
    place = last.rfind(" : ")
    if place < 0:
        return ""
    kinds = last[place + 3 :]
    found = _split(kinds.rpartition("->")[2].strip().strip("()") if "->" in kinds else kinds)
    return found[-1] if found and found[-1].startswith("tensor<") and found[-1].endswith(">") else ""


def smaller(program: CutProgram) -> Iterator[CutProgram]:
    """Yield smaller programs, the smallest cuts last: half of the outputs, one of them, then in turn an end at an earlier statement and
    a beginning at a later one, so that a program that can be cut only at one side is halved there at once."""
    for outputs in _fewer(program.outputs):
        yield replace(program, outputs=outputs).pruned()
    typed = [statement for statement in program.statements if statement.type]
    for place in spread(len(typed)):
        yield replace(program, outputs=((typed[place].made, typed[place].type),)).pruned()
        yield _begun_at(program, typed[len(typed) - 1 - place])


def _begun_at(program: CutProgram, statement: Statement) -> CutProgram:
    """The program with the value of a statement as an argument, so that it is not computed."""
    rest = tuple(item for item in program.statements if item is not statement)
    arguments = (*program.arguments, (statement.made, statement.type))
    return replace(program, arguments=arguments, statements=rest).pruned()


def _fewer(outputs: Sequence[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    half = len(outputs) // 2
    if half:
        yield from (tuple(outputs[:half]), tuple(outputs[half:]))
        yield from ((item,) for item in outputs if len(outputs) > 2)


def spread(count: int, most: int = MOST_TRIED) -> list[int]:
    """Places below `count`: the middle first, then the quarters, and so on, none twice and at most `most`."""
    found: dict[int, None] = {}
    step = count
    while step > 1 and len(found) < most:
        step = -(-step // 2)
        found |= dict.fromkeys(range(step, count, 2 * step))
    found |= dict.fromkeys(range(count)) if count <= most else {}
    return list(found)[:most]
