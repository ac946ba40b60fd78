"""transformers: any architecture from its config with seeded weights; nothing is downloaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from steelyard.errors import NotApplicable, Unsupported
from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.models.subject import (
    MODES,
    TAGS,
    ModelDevice,
    ModelRequest,
    Subject,
    as_task,
    installed,
    moved,
    placed,
    sow,
)

BATCH, LENGTH = 4, 128
WIDTH, LAYERS, HEADS, FFN, VOCAB = 256, 2, 4, 1024, 1024
SMALL = {
    "hidden_size": WIDTH, "word_embed_proj_dim": WIDTH, "embedding_size": WIDTH // 2, "head_dim": WIDTH // HEADS,
    "num_hidden_layers": LAYERS, "num_decoder_layers": LAYERS, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    "num_attention_heads": HEADS, "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "num_key_value_heads": HEADS // 2,
    "intermediate_size": FFN, "hidden_dim": FFN, "ffn_dim": FFN, "encoder_ffn_dim": FFN, "decoder_ffn_dim": FFN, "d_ff": FFN,
    "vocab_size": VOCAB,
}  # fmt: skip
"""The sizes of a small config, by all the names that configs have for them."""
OPTIONAL = ("head_dim", "num_key_value_heads")
"""Sizes that may be None, which means that they follow from others."""
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
HEADED = ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForImageClassification")
PARTS = r"[-_.]"
PIXELS, WORDS = "pixel_values", "input_ids"


def hub_model(ask: ModelRequest, spot: ModelDevice) -> Subject:
    """A model by its name in transformers, from its config with random weights; it reads random tokens, or images.

    The name of a class (BertForMaskedLM) means that class with its default config, the name of an architecture (llama) a small
    config of it, and a hub id or a folder the config that is on this machine, else the default one of its architecture.
    """
    library = installed("transformers")
    kind, source = getattr(library, ask.name, None), "default"
    if kind is not None and getattr(kind, "config_class", None) is not None:
        config = kind.config_class()
    else:
        config, source = _config(library, ask)
        kind = _class(library, config)
    config.use_cache = False
    module, batch = kind(config), ask.batch_size or BATCH
    sow(spot.xla, ask.seed)
    inputs = _inputs(module, config, ask, batch)
    images = PIXELS in inputs
    facts = {"library": f"transformers {library.__version__}", "config": source}
    facts |= {"seq": "not used, the model reads images"} if images else {}
    items = batch if images else batch * (ask.seq or LENGTH)
    module, inputs = placed(module, spot.where, ask.format), moved(inputs, spot.where, ask.format)
    return Subject(module, (), inputs, batch_size=batch, items=items, facts=facts)


def _config(library: Any, ask: ModelRequest) -> tuple[Any, str]:
    """A config, and its source in words for the record."""
    name, known = ask.name, library.CONFIG_MAPPING
    if name in known:
        return small(known[name], ask.seq or LENGTH), "small"
    try:
        return library.AutoConfig.from_pretrained(name, local_files_only=True), "on this machine"
    except (OSError, ValueError) as error:
        if architecture := architecture_of(name, known.keys()):
            return known[architecture](), f"default of {architecture}, because the config of {name} is not on this machine"
        raise Unsupported(
            f"transformers {library.__version__} has no model class {name!r}, no such architecture, and no config of that id is here",
            do=f"hf download {name} config.json" if "/" in name else "name an architecture such as llama, or a class",
        ) from error


def architecture_of(id: str, known: Iterable[str]) -> str:
    """The architecture whose name is a part of a hub id, such as llama in meta-llama/Llama-3.2-1B; empty if none is."""
    names = {re.sub(PARTS, "", name.lower()): name for name in known}
    words = re.split(PARTS, id.rpartition("/")[2].lower())
    spans = ("".join(words[start:end]) for start in range(len(words)) for end in range(len(words), start, -1))
    return next((names[span] for span in spans if span in names), "")


def small(kind: Any, seq: int) -> Any:
    """A config of an architecture's own class with few and narrow layers, and positions for all tokens."""
    usual = kind()

    def known(name: str) -> bool:
        value = getattr(usual, name, ...)
        return (type(value) is int or (value is None and name in OPTIONAL)) and not isinstance(getattr(kind, name, None), property)

    sizes: dict[str, Any] = {name: value for name, value in SMALL.items() if known(name)}
    sizes |= {name: VOCAB - 1 for name in TOKENS if type(value := getattr(usual, name, None)) is int and value >= VOCAB}
    if known("max_position_embeddings"):
        sizes["max_position_embeddings"] = max(usual.max_position_embeddings, 2 * seq)
    return kind(**sizes)


def _class(library: Any, config: Any) -> Any:
    """The class that a config names, else the one that its architecture is trained with."""
    for name in getattr(config, "architectures", None) or ():
        if hasattr(library, name):
            return getattr(library, name)
    for name in ("AutoModelForSeq2SeqLM",) if config.is_encoder_decoder else HEADED:
        mapping = getattr(library, name)._model_mapping
        if type(config) in mapping:
            return mapping[type(config)]
    return library.AutoModel._model_mapping[type(config)]


def _inputs(module: Any, config: Any, ask: ModelRequest, batch: int) -> Mapping[str, Any]:
    """Random tokens, which are also the labels to train on, or random images with random classes."""
    import torch

    training, reads = ask.test == "train", getattr(module, "main_input_name", WORDS)
    if reads == PIXELS:
        side = config.image_size if isinstance(config.image_size, (list, tuple)) else (config.image_size, config.image_size)
        images = torch.randn(batch, getattr(config, "num_channels", 3), *side)
        return {PIXELS: images} | ({"labels": torch.randint(0, config.num_labels, (batch,))} if training else {})
    vocabulary = getattr(config, "vocab_size", None)
    if reads != WORDS or vocabulary is None:
        raise Unsupported(f"{type(module).__name__} reads {reads}, but only models of text or of images are supported")
    seq = ask.seq or LENGTH
    most = getattr(config, "max_position_embeddings", None)
    if isinstance(most, int) and seq > most > 0:
        raise NotApplicable(f"{ask.name} reads at most {most} tokens, not {seq}", do=f"use -a seq={most}")
    tokens = torch.randint(0, vocabulary, (batch, seq))
    words = (WORDS, *(["decoder_input_ids"] if config.is_encoder_decoder else []), *(["labels"] if training else []))
    return dict.fromkeys(words, tokens)


@workload(
    "transformers/*",
    axes={"batch": [2], "seq": [128], "dtype": ["fp32"]},
    tags=TAGS,
    modes=MODES,
    sizes={"small": {"batch": 1, "seq": 16}, "h200": {"batch": 16, "seq": 1024, "dtype": "bf16"}},
)
def transformers(batch: int, seq: int, dtype: str, be: Any, member: str, mode: str = "eval") -> Task:
    """Any model of transformers: a small one by architecture, such as transformers/llama, or a class or hub id; seeded weights.

    `transformers/llama`, `bert` and `gpt2` are small configs of those architectures; `transformers/BertForMaskedLM` is that
    class with its default config, and a hub id has the config that is on this machine, else the default of its architecture.
    """
    return as_task(hub_model, ModelRequest(member, batch_size=batch, seq=seq, dtype=dtype), be, mode)
