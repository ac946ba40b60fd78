"""The sizes of well-known models, by hub id, for machines that have no copy of their configs."""

from __future__ import annotations

from typing import Any

_LLAMA_3: dict[str, Any] = {"vocab_size": 128256, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192, "rope_theta": 500000.0}


def _sizes(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "intermediate_size": ffn, **more,
    }  # fmt: skip


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "meta-llama/Llama-2-7b-hf": ("llama", _sizes(4096, 32, 32, 32, 11008, vocab_size=32000, max_position_embeddings=4096)),
    "meta-llama/Meta-Llama-3-8B": ("llama", _sizes(4096, 32, 32, 8, 14336, **_LLAMA_3)),
    "meta-llama/Llama-3.1-8B": ("llama", _sizes(4096, 32, 32, 8, 14336, **(_LLAMA_3 | {"max_position_embeddings": 131072}))),
    "meta-llama/Llama-3.2-1B": (
        "llama",
        _sizes(2048, 16, 32, 8, 8192, head_dim=64, tie_word_embeddings=True, **(_LLAMA_3 | {"max_position_embeddings": 131072})),
    ),
    "mistralai/Mistral-7B-v0.1": ("mistral", _sizes(4096, 32, 32, 8, 14336, vocab_size=32000, max_position_embeddings=32768)),
    "Qwen/Qwen2.5-0.5B": (
        "qwen2",
        _sizes(896, 24, 14, 2, 4864, vocab_size=151936, tie_word_embeddings=True, max_position_embeddings=32768, rope_theta=1e6),
    ),
    "Qwen/Qwen2.5-7B": ("qwen2", _sizes(3584, 28, 28, 4, 18944, vocab_size=152064, max_position_embeddings=131072, rope_theta=1e6)),
    "HuggingFaceTB/SmolLM2-135M": (
        "llama",
        _sizes(576, 30, 9, 3, 1536, vocab_size=49152, tie_word_embeddings=True, max_position_embeddings=8192, rope_theta=1e5),
    ),
    "gpt2": ("gpt2", {}),
}
"""Architecture, and the sizes that differ from its defaults."""
SAME = {
    "meta-llama/Meta-Llama-3-8B-Instruct": "meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.2-1B-Instruct": "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-7B",
    "Qwen/Qwen2.5-0.5B-Instruct": "Qwen/Qwen2.5-0.5B", "HuggingFaceTB/SmolLM2-135M-Instruct": "HuggingFaceTB/SmolLM2-135M",
    "meta-llama/Llama-2-7b-chat-hf": "meta-llama/Llama-2-7b-hf", "openai-community/gpt2": "gpt2",
}  # fmt: skip
"""Ids of models that have the sizes of another model."""


def preset(id: str) -> tuple[str, dict[str, Any]] | None:
    """Return the architecture and sizes of a model by its id in any case; None if the id is not listed."""
    names = {name.lower(): name for name in (*PRESETS, *SAME)}
    name = names.get(id.lower(), "")
    return PRESETS.get(SAME.get(name, name))
