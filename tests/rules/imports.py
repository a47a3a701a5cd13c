"""What a source file imports, and which of these imports the layering of packages forbids."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

__all__ = [
    "RANKS",
    "forbidden_imports",
    "allowed_instead",
    "import_cycles",
    "imported_modules",
    "nodes_of",
]

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
    "features": 4,
    "sources": 4,
    "examples": 5,
    "images": 5,
    "records": 6,
    "storage": 7,
    "declare": 8,
    "page": 8,
    "errors": 9,
}
"""The rank of each package: it may import only packages of a higher number, and itself."""

ALLOWED_IN = {
    "tensorflow": {"loading", "training", "writing", "sources"},
    "keras": {"loading", "training", "writing", "sources"},
    "tensorflow_datasets": {"loading", "training", "writing", "sources"},
    "PIL": {"images"},
    "pillow_heif": {"images"},
    "jinja2": {"view"},
    "markupsafe": {"view"},
    "starlette": {"view"},
    "uvicorn": {"view"},
    "pyarrow": {"storage", "sources", "examples", "features", "inspection", "convert", "ray"},
    "array_record": {"convert"},
    "torch": {"torch"},
    "duckdb": {"storage", "inspection"},
    "click": {"cli"},
    "tqdm": {"cli"},
    "rich": {"cli"},
}
"""Libraries that only certain packages may import; any package may import the others."""


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of the syntax tree of a file."""
    return tuple(ast.walk(ast.parse(source)))


def imported_modules(source: str) -> Iterator[str]:
    """Yield the dotted name of every module or member that a file imports, also in functions."""
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
    """Return the imports of a file that its package must not have.

    Args:
        path: the file below ``tfrtool/``, with slashes: "records/reader.py".
        source: its text.
    """
    package = path.partition("/")[0].removesuffix(".py")
    return [name for name in imported_modules(source) if not _allowed(package, name)]


def allowed_instead(path: str, name: str) -> str:
    """Return what a file may import instead of ``name``, as part of a message."""
    package, top = path.partition("/")[0].removesuffix(".py"), name.partition(".")[0]
    if name.startswith("."):
        return f"{name}: write the absolute name, tfrtool..."
    if top in ALLOWED_IN:
        return f"{name}: {top} is imported only in {', '.join(sorted(ALLOWED_IN[top]))}"
    lower = [other for other, rank in RANKS.items() if rank > RANKS[package]]
    return f"{name}: {package} imports only {', '.join(lower) or 'libraries'}"


def _allowed(package: str, name: str) -> bool:
    if name.startswith("."):
        return False
    top, _, rest = name.partition(".")
    if top == "tfrtool":
        target = rest.partition(".")[0]
        if target not in RANKS:
            return target == "__version__"
        return target == package or RANKS[target] > RANKS[package]
    return package in ALLOWED_IN.get(top, {package})


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
    """Return the modules that an imported name may refer to: the name itself, or its parent."""
    return [name, name.rpartition(".")[0]]


def _reached(path: str, direct: dict[str, set[str]]) -> set[str]:
    found, pending = set[str](), [path]
    while pending:
        for other in direct[pending.pop()] - found:
            found.add(other)
            pending.append(other)
    return found
