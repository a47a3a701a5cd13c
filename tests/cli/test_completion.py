"""Shell completion: commands, options, choices and files, as docs/completion.md shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

from tfrtool.cli.app import cli


def completions(*words: str, incomplete: str = "") -> list[tuple[str, str]]:
    """Return the type and the text of what could stand after these words."""
    shell = ShellComplete(cli, {}, "tfrtool", "_TFRTOOL_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(list(words), incomplete)]


def _arguments(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """Yield the words of each command, and the number and the name of each of its arguments."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _arguments(command, (*path, name))
            continue
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        for number, argument in enumerate(arguments):
            yield (*path, name), number, str(argument.name)


@pytest.mark.parametrize(("path", "number", "name"), list(_arguments()))
def test_arguments_are_completed_as_files(path: tuple[str, ...], number: int, name: str) -> None:
    """Every argument of every command is a file or a folder, and the shell completes it."""
    assert completions(*path, *["x"] * number, incomplete="fix") == [("file", "fix")], name


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["train", "d"], "--out"),
        (["train", "d"], "--tensorboard"),
        (["train", "d"], "--cache-dir"),
        (["inspect", "images", "s"], "--out"),
        (["inspect", "shard", "s"], "--description"),
    ],
)
def test_options_are_completed_as_files(words: list[str], option: str) -> None:
    """Options that want a file or a folder complete one."""
    ((kind, _),) = completions(*words, option)
    assert kind in ("file", "dir")


def test_commands_options_and_choices() -> None:
    """Words of the command line are completed, too."""
    assert completions(incomplete="ver") == [("plain", "verify")]
    assert ("plain", "--images") in completions("verify", incomplete="--")
    choices = completions("write", "--check")
    assert choices == [("plain", "decode"), ("plain", "header"), ("plain", "tfds")]


def test_the_process_answers_the_shell() -> None:
    """The installed command gives bash its script, and its completions."""

    def tfrtool(**variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from tfrtool.cli import main; main([])"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "complete -o nosort" in tfrtool(_TFRTOOL_COMPLETE="bash_source")
    words = {"COMP_WORDS": "tfrtool inspect ", "COMP_CWORD": "2"}
    assert "plain,shard" in tfrtool(_TFRTOOL_COMPLETE="bash_complete", **words).splitlines()
