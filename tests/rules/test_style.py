"""Rules for source files that no linter checks."""

from __future__ import annotations

import ast
from pathlib import Path

import tfrtool
from tests.rules.breaches import expect_none
from tests.rules.imports import nodes_of

PACKAGE = Path(tfrtool.__file__).parent
REPOSITORY = PACKAGE.parent
FORBIDDEN_NAMES = {"inspect.py", "utils.py", "helpers.py", "common.py"}
SOURCES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in PACKAGE.rglob("*.py")
    if "_pb2" not in path.name
)


def forbidden_statements(source: str) -> list[str]:
    """Return the names of statements that the package must not have."""
    found = []
    for node in nodes_of(source):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id in ("print", "breakpoint") else []
        elif isinstance(node, ast.Assert):
            found.append("assert")
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append("bare except")
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            found.append("import *")
        elif isinstance(node, ast.Global):
            found.append("global")
    return found


def test_the_package_has_no_forbidden_statements() -> None:
    """The package has no print, assert, bare except, ``import *`` or ``global``."""
    found = {path: forbidden_statements((REPOSITORY / path).read_text("utf-8")) for path in SOURCES}
    expect_none(
        found,
        "The package has no print (use `emit` in cli), no assert (raise an error of "
        "tfrtool/errors.py), no bare except, no `import *`, no `global`. Found:",
    )


def test_checker_can_fail() -> None:
    """The check finds each of these."""
    assert forbidden_statements("def f():\n    print('x')") == ["print"]
    assert forbidden_statements("assert x") == ["assert"]
    assert forbidden_statements("try:\n    f()\nexcept:\n    pass") == ["bare except"]
    assert forbidden_statements("from os import *") == ["import *"]
    assert forbidden_statements("def f():\n    global x\n    x = 1") == ["global"]


def test_modules_are_named_after_a_subject() -> None:
    """No module has a name without a subject, or that of the standard library's inspect."""
    expect_none(
        [path for path in SOURCES if Path(path).name in FORBIDDEN_NAMES],
        f"A module is named after its one subject, and not {', '.join(sorted(FORBIDDEN_NAMES))}:",
    )
