"""What a source file imports, and which of it the house plan forbids."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

__all__ = ["RANKS", "forbidden_imports", "import_cycles", "imported_modules", "nodes_of"]

RANKS = {
    "cli": 0,
    "ray": 0,
    "torch": 0,
    "convert": 1,
    "training": 1,
    "view": 1,
    "writing": 2,
    "loading": 2,
    "inspection": 3,
    "engines": 4,
    "sources": 4,
    "examples": 5,
    "images": 5,
    "records": 6,
    "storage": 7,
    "declare": 8,
    "page": 8,
    "errors": 9,
}
"""The rooms from left to right; rooms of the same rank don't import each other."""

HOMES = {
    "tensorflow": {"loading", "training", "writing", "sources"},
    "keras": {"loading", "training", "writing", "sources"},
    "tensorflow_datasets": {"loading", "training", "writing", "sources"},
    "PIL": {"images"},
    "jinja2": {"view"},
    "markupsafe": {"view"},
    "starlette": {"view"},
    "uvicorn": {"view"},
    "pyarrow": {"storage", "sources", "examples", "inspection", "convert", "ray"},
    "array_record": {"convert"},
    "torch": {"torch"},
    "duckdb": {"storage", "inspection"},
    "click": {"cli"},
    "tqdm": {"cli"},
    "rich": {"cli"},
}
"""Libraries that have a home, and the rooms that are it."""


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of the syntax tree of a file."""
    return tuple(ast.walk(ast.parse(source)))


def imported_modules(source: str) -> Iterator[str]:
    """Yield the dotted name of every module or member that ``source`` imports, wherever."""
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield from (f"{start}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in ("import_module", "__import__"):
            values = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            yield from (value for value in values if isinstance(value, str))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def forbidden_imports(path: str, source: str) -> list[str]:
    """Return what a file of the package must not import.

    Args:
        path: the file, below the package, with slashes: "records/reader.py".
        source: its text.
    """
    room = path.partition("/")[0].removesuffix(".py")
    return [name for name in imported_modules(source) if not _allowed(room, name)]


def _allowed(room: str, name: str) -> bool:
    if name.startswith("."):
        return False
    top, _, rest = name.partition(".")
    if top == "tfrtool":
        target = rest.partition(".")[0]
        if target not in RANKS:
            return target == "__version__"
        return target == room or RANKS[target] > RANKS[room]
    return room in HOMES.get(top, {room})


def import_cycles(sources: dict[str, str]) -> list[list[str]]:
    """Return the groups of files that import each other, directly or through others."""
    modules = {path.removesuffix(".py").replace("/", "."): path for path in sources}
    direct = {
        path: {
            modules[name]
            for imported in imported_modules(source)
            if imported.startswith("tfrtool.")  # Ray is a library, too
            for name in _prefixes(imported.removeprefix("tfrtool."))
            if name in modules
        }
        for path, source in sources.items()
    }
    reached = {path: _reached(path, direct) for path in direct}
    groups = {
        tuple(sorted(other for other in reached[path] if path in reached[other]))
        for path in direct
        if path in reached[path]
    }
    return sorted(map(list, groups))


def _prefixes(name: str) -> list[str]:
    """Return the modules that an imported name may mean: itself, or what has it as a member."""
    return [name, name.rpartition(".")[0]]


def _reached(path: str, direct: dict[str, set[str]]) -> set[str]:
    found, left = set[str](), [path]
    while left:
        for other in direct[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found
