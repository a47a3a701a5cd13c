"""The commands that show in a terminal what a page shows, as they can be pasted."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrtool.examples.roles import LabelNames
from tfrtool.view.findings import Findings

_MOST_ARGUMENTS = 4
_VERIFY_OPTIONS = {True: ("--images", "--json"), False: ("--json",)}


def command_for(found: Findings, question: Mapping[str, Any]) -> str | None:
    """Return the command that prints the rows of a question; None where it can't say it."""
    equal, where = question["equal"], (question["where"] or "").strip()
    if question["text"] or question["sort"] or not (equal or where):
        return None
    own = {name for name, column in found.selector().columns.items() if name != column}
    if own.intersection(re.findall(r"\w+", where)):
        return None
    if "label" in equal:
        names = LabelNames.beside(found.paths[0].parent, found.label).names
        if names and equal["label"] not in names:
            return None
        value = equal["label"].replace("'", "''")
        label = (found.label or "label").replace('"', '""')
        where = f"({where}) AND " if where else ""
        where += f"label_name = '{value}'" if names else f"CAST(\"{label}\" AS VARCHAR) = '{value}'"
    split = equal.get("split")
    paths = [path for path in found.paths if split in (None, found.split_of[path])]
    if split is None and found.dataset:
        paths = [found.dataset]
    elif len(paths) > _MOST_ARGUMENTS:
        named = re.sub(r"\d+-of-", "*-of-", paths[0].name)
        if set(paths[0].parent.glob(named)) != set(paths):
            return None
        paths = [paths[0].parent / named]
    words = [*(("--where", where) if where else ()), *map(as_argument, paths)]
    return " ".join(["tfrtool cat", *map(in_shell, words)])


def verify_command(found: Findings) -> str:
    """Return the command that lists every fault that is found, with its place."""
    few = found.arguments if len(found.arguments) <= _MOST_ARGUMENTS else ()
    words = [in_shell(as_argument(path)) for path in few] or ["SHARDS"]
    return " ".join(["tfrtool verify", *_VERIFY_OPTIONS[found.has_images], *words])


def as_argument(path: Path) -> str:
    """Return a path that is taken for no option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def in_shell(text: str) -> str:
    """Return a word as it can be pasted into a shell, whatever characters it has."""
    if text.isprintable():
        return shlex.quote(text)
    kept = (
        chr(one) if 32 <= one < 127 and chr(one) not in "'\\" else f"\\x{one:02x}"
        for one in os.fsencode(text)
    )
    return f"$'{''.join(kept)}'"
