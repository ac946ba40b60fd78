"""A real browser without a network, for whoever must see a report as a reader does: tests, benchmarks and screenshots.

It is Debian's Chromium, headless, through its own driver; nothing is ever downloaded. `STEELYARD_CHROMIUM` and
`STEELYARD_CHROMEDRIVER` name others.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

PATIENCE = 60.0
"""Seconds until a page that does not come is given up; no measure of how fast one is."""
HARMLESS = ("file", "data", "blob", "about", "chrome")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--force-device-scale-factor=1", "--hide-scrollbars",
    "--window-size=1280,900", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def programs() -> tuple[str, str] | None:
    """The browser and its driver, or nothing where one is missing."""
    browser = shutil.which(os.environ.get("STEELYARD_CHROMIUM") or "chromium")
    driver = shutil.which(os.environ.get("STEELYARD_CHROMEDRIVER") or "chromedriver")
    return (browser, driver) if browser and driver else None


@dataclass
class Tab:
    """One page in the browser, with what it said and whom it asked."""

    driver: Chrome
    downloads: Path

    def visit(self, address: str) -> None:
        """Go there as if it were typed, and wait until everything on the page is drawn."""
        if self.run("return location.href") == address:
            self.driver.refresh()
        else:
            self.run("document.querySelector('main')?.removeAttribute('data-drawn')")
            self.driver.get(address)
        self.drawn()

    def drawn(self) -> None:
        """Wait for the page that the address names to say that it is done, charts and all; a link is followed a moment after its click."""
        self.until(
            """const main = document.querySelector('main'), asked = decodeURIComponent(location.hash.slice(2).split(/[/?]/)[0]);
            return main?.dataset.drawn === 'yes' && (!asked || main.dataset.page === asked)"""
        )

    def until(self, script: str, *values: Any) -> Any:
        """What the script returns, once that is true."""
        return WebDriverWait(self.driver, PATIENCE, 0.02).until(
            lambda driver: driver.execute_script(script, *values), f"never true: {script}"
        )

    def run(self, script: str, *values: Any) -> Any:
        """What the script returns."""
        return self.driver.execute_script(script, *values)

    def tell(self, command: str, **values: Any) -> Any:
        """A command of the browser's own protocol."""
        return self.driver.execute_cdp_cmd(command, values)

    def resize(self, width: int, height: int = 900) -> None:
        """A window of this size, as narrow as a telephone where asked."""
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def appear(self, *, dark: bool = False, media: str = "") -> None:
        """Light or dark, on screen or on paper."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.tell("Emulation.setEmulatedMedia", media=media, features=features)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and every address outside this machine that was asked for, since the last time."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        return said + [f"asked the network for {address}" for address in self._asked()]

    def _asked(self) -> Iterator[str]:
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = message["params"]["request"]["url"]
                parts = urlsplit(address)
                if parts.scheme not in HARMLESS and parts.hostname != "127.0.0.1":
                    yield address[:200]


@contextmanager
def tab(downloads: Path) -> Iterator[Tab]:
    """A browser with one tab, gone afterwards."""
    found = programs()
    if not found:
        raise FileNotFoundError("there is no Chromium with a driver here: scripts/chromium.sh says what to do")
    options = ChromeOptions()
    options.binary_location = found[0]
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, Service(executable_path=found[1]))
    try:
        opened = Tab(driver, downloads)
        opened.tell("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
        yield opened
    finally:
        driver.quit()
