"""The example notebook, executed by a kernel of its own, and what a reader sees in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import steelyard
from tests.report.test_one_convention import EFFECT

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
TAGS = re.compile(r"<[^>]+>")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What each cell of code shows."""
    import nbformat
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("notebook")
    book = nbformat.read(NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(folder / "home"))
        NotebookClient(book, timeout=200, resources={"metadata": {"path": str(folder)}}).execute()
    return [[dict(item) for item in cell.outputs] for cell in book.cells if cell.cell_type == "code"]


def html(shown: list[dict[str, Any]]) -> list[str]:
    return ["".join(item["data"]["text/html"]) for item in shown if "text/html" in item.get("data", {})]


def words(text: str) -> str:
    return " ".join(TAGS.sub(" ", text).split())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning", "ignore::UserWarning")
class TestNotebook:
    def test_no_cell_complains(self, outputs: list[list[dict[str, Any]]]) -> None:
        assert [item for shown in outputs for item in shown if item["output_type"] in ("error", "stream")] == []

    def test_a_measurement_is_a_picture_of_its_samples_and_a_table_of_its_figures(self, outputs: list[list[dict[str, Any]]]) -> None:
        (shown,) = html(outputs[0])
        assert shown.count("<circle") >= 6 and "samples in order" in shown
        assert re.search(r"time [\d.]+ (±|to) [\d.]+ [mµ]?s", words(shown)) and "noise" in words(shown)

    def test_a_comparison_is_its_effect_with_the_interval_drawn(self, outputs: list[list[dict[str, Any]]]) -> None:
        (shown,) = html(outputs[1])
        assert EFFECT.search(words(shown)) and "interval" in shown and "<circle" in shown

    def test_a_run_has_a_bar_of_progress_and_then_a_table_with_a_picture_in_each_row(self, outputs: list[list[dict[str, Any]]]) -> None:
        progress, shown = html(outputs[2])
        assert "<progress value='2' max='2'>" in progress and words(progress) == "2 2 of 2 cases"
        assert shown.count("<svg") == 2 == shown.count("✓")
        rows = [words(row) for row in shown.split("<tr>")[2:]]
        assert [row.startswith(f"{number} op/softmax") and f"n={n}" in row for number, n, row in zip((1, 2), (128, 256), rows, strict=True)]
        assert all(re.search(r"[\d.]+ (±|to) [\d.]+ [mµ]?s", row) for row in rows)

    def test_data_and_a_frame(self, outputs: list[list[dict[str, Any]]]) -> None:
        assert outputs[3][0]["data"]["text/plain"] == "'ok'"
        (frame,) = html(outputs[4])
        assert [name in words(frame) for name in ("number", "param.n", "128", "256", "ok")] == [True] * 5


def test_completion_shows_the_public_names() -> None:
    assert {"measure", "compare", "run", "judge", "Experiment"} <= set(dir(steelyard))
