"""Counts what makes code hard to read, for each file: ``make readability`` writes the counts down.

The counts in ``readability.json`` may only fall. New code has none of these:

- names with several meanings, such as ``place`` or ``held``, in variables, arguments, attributes,
  functions and classes; names in comprehensions are not counted;
- functions of more than 60 lines;
- functions with more than 20 local names.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import tfrtool

__all__ = ["COUNTS", "current_counts", "hard_to_read", "raised", "stored_counts"]

PACKAGE = Path(tfrtool.__file__).parent
COUNTS = Path(__file__).with_name("readability.json")
VAGUE = frozenset(
    re.findall(
        r"\w+",
        "own some whole held place said told made given kept goal beside inside there odd led "
        "apart meant forgiven ours theirs sent heard",
    )
)
"""Names with several meanings, often in one file; the field has a word for each meaning."""
MOST_LINES = 60
MOST_NAMES = 20

Counts = dict[str, dict[str, int]]
"""By file below ``tfrtool/``, what is hard to read in it and how often."""


def hard_to_read(source: str) -> list[tuple[str, int, str]]:
    """Return the kind, line and name of all that is hard to read in a file."""
    tree = ast.parse(source)
    found = [("vague names", line, name) for line, name in _vague_names(tree)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (node.end_lineno or node.lineno) - node.lineno >= MOST_LINES:
            found.append(("long functions", node.lineno, node.name))
        names = {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        if len(names) > MOST_NAMES:
            found.append(("functions with many names", node.lineno, node.name))
    return found


def _vague_names(tree: ast.AST) -> list[tuple[int, str]]:
    bindings: list[tuple[int, str]] = []

    def visit(parent: ast.AST, in_comprehension: bool) -> None:
        for node in ast.iter_child_nodes(parent):
            nested = in_comprehension or isinstance(node, ast.comprehension | ast.Lambda)
            name = "" if nested and isinstance(node, ast.Name) else _bound_name(node, parent)
            if name.strip("_") in VAGUE or name == "one":
                bindings.append((node.lineno, name))  # type: ignore[attr-defined]
            visit(node, nested)

    visit(tree, False)
    return bindings


def _bound_name(node: ast.AST, parent: ast.AST) -> str:
    """Return the name that a node binds; none for ``one`` in a loop."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return "" if node.id == "one" and isinstance(parent, ast.For) else node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    return ""


@cache
def current_counts() -> Counts:
    """Return the counts of all files that have any."""
    counts: Counts = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        kinds = Counter(kind for kind, _, _ in hard_to_read(path.read_text("utf-8")))
        if kinds:
            counts[path.relative_to(PACKAGE).as_posix()] = dict(sorted(kinds.items()))
    return counts


def stored_counts() -> Counts:
    """Return the counts that may not be exceeded."""
    counts: Counts = json.loads(COUNTS.read_text("utf-8"))
    return counts


def raised(before: Counts, after: Counts) -> list[tuple[str, str]]:
    """Return each file whose counts have risen, with the kind and both counts."""
    return [
        (file, f"{count} {kind}, {before.get(file, {}).get(kind, 0)} allowed")
        for file, kinds in after.items()
        for kind, count in kinds.items()
        if count > before.get(file, {}).get(kind, 0)
    ]


def main() -> None:
    """Write the counts down, unless one has risen."""
    before, after = stored_counts(), current_counts()
    if risen := raised(before, after):
        sys.exit("\n".join(f"{file}: {text}" for file, text in risen))
    COUNTS.write_text(json.dumps(after, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
