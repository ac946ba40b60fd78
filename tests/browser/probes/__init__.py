"""Questions asked inside a page: can everybody read and operate it, does it fit, and does it say anything that is no answer."""

from __future__ import annotations

from pathlib import Path


def probe(name: str) -> str:
    """The script of that name."""
    return (Path(__file__).parent / f"{name}.js").read_text(encoding="utf-8")


LINKS = "return [...document.querySelectorAll('main a[href^=\"#/\"]')].map((item) => item.getAttribute('href'))"
NAVIGATION = "return [...document.querySelectorAll('nav a')].map((item) => item.getAttribute('href'))"
VIEW = "return [location.hash, document.querySelector('main').innerText]"
