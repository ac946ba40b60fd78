"""Names stand for operators and for nothing else that torch can do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard.errors import UsageError  # noqa: E402
from steelyard.model.operators import Operator, operator  # noqa: E402
from steelyard.workloads.operators import _aten, _names  # noqa: E402
from steelyard.workloads.operators._names import find, functions, modules  # noqa: E402
from steelyard.workloads.operators.call import Call, DescribedCall  # noqa: E402
from tests.workloads.operators.specs import Spec, call, many, of, tensor  # noqa: E402

pytestmark = pytest.mark.torch

PARAMS = {
    "torch.add_": "function", "torch.clamp_": "function", "torch.add": "function", "torch.baddbmm": "function", "torch.bmm": "function",
    "torch.cat": "function", "torch.matmul": "function", "torch.mean": "function", "torch.mm": "function", "torch.mul": "function",
    "torch.reshape": "function", "torch.nn.functional.relu": "function", "torch.nn.AdaptiveAvgPool2d": "module",
    "torch.nn.Conv2d": "module", "torch.nn.Dropout": "module", "torch.nn.MaxPool2d": "module", "torch.nn.ReLU": "module",
    "torch.nn.Linear": "module", "pytorch.model.alex_net": "model", "pytorch.model.resnet": "model",
}  # fmt: skip
REFUSED = [
    "torch.os.system", "torch.sys.exit", "torch.hub.load", "torch.load", "torch.save", "torch.ops.load_library", "torch.from_file",
    "torch.compile", "torch.jit.load", "torch.jit.script", "torch.package.PackageImporter", "torch.utils.cpp_extension.load",
    "torch.frombuffer", "torch.UntypedStorage.from_file", "torch.Tensor.share_memory_", "torch.Tensor.set_", "torch.Tensor.__setstate__",
    "torch.Tensor.__reduce_ex__", "torch.Tensor.apply_", "torch.Tensor.map_", "torch.Tensor.numpy", "torch.Tensor.__class__",
    "torch.Tensor.data.__set__", "torch.Tensor.module_load", "torch.add.__call__", "torch.autocast", "torch.set_num_threads",
    "torch.manual_seed", "torch.classes.load_library", "torch.serialization.load", "torch.__loader__", "torch.nn.Linear.__init__",
    "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel", "torch.nn.functional.importlib", "torch.nn.Parameter",
    "torch.nn.modules.module.Module", "torch.nn.functional.__builtins__", "os.system", "builtins.eval", "eval", "__import__", "",
    "aten::from_file", "aten::from_file.out", "aten::save", "aten::_print", "aten::record_stream", "aten::set_.source_Storage", "aten::",
    "aten::.x", "prim::Print", "quantized::linear", "aten::add.__call__", "aten::__class__", "aten::add\n", "torch.add ", " torch.add",
    "torch..add", "\x1b[31m", "torch.Tensor.data_ptr", "torch.Tensor.record_stream", "torch.Tensor.requires_grad_",
]  # fmt: skip


def prepared(op: str, *args: Spec, build: Any = None, **kwargs: Spec) -> Call:
    return DescribedCall(op, build, call(*args, **kwargs)).prepare("cpu")


@pytest.mark.parametrize("name", PARAMS)
def test_the_operators_of_param_are_there(name: str) -> None:
    found = find(name, {})
    assert (found.name, found.kind, found.in_place) == (name, PARAMS[name], name.endswith("_"))


@pytest.mark.parametrize("name", REFUSED, ids=[repr(name) for name in REFUSED])
def test_what_is_no_operator_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(name, {})
    assert caught.value.what.startswith("no operator named")
    assert "an operator is" in caught.value.why and "\x1b" not in str(caught.value)


def test_no_table_holds_what_reaches_out() -> None:
    """Whatever is added to torch, these words do not belong to an operator on tensors."""
    names = [*functions(), *modules(), *(f"aten::{name}" for name in _aten.overloads())]
    words = {
        "load",
        "save",
        "file",
        "system",
        "exec",
        "eval",
        "compile",
        "import",
        "library",
        "pickle",
        "setstate",
        "script",
        "open",
        "url",
    }
    assert [name for name in names if words & set(name.replace("::", ".").rpartition(".")[2].strip("_").split("_"))] == [
        "torch.Tensor.module_load"
    ][:0]
    assert len(names) > 2500


def test_every_module_is_one_of_torch_itself() -> None:
    assert all(issubclass(kind, torch.nn.Module) and kind.__module__.startswith("torch.nn.modules.") for kind in modules().values())
    assert {"torch.nn.Transformer", "torch.nn.LSTM", "torch.nn.CrossEntropyLoss"} <= set(modules())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("torch.ad", "torch.add"), ("torch.nn.Linaer", "torch.nn.Linear"), ("aten::ad", "aten::add"),
        ("aten::add.Tensr", "aten::add.Tensor"), ("torch.rand_like", "write aten::rand_like"),
    ],
)  # fmt: skip
def test_the_nearest_name_is_suggested(name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(name, {})
    assert near in caught.value.do


def test_a_name_that_many_configs_share_is_looked_for_once() -> None:
    before = _names._refusal.cache_info().misses
    for _ in range(3):
        with pytest.raises(UsageError):
            find("torch.nothing_like_this", {})
    assert _names._refusal.cache_info().misses == before + 1


def test_functions_answer_to_all_their_names() -> None:
    names = {
        "torch.mm",
        "torch.einsum",
        "torch.functional.einsum",
        "torch.conv2d",
        "torch.nn.functional.conv2d",
        "torch.linalg.norm",
        "torch.fft.fft",
    }
    assert names <= set(functions())
    assert functions()["torch.relu_"] is torch.Tensor.relu_
    assert find("torch.Tensor.__iadd__", {}).in_place and not find("torch.Tensor.__invert__", {}).in_place


class TestAten:
    """Overloads are found by name, by schema and by arguments."""

    @pytest.mark.parametrize(
        ("op", "args", "kwargs", "overload"),
        [
            ("aten::add", [tensor(2), tensor(2)], {}, "Tensor"),
            ("aten::add", [tensor(2), of("int", 3)], {}, "Scalar"),
            ("aten::add", [tensor(2), tensor(2), of("float", 0.5)], {}, "Tensor"),
            ("aten::add", [tensor(2), tensor(2)], {"out": tensor(2)}, "out"),
            ("aten::sum", [tensor(2, 3)], {}, ""),
            ("aten::sum", [tensor(2, 3)], {"dim": many(of("int", 1))}, "dim_IntList"),
            ("aten::sum", [tensor(2, 3), {"type": "none"}, of("bool", True), {"type": "none"}], {}, "dim_IntList"),
            ("aten::mean", [tensor(2, 3), of("int", 1)], {}, "dim"),
            ("aten::clamp", [tensor(2), of("float", 0.1), of("int", 1)], {}, ""),
            ("aten::clamp", [tensor(2), tensor(2)], {}, "Tensor"),
            ("aten::pow", [of("int", 2), tensor(3)], {}, "Scalar"),
            ("aten::cat", [many(tensor(2), tensor(3))], {}, ""),
            ("aten::to", [tensor(2), of("dtype", "bf16")], {}, "dtype"),
            ("aten::add.Scalar", [tensor(2), of("int", 3)], {}, "Scalar"),
            ("aten::sum.default", [tensor(2)], {}, ""),
            ("aten::linear", [tensor(2, 3), tensor(4, 3)], {}, ""),
        ],
    )  # fmt: skip
    def test_the_overload_follows_from_the_arguments(self, op: str, args: list[Spec], kwargs: dict[str, Spec], overload: str) -> None:
        made = prepared(op, *args, **kwargs)
        assert made.forward._schema.overload_name == overload
        made.forward(*[item.detach() if isinstance(item, torch.Tensor) else item for item in made.args], **made.kwargs)

    def test_what_goes_by_name_may_be_given_by_place(self) -> None:
        made = prepared("aten::add", tensor(3), tensor(3), of("int", 10))
        assert len(made.args) == 2 and made.kwargs == {"alpha": 10}
        torch.testing.assert_close(made.forward(*made.args, **made.kwargs), made.args[0] + 10 * made.args[1])

    def test_a_schema_as_build_argument_names_the_overload(self) -> None:
        text = "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
        made = prepared("aten::sum", tensor(2, 3), many(of("int", 1)), build=call(of("str", text)))
        assert made.forward._schema.overload_name == "dim_IntList"

    def test_a_list_of_types_as_build_argument_is_taken(self) -> None:
        made = prepared("aten::add", tensor(2), tensor(2), of("int", 1), build=call(many(*[of("str", "Tensor")] * 3)))
        assert made.forward._schema.overload_name == "Tensor"

    @pytest.mark.parametrize(
        "text",
        [
            "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
            "no schema",
            "aten::add.None(Tensor self) -> Tensor",
            "aten::save(t item) -> ()",
        ],
    )
    def test_a_schema_of_something_else_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            prepared("aten::add", tensor(2), tensor(2), build=call(of("str", text)))

    def test_arguments_that_fit_no_overload_are_told_what_would(self) -> None:
        with pytest.raises(UsageError, match=r"Tensor\(Tensor self, Tensor other, number alpha\)"):
            prepared("aten::add", of("str", "x"))
        with pytest.raises(UsageError, match=r"default\(Tensor self\); out\(Tensor self, Tensor out\)"):
            prepared("aten::relu", tensor(2), tensor(2))
        with pytest.raises(UsageError, match="more arguments than it takes"):
            prepared("aten::add.Tensor", tensor(2), tensor(2), of("int", 1), alpha=of("int", 2))

    @pytest.mark.parametrize(
        ("op", "in_place"), [("aten::add_", True), ("aten::add_.Tensor", True), ("aten::add", False), ("aten::add.out", False)]
    )
    def test_schemas_say_what_is_overwritten(self, op: str, in_place: bool) -> None:
        assert find(op, {}).in_place is in_place


@pytest.mark.parametrize("name", ["torch.add", "torch.nn.Linear", "aten::mul.Tensor"])
def test_a_name_of_the_frameworks_own_cannot_be_taken(name: str) -> None:
    with pytest.raises(UsageError, match="is the framework's own"):
        find(name, {name: Operator(name, lambda: None)})

    @operator("my.add")
    def mine(x: Any) -> Any:
        return x

    assert find("my.add", {"my.add": mine}) is mine
    assert find(name, {"my.add": mine}).kind != "user"
