"""Every family at the smallest size in its framework: it runs by the tool, and answers what the same model answers elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.dialects.openxla import suite
from steelyard.engine import envs
from steelyard.workloads.models.families import FAMILIES
from steelyard.workloads.models.families.sizes import named_sizes
from tests.engine.drive import PROGRAM
from tests.workloads.test_families import BUILT, answered, made

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]

SCRIPT = Path(__file__).with_name("family_answers.py")
FORMATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
NEAR = {"fp32": 2e-5, "fp16": 0.02, "bf16": 0.2}
"""How far frameworks may be apart, in units of an answer's spread."""
ALSO_SHORT = {"jax": ("bert", "t5", "resnet50", "vit"), "tensorflow": ()}
"""Families that are also asked in short formats; Stable Diffusion is by the tool, below."""
GENERATING = ("t5_generation", "gpt2_pipeline")
PUBLISHED = {
    "bert.bert-base-uncased": 108_891_648 - 128 * 768, "bert.bert-large-uncased": 334_092_288 - 128 * 1024,
    "t5.t5-small": 60_506_624, "t5.t5-large": 737_668_096, "t5_generation.t5-small": 60_506_624, "t5_generation.t5-large": 737_668_096,
    "gpt2.gpt2": 124_439_808 - 512 * 768, "gpt2_pipeline.gpt2": 124_439_808, "resnet50.microsoft/resnet-50": 25_557_032,
    "vit.google/vit-base-patch16-224": 86_567_656,
    "stable_diffusion.runwayml/stable-diffusion-v1-5": 859_520_964 + 123_060_480 + 49_490_199,
}  # fmt: skip
"""Weights of the published models; tables of places are as long as the text that is read, 384 of 512 and 512 of 1024."""


def answers(framework: str, folder: Path, *words: str) -> dict[str, Any]:
    """What families answer in the environment of a framework."""
    place, file = envs.place(framework), folder / f"{framework}.npz"
    variables = {**os.environ, "PYTHONPATH": str(place.search_path), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [place.python, str(SCRIPT), framework, str(file), *words], env=variables, capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(file) as kept:
        return {name: kept[name] for name in kept.files}


def families(framework: str) -> list[str]:
    return [family.module for family in FAMILIES if family.framework == framework]


def test_the_same_model_answers_the_same_in_every_framework(
    built: Callable[[str], str], apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, dict[str, Any]] = {}
    for framework in ("jax", "tensorflow"):
        monkeypatch.setenv("STEELYARD_ENVS", built(framework))
        asked = [(module, kind) for module in families(framework) for kind in FORMATS if kind == "fp32" or module in ALSO_SHORT[framework]]
        found[framework] = answers(framework, tmp_path, *(f"{module}:{kind}" for module, kind in asked))
    jax, tensorflow = found["jax"], found["tensorflow"]
    assert {name: int(jax[name]) for name in PUBLISHED} == PUBLISHED
    for module in families("jax"):
        first = jax[f"{module}:fp32"]
        assert np.isfinite(first).all() and first.std() > 0
        assert str(jax[f"{module}:fp32.format"]) == ("int32" if module in GENERATING else "float32")
        for kind in ("fp16", "bf16") if module in ALSO_SHORT["jax"] else ():
            assert str(jax[f"{module}:{kind}.format"]) == FORMATS[kind]
            assert 0 < np.abs(jax[f"{module}:{kind}"] - first).max() < NEAR[kind] * first.std(), (module, kind)
        if module in families("tensorflow"):
            assert np.abs(tensorflow[f"{module}:fp32"] - first).max() <= NEAR["fp32"] * first.std(), module
    for module, name in BUILT:
        if module in families("jax"):
            ours = answered(made(module, name)).double().numpy()
            assert np.abs(ours - jax[f"{module}:fp32"]).max() <= NEAR["fp32"] * ours.std(), module


def test_every_family_is_measured_at_the_smallest_size_or_expected_not_to_be(
    built: Callable[[str], str], apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counter(model.model_impl.framework_type.name for model in suite.ALL_MODELS)
    told: dict[str, Counter[str]] = {}
    for tool in ("jax", "pytorch", "tensorflow"):
        if tool != "pytorch":
            monkeypatch.setenv("STEELYARD_ENVS", built(tool))
        names = [next(suite.of_row(row))[0].name for row in named_sizes() if row[1] == tool]
        file, compiler = tmp_path / f"{tool}.json", ("-c", "eager") if tool == "pytorch" else ()
        words = ("-name", f"models/({'|'.join(names)})/.+", "-device", "host-cpu", "-o", str(file), "--preset", "tiny", "-w", "1")
        command = [*PROGRAM, "as", "openxla", tool, *words, "-iter", "2", *compiler, "--run-in-process"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3000)
        assert done.returncode == 0, done.stderr
        rows = json.loads(file.read_text())["benchmarks"]
        assert len(rows) == len(names)
        told[tool] = Counter(row["steelyard"]["status"] for row in rows)
        assert told[tool] == {"ok": len(names)}, [(r["definition"]["benchmark_name"], r["steelyard"]["reason"]) for r in rows]
    files = [case for case in suite.ALL_BENCHMARKS if case.model.model_impl.framework_type.name == "TFLITE"]
    told["tflite"] = Counter("expected" if suite.EXPECTED[case.name] else "" for case in files)
    print({"models": dict(counts), "families": {name: dict(found) for name, found in told.items()}})
    assert told["tflite"] == {"expected": counts["TFLITE"]}
