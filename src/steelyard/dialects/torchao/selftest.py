"""`as torchao --self-test`: a tiny config from end to end, through the same door as any other, and what came of each part."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from steelyard.analyze import foreign
from steelyard.dialects.torchao import session
from steelyard.errors import FAILED, PASS, SteelyardError, told
from steelyard.model.experiment import BUDGETS, Settings
from steelyard.store.runs import Store
from steelyard.terminal import say, tell

RECIPES = ("int8wo", "int8dq", "float8wo", "int4wo-32", "float8dq-row", "uintx-4-64", "gemlitewo-4-64")
CONFIG = """\
quantization_config_recipe_names: [baseline, {recipes}]
sparsity_config_recipe_names: [semi-sparse, block]
model_params:
  - {{name: without compile, matrix_shapes: [{{name: custom, shapes: [[16, 128, 128]]}}], use_torch_compile: false, device: {device}}}
"""
COMPILED = """\
quantization_config_recipe_names: [int8wo]
model_params:
  - {{name: with compile, matrix_shapes: [{{name: custom, shapes: [[16, 128, 128]]}}], use_torch_compile: true, device: {device}}}
"""
NOT_HERE = ("unsupported", "not_applied", "not_applicable")


def run(device: str, settings: Settings, files: Sequence[str] = (), command: Sequence[str] = ()) -> int:
    """Run it, say what works, and answer whether anything is broken; what this machine lacks is not."""
    broken = 0
    quick = Settings(budget=min(settings.budget, BUDGETS["quick"]), timeout=settings.timeout, settle=0.0)
    with tempfile.TemporaryDirectory(prefix="steelyard-") as name:
        folder = Path(name)
        for number, text in enumerate((CONFIG, COMPILED)):
            place = folder / str(number)
            place.mkdir()
            (place / "config.yml").write_text(text.format(recipes=", ".join(RECIPES), device=device), encoding="utf-8")
            options = session.TorchaoOptions(
                place / "config.yml", place / "records.json", place / "rows.csv", str(place), device=device, settings=quick,
                files=tuple(files),
            )  # fmt: skip
            made = session.TorchaoRun(options, tell, Store(folder / "store"), command)
            made.run()
            broken += sum(_row_told(line) for line in made.lines)
            broken += sum(_read_back(place / file) for file in ("rows.csv", "records.json"))
    say("self-test: something is broken" if broken else "self-test: all that can work here does")
    return FAILED if broken else PASS


def _row_told(line: dict[str, object]) -> bool:
    """Say what became of a row, and whether it is broken."""
    status = str(line["status"])
    recipes = "+".join(str(line[key]) for key in ("quantization", "sparsity") if line[key])
    works = status == "ok"
    sign = "✓" if works else "–" if status in NOT_HERE else "✗"
    say(f"{sign} {recipes} {line['name']}: " + ("works" if works else f"{status}: {line['reason']}"))
    return not works and status not in NOT_HERE


def _read_back(path: Path) -> bool:
    """Whether a file that was written cannot be read again, as compare and gate read it."""
    try:
        count = sum(len(run.records) for run in foreign.read_file(path))
    except SteelyardError as error:
        say(f"✗ {path.name} is written and cannot be read: {told(error)}")
        return True
    say(f"✓ {path.name} is written and read again: {count} results")
    return False
