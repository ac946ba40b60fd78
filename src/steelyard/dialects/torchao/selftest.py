"""`as torchao --self-test`: a tiny config from end to end, run like any other, with the result of each part."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from steelyard.analyze import foreign
from steelyard.dialects.torchao.session import TorchaoOptions, TorchaoRun
from steelyard.errors import FAILED, NOTHING, PASS
from steelyard.model.experiment import BUDGETS, Settings
from steelyard.store.runs import Store
from steelyard.terminal import say, tell

CONFIG = """\
quantization_config_recipe_names: [{recipes}]
sparsity_config_recipe_names: [{sparsities}]
model_params:
  - name: {name} torch.compile
    matrix_shapes: [{{name: custom, shapes: [[16, 128, 128]]}}]
    use_torch_compile: {compiled}
    device: {device}
    model_type: {model_type}
"""
RECIPES = "baseline, int8wo, int8dq, float8wo, int4wo-32, float8dq-row, uintx-4-64, gemlitewo-4-64"
PARTS = (
    {"name": "without", "compiled": "false", "recipes": RECIPES, "sparsities": "semi-sparse, block"},
    {"name": "with", "compiled": "true", "recipes": "int8wo", "sparsities": ""},
)
SIGNS = {"ok": "✓", "unsupported": "–", "not_applied": "–", "not_applicable": "–"}


def run(device: str, settings: Settings, files: Sequence[str] = (), command: Sequence[str] = (), model_type: str = "linear") -> int:
    """Run the self-test, print what works, and return the exit code; missing hardware or packages are not failures."""
    quick = Settings(budget=min(settings.budget, BUDGETS["quick"]), timeout=settings.timeout, settle=0.0)
    statuses: list[str] = []
    with tempfile.TemporaryDirectory(prefix="steelyard-") as name:
        for part in PARTS:
            folder = Path(name) / part["name"]
            folder.mkdir()
            (folder / "config.yml").write_text(CONFIG.format(device=device, model_type=model_type, **part), encoding="utf-8")
            written = folder / "records.json", folder / "rows.csv"
            options = TorchaoOptions(folder / "config.yml", *written, str(folder), device=device, settings=quick, files=tuple(files))
            made = TorchaoRun(options, tell, Store(folder / "store"), command)
            made.run()
            for line in made.lines:
                statuses.append(line["status"])
                recipes = "+".join(line[key] for key in ("quantization", "sparsity") if line[key])
                told = "works" if line["status"] == "ok" else f"{line['status']}: {line['reason']}"
                say(f"{SIGNS.get(line['status'], '✗')} {recipes} {line['name']}: {told}")
            for path in written:
                say(f"✓ {path.name} is written, and read again as {sum(len(run.records) for run in foreign.read_file(path))} results")
    broken = [status for status in statuses if status not in SIGNS]
    verdict = f"{len(broken)} broken" if broken else "nothing is broken" if "ok" in statuses else "nothing works"
    say(f"self-test: {verdict}")
    return FAILED if broken else PASS if "ok" in statuses else NOTHING
