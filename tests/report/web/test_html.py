"""The page is one file that carries its data whole, and may run nothing but what Steelyard put into it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.report.web import html
from steelyard.report.web.document import document
from tests.docs.fences import ROOT
from tests.report import hostile

EVIL = {"cases": [], "title": hostile.WORDS[0], "words": [*hostile.WORDS, "\ud800", "<!--TITLE--><!--STYLE-->", "<style>", "<!-- <script>"]}


class Page(HTMLParser):
    """Elements of a page as a browser sees them: each with its attributes and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            tag, attrs, text = self.found[-1]
            self.found[-1] = (tag, attrs, text + data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, text) for name, attrs, text in self.found if name == tag]

    @property
    def policy(self) -> dict[str, list[str]]:
        content = next(attrs["content"] for attrs, _ in self.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy")
        return {rule.split()[0]: rule.split()[1:] for rule in str(content).split(";")}

    @property
    def held(self) -> str:
        return next(text for attrs, text in self.all("script") if attrs.get("id") == "steelyard-data")

    @property
    def data(self) -> Any:
        (kind,) = [attrs["type"] for attrs, _ in self.all("script") if attrs.get("id") == "steelyard-data"]
        return json.loads(self.held if kind == html.JSON else gzip.decompress(base64.b64decode(self.held)))


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.fixture(params=["single", "linked"])
def text(request: pytest.FixtureRequest) -> str:
    return html.single_page(EVIL) if request.param == "single" else html.linked_page(EVIL, "../assets")


def test_the_data_comes_through_whole_and_as_nothing_but_data(text: str) -> None:
    page = Page(text)
    assert page.data == EVIL
    assert [found for _, found in page.all("title")] == [hostile.WORDS[0]]
    shared = 0 if "<style>" in text else 1
    assert len(page.all("script")) == 1 + shared + len(html.programs()) + len(re.findall("<script>", html.template()))
    assert text.encode()


def test_every_script_and_style_is_allowed_by_its_own_hash() -> None:
    page = Page(html.single_page(EVIL))
    scripts = [found for attrs, found in page.all("script") if not attrs.get("type")]
    assert [hash_of(found) for found in scripts if hash_of(found) not in page.policy["script-src"]] == []
    assert page.policy["script-src"] == list(dict.fromkeys(map(hash_of, scripts))) and len(scripts) > len(html.VENDORED)
    assert page.policy["style-src"] == [hash_of(found) for _, found in page.all("style")]


def test_nothing_can_be_fetched_and_nothing_compiled(text: str) -> None:
    policy = Page(text).policy
    assert policy["default-src"] == ["'none'"] and policy["img-src"] == ["data:", "blob:"]
    assert not any("unsafe" in value for values in policy.values() for value in values)
    assert "connect-src" not in policy and "sourceMappingURL" not in text


def test_a_single_page_leads_nowhere() -> None:
    page = Page(html.single_page(EVIL))
    leads = [attrs.get("src") or attrs.get("href") for _, attrs, _ in page.found]
    assert [lead for lead in leads if lead and not lead.startswith(("#", "data:"))] == []


def test_a_linked_page_names_files_that_there_are() -> None:
    page = Page(html.linked_page(EVIL, "../assets"))
    leads = [attrs.get("src") for attrs, _ in page.all("script") if attrs.get("src")]
    leads += [attrs.get("href") for attrs, _ in page.all("link") if attrs.get("rel") == "stylesheet"]
    assert {str(lead).removeprefix("../assets/") for lead in leads} | {html.LICENCES} == set(html.asset_files())
    assert len(leads) == len(html.programs()) + 2
    assert leads[0] == f"../assets/{html.asset_names()[html.CHARTS]}"


def test_charts_are_written_once_for_a_whole_site() -> None:
    made = document([hostile.run()])
    assert "charts" not in Page(html.linked_page(made, "assets")).data and Page(html.single_page(made)).data["charts"] == made["charts"]
    shared = html.asset_files()[html.asset_names()[html.CHARTS]]
    assert json.loads(shared.removeprefix("window.SteelyardCharts = ").removesuffix(";\n")) == made["charts"]
    assert "window.SteelyardCharts" in html.programs()["00-core.js"]


def test_a_shared_file_is_named_by_its_content() -> None:
    for name, text in html.asset_files().items():
        if name != html.LICENCES:
            assert hashlib.sha256(text.encode()).hexdigest()[:12] in name


@pytest.mark.parametrize("name", html.programs())
def test_no_script_could_end_its_own_element(name: str) -> None:
    assert "</script" not in html.programs()[name].lower() and "<!--" not in html.programs()[name]


def test_the_licences_of_what_is_shipped_go_along() -> None:
    licences = html.asset_files()[html.LICENCES]
    assert all(name.removesuffix(".min.js") in licences for name in html.VENDORED)


def test_no_asset_is_left_out_of_a_package() -> None:
    """The build takes what git does not ignore."""
    assets = sorted(path for path in (ROOT / "src/steelyard/report/web/assets").rglob("*") if path.is_file())
    assert len(assets) >= 10
    done = subprocess.run(["git", "check-ignore", *map(str, assets)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 128:
        assert done.stdout == ""


def test_a_document_of_hostile_results_makes_a_page(tmp_path: Path) -> None:
    made = document([hostile.run()])
    assert Page(html.single_page(made)).data == made


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    made = html.data_text({"text": text})
    assert json.loads(made) == {"text": text} and not set(made) & set("<\u2028\u2029")
