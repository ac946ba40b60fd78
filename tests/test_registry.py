"""Names and what they stand for: built in, in a user's file, or in an installed package that nothing imports until it is named."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard import registry
from steelyard.backends.numpy import Numpy
from steelyard.errors import UsageError, did_you_mean
from steelyard.model.define import Variant, Workload
from steelyard.registry import BUILT_IN, Catalogue, Loaded, built_ins, catalogue, load_backend, load_entry, load_file

PACKAGE = """
from steelyard import Task, metric, variant, workload
from steelyard.backends.numpy import Numpy

@workload("acme/add", axes={"n": [8]}, backend="numpy", tags=["acme"])
def add(n, be):
    \"\"\"Adds.\"\"\"
    x = be.randn(n)
    return Task(lambda: x + x, items=n)

@variant("acme-twice")
def twice(task, times: int = 2):
    return task

@metric("acme_rate", unit="row/s")
def rate(seconds, task):
    return task.items / seconds

class Abacus(Numpy):
    name = "abacus"
"""

ENTRY_POINTS = """
[steelyard.workloads]
acme/add = acme_kernels.all:add
op/softmax = acme_kernels.all:add

[steelyard.variants]
acme-twice = acme_kernels.all:twice

[steelyard.metrics]
acme_rate = acme_kernels.all:rate

[steelyard.backends]
abacus = acme_kernels.all:Abacus
broken = acme_kernels.nowhere:Abacus
"""


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports or adds to the search path is gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("acme_kernels", "steelyard_user_", "beside_")):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package as pip would leave it, metadata and all."""
    (tmp_path / "acme_kernels").mkdir()
    (tmp_path / "acme_kernels" / "__init__.py").write_text("")
    (tmp_path / "acme_kernels" / "all.py").write_text(PACKAGE)
    info = tmp_path / "acme_kernels-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kernels\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


class TestBuiltIns:
    def test_workloads_variants_and_metrics_are_found_by_folder(self) -> None:
        found = built_ins()
        assert {"op/softmax", "layer/mlp", "fake/work", "command"} <= set(found.workloads)
        assert "compile" in found.variants
        assert {"compute", "bandwidth", "item_rate"} <= set(found.metrics)
        assert all(isinstance(item, Workload) and item.name == name for name, item in found.workloads.items())
        assert all(isinstance(item, Variant) and item.name == name for name, item in found.variants.items())

    def test_every_one_says_what_it_is_for(self) -> None:
        found = built_ins()
        assert [name for table in (found.workloads, found.variants, found.metrics) for name, item in table.items() if not item.doc] == []

    def test_backends_are_the_files_of_their_folder(self) -> None:
        assert {"command", "fake", "numpy", "torch"} <= set(registry.backend_names())
        assert not {"base", "__init__"} & set(registry.backend_names())
        assert not [name for name in registry.backend_names() if name.startswith("_")]
        assert load_backend("numpy") is Numpy

    def test_the_catalogue_is_plain_data(self) -> None:
        found = catalogue()
        info = found.workloads["op/softmax"]
        assert (info["name"], info["origin"], info["backends"][0]) == ("op/softmax", BUILT_IN, "torch")
        assert all(isinstance(values, list) and values for values in info["axes"].values())
        assert found.variants["compile"]["options"][:2] == ["mode", "fullgraph"]
        assert found.backends["torch"]["origin"] == BUILT_IN

    def test_suites_are_named_by_their_files(self) -> None:
        assert registry.suites()["quickstart"].name == "quickstart.toml"


class TestUserFiles:
    def test_definitions_are_found_by_looking_at_the_module(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(PACKAGE)
        found = Loaded().add(load_file(tmp_path / "mine.py"))
        assert (list(found.workloads), list(found.variants), list(found.metrics)) == (["acme/add"], ["acme-twice"], ["acme_rate"])
        described = found.describe()
        assert described["workloads"]["acme/add"]["axes"] == {"n": [8]}
        assert described["variants"]["acme-twice"]["options"] == ["times"]
        assert described["metrics"]["acme_rate"] == {"doc": "", "unit": "row/s", "better": "higher"}

    def test_a_file_cannot_take_a_built_in_name(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(PACKAGE.replace("acme/add", "op/softmax"))
        for found in (built_ins(), Loaded()):
            with pytest.raises(UsageError, match=r"'op/softmax' is defined twice\n  built in: .*norm.py:\d+, and again: .*mine.py:5"):
                found.add(load_file(tmp_path / "mine.py"))

    def test_two_files_cannot_share_a_name_but_a_definition(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(PACKAGE)
        (tmp_path / "beside_mine.py").write_text(PACKAGE)
        (tmp_path / "again.py").write_text("from beside_mine import *")
        found = Loaded().add(load_file(tmp_path / "beside_mine.py")).add(load_file(tmp_path / "again.py"))
        with pytest.raises(UsageError, match="'acme/add' is defined twice"):
            found.add(load_file(tmp_path / "mine.py"))

    @pytest.mark.parametrize("kind", ["operator", "iterator", "generator"])
    def test_two_functions_cannot_share_a_name(self, kind: str, tmp_path: Path) -> None:
        text = f"from steelyard import {kind}\n\n" + "".join(f'@{kind}("my.one")\ndef f{number}(*args):\n    pass\n\n' for number in (1, 2))
        (tmp_path / f"{kind}s.py").write_text(text)
        with pytest.raises(UsageError, match=rf"{kind} 'my.one' is defined twice\n  .*{kind}s.py:3, and again: .*{kind}s.py:7"):
            Loaded().add(load_file(tmp_path / f"{kind}s.py"))

    def test_a_catalogue_is_extended_and_not_changed(self) -> None:
        before = Catalogue({"a": {"n": 1}}, {}, {}, {"numpy": {}})
        after = before.extend({"workloads": {"b": {"n": 2}}, "variants": {"v": {}}}, "mine.py")
        assert after.workloads == {"a": {"n": 1}, "b": {"n": 2, "origin": "mine.py"}}
        assert (after.variants, after.backends) == ({"v": {"origin": "mine.py"}}, {"numpy": {}})
        assert before.workloads == {"a": {"n": 1}}

    def test_a_file_is_imported_once_under_a_name_of_its_own(self, tmp_path: Path) -> None:
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "numpy.py").write_text(f"where = {folder!r}")
        one, two = load_file(tmp_path / "one" / "numpy.py"), load_file(tmp_path / "two" / "numpy.py")
        assert (one.where, two.where) == ("one", "two")
        assert load_file(str(tmp_path / "one" / ".." / "one" / "numpy.py")) is one
        assert importlib.import_module("numpy").__name__ == "numpy"

    def test_modules_beside_it_can_be_imported_at_once_and_later(self, tmp_path: Path) -> None:
        (tmp_path / "beside_at_once.py").write_text("value = 1")
        (tmp_path / "beside_later.py").write_text("value = 2")
        (tmp_path / "mine.py").write_text("import beside_at_once\ndef later():\n    import beside_later\n    return beside_later.value")
        assert load_file(tmp_path / "mine.py").later() == 2
        assert sys.path.count(str(tmp_path)) == 1
        assert sys.path[0] != str(tmp_path)

    @pytest.mark.parametrize(
        ("text", "error"), [("def (", UsageError), ("1 / 0", ZeroDivisionError), ("import no_such_module_at_all", ModuleNotFoundError)]
    )
    def test_a_bad_file_raises_its_own_error_and_leaves_nothing(self, tmp_path: Path, text: str, error: type[Exception]) -> None:
        (tmp_path / "bad.py").write_text(text)
        path, modules = list(sys.path), set(sys.modules)
        with pytest.raises(error):
            load_file(tmp_path / "bad.py")
        assert sys.path == path
        assert not [name for name in set(sys.modules) - modules if "bad" in name]
        (tmp_path / "bad.py").write_text("fixed = True")
        importlib.invalidate_caches()
        assert load_file(tmp_path / "bad.py").fixed

    def test_what_is_no_python_file_or_not_there_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("x = 1")
        with pytest.raises(UsageError, match="not a Python file"):
            load_file(tmp_path / "notes.txt")
        with pytest.raises(FileNotFoundError):
            load_file(tmp_path / "nowhere.py")

    def test_a_workload_that_contradicts_itself_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(PACKAGE.replace('axes={"n": [8]}', 'axes={"rows": [8]}'))
        with pytest.raises(UsageError, match="axis 'rows' is not an argument"):
            load_file(tmp_path / "mine.py")


class TestPackages:
    def test_listing_imports_nothing_of_a_package(self, package: Path) -> None:
        found = catalogue()
        assert found.workloads["acme/add"]["origin"] == "package acme-kernels"
        assert found.variants["acme-twice"]["origin"] == found.metrics["acme_rate"]["origin"] == "package acme-kernels"
        assert found.backends["abacus"]["origin"] == "package acme-kernels"
        assert not [name for name in sys.modules if name.startswith("acme_kernels")]

    def test_a_package_cannot_take_a_built_in_name(self, package: Path) -> None:
        assert catalogue().workloads["op/softmax"]["origin"] == BUILT_IN

    def test_naming_a_thing_loads_its_module(self, package: Path) -> None:
        found = Loaded().add(load_entry("workloads", "acme/add"))
        assert found.workloads["acme/add"].bodies["numpy"](n=3, be=Numpy())().shape == (3,)
        assert load_backend("abacus").name == "abacus"
        assert load_backend("abacus")().randn(3).shape == (3,)

    def test_what_is_broken_breaks_only_when_it_is_named(self, package: Path) -> None:
        assert "broken" in catalogue().backends
        with pytest.raises(ImportError):
            load_backend("broken")

    def test_an_unknown_name_gets_the_nearest_ones(self, package: Path) -> None:
        with pytest.raises(UsageError, match=r"no workload named 'acme/ad'\n  did you mean acme/add"):
            load_entry("workloads", "acme/ad")
        with pytest.raises(UsageError, match="did you mean abacus"):
            load_backend("abakus")
        with pytest.raises(UsageError, match="did you mean torch"):
            load_backend("troch")
        assert load_backend("mine", {"mine": Numpy}) is Numpy


def test_only_near_names_are_suggested() -> None:
    assert did_you_mean("op/sofmax", ["layer/mlp", "op/softmax", "op/conv2d"]).startswith("did you mean op/softmax")
    assert did_you_mean("xyzzy", ["op/softmax", "op/sum"]) == ""
