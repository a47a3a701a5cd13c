"""Hints and options in texts: each hint has a test, and each option exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import tfrtool
from tests.cli.hint_rows import ALL, ELSEWHERE
from tests.rules.breaches import expect_none
from tests.rules.imports import nodes_of
from tfrtool.cli.app import cli


def test_every_option_and_command_of_a_hint_is_run() -> None:
    """The rows run each option and command that the hints name."""
    known = "|".join(name for name in (*cli.commands, *cli.commands["inspect"].commands))  # type: ignore[attr-defined]
    done: dict[str, str] = {}
    for row in ALL:
        run = (then for then, _ in row.follow)
        done[row.hint] = " ; ".join([done.get(row.hint, ""), *run, ""])
    for hint, commands in done.items():
        for option in re.findall(r"(?<!no )(?<!without )(?<!\S)--[a-z-]+", hint):
            assert f" {option} " in commands, hint
        named = rf"tfrtool (?:inspect )?(?:{known}) (?!makes)(?:\S+(?: --record \d+| OUT)?)(?=$| )"
        for command in re.findall(named, hint):
            assert command.replace(" --on-error", "") in commands.replace(";", ""), hint


def test_every_hint_has_its_test() -> None:
    """A new hint needs a row in `hint_rows.py`, or a place in its `ELSEWHERE`."""
    tested = " ; ".join((*(row.hint for row in ALL), *ELSEWHERE))
    package, found, untested = Path(tfrtool.__file__).parent, 0, []
    for path in sorted(package.rglob("*.py")):
        for text in _hints(nodes_of(path.read_text("utf-8"))):
            longest = max(re.split(r"[{}]+|; ", text), key=len).strip(" ,")
            known = longest in tested or any(part in text for part in ELSEWHERE)
            untested += [] if known else [(path.name, text)]
            found += 1
    expect_none(
        untested,
        "Each hint of an error is tried by a test. Add a row to tests/cli/hint_rows.py that "
        "provokes the error and follows the hint, or name the test in its ELSEWHERE:",
    )
    assert found > 100


def _hints(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the hints in a module, with ``{}`` for inserted values."""
    given = [n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "hint"]
    names = {node.id for node in given if isinstance(node, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            given += [node.value] if node.targets[0].id in names else []
    for value in given:
        inside = {
            part
            for node in ast.walk(value)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
            if part is not node
        }
        for part in ast.walk(value):
            if part in inside or not isinstance(part, ast.JoinedStr | ast.Constant):
                continue
            pieces = part.values if isinstance(part, ast.JoinedStr) else [part]
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in pieces)
            if text not in ("None", ""):
                yield text


def test_options_that_messages_name_exist() -> None:
    """No text of the tool names an option that no command has."""
    commands = [*cli.commands.values(), *cli.commands["inspect"].commands.values()]  # type: ignore[attr-defined]
    known = {name for one in commands for option in one.params for name in option.opts}
    known |= {name for one in commands for option in one.params for name in option.secondary_opts}
    known |= {"--help", "--version", "--ignore-zeros", "--head", "--logdir"}
    known |= {"--descriptor", "--include"}  # of protoc, up to an underscore
    package, unknown = Path(tfrtool.__file__).parent, []
    for path in sorted(package.rglob("*.py")):
        for node in nodes_of(path.read_text("utf-8")):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", node.value))
                unknown += [(path.name, name) for name in sorted(named - known)]
    expect_none(unknown, "Texts name only options that some command has. Correct the text:")
