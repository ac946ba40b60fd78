"""`steelyard as param` from end to end: real workers, real torch, small sizes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.dialects.param import lines, session
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.watching import ConfigWatch
from steelyard.machine import locks
from steelyard.measuring.fixed import NO_GRADIENT
from steelyard.param import config, spec, tensor, together, value
from tests.engine.drive import start, steelyard
from tests.engine.scripted import Script

pytestmark = pytest.mark.torch
OPERATORS = """
import os, threading
import torch
from steelyard import generator, iterator, operator

@operator("my.crash")
def crash(x):
    os.abort()

@operator("my.wait")
def wait(x):
    if os.environ.get("WAIT_FOR_EVER"):
        threading.Event().wait()

@operator("my.scale")
class Scale:
    def build(self, factor):
        self.factor = factor
    def forward(self, x):
        return x * self.factor
    def cleanup(self):
        del self.factor

@operator("my.leave")
def leave(x):
    raise SystemExit("\\x1b]0;owned\\x07gone")

@iterator("Twice")
def twice(entry, key, device):
    for name in ("a", "b"):
        yield name, entry[key][0]

@generator("Threes")
def threes(spec, device):
    return [torch.full((3,), 3.0, device=device, requires_grad=True)], {}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ops.py").write_text(OPERATORS)
    return tmp_path


def write(*configs: Mapping[str, Any], name: str = "config.json") -> None:
    Path(name).write_text(json.dumps(together(configs)))


def neg(*sizes: int) -> dict[str, Any]:
    return config("torch.neg", [spec(tensor(size)) for size in sizes])


def read(name: str = "out.json") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def records(name: str = "out.json") -> list[dict[str, Any]]:
    return [line for line in read(name) if "op_name" in line]


def ids(name: str = "out.json") -> list[str]:
    return [f"{line['op_name']}|{line['id']}" for line in records(name)]


def as_param(*words: str) -> int:
    return main(["as", "param", "-c", "config.json", "-o", "out.json", "--strict-exit", *words])


def code_of_param(*words: str) -> int:
    return main(["as", "param", "-c", "config.json", "-o", "out.json", *words])


class TestFile:
    def test_header_records_and_finish_with_statistics_and_what_was_drawn(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(
            config("torch.mul", spec(tensor(4, 4), value("float", range=(2, 3)))),
            config("torch.argmax", spec(tensor(8))),
            config("torch.nn.Linear", spec(tensor(2, 4)), builds=spec(4, 3)),
        )
        assert as_param("-w", "1", "-i", "8", "-b") == 0
        first, *middle, last = read()
        assert list(first) == ["run_options", "sys_info", "start_time"] and list(last) == ["finish_time"]
        wanted = "hostname pid cwd python_version param_train_compute_version cuda_available pytorch_version pytorch_debug_build"
        assert set(wanted.split()) <= set(first["sys_info"]) and "GCC" in first["sys_info"]["pytorch_build_config"]
        mul, argmax, linear = middle
        assert list(mul) == ["op_name", "id", "metric", "config", "steelyard"]
        assert list(mul["metric"]) == list(linear["metric"]) == ["forward", "backward"] and list(argmax["metric"]) == ["forward"]
        assert [len(values) for values in mul["metric"]["forward"].values()] == [1, 1, 8, 8]
        assert argmax["steelyard"]["not_applicable"] == {"backward": NO_GRADIENT}
        assert linear["config"]["build"] == {"args": [{"type": "int", "value": 4}, {"type": "int", "value": 3}], "kwargs": {}}
        ours = mul["steelyard"]
        assert ours["status"] == "ok" and ours["seed"] == 0 and 2 <= ours["drawn"]["args[1]"] <= 3
        figures = ours["statistics"]["backward"]
        assert figures["unit"] == "s" and figures["n"] == 8 and figures["low"] <= figures["median"] <= figures["high"]
        said = capsys.readouterr()
        assert said.out == "out.json\n" and "3 ok" in said.err

    def test_draws_do_not_depend_on_what_ran_before(self, here: Path) -> None:
        write(config("torch.mul", [spec(tensor(2), value("float", range=(0, 1)))] * 2))
        assert as_param("--seed", "7") == 0
        assert as_param("-a", "-r", "torch.mul|0|0|1", "--seed", "7") == 0
        first, second = (line["steelyard"]["drawn"] for line in records())
        assert first == second
        assert as_param("--seed", "8", "-s", "torch.mul|0|0|1") == 0
        assert records()[0]["steelyard"]["drawn"] != first

    def test_traces_are_written_with_the_labels_and_named_last(self, here: Path) -> None:
        write(neg(4))
        assert as_param("-p", "--et") == 0
        *_, finish, et, trace = read()
        assert "finish_time" in finish and list(et) == ["et_file"] and list(trace) == ["trace_file"]
        text = Path(trace["trace_file"]).read_text()
        for label in ("[param|cpu]", "[param|torch.neg|0|0|0]", "[param|torch.neg|0|0|0|measure|forward]"):
            assert label in text
        assert "aten::neg" in Path(et["et_file"]).read_text()

    def test_the_usual_name_has_process_and_time(self, here: Path) -> None:
        write(neg(4))
        assert main(["as", "param", "-c", "config.json", "-w", "0", "-i", "0"]) == 0
        (found,) = here.glob("benchmark_result_*.json")
        assert found.stem.split("_")[2] == str(os.getpid())


class TestWithoutRunning:
    def test_no_warm_up_and_no_iteration_expand_in_this_process(self, here: Path) -> None:
        write(neg(1, 2), config("torch.no_such_op", spec(tensor(1))))
        assert as_param("-w", "0", "-i", "0") == 0
        assert ids() == ["torch.neg|0|0|0", "torch.neg|0|0|1", "torch.no_such_op|0|0|0"]
        assert {json.dumps(line["metric"]) for line in records()} == {"{}"}
        assert read()[0]["sys_info"]["pytorch_build_config"] is None

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["-r", "torch.ngg|0|0|0"], "no config has the resume id 'torch.ngg|0|0|0'\n  did you mean torch.neg|0|0|0"),
            (["-s", "torch.neg|0|0|9"], "no config has the stop id"),
            (["-r", "torch.neg|0|0|1", "-s", "torch.neg|0|0|0"], "there is no config between"),
            (["--file", "missing.py"], "missing.py  there is no such file"),
            (["-o", "config.json"], "config.json:1  is not an output file"),
            (["-d", "cuda:77"], "torch cannot use the device 'cuda:77'"),
        ],
    )
    def test_what_is_wrong_is_said_and_leaves_no_file(
        self, here: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write(neg(1, 2))
        before = Path("config.json").read_text()
        assert as_param(*words) == 2
        assert told in capsys.readouterr().err
        assert not Path("out.json").exists() and Path("config.json").read_text() == before

    def test_resume_and_stop_choose(self, here: Path) -> None:
        write(neg(1, 2, 3, 4))
        assert as_param("-w", "0", "-i", "0", "-r", "torch.neg|0|0|1", "-s", "torch.neg|0|0|3") == 0
        assert ids() == ["torch.neg|0|0|1", "torch.neg|0|0|2"]


class TestLeniency:
    def test_what_the_original_takes_no_notice_of_is_a_warning_here_and_a_mistake_for_run(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        odd = neg(4)
        info = odd["torch.neg"]
        info |= {"owner": "me"}
        info["config"][0] |= {"note": 1}
        info["config"][0]["input"][0]["args"][0] |= {"unit": "m"}
        Path("config.json").write_text(json.dumps({"comment": "ours", **odd}))
        assert as_param() == 0 and [lines.status(line) for line in records()] == ["ok"]
        said = capsys.readouterr().err
        assert said.count("warning: ") == 4 and said.count("PARAM runs it anyway") == 4 and "error" not in said
        assert main(["check", "config.json"]) == 2 and "unknown key 'owner'" in capsys.readouterr().out

    def test_several_numbers_under_one_type_are_taken_as_they_are(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(config("torch.reshape", spec(tensor(6), {"type": "int", "value": [2, 3]})))
        assert as_param() == 0 and records()[0]["steelyard"]["status"] == "ok"
        assert main(["check", "config.json"]) == 2 and "use type genericlist" in capsys.readouterr().out

    def test_what_operators_print_is_shown_when_asked_for(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        Path("ops.py").write_text(
            'from steelyard import operator\n\n@operator("my.loud")\ndef loud(x):\n    print("it ran")\n    return x\n'
        )
        write(config("my.loud", spec(tensor(2))))
        for level, shown in (("DEBUG", True), ("INFO", False)):
            assert as_param("--file", "ops.py", "-l", level) == 0
            assert ("| it ran" in capsys.readouterr().err) == shown

    def test_results_that_are_overwritten_are_told_of(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(neg(1))
        assert as_param("-w", "0", "-i", "0") == 0 and "overwritten" not in capsys.readouterr().err
        assert as_param("-w", "0", "-i", "0") == 0 and "out.json has older results, which are overwritten" in capsys.readouterr().err

    def test_a_flag_with_another_word_lists_the_words_it_takes(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(neg(1))
        assert as_param("--exec-mode", "foo") == 2
        assert "not one of 'discrete', 'continuous', 'continuous_events'\n" in capsys.readouterr().err


class TestTrouble:
    def test_mistakes_are_lines_and_the_good_ones_run(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(
            neg(4),
            config("torch.ngg", spec(tensor(4))),
            config("torch.mm", [spec(tensor(2, 3), tensor(2, 3)), spec(tensor(2, 3), tensor(3, 2)), spec(tensor(2, 3, dtype="flot"), 1)]),
        )
        assert as_param() == 3
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert len(said) == 3 and all(line.startswith("error: config.json") for line in said)
        assert "torch.mm 0|0|2: no dtype named 'flot'" in said[0]
        assert '["torch.ngg"].config[0].input[0]  torch.ngg 0|0|0: no operator named' in said[1]
        assert "torch.mm 0|0|0: " in said[2]
        refused = ["torch.mm|0|0|2", "torch.ngg|0|0|0", "torch.mm|0|0|0"]
        assert ids() == [*refused, "torch.neg|0|0|0", "torch.mm|0|0|1"] and "finish_time" in read()[-1]
        assert [lines.status(line) for line in records()] == ["skipped"] * 3 + ["ok"] * 2
        assert "no dtype named" in records()[0]["steelyard"]["error"]

    def test_exit_codes_are_those_of_param_unless_ours_are_asked_for(self, here: Path) -> None:
        write(neg(4), config("torch.ngg", spec(tensor(4))))
        assert code_of_param() == 0 and as_param() == 3
        write(config("torch.ngg", spec(tensor(4))))
        assert code_of_param() == as_param() == 2
        write(neg(4), config("my.leave", spec(tensor(1))))
        assert code_of_param("--file", "ops.py") == 1 and as_param("--file", "ops.py") == 3

    def test_what_was_refused_is_tried_again_when_a_file_is_continued(self, here: Path) -> None:
        write(neg(4), config("my.later", spec(tensor(4))))
        assert as_param("--file", "ops.py") == 3
        Path("ops.py").write_text(OPERATORS + '\n@operator("my.later")\ndef later(x):\n    return x\n')
        assert as_param("--file", "ops.py", "-a") == 0
        assert ids() == ["my.later|0|0|0", "torch.neg|0|0|0", "my.later|0|0|0"]
        assert [lines.status(line) for line in records()] == ["skipped", "ok", "ok"]

    def test_a_mistake_that_many_combinations_share_is_one_line_of_bounded_length(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        name = f"torch.{'n' * 3000}"
        write(neg(4), config(name, spec(tensor([1, 40], __range__=["shape"])), input_iterator="RangeConfigIterator"))
        assert as_param() == 3
        (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert " 0|0|0_0 and 39 more: no operator named" in said and len(said) < 2000

    def test_fail_fast_stops_before_anything_runs(self, here: Path) -> None:
        write(neg(4), config("torch.ngg", spec(tensor(4))))
        assert as_param("--fail-fast") == 2
        assert not Path("out.json").exists()

    def test_a_config_that_ends_the_worker_costs_itself_alone(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        crash, leave = config("my.crash", spec(tensor(1))), config("my.leave", spec(tensor(1)))
        scaled = config("my.scale", spec(tensor(2)), builds=spec(3), input_iterator="Twice", input_data_generator="Threes")
        write(neg(1), crash, leave, scaled)
        assert as_param("--file", "ops.py", "-b") == 3
        assert [(line["op_name"], line["id"], line["steelyard"]["status"]) for line in records()] == [
            ("torch.neg", "0|0|0", "ok"), ("my.crash", "0|0|0", "crashed"), ("my.leave", "0|0|0", "failed"),
            ("my.scale", "0|0|a", "ok"), ("my.scale", "0|0|b", "ok"),
        ]  # fmt: skip
        assert "SIGABRT" in records()[1]["steelyard"]["error"] and list(records()[3]["metric"]) == ["forward", "backward"]
        said = capsys.readouterr().err
        assert "gone" in said and "\x1b" not in said and "\x07" not in said
        assert as_param("--file", "ops.py", "--fail-fast") == 3
        assert ids() == ["torch.neg|0|0|0", "my.crash|0|0|0"] and "finish_time" not in read()[-1]

    def test_a_run_that_was_interrupted_is_continued(self, here: Path) -> None:
        write(neg(1), config("my.wait", spec(tensor(1))), config("torch.exp", spec(tensor(1))))
        words = ["as", "param", "-c", "config.json", "-o", "out.json", "--file", "ops.py", "-l", "DEBUG"]
        os.environ["WAIT_FOR_EVER"] = "1"
        try:
            running = start(*words, cwd=here)
        finally:
            del os.environ["WAIT_FOR_EVER"]
        assert running.stderr is not None
        for line in running.stderr:
            if "running my.wait" in line:
                running.send_signal(signal.SIGINT)
                break
        said = running.communicate(timeout=60)[1]
        assert running.returncode == 130 and "interrupted: 1 ok" in said and "with -o out.json -a" in said
        assert ids() == ["torch.neg|0|0|0"] and "finish_time" not in read()[-1]
        with Path("out.json").open("a") as file:
            file.write('{"op_name": "my.wa')
        done = steelyard(*words, "-a", cwd=here)
        assert "[2/2] torch.exp|0|0|0" in done.stderr
        assert ids() == ["torch.neg|0|0|0", "my.wait|0|0|0", "torch.exp|0|0|0"] and "finish_time" in read()[-1]
        assert as_param("--file", "ops.py", "-a") == 0
        assert len(records()) == 3

    @pytest.mark.deep
    def test_arguments_that_changed_since_are_measured_again(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(neg(1, 2))
        assert as_param() == 0
        write(neg(1, 5))
        assert as_param("-a") == 0
        assert "1 of the recorded configs have other arguments or options now" in capsys.readouterr().err
        assert ids() == ["torch.neg|0|0|0", "torch.neg|0|0|1", "torch.neg|0|0|1"]
        assert records()[-1]["config"]["input"]["args"][0]["shape"] == [5]


def begin(**words: Any) -> session.Session:
    return session.begin(Options.from_plain({"output_prefix": "out.json", **words}), ConfigWatch())


class TestSession:
    """What the conductor does, with workers that only say what one would say."""

    def test_the_rest_goes_to_a_new_worker(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = Script(lost_at="torch.neg|0|0|1").install(monkeypatch)
        assert begin(device="cuda:1").run(neg(1, 2, 3)) == 3
        assert script.jobs == [["torch.neg|0|0|0", "torch.neg|0|0|1", "torch.neg|0|0|2"], ["torch.neg|0|0|2"]]
        assert [lines.status(line) for line in records()] == ["ok", "oom", "ok"] and "finish_time" in read()[-1]
        assert len(read()) == 5
        assert [line["config"]["input"]["args"][0]["shape"] for line in records()] == [[1], [2], [3]]

    def test_a_worker_whose_device_broke_is_let_go(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = Script(retires_after="torch.neg|0|0|0").install(monkeypatch)
        assert begin().run(neg(1, 2)) == 0
        assert script.dismissed and script.jobs[1:] == [["torch.neg|0|0|1"]]
        assert "finish_time" in read()[-2] and read()[-1] == {"trace_file": "t.json"}

    def test_what_another_run_wrote_while_we_waited_stays_and_is_not_measured_again(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script, hold = Script().install(monkeypatch), locks.hold
        assert begin().run(neg(1)) == 0

        def waiting(*sizes: int) -> Any:
            """Another run has the machine first, when ours asks for it."""

            def late(*words: Any) -> Any:
                monkeypatch.setattr(locks, "hold", hold)
                assert begin(append=True).run(neg(*sizes)) == 0
                return hold(*words)

            monkeypatch.setattr(locks, "hold", late)

        waiting(1, 2)
        assert begin(append=True).run(neg(1, 2, 3)) == 0
        assert ids() == [f"torch.neg|0|0|{number}" for number in range(3)]
        assert script.jobs == [["torch.neg|0|0|0"], ["torch.neg|0|0|1"], ["torch.neg|0|0|2"]]
        waiting(1, 2, 3, 4)
        assert begin(append=True).run(neg(1, 2, 3, 4)) == 0 and len(script.jobs) == 4 and len(ids()) == 4

    @pytest.mark.parametrize(
        "other", [{"backward": True}, {"iteration": 5}, {"warmup": 0}, {"device": "cuda"}, {"exec_mode": "continuous"}, {"seed": 3}]
    )
    def test_what_was_measured_in_another_way_is_measured_again(
        self, here: Path, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Script().install(monkeypatch)
        for words, count in (({}, 1), ({}, 1), (other, 2), (other, 2)):
            assert begin(append=True, **words).run(neg(1)) == 0
            assert len(records()) == count

    def test_a_file_that_holds_all_gets_its_last_line_and_keeps_its_records(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = Script().install(monkeypatch)
        assert begin(append=True).run(neg(1, 2)) == 0
        whole = Path("out.json").read_text()
        Path("out.json").write_text("".join(whole.splitlines(keepends=True)[:-1]))
        made, jobs = begin(append=True), len(script.jobs)
        assert made.run(neg(1, 2)) == 0 and len(script.jobs) == jobs and made.files == {"benchmark_file": "out.json"}
        assert "finish_time" in read()[-1] and len(read()) == 4
        assert begin(append=True, warmup=0, iteration=0).run(neg(1, 2, 3)) == 0
        assert begin(append=True).run(neg(1, 2)) == 0 and len(script.jobs) == jobs

    def test_equal_configs_are_measured_once_and_have_a_line_each(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = Script().install(monkeypatch)
        assert begin().run(neg(1, 2, 1)) == 0
        assert script.jobs == [["torch.neg|0|0|0 torch.neg|0|0|2", "torch.neg|0|0|1"]]
        assert ids() == [f"torch.neg|0|0|{number}" for number in range(3)]

    @pytest.mark.parametrize(("size", "places"), [(50, ["nn", "NCU", "e", "NCU"]), (1, ["n", "NCU", "n", "NCU", "e", "NCU"])])
    def test_batches_follow_their_records_and_bring_counters(
        self, here: Path, size: int, places: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Script().install(monkeypatch)
        program = here / "ncu"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_ncu.py")} "$@"\n')
        program.chmod(0o755)
        ears: list[dict[str, Any]] = []
        watch = ConfigWatch()
        watch.finished = ears.append  # type: ignore[method-assign]
        command = shlex.join([sys.executable, "-c", ""])
        asked = Options(output_prefix="out.json", device="cuda", ncu=True, ncu_bin=str(program), batch_cmd=command, run_batch_size=size)
        source = together([neg(1, 2), config("torch.exp", spec(tensor(1)))])
        assert session.begin(asked, watch).run(source) == 0
        order = ["NCU" if "ncu_file" in line else line["op_name"][6] for line in read()[1:-1]]
        assert "".join(order) == "".join(places)
        assert all(line["steelyard"]["ncu"]["kernels"] for line in ears)
