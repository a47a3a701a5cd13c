"""Runs what a page of the documentation shows: its commands and its Python, from top to bottom."""

from __future__ import annotations

import ast
import fnmatch
import gc
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tfrtool.cli import main

__all__ = ["Block", "blocks_of", "run_command", "run_page"]

REPOSITORY = Path(__file__).parents[1]

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_PROVIDED = re.compile(
    r"export |pip install |ray start |ssh |python -c .import secrets|make |source "
)
"""Commands that set a machine up, which the tests' machine is already."""

_PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)
"""A line of Python that prints, with what it prints in a comment."""

_OPTIONAL = {"torch", "grain", "jax", "lerobot"}
"""Packages that pages import and only `make test-frameworks` installs."""


class Block(NamedTuple):
    """A block of code in a page."""

    language: str
    body: str


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of code in a page, those in lists too."""
    for match in _BLOCK.finditer((REPOSITORY / page).read_text("utf-8")):
        yield Block(match["language"], textwrap.dedent(match["body"]))


def run_page(
    page: str,
    capfd: pytest.CaptureFixture[str],
    replaced: Mapping[str, str] | None = None,
    *,
    sh: bool = True,
    names: dict[str, Any] | None = None,
) -> int:
    """Run all commands and Python of a page in the current directory; return how many ran.

    Commands must end with 0 or 3 and print what is shown below them, and Python what is in the
    comment after a ``print``, where ``...`` stands for anything. The keys of ``replaced`` are
    names that a page makes up, such as a bucket's. Without ``sh``, commands without output are not
    run: on reference pages they are for data of the reader's. With ``names``, all Python of the
    page shares these, as in a notebook.
    """
    ran = 0
    for language, text in blocks_of(page):
        for name, real in (replaced or {}).items():
            text = text.replace(name, real)
        if language == "console":
            prompt, _, expected = text.partition("\n")
            printed = run_command(prompt.removeprefix("$ "), capfd)
            assert _matches(printed, expected + "..."), f"{page}: {prompt}\n{printed}"
            ran += 1
        elif language == "sh" and sh:
            for command in re.sub(r" *\\\n *", " ", text).splitlines():
                if command and not command.startswith("#") and not _PROVIDED.match(command):
                    run_command(command, capfd)
                    ran += 1
        elif language == "python" and _can_run(text):
            # Grain would look for the source in a file of that name.
            scope = {"__name__": "__main__"} if names is None else names
            capfd.readouterr()
            exec(compile(text, f"<{page}>", "exec"), scope)
            lines = capfd.readouterr().out.splitlines()
            for expected in _PRINTED.findall(text):
                assert any(_matches(line, expected) for line in lines), f"{page}: {expected}"
            ran += 1
    gc.collect()  # files that the page leaves open are closed while their warnings are ignored
    capfd.readouterr()
    return ran


def run_command(command: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Run a command, this tool's in this process; return what it prints on stdout."""
    capfd.readouterr()
    if command.startswith("tfrtool view "):
        return _view(command)
    if re.match(r"tfrtool [^|<>&]*(#.*)?$", command) or command.startswith("tfrtool query "):
        code = main(shlex.split(command, comments=True)[1:])
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        code = subprocess.run(
            command, shell=True, check=False, env={**os.environ, "PATH": path}
        ).returncode
    shown = capfd.readouterr()
    assert code in (0, 3), f"{command}: exit code {code}\n{shown.out}{shown.err}"
    return shown.out


def _matches(printed: str, expected: str) -> bool:
    """Return whether a text is the expected one, in which ``...`` stands for anything."""
    pattern = re.sub(r"([\[\]?*])", r"[\1]", expected).replace("...", "*")
    return fnmatch.fnmatchcase(printed, pattern)


def _view(command: str) -> str:
    """Start the viewer, load its page, and end it."""
    words = [sys.executable, "-m", *shlex.split(command, comments=True), "--no-open"]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as viewer:
        try:
            assert viewer.stdout is not None
            found = next(filter(None, (re.search(r"http://\S+", line) for line in viewer.stdout)))
            with opener.open(found[0], timeout=300) as answer:
                assert b"<html" in answer.read()
        finally:
            viewer.terminate()
    assert viewer.returncode == 128 + signal.SIGTERM
    return ""


def _can_run(source: str) -> bool:
    """Return whether all that it imports is installed, or is something that must be."""
    modules = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    return not any(name in _OPTIONAL and not importlib.util.find_spec(name) for name in modules)
