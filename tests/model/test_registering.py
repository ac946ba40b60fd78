"""What a file registers by calls is found, wherever the calls stand; two meanings of one name are a mistake that names both places."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.errors import UsageError
from steelyard.model import registering
from steelyard.registry import Loaded, entries_named, find_variant, load_entry, load_file

ONE = """
from steelyard import register_model, register_recipe

def build(bits=4, group=32):
    return lambda model: None
"""
HELPER = (
    ONE
    + """
def offer(name):
    register_recipe(name, build, params={"group": 64})

def unseen():
    register_model("unseen", build)
"""
)


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registering, "_made", list(registering._made))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("acme_", "steelyard_user_", "beside_")):
            del sys.modules[name]
    importlib.invalidate_caches()


def found(folder: Path, text: str, name: str = "mine.py") -> Loaded:
    (folder / name).write_text(text)
    return Loaded().add(load_file(folder / name))


def test_calls_in_a_loop_and_of_another_modules_function(tmp_path: Path) -> None:
    (tmp_path / "beside_offers.py").write_text(HELPER)
    text = (
        ONE
        + """
import beside_offers
for bits in (2, 3):
    register_recipe(f"loop{bits}", build, params={"bits": bits})
beside_offers.offer("offered")
def inner():
    register_model("inner", build)
inner()
"""
    )
    loaded = found(tmp_path, text)
    assert list(loaded.variants) == ["loop2", "loop3", "offered"] and list(loaded.workloads) == ["torchao/inner"]
    again = Loaded().add(load_file(tmp_path / "mine.py"))
    assert list(again.variants) == list(loaded.variants), "a process loads a file once, and may be asked for it again"
    assert "offered" not in vars(sys.modules["beside_offers"]), "nobody's globals are written to"


def test_a_file_has_only_what_it_registered(tmp_path: Path) -> None:
    assert list(found(tmp_path, ONE + "register_recipe('first', build)\n", "one.py").variants) == ["first"]
    assert list(found(tmp_path, ONE + "register_recipe('second', build)\n", "two.py").variants) == ["second"]


def test_what_a_file_registered_before_it_failed_is_forgotten(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        found(tmp_path, ONE + "register_recipe('once', build)\n1 / 0\n")
    loaded = found(tmp_path, ONE + "\n\nregister_recipe('once', build)\n")
    assert list(loaded.variants) == ["once"]


@pytest.mark.parametrize(
    "calls",
    [
        "def other(): pass\nregister_recipe('same', build)\nregister_recipe('same', other)\n",
        "for _ in range(2):\n    register_recipe('same', build)\n",
        "def other(m, k, n, dtype, device): pass\nregister_model('same', build)\nregister_model('same', other)\n",
    ],
)
def test_one_name_has_one_meaning_and_both_places_are_told(tmp_path: Path, calls: str) -> None:
    with pytest.raises(UsageError, match=r"'(torchao/)?same' is defined twice\n  .*mine\.py:4, and again: .*mine\.py:\d+"):
        found(tmp_path, ONE + calls)


def test_two_files_cannot_register_one_name(tmp_path: Path) -> None:
    loaded = found(tmp_path, ONE + "register_recipe('same', build)\n", "one.py")
    (tmp_path / "two.py").write_text(ONE + "register_recipe('same', build)\n")
    with pytest.raises(UsageError, match=r"one\.py:4, and again: .*two\.py:4"):
        loaded.add(load_file(tmp_path / "two.py"))


def test_a_built_in_name_is_taken(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'int8wo' is defined twice\n  built in: "):
        found(tmp_path, ONE + "register_recipe('int8wo', build)\n")


@pytest.fixture
def package(tmp_path: Path) -> None:
    """A package whose entry points name what it registers, with words behind the names or not."""
    (tmp_path / "acme_recipes.py").write_text(ONE + "register_recipe('mine', build, params={'group': 32})\nregister_model('acme', build)\n")
    info = tmp_path / "acme_recipes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-recipes\nVersion: 1.0\n")
    points = "[steelyard.variants]\nmine = acme_recipes:mine\nint8wo = acme_recipes:build\n"
    (info / "entry_points.txt").write_text(points + "[steelyard.workloads]\ntorchao/acme = acme_recipes:acme\n")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()


@pytest.mark.parametrize("imported", [False, True])
def test_an_entry_points_module_registers_too_even_if_it_was_imported_before(package: None, imported: bool) -> None:
    if imported:
        importlib.import_module("acme_recipes")
    loaded = Loaded().add(load_entry("variants", "mine")).add(load_entry("workloads", "torchao/acme"))
    assert list(loaded.variants) == ["mine"] and list(loaded.workloads) == ["torchao/acme"]


def test_words_behind_the_name_of_an_installed_recipe(package: None) -> None:
    assert entries_named(["torchao/acme"], ["mine-64", "eager"]) == (("workloads", "torchao/acme"), ("variants", "mine"))
    assert entries_named(["torchao/*"], ["mine"]) == (("workloads", "torchao/acme"), ("variants", "mine"))
    assert entries_named(["op/softmax"], ["mined-64", "int8wo", "int4wo-32"]) == (), "what is built in is not asked of packages"
    variant, options = find_variant("mine-64") or pytest.fail("not found")
    assert (variant.name, options) == ("mine", {"group": 64})
    variant, options = find_variant("int4wo-32") or pytest.fail("not found")
    assert (variant.name, options) == ("int4wo", {"group": 32}) and find_variant("nobodys-64") is None
