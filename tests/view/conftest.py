"""A browser for the tests of pages, and the real viewer for it to open."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


class Viewer(NamedTuple):
    """A viewer that runs: its process, and the address to open."""

    process: subprocess.Popen[str]
    url: str


OpenPage = Callable[..., Any]
"""Opens an address in a new window (``width``, ``dark``), and returns Playwright's page. What its
console says, and dialogs that it shows, are in its attribute ``told``."""


@pytest.fixture(autouse=True, scope="package")
def patient() -> Iterator[None]:
    """Let queries of pages take long: a busy machine is not what these tests are about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfrtool.view.live.MAX_SECONDS", 300.0)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium, which one module's tests share: it keeps an event loop in this thread."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("Chromium is not installed")
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with api.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=found, args=_QUIET)
        yield one
        one.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Return what opens addresses; the windows are closed at the end."""
    opened = []

    def open_it(url: str, *, width: int = 1400, dark: bool = False) -> Any:
        scheme = "dark" if dark else "light"
        view = {"width": width, "height": 900}
        context = browser.new_context(viewport=view, color_scheme=scheme, accept_downloads=True)
        opened.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.told = []
        page.on("console", lambda message: page.told.append(message.text))
        page.on("pageerror", lambda error: page.told.append(str(error)))
        page.on("dialog", lambda dialog: (page.told.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        return page

    yield open_it
    for context in opened:
        context.close()


@pytest.fixture(scope="module")
def start_viewer(
    browser: Any,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Viewer]]:
    """Return what starts ``tfrtool view`` in a process; all are ended at the end."""
    started = []
    folder = str(tmp_path_factory.mktemp("data"))
    environment = os.environ | {"XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder}

    def start(shards: Path, *options: str) -> Viewer:
        words = ("view", str(shards), "--no-open", "--json", "--workers", "1", *options)
        process = subprocess.Popen(
            [sys.executable, "-m", "tfrtool", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        started.append(process)
        assert process.stdout is not None
        return Viewer(process, json.loads(process.stdout.readline())["url"])

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(120)
        process.kill()
        process.communicate()
