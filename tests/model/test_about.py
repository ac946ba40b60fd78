"""A backend's file says what must be known before its framework is imported, and saying it executes nothing."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from steelyard import registry
from steelyard.model.about import About


@pytest.mark.parametrize("name", registry.backend_names())
def test_what_is_read_is_what_the_file_has(name: str) -> None:
    about = registry.about_backend(name)
    if about.package and importlib.util.find_spec(about.package) is None:
        assert about.stack and about.remedy == f"steelyard env create {about.stack}"
        return
    told = importlib.import_module(registry.backend_module(name)).ABOUT
    assert {key: list(value) if isinstance(value, tuple) else value for key, value in vars(about).items() if value} == told


def test_one_that_says_nothing_has_the_usual_values() -> None:
    assert About.read("import torch\nBACKEND = 1\n") == About()
    assert not About().forks and About().set(About().variables, "cpu") == {}
    assert registry.about_backend("nobody_has_it") == About() and registry.backend_module("nobody_has_it") == ""


@pytest.mark.parametrize("text", ["{'package': print(1)}", "{\n    'forks': open('x', 'w'),\n}"])
def test_nothing_in_it_is_executed(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        About.read(f"ABOUT = {text}\n")


def test_variables_hold_device_and_threads() -> None:
    about = About(devices={"cuda": "CUDA"}, variables={"A": "{device}", "B": "{threads}", "C": ""})
    assert about.set(about.variables, "cuda", threads=3) == {"A": "CUDA", "B": "3", "C": ""}
    assert about.set(about.variables, "cpu", threads=1)["A"] == "cpu"
