"""The line that repeats a case is read by the command line as the same case with the same settings, whatever they are."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from steelyard import codec
from steelyard.analyze.repeat import repeat_line, repeat_lines
from steelyard.cli.run import _request, command
from steelyard.engine import commands
from steelyard.engine.selection import Request
from steelyard.model.case import Case
from steelyard.model.experiment import BUDGETS, Settings
from steelyard.model.record import Record
from steelyard.store.runs import Header, Run
from tests.engine.drive import run_json, steelyard

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
seconds = st.sampled_from([*BUDGETS.values(), 0.02, 7.0]) | st.floats(1e-6, 1e4)
shares = st.floats(1e-4, 0.9)
tolerances = st.none() | st.floats(0, 1e6)
values = st.integers(-99, 99) | st.booleans() | st.none() | st.floats(-1e6, 1e6) | words
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "dtype")
asked = st.builds(
    Settings, budget=seconds, precision=shares, sampling=st.sampled_from(["blocks", "calls"]), warmup=st.none() | seconds, rtol=tolerances,
    atol=tolerances, verify=st.booleans(), reference=st.sampled_from(["eager", "fp64"]), seed=st.integers(0, 2**31), timeout=seconds,
    memory=st.none() | st.integers(1, 2**40), isolate=st.sampled_from(["case", "workload", "none"]),
    vs=st.sampled_from([None, "eager", "fast[mode=x]", "env:old", "path:../base", "path:../a base"]), runs=st.none() | st.integers(1, 99),
    margin=shares, settle=st.floats(0, 100), telemetry=st.booleans(), peak_memory=st.booleans(), memory_snapshot=st.booleans(),
    profile=st.booleans(), ncu=st.booleans(), nsys=st.booleans(), compile_time=st.none() | st.integers(1, 9),
    dump_ir=st.sampled_from([None, "hlo", "stablehlo", "text"]),
)  # fmt: skip
cases = st.builds(
    Case, st.sampled_from(["mine/adds", "op/softmax"]), st.dictionaries(names, values, max_size=3).map(lambda found: tuple(found.items())),
    st.sampled_from(["numpy", "torch"]), st.sampled_from(["quick", "quick+compile[mode=fast]"]), st.sampled_from(["eval", "train"]),
    st.sampled_from(["cpu", "cuda"]), st.integers(1, 8), st.just(1),
    st.dictionaries(names, words, max_size=2).map(lambda found: tuple(found.items())),
)  # fmt: skip
files = st.lists(st.sampled_from(["bench.py", "sub folder/x.py", "-odd.py", "/else where/it's.py"]), max_size=2, unique=True)


def typed(line: str) -> Request:
    """What the command line makes of a line."""
    program, verb, *rest = shlex.split(line)
    assert (program, verb) == ("steelyard", "run")
    with click.Context(command, obj=tuple(rest)) as outer, command.make_context("run", list(rest), parent=outer) as context:
        return _request(context.params)


def record(case: Case, **more: Any) -> Record:
    return Record(case.id, case.plain(), "ok", **more)


class TestRoundTrip:
    @hypothesis_settings(max_examples=150, deadline=None)
    @given(cases, asked, files, st.sampled_from(["", "old"]))
    def test_the_command_line_reads_the_same_case_with_the_same_settings(
        self, case: Case, settings: Settings, named: list[str], env: str
    ) -> None:
        line = repeat_line(record(case), Header(settings=asdict(settings), files=named, env=env))
        request = typed(line)
        *paths, id = request.selectors
        assert Case.parse(id) == case
        assert [str(Path(path)) for path in paths] == named
        assert request.env == (env or None)
        assert replace(Settings(), **request.settings) == settings

    @hypothesis_settings(max_examples=60, deadline=None)
    @given(st.lists(words.filter(lambda word: word != "--"), min_size=1, max_size=4), asked, st.integers(1, 4))
    def test_so_it_does_with_programs(self, argv: list[str], settings: Settings, threads: int) -> None:
        case = Case("command", (("argv", argv),), "command", threads=threads, flags=(("OMP", "a b"),))
        settings = replace(settings, vs=None)
        request = typed(repeat_line(record(case), Header(settings=asdict(settings))))
        assert commands.cases(request) == [case]
        assert replace(Settings(), **request.settings) == settings

    @hypothesis_settings(max_examples=60, deadline=None)
    @given(
        st.dictionaries(names.filter(lambda name: name not in ("argv", "name", "prepare")), values, max_size=2), words, words, st.booleans()
    )
    def test_a_scan_comes_back_with_its_values_its_name_and_its_preparation(
        self, scan: dict[str, Any], name: str, prepare: str, alike: bool
    ) -> None:
        own = (("argv", ["./p", *(f"--{key}={{{key}}}" for key in scan)]), ("name", name), ("prepare", prepare), *scan.items())
        head, settings = Case("command", own, "command"), replace(Settings(), warmup_runs=3)
        base = head if alike else replace(head, params=(("argv", ["./old"]), ("prepare", prepare)))
        request = typed(repeat_line(record(head), Header(settings=asdict(settings)), None if alike else record(base)))
        assert commands.cases(request) == [head] if alike else commands.bases(request) == {base: base, head: base}
        assert replace(Settings(), **request.settings) == settings

    def test_a_long_value_of_a_scan_is_written_in_full(self) -> None:
        """In an id it is a hash; a line that is typed anew has nowhere to look that up."""
        case = Case("command", (("argv", ["./p", "{n}"]), ("n", "x" * 99)), "command")
        assert commands.cases(typed(repeat_line(record(case), Header()))) == [case]
        nested = Case("command", (("argv", ["./p", "{n}"]), ("n", [1, [2]])), "command")
        assert repeat_line(record(nested), Header()) == ""

    def test_points_of_one_scan_are_weighed_against_its_first_again(self) -> None:
        one, two = (Case("command", (("argv", ["./p", "{n}"]), ("n", n)), "command") for n in (1, 2))
        line = repeat_line(record(two), Header(), record(one))
        assert line == "steelyard run -a 'n=[1,2]' -- ./p '{n}'"
        assert commands.bases(typed(line)) == {one: one, two: one}

    @given(asked)
    def test_stored_settings_are_read_back_as_they_were(self, settings: Settings) -> None:
        kept = codec.decode(Header, codec.encode(Header(settings=asdict(settings))))
        case = record(Case("op/a", backend="numpy", variant="quick"))
        assert repeat_line(case, kept) == repeat_line(case, Header(settings=asdict(settings)))


class TestLines:
    def test_usual_settings_are_not_repeated(self) -> None:
        case = Case("op/a", backend="numpy")
        assert repeat_line(record(case), Header(settings=asdict(Settings()))) == "steelyard run op/a@numpy/eager:eval"

    def test_the_base_itself_is_weighed_against_nothing(self) -> None:
        header = Header(settings={"vs": "eager"})
        assert repeat_line(record(Case("op/a")), header) == "steelyard run op/a@torch/eager:eval"
        assert repeat_line(record(Case("op/a", variant="compile")), header).endswith("--vs eager")
        assert "--vs" not in repeat_line(record(Case("op/a")), Header(settings={"vs": "torch/eager"}))

    def test_programs_are_compared_by_naming_both(self) -> None:
        one, two = (Case("command", (("argv", ["./p", word]),), "command") for word in ("a", "b c"))
        run = Run(Path("r"), Header(), (record(one), record(two)))
        assert repeat_lines([run])(two.id, one.id) == "steelyard run -- ./p a -- ./p 'b c'"
        assert repeat_lines([run])(one.id, one.id) == "steelyard run -- ./p a"

    @pytest.mark.parametrize(
        "item",
        [
            Record("another tool's benchmark", {"workload": "x"}, "ok"),
            record(Case("op/a"), effective={"tool": "pyperf"}),
            record(Case("command", (("argv", ["a", "--", "b"]),), "command")),
        ],
    )
    def test_what_cannot_be_typed_has_no_line(self, item: Record) -> None:
        assert repeat_line(item, Header()) == ""

    @given(st.dictionaries(st.sampled_from([*asdict(Settings()), "partition", "evil"]), st.none() | words | st.floats() | st.lists(words)))
    def test_a_stored_file_cannot_put_anything_else_on_the_line(self, settings: dict[str, Any]) -> None:
        line = shlex.split(repeat_line(record(Case("op/a")), Header(settings=settings)))
        options = [word for word in line[3:] if word.startswith("--")]
        values = [value for value in settings.values() if isinstance(value, str)]
        assert all(word.partition("=")[0].removeprefix("--no-").lstrip("-").replace("-", "_") in {*asdict(Settings()), "vs_path"}
                   or word in values for word in options)  # fmt: skip


CASE = "mine/work[n=1]@fake/eager:eval"
BENCH = """
from steelyard import Task, workload

@workload("mine/work", axes={{"n": [1]}}, backend="fake")
def work(n, be):
    x = be.randn(16)
    return Task(lambda: (be.spend({seconds}), x * 2)[1], reference=lambda: x * 2)
"""


@pytest.mark.deep
def test_a_file_in_another_folder_is_repeated_as_show_and_gate_say(tmp_path: Path) -> None:
    """Two checkouts, a run from a folder beside the benchmark, and the printed lines typed again as they are."""
    for name, cost in (("new", "1.1e-4"), ("old", "1e-4")):
        (tmp_path / name / "bench").mkdir(parents=True)
        (tmp_path / name / "bench" / "it.py").write_text(BENCH.format(seconds=cost))
    new, elsewhere = tmp_path / "new", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run_json("../new/bench/it.py", "--budget", "20ms", "--reference", "fp64", cwd=elsewhere)
    shown = shlex.split(steelyard("show", "latest/1", cwd=elsewhere, check=0).stdout.split("repeat\n")[1].replace("\n", " "))
    assert shown[2:] == [str(new / "bench" / "it.py"), CASE, "--budget", "0.02s", "--reference", "fp64"]
    assert run_json(*shown[2:], "--dry-run", cwd=elsewhere)["cases"] == [CASE]
    run_json("bench/it.py", "--vs-path", "../old", "--budget", "20ms", cwd=new)
    judged = json.loads(steelyard("gate", "latest", "--json", cwd=new, check=4).stdout)
    finding = judged["findings"][0]
    assert finding["repeat"] == f"steelyard run bench/it.py '{CASE}' --budget 0.02s --vs-path ../old"
    assert (finding["was"]["value"], finding["now"]["value"]) == (pytest.approx(1e-4), pytest.approx(1.1e-4))
    assert run_json(*shlex.split(finding["repeat"])[2:], "--dry-run", cwd=new)["cases"] == [CASE]
