"""A real Chromium against a live server, and a watch on everything a page does wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, expect, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",  # one process fewer takes part in drawing: a fifth of the time
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
HOW_TO_INSTALL = (
    "Chromium is missing, and the browser tests need it. Install it with the system's package manager "
    "(apt-get install chromium) or with `python -m playwright install chromium`; `make test` does either."
)
# Says in the console what the browser refused, with the element or address it refused.
_REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (e) =>
  console.error(`CSP ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber} ${e.sample}`));
"""

Visit = Callable[..., Page]
expect.set_options(timeout=20_000)  # a page that comes late is no wrong page


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Start one headless Chromium for all browser tests.

    They are the last tests of a run (tests/conftest.py): Playwright's event loop would run on under others.
    """
    # Playwright keeps an event loop in this thread, where Django would refuse to be used.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        except Error as error:
            pytest.fail(f"{HOW_TO_INSTALL} ({str(error).splitlines()[0]})", pytrace=False)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def visit(chromium: Browser, live_server: Any) -> Iterator[Visit]:
    """Open an address of the live server, logged in as `user` if one is given.

    The test fails at its end if any page it opened had a console error, an uncaught exception,
    a refused resource, or asked another host for anything. `page.allowed` lists texts that a
    test expects among them. With `has_clock` the clock of the page can be put forward (`looking.ask_now`).
    """
    contexts: list[BrowserContext] = []
    troubles: list[str] = []
    expected: list[str] = []

    def open_page(
        path: str,
        user: Any = None,
        *,
        width: int = 1280,
        scheme: str = "light",
        expects: str = "",
        has_clock: bool = False,
    ) -> Page:
        context = chromium.new_context(
            base_url=live_server.url,
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.add_init_script(_REPORT_VIOLATIONS)
        if has_clock:
            context.clock.install()
        if user is not None:
            client = Client()
            client.force_login(user)
            cookie = client.cookies[settings.SESSION_COOKIE_NAME]
            context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_server.url}])
        if expects:
            expected.append(expects)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: _note_console(message, troubles))
        page.on("pageerror", lambda error: troubles.append(f"{page.url}: {error}"))
        page.on("request", lambda request: _note_host(request.url, live_server.url, troubles))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [t for t in troubles if not any(text in t for text in expected)] == []


def _note_console(message: ConsoleMessage, troubles: list[str]) -> None:
    if message.type in {"error", "warning"}:
        troubles.append(f"{message.location.get('url', '')}: {message.text}")


def _note_host(url: str, own: str, troubles: list[str]) -> None:
    if not url.startswith((own, "data:")):
        troubles.append(f"asked another host: {url}")
