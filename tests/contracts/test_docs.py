"""The README: every command and option is in it, and its examples run as they are shown."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tfrtool.cli import main
from tfrtool.cli.app import cli

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _commands(child, (*path, name))
    else:
        yield path


def _find(path: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


@pytest.mark.parametrize("path", list(_commands(cli)), ids=" ".join)
def test_every_command_and_option_is_in_the_readme(path: tuple[str, ...]) -> None:
    """Each command has a heading, and each of its options stands below it."""
    heading = f"### tfrtool {' '.join(path)} "
    assert heading in README
    section = README.split(heading, 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    general = README.split("## Commands", 1)[1].split("### ", 1)[0]
    for parameter in _find(path).params:
        if isinstance(parameter, click.Option):
            for name in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{name}" in section or f"`{name}`" in general, name


@pytest.mark.parametrize("path", [(), ("inspect",), *_commands(cli)], ids=" ".join)
def test_every_help_has_an_example(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """--help of every command shows how it is called."""
    assert main([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert "  tfrtool " in text


def test_options_in_the_readme_exist() -> None:
    """The tables name no option that isn't there."""
    known = {"--help"} | {
        name
        for path in _commands(cli)
        for parameter in _find(path).params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    tables = "\n".join(line for line in README.splitlines() if line.startswith("| `--"))
    named = set(re.findall(r"`(--[a-z-]+)", tables))
    assert named
    assert named <= known


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that has what the README's examples use."""
    directory = tmp_path_factory.mktemp("clone")
    (directory / "fixtures").symlink_to(REPOSITORY / "fixtures")
    return directory


def test_the_tour_runs_as_it_is_shown(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each command prints what stands below it; `...` stands for anything."""
    monkeypatch.chdir(clone)
    commands = 0
    for block in _BLOCK.finditer(README):
        if block["language"] == "python":
            exec(compile(block["body"], "README.md", "exec"), {})
            capfd.readouterr()
        if block["language"] != "console":
            continue
        prompt, _, shown = block["body"].partition("\n")
        words = shlex.split(prompt.removeprefix("$ tfrtool "))
        assert main(words) in (0, 3), prompt
        pattern = re.sub(r"([\[\]?*])", r"[\1]", shown).replace("...", "*")
        printed = capfd.readouterr().out
        assert fnmatch.fnmatchcase(printed, pattern + "*"), f"{prompt}\n{printed}"
        commands += 1
    assert commands == 11


def test_the_makefile_has_what_the_readme_promises() -> None:
    """`make demo` and `make test` are there."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
