"""Model families by name, in JAX, PyTorch and TensorFlow: the same weights and answers in each, and nothing is downloaded.

A module of a family has `create_model(**model_parameters)`, which returns an object with `generate_default_inputs`, `preprocess`,
`forward` and `postprocess`; those in JAX also have `apply`. `FAMILIES` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass

HERE = __name__


@dataclass(frozen=True)
class FamilyEntry:
    """A family in one framework: its module, its names of models, and what it is built with."""

    name: str
    framework: str
    module: str
    models: tuple[str, ...]
    built_with: str = "this package"

    @property
    def module_path(self) -> str:
        """The path of the module to import."""
        return f"{HERE}.{self.module}"

    @property
    def tags(self) -> tuple[str, ...]:
        """The kinds of model that it is."""
        return TAGS[self.name]


_BERT, _T5, _GPT2 = ("bert-base-uncased", "bert-large-uncased"), ("t5-small", "t5-large"), ("gpt2",)
_RESNET = "microsoft/resnet-50"
TAGS = {
    "T5": ("transformer-encoder", "transformer-decoder", "t5"),
    "T5_4CG": ("transformer-encoder", "transformer-decoder", "t5", "auto-regressive"),
    "BERT": ("transformer-encoder", "bert"),
    "RESNET": ("cnn", "resnet"),
    "GPT2LMHEAD": ("transformer-decoder", "gpt2lmhead"),
    "GPT2_PIPELINE": ("transformer-decoder", "gpt2", "ggml", "pipeline"),
    "SD_PIPELINE": ("stable-diffusion", "pipeline"),
    "VIT_CLASSIFICATION": ("vision-transformer",),
    "EFFICIENTNET": ("cnn", "efficientnet"),
    "EXAMPLE": ("example",),
}
FAMILIES = (
    FamilyEntry("BERT", "jax", "bert", _BERT),
    FamilyEntry("BERT", "pytorch", "bert", _BERT),
    FamilyEntry("BERT", "tensorflow", "bert", _BERT),
    FamilyEntry("T5", "jax", "t5", _T5),
    FamilyEntry("T5", "tensorflow", "t5", _T5),
    FamilyEntry("T5_4CG", "jax", "t5_generation", _T5),
    FamilyEntry("GPT2LMHEAD", "jax", "gpt2", _GPT2),
    FamilyEntry("GPT2LMHEAD", "tensorflow", "gpt2", _GPT2),
    FamilyEntry("GPT2_PIPELINE", "jax", "gpt2_pipeline", _GPT2),
    FamilyEntry("GPT2_PIPELINE", "tensorflow", "gpt2_pipeline", _GPT2),
    FamilyEntry("RESNET", "jax", "resnet50", (_RESNET,)),
    FamilyEntry("RESNET", "pytorch", "resnet50", ("torchvision/resnet50",)),
    FamilyEntry("RESNET", "tensorflow", "resnet50", (_RESNET,)),
    FamilyEntry("VIT_CLASSIFICATION", "jax", "vit", ("google/vit-base-patch16-224",)),
    FamilyEntry("SD_PIPELINE", "jax", "stable_diffusion", ("runwayml/stable-diffusion-v1-5",)),
    FamilyEntry("EFFICIENTNET", "tensorflow", "efficientnet", ("efficientnetb7",), "keras.applications"),
    FamilyEntry("EXAMPLE", "pytorch", "mobilenet", ("mobilenet_v3_small",)),
)
