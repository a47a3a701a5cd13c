"""Files that name classes by what folders are called: ImageNet's synsets, and JSON."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tfrtool.errors import printable

_SYNSET = re.compile(r"(n[0-9]{8})[ \t]+(?:(?P<number>[0-9]{1,5})[ \t]+)?(?P<name>\S.*)")
"""WordNet's number of a synset and its names; in ImageNet's development kits with a number."""


def named_classes(text: str) -> dict[str, str]:
    """Return the names of classes by the names of their folders; {} for a file of another form.

    These are ``LOC_synset_mapping.txt``, ``synset_words.txt`` and ``map_clsloc.txt`` of ImageNet,
    ``words.txt`` of Tiny ImageNet, and JSON objects such as ``imagenet_class_index.json``.

    Raises:
        ValueError: a folder has two names.
    """
    if text.lstrip().startswith("{"):
        return _from_json(text)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    matches = [match for line in lines if (match := _SYNSET.fullmatch(line)) is not None]
    if len(matches) < len(lines):
        return {}
    are_numbered = all(match["number"] for match in matches)
    return _unique(
        (match[1], match["name"] if are_numbered else _after(match)) for match in matches
    )


def _after(match: re.Match[str]) -> str:
    return match[0][match.end(1) :].strip()


def _from_json(text: str) -> dict[str, str]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    pairs = [*found.items()] if isinstance(found, dict) else []
    if all(isinstance(value, list) and len(value) == 2 for _, value in pairs):
        pairs = [(value[0], value[1]) for _, value in pairs]
    if not all(isinstance(one, str) for pair in pairs for one in pair):
        return {}
    return _unique((old.strip(), new.strip()) for old, new in pairs)


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    names = dict[str, str]()
    for folder, name in pairs:
        if names.setdefault(folder, name) != name:
            raise ValueError(f"{printable(folder[:40])!r} has two names")
    return names


def distinct_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return names of classes by their folders, with the folder where several have the same name.

    ImageNet has two classes called "crane".
    """
    counts = dict[str, int]()
    for name in names.values():
        counts[name] = counts.get(name, 0) + 1
    return {
        folder: f"{name} ({folder})" if name and counts[name] > 1 else name
        for folder, name in names.items()
    }
