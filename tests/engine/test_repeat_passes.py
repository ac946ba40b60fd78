"""Passes under a protocol of repeats: a profile of each, what the runtime writes itself, and the answers in a file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard import registry  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.engine import after, passes  # noqa: E402
from steelyard.engine.after import Reply  # noqa: E402
from steelyard.engine.messages import Found, Pass, Sources  # noqa: E402
from steelyard.engine.place import Place  # noqa: E402
from steelyard.engine.plan import Job, Plan  # noqa: E402
from steelyard.model.case import Case  # noqa: E402
from steelyard.model.experiment import Experiment, Settings  # noqa: E402
from steelyard.model.protocol import Fixed  # noqa: E402

pytestmark = pytest.mark.torch


def perform(folder: Path, name: str, mode: str = "eval", **words: Any) -> Found:
    case = Case("dummy/linear", (("batch", 16), ("dtype", "fp32")), "torch", "eager", mode)
    settings = Settings(**{"fixed": Fixed(repeats=2, calls=3), **words})
    return passes.perform(Pass(Sources(), settings, case, name, str(folder)), registry.built_ins(), lambda answer: None)


def test_each_repeat_has_a_trace_and_a_table_of_its_calls(tmp_path: Path) -> None:
    found = perform(tmp_path, "profile", profile=True)
    assert [(kind, Path(path).name) for kind, path in found.files] == [
        (kind, f"{stem}-{number}.{end}") for number in (0, 1)
        for kind, stem, end in (("trace", "trace", "json.gz"), ("kernels", "kernels", "json"), ("kernels", "kernels", "txt"))
    ]  # fmt: skip
    for number in (0, 1):
        assert json.loads(gzip.decompress((tmp_path / f"trace-{number}.json.gz").read_bytes()))["traceEvents"]
        rows = {row["name"]: row for row in json.loads((tmp_path / f"kernels-{number}.json").read_text())}
        assert rows["aten::linear"]["calls"] == 3 * 3 and rows["aten::linear"]["with_callees"] >= rows["aten::linear"]["total"] > 0
        assert "aten::addmm" in (tmp_path / f"kernels-{number}.txt").read_text()
    assert found.facts["top_kernels"] == json.loads((tmp_path / "kernels-0.json").read_text())[:5]


def test_without_repeats_there_is_one_profile_with_its_usual_name(tmp_path: Path) -> None:
    found = perform(tmp_path, "profile", fixed=None, profile=True)
    assert [Path(path).name for _, path in found.files] == ["trace.json.gz", "kernels.json", "kernels.txt"]


def test_what_the_last_call_answered_is_saved(tmp_path: Path) -> None:
    found = perform(tmp_path, "outputs", save_output="answer")
    assert found.files == (("output", str(tmp_path / "output.pt")),) and found.facts == {"save_output": "answer"}
    saved = torch.load(tmp_path / "output.pt", weights_only=True)
    assert {name: tuple(item.shape) for name, item in saved.items()} == {"out[0]": (16, 32)}


@pytest.mark.parametrize(
    ("mode", "asked", "parts"),
    [
        ("eval", "state", {"prediction"}), ("train", "state", {"prediction", "loss", "gradients", "parameters"}),
        ("train", "answer", {"out[0]", "out[1]"}),
    ],
)  # fmt: skip
def test_the_full_output_of_training_holds_gradients_and_weights(tmp_path: Path, mode: str, asked: str, parts: set[str]) -> None:
    perform(tmp_path, "outputs", mode, save_output=asked)
    saved = torch.load(tmp_path / "output.pt", weights_only=True)
    assert {name.removeprefix("out.").split(".")[0] for name in saved} == parts


def test_the_saved_answer_is_that_of_the_last_call_of_the_last_repeat(tmp_path: Path) -> None:
    losses = []
    for number, fixed in enumerate((Fixed(), Fixed(repeats=2, calls=3))):
        (tmp_path / str(number)).mkdir()
        perform(tmp_path / str(number), "outputs", "train", save_output="answer", fixed=fixed)
        losses.append(float(torch.load(tmp_path / str(number) / "output.pt", weights_only=True)["out[1]"]))
    assert losses[1] < losses[0]


def test_a_runtimes_own_profile_of_each_repeat_is_kept_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def written(be: Any, folder: Path) -> Iterator[None]:
        yield
        (folder / "plugins" / "now").mkdir(parents=True)
        for name in ("a.xplane.pb", "b.xplane.pb"):
            (folder / "plugins" / "now" / name).write_text(f"{folder.name} {name}")

    monkeypatch.setattr(Torch, "runtime_profile", written)
    found = perform(tmp_path, "runtime", runtime_profile=True)
    assert {Path(path).name: Path(path).read_text() for _, path in found.files} == {
        f"runtime-{number}-{place}-{name}": f"runtime-{number} {name}"
        for number in (0, 1) for place, name in enumerate(("a.xplane.pb", "b.xplane.pb"))
    }  # fmt: skip
    assert {kind for kind, _ in found.files} == {"runtime"} and found.facts == {"runtime_profile": {"files": 4}}


def test_a_runtime_without_a_profiler_says_so(tmp_path: Path) -> None:
    assert perform(tmp_path, "runtime", runtime_profile=True).facts == {
        "runtime_profile": "unsupported: backend torch has no profiler of its own runtime; that needs backend torch_xla"
    }


def test_each_is_asked_for_by_its_setting_and_the_runtimes_in_a_process_of_its_own(tmp_path: Path) -> None:
    settings = Settings(fixed=Fixed(), profile=True, runtime_profile=True, save_output="answer")
    case = Case("dummy/linear", (("batch", 16), ("dtype", "fp32")), "torch")
    plan, asked = Plan(Experiment("t", settings=settings), (), ()), list[Any]()

    class Asked:
        mark = ""

        def ask(self, job: Job, plan: Plan, name: str, scratch: Path, *, alone: bool) -> Reply:
            asked.append((name, job.fresh, alone))
            return Reply()

        def dismiss(self) -> None: ...
        def see_off(self) -> None: ...

    crew = Asked()
    for _, work in after.wanted(plan):
        work(crew, Job(case, None, Place(), "", False), plan, tmp_path)
    assert asked == [("profile", False, False), ("runtime", True, True), ("outputs", False, False)]
