"""A layer with recipes of its own under the names that TorchAO's configs have, on the virtual clock: what takes how long is known."""

from dataclasses import replace

from steelyard import Task, workload
from steelyard.errors import NotApplied, Unsupported

AXES = {"m": [16], "k": [16], "n": [16], "dtype": ["bf16"]}


@workload("torchao/standin", axes=AXES, backend="fake")
def standin(m, k, n, dtype, be):
    """Takes m microseconds."""
    x = be.randn(16, dtype="fp32")

    def fn():
        be.spend(m * 1e-6)
        return x * 2

    return Task(fn, reference=lambda: x * 2)


def shorter(task, be, share):
    def fn():
        before = be.world.clock
        answer = task()
        be.world.clock = before + int((be.world.clock - before) * share)
        return answer

    return replace(task, fn=fn)


@standin.variant("int8wo")
def int8wo(task, be):
    """Half the time."""
    return shorter(task, be, 0.5)


@standin.variant("int8dq")
def int8dq(task, be):
    """A quarter of the time."""
    return shorter(task, be, 0.25)


@standin.variant("compile")
def compiled(task, be, mode="default", fullgraph=False):
    """Four fifths of the time."""
    return shorter(task, be, 0.8)


@standin.variant("semi-sparse")
def semi(task, be):
    """Half the time."""
    return shorter(task, be, 0.5)


@standin.variant("block-sparse")
def block(task, be):
    """Never here."""
    raise Unsupported("block sparsity needs triton", do="pip install triton")


@standin.variant("float8wo")
def nothing(task, be):
    """Leaves the layer as it is."""
    raise NotApplied("no weight was changed")


@standin.variant("uintx-4-64")
def broken(task, be):
    """Fails."""
    raise ValueError("no such kernel")


@workload("net/standin", axes={"seq": [8]}, backend="fake")
def net(seq, be):
    """A model with a size of its own, and none of a layer's."""
    return standin.bodies["fake"](seq, 1, 1, "fp32", be)


for name in ("int8wo", "int8dq", "float8wo", "uintx-4-64"):
    standin.variants[name] = replace(standin.variants[name], rule="sqnr")
    net.variants[name] = standin.variants[name]
