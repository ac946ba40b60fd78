"""timm: a thousand image models by their names, with seeded weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steelyard.errors import unknown
from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.models.parts import surprise_at
from steelyard.workloads.models.subject import (
    MODES,
    TAGS,
    ModelDevice,
    ModelRequest,
    Subject,
    as_task,
    installed,
    mean_of,
    moved,
    placed,
    sow,
)

BATCH, SHAPE = 8, (3, 224, 224)


def image_model(ask: ModelRequest, spot: ModelDevice) -> Subject:
    """An image model by its name in timm, with random weights, and images of the size that it was made for."""
    import torch

    library = installed("timm")
    name = ask.name.partition(".")[0]
    if name not in library.list_models():
        raise unknown("timm model", ask.name, library.list_models())
    module = library.create_model(name, pretrained=False)
    batch, shape = ask.batch_size or BATCH, module.default_cfg.get("input_size", SHAPE)
    sow(spot.xla, ask.seed)
    images = moved(torch.randn(batch, *shape), spot.where, ask.format)
    facts = {"library": f"timm {library.__version__}", "image": list(shape)}
    return Subject(placed(module, spot.where, ask.format), (images,), batch_size=batch, facts=facts)


@workload(
    "timm/*",
    axes={"batch": [2], "dtype": ["fp32"]},
    tags=TAGS,
    modes=MODES,
    sizes={"small": {"batch": 1}, "h200": {"batch": 256, "dtype": "bf16"}},
)
def timm(batch: int, dtype: str, be: Any, member: str, mode: str = "eval") -> Task:
    """Any image model of timm, such as timm/resnet18; seeded weights, images of its own size, trained as a classifier."""
    task = as_task(image_model, ModelRequest(member, batch_size=batch, dtype=dtype), be, mode)
    classes = getattr(task.fn, "num_classes", 0)
    return replace(task, loss=_loss(surprise_at(be.integers(0, classes, batch)))) if classes else task


def _loss(surprise: Any) -> Any:
    """The loss of a classifier; for a model that returns several tensors in training, their mean."""
    return lambda output: surprise(output) if getattr(output, "ndim", 0) == 2 else mean_of(output)
