"""What the labels of a table are: names or integers, one an image; and what they become."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|[+-]?inf", re.IGNORECASE
)
_DIGITS = re.compile(r"[+-]?[0-9]+")
_SHOWN = 5


def sort_labels(labels: Collection[str]) -> tuple[str, ...]:
    """Return labels in the order of their numbers: by value if all are integers, else as text."""
    numeric = _are_integers(labels)
    return tuple(sorted(labels, key=lambda label: (int(label) if numeric else 0, label)))


def number_notice(labels: Sequence[str]) -> str | None:
    """Return what became of labels that are integers; None if they are what they were."""
    changed = [(label, number) for number, label in enumerate(labels) if label != str(number)]
    if not changed or not _are_integers(labels):
        return None
    some = ", ".join(f"{label} becomes {number}" for label, number in changed[:_SHOWN])
    more = f" and {len(changed) - _SHOWN:,} more" if len(changed) > _SHOWN else ""
    return f"labels are numbered from 0 in the order of their values: {some}{more}"


def _are_integers(labels: Collection[str]) -> bool:
    return all(map(_INTEGER.fullmatch, labels))


def refused_label(labels: Collection[str]) -> tuple[str, str, str] | None:
    """Return a label that shows that labels are no classes, what they are, and what to do."""
    fraction = next((label for label in labels if not _DIGITS.fullmatch(label)), None)
    if fraction is not None and all(map(_NUMBER.fullmatch, labels)):
        what = "its labels are numbers with fractions, not classes"
        return fraction, what, "a label is a name or an integer; 1.0 is written as 1"
    several = next((label for label in labels if _is_list(label)), None)
    several = several or _made_of_others(labels, ";") or _made_of_others(labels, ",")
    if several is None:
        return None
    what = "an image has several labels in one cell"
    return several, what, "several labels an image can't be written yet; give each image one"


def _is_list(label: str) -> bool:
    """Return whether a label can't be a name: it is ``cat|dog``, or a list of JSON or Python."""
    if label.startswith("[") and label.endswith("]"):
        return any(mark in label for mark in "\"',")
    return "|" in label and all(label.split("|"))


def _made_of_others(labels: Collection[str], separator: str) -> str | None:
    """Return a label that is made of others; None where the separator is but a part of names.

    "tench, Tinca tinca" is one name. Labels are lists where half of those with a separator have a
    part that is a label itself, or only parts that others have, too.
    """
    lists = {
        label: {part.strip() for part in label.split(separator)}
        for label in labels
        if separator in label.strip(separator)
    }
    uses: dict[str, int] = {}
    for parts in lists.values():
        for part in parts:
            uses[part] = uses.get(part, 0) + 1
    made = [
        label
        for label, parts in lists.items()
        if any(part in labels for part in parts) or all(uses[part] > 1 for part in parts)
    ]
    return made[0] if made and 2 * len(made) >= len(lists) else None
