"""A real browser for tests of pages: Debian's Chromium, driven by Playwright, offline."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _without(reason: str) -> None:
    """Skip the test, or fail it where a browser is required."""
    advice = f"{reason}; run tools/browser, and pip install playwright"
    if os.environ.get("BTNKM_BROWSER") == "required":
        pytest.fail(advice)
    pytest.skip(advice)


@contextmanager
def browser() -> Iterator:
    """Yield a headless Chromium of its own, with an empty profile."""
    path = next((actual for name in NAMES if (actual := shutil.which(name))), None)
    if path is None:
        _without("no Chromium was found")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("Playwright is not installed")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def opened(browser, **settings) -> Iterator:
    """Yield an offline page that fails the test if it asks for anything, errs or complains."""
    context = browser.new_context(offline=True, **settings)
    page = context.new_page()
    asked, answers = [], []
    page.on("request", lambda request: asked.append((request.resource_type, request.url)))
    page.on("pageerror", lambda error: answers.append(str(error)))
    page.on("console", lambda message: answers.append(message.text))
    page.on("dialog", lambda dialog: (answers.append(dialog.message), dialog.dismiss()))
    try:
        yield page
    finally:
        context.close()
    # the page itself, and nothing it might ask for
    assert [
        item for item in asked if item[0] != "document" or not item[1].startswith("file://")
    ] == []
    assert answers == []
