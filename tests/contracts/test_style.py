"""Habits that no linter checks for us."""

from __future__ import annotations

import ast
from pathlib import Path

import tfrtool
from tests.contracts.imports import nodes_of

PACKAGE = Path(tfrtool.__file__).parent
REPOSITORY = PACKAGE.parent
NAMELESS = {"inspect.py", "utils.py", "helpers.py", "common.py"}
PRODUCT = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in PACKAGE.rglob("*.py")
    if "_pb2" not in path.name
)


def unwelcome(source: str) -> list[str]:
    """Return the statements that are not at home in the product, by name."""
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


def test_product_is_free_of() -> None:
    """The product has no print, assert, bare except, ``import *`` or changing globals."""
    found = {path: unwelcome((REPOSITORY / path).read_text("utf-8")) for path in PRODUCT}
    assert {path: names for path, names in found.items() if names} == {}


def test_checker_can_fail() -> None:
    """The check finds each of these."""
    assert unwelcome("def f():\n    print('x')") == ["print"]
    assert unwelcome("assert x") == ["assert"]
    assert unwelcome("try:\n    f()\nexcept:\n    pass") == ["bare except"]
    assert unwelcome("from os import *") == ["import *"]
    assert unwelcome("def f():\n    global x\n    x = 1") == ["global"]


def test_modules_have_names_that_say_something() -> None:
    """No module is called after what it isn't, or like the standard library's inspect."""
    assert [path for path in PRODUCT if Path(path).name in NAMELESS] == []
