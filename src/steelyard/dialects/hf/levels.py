"""Configs of the later benchmark_v2: fields, validity rules, levels, names and hashes, from the command line or a file."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from steelyard.codec.parsing import parse_json
from steelyard.codec.reading import CheckedFile, choice, expect
from steelyard.dialects.hf import cases
from steelyard.errors import UsageError, did_you_mean
from steelyard.files import read_text
from steelyard.model.case import Case

ATTENTION = ("flash_attention_2", "eager", "sdpa", "flex_attention")
CONTINUOUS_MODES = ("default", "max-autotune-no-cudagraphs")
DEFAULT_MODE = "reduce-overhead"
COMPILE_KEYS = {"mode": str, "fullgraph": bool}
NO_TENSOR_PARALLEL = "generation over several devices (tp_plan) is not measured here"


@dataclass(frozen=True)
class LevelConfig:
    """One config of the later version; the dtype is always bf16."""

    warmup_iterations: int = 5
    measurement_iterations: int = 20
    gpu_monitoring: bool = True
    continuous_batching: bool = False
    batch_size: int = 1
    sequence_length: int = 128
    num_tokens_to_generate: int = 128
    attn_implementation: str = "eager"
    compile_kwargs: Mapping[str, Any] | None = None
    kernelize: bool = False
    tp_plan: str | None = None

    @property
    def compiling(self) -> dict[str, Any] | None:
        """The compile options in full; the default is the mode that replays graphs."""
        return None if self.compile_kwargs is None else {"mode": DEFAULT_MODE, "fullgraph": True, **self.compile_kwargs}

    def name(self, *, compact: bool = True) -> str:
        """All fields in one line: `compact` as in files, else in words."""
        mode, batching = (self.compiling or {}).get("mode"), self.continuous_batching
        size = (self.batch_size, self.sequence_length, self.num_tokens_to_generate)
        if compact:
            return "-".join([
                f"w{self.warmup_iterations}_i{self.measurement_iterations}", "monitored" if self.gpu_monitoring else "unmonitored",
                "b{}_s{}_n{}".format(*size), self.attn_implementation, f"compiled_{mode}" if mode else "uncompiled",
                "kernelized" if self.kernelize else "unkernelized", "cb" if batching else "generate",
                f"tp_{self.tp_plan}" if self.tp_plan else "no_tp",
            ])  # fmt: skip
        return ", ".join([
            f"{self.warmup_iterations} warmup, {self.measurement_iterations} iterations",
            f"{'with' if self.gpu_monitoring else 'no'} GPU monitoring",
            "batch size {}, sequence length {}, {} generated tokens".format(*size), f"{self.attn_implementation} attention",
            f"compiled with {mode}" if mode else "not compiled", "kernelized" if self.kernelize else "not kernelized",
            "continuous batching" if batching else "regular generate", f"TP plan {self.tp_plan}" if self.tp_plan else "no TP",
        ])  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """The config as plain data, as files have it."""
        return {"name": self.name(), **asdict(self), "compile_kwargs": self.compiling}

    @property
    def hash(self) -> str:
        """The hash of the config, which is its key in files."""
        return hashlib.sha256(json.dumps(self.plain()).encode()).hexdigest()

    def case(self, model: str, *, threads: int = 1, preset: str | None = None) -> Case:
        """The case of the config."""
        compiled = self.compiling
        mode = compiled["mode"] if compiled else None
        size = {"batch": self.batch_size, "prompt": self.sequence_length, "new": self.num_tokens_to_generate}
        if model == cases.MOCK:
            quicker = [name for name, asked in (("kernelize", self.kernelize), ("compile", compiled)) if asked]
            return Case("generate/mock", tuple(size.items()), "fake", "+".join(quicker) or "eager")
        variant = cases.steps(
            compiled=bool(compiled), mode=mode, kernelized=self.kernelize, continuous=self.continuous_batching,
            fullgraph=bool(compiled and compiled["fullgraph"]),
        )  # fmt: skip
        params = {**size, "dtype": "bf16", "attention": self.attn_implementation}
        return cases.generating(model, variant, params, device="cuda", threads=threads, preset=preset)


def valid(config: LevelConfig, *, flash: bool) -> tuple[LevelConfig, list[str]]:
    """The config as it can be run, and what was changed for that; `flash`: whether FlashAttention 2 is installed."""
    notes = []
    if config.attn_implementation == "flash_attention_2" and not flash:
        config = replace(config, attn_implementation="sdpa")
        notes.append("flash_attention_2 is not installed, so attention is sdpa")
    if config.attn_implementation == "flash_attention_2" and config.compiling and not config.continuous_batching:
        config = replace(config, compile_kwargs=None)
        notes.append("flash_attention_2 cannot be compiled, so it runs without compilation")
    if config.continuous_batching and config.attn_implementation == "flex_attention":
        config = replace(config, continuous_batching=False)
        notes.append("flex_attention has no continuous batching, so plain generate is used")
    if config.continuous_batching and config.compiling and config.compiling["mode"] not in CONTINUOUS_MODES:
        notes.append(f"continuous batching cannot be compiled with {config.compiling['mode']}, so the mode is default")
        config = replace(config, compile_kwargs={**(config.compile_kwargs or {}), "mode": "default"})
    return config, notes


def by_level(level: int) -> list[LevelConfig]:
    """The configs of a level from 0 to 4, without sizes."""
    if level >= 3:
        modes = cases.MODES if level == 4 else (None, "default")
        return [
            LevelConfig(attn_implementation=attention, compile_kwargs=None if mode is None else {"mode": mode}, kernelize=kernels,
                        continuous_batching=batching)
            for attention, mode, kernels, batching in itertools.product(ATTENTION, modes, (False, True), (False, True))
        ]  # fmt: skip
    flash, flex = LevelConfig(attn_implementation="flash_attention_2"), LevelConfig(attn_implementation="flex_attention", compile_kwargs={})
    found = [
        [flex],
        [flash, LevelConfig(compile_kwargs={}), replace(flash, continuous_batching=True)],
        [LevelConfig(attn_implementation="sdpa", compile_kwargs={}), replace(flex, kernelize=True), replace(flash, kernelize=True),
         LevelConfig(attn_implementation="sdpa", continuous_batching=True)],
    ]  # fmt: skip
    return list(itertools.chain(*found[: level + 1]))


def crossed(
    configs: Sequence[LevelConfig], batches: Sequence[int], lengths: Sequence[int], tokens: Sequence[int], **same: Any
) -> list[LevelConfig]:
    """Every config with every size; `same` is for all of them."""
    sizes = itertools.product(batches, lengths, tokens)
    return [
        replace(config, batch_size=batch, sequence_length=length, num_tokens_to_generate=new, **same)
        for (batch, length, new), config in itertools.product(sizes, configs)
    ]  # fmt: skip


def read_configs(path: Path) -> tuple[list[LevelConfig], list[str]]:
    """The configs of a .json or .jsonl file, and notes on unknown keys; raise with the place of each impossible value."""
    if path.suffix not in (".json", ".jsonl"):
        raise UsageError(f"{path.name} is neither .json nor .jsonl", do="name a file with one of these endings", where=str(path))
    text = read_text(path)
    whole = parse_json(text, str(path)) if path.suffix == ".json" else None
    lines = [(f"{path}:{number}", line) for number, line in enumerate(text.splitlines(), 1) if line.startswith("{")]
    placed = [(str(path), item) for item in (whole if isinstance(whole, list) else [whole])] if path.suffix == ".json" else []
    placed = placed or [(where, parse_json(line, where)) for where, line in lines]
    if not placed:
        raise UsageError("the file has no config", do="write one as a JSON object, in a .jsonl file one on each line", where=str(path))
    notes: list[str] = []
    return [_config(item, CheckedFile(where, ""), notes) for where, item in placed], notes


def _config(data: Any, file: CheckedFile, notes: list[str]) -> LevelConfig:
    if not isinstance(data, dict):
        raise UsageError("the config is not a JSON object", where=file.where)
    usual: dict[str, Any] = {item.name: item.default for item in fields(LevelConfig)}
    unread = [key for key in data if key not in (*usual, "name", "dtype", "device")]
    notes += [f"{file.where}  {key}: unknown key, ignored; {did_you_mean(key, usual)}".rstrip("; ") for key in unread]
    made = LevelConfig(
        **{key: file.read(data, "", key, functools.partial(_value, key, default), default) for key, default in usual.items()}
    )
    file.finish()
    return made


def _value(key: str, usual: Any, value: Any) -> Any:
    """The value of a field; raise if the field cannot have it."""
    if key == "compile_kwargs":
        expect(value is None or isinstance(value, dict), "an object or null", value)
        for name, item in (value or {}).items():
            expect(
                name in COMPILE_KEYS and isinstance(item, COMPILE_KEYS[name]), '"mode" (text) and "fullgraph" (true or false)', {name: item}
            )
            choice([mode for mode in cases.MODES if mode])(item) if name == "mode" else None
    elif key == "attn_implementation":
        return choice(ATTENTION)(value.removeprefix("paged|") if isinstance(value, str) else value)
    elif key == "tp_plan":
        expect(value is None or isinstance(value, str), "text or null", value)
    elif isinstance(usual, bool):
        expect(isinstance(value, bool), "true or false", value)
    else:
        least = 0 if key.startswith("warmup") else 1
        expect(type(value) is int and least <= value < 10**9, f"a whole number of at least {least}", value)
    return value
