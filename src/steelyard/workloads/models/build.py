"""A model by its source and its name: every dialect that builds models comes through here."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from steelyard.errors import NotApplicable, unknown
from steelyard.workloads.models.subject import Builder, ModelDevice, ModelRequest, Subject, made_by, mean_of, sow
from steelyard.workloads.models.timm import image_model
from steelyard.workloads.models.torchbench import bench_model
from steelyard.workloads.models.transformers import hub_model

DUMMY_WIDTHS, DUMMY_BATCH = (32, 512, 512, 32), 16


def build(ask: ModelRequest, spot: ModelDevice) -> Subject:
    """The model of one source, in the mode of its test, on its device."""
    return made_by(BUILDERS[ask.suite], ask, spot)


def dummy(ask: ModelRequest, spot: ModelDevice) -> Subject:
    """Three linear layers, so that every path can be tried without a download; it can be trained too."""
    import torch
    from torch import nn

    if ask.name != "dummy":
        raise unknown("model", ask.name, ["dummy"])
    first, *_, last = DUMMY_WIDTHS
    layers: list[Any] = []
    for features, out in pairwise(DUMMY_WIDTHS):
        layers += [nn.Linear(features, out), nn.ReLU()]
    module = nn.Sequential(*layers[:-1]).to(spot.where)
    sow(spot.xla, ask.seed)
    batch = ask.batch_size or DUMMY_BATCH
    inputs, target = torch.randn(batch, first), torch.randn(batch, last).to(spot.where)

    def loss(output: Any) -> Any:
        return nn.functional.mse_loss(output, target.to(output.dtype))

    return Subject(module, (inputs.to(spot.where),), loss=loss, batch_size=batch, optimizer=ask.optimizer)


def own(ask: ModelRequest, spot: ModelDevice) -> Subject:
    """One of our own models, with the data and weights that `steelyard run` gives it."""
    workload = ask.loaded.workloads.get(f"model/{ask.name}")
    if workload is None:
        names = [name.removeprefix("model/") for name in ask.loaded.workloads if name.startswith("model/")]
        raise unknown("model", ask.name, names)
    if ask.test not in workload.modes:
        raise NotApplicable(f"{workload.name} has no mode {ask.test}; it has {', '.join(workload.modes)}")
    params = {axis: values[0] for axis, values in workload.axes.items()}
    if ask.size is not None:
        if ask.size not in workload.sizes:
            raise unknown(f"size of {workload.name}", ask.size, workload.sizes)
        params |= workload.sizes[ask.size]
    if ask.batch_size is not None and "batch" in params:
        params["batch"] = ask.batch_size
    be, body = spot.backend(ask.threads), workload.bodies["torch"]
    takes = body.__code__.co_varnames[: body.__code__.co_argcount]
    task = body(**params, be=be, **({"mode": ask.test} if "mode" in takes else {}))
    return Subject(task.fn, task.args, dict(task.kwargs), task.loss or mean_of, params.get("batch"), optimizer=ask.optimizer)


BUILDERS: dict[str, Builder] = {
    "dummy": dummy, "steelyard": own, "torchbench": bench_model, "timm": image_model, "transformers": hub_model,
}  # fmt: skip
