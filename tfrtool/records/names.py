"""Shard names: one template that formats and parses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfrtool.errors import UsageError

COMPRESSED_NAME = re.compile(r"\.(gz|gzip|zlib|z)$", re.IGNORECASE)
"""The end of the name of a compressed file."""

_DATASET = re.compile(r"[a-zA-Z]\w*", re.ASCII)
_SPLIT = re.compile(r"\w+", re.ASCII)
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)
_TEMPLATE = re.compile(
    r"(?P<dataset>[a-zA-Z]\w*)-(?P<split>\w+)\.tfrecord-(?P<index>\d{5,})-of-(?P<count>\d{5,})",
    re.ASCII,
)
_NUMBERED = re.compile(r"-\d{5,}-of-\d{5,}", re.ASCII)
_EVENTS = re.compile(r"events\.out\.tfevents\.")
_BESIDE = (".json", ".jsonl", ".txt", ".md", ".idx", ".spec", ".csv", ".pbtxt", ".html")
_COPIES = (".tmp", ".part", ".partial", ".crdownload", ".bak", ".old", ".orig", "~")
_NEVER = (*_BESIDE, *_COPIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardName:
    """The name of one shard file, in the way of TFDS: ``cats-train.tfrecord-00000-of-00008``.

    The dataset's name is an ASCII letter followed by letters, digits and underscores: a hyphen
    would end it, so that TFDS reads ``cats-vs-dogs-train`` as dataset "cats". The index counts
    from 0.
    """

    dataset: str
    split: str
    index: int
    count: int

    def __post_init__(self) -> None:
        check_dataset_name(self.dataset)
        check_split_name(self.split)
        if not 0 <= self.index < self.count:
            raise ValueError(f"a shard's index is 0 to {self.count - 1}, not {self.index}")

    def __str__(self) -> str:
        return f"{self.dataset}-{self.split}.tfrecord-{self.index:05d}-of-{self.count:05d}"

    @classmethod
    def parse(cls, name: str) -> ShardName | None:
        """Return what ``name`` says, or None if it is no name of this form."""
        match = _TEMPLATE.fullmatch(name)
        if match is None or match["split"] == "all" or int(match["index"]) >= int(match["count"]):
            return None
        index, count = int(match["index"]), int(match["count"])
        parsed = cls(dataset=match["dataset"], split=match["split"], index=index, count=count)
        return parsed if str(parsed) == name else None


def is_shard_name(name: str) -> bool | None:
    """Return whether a file that nobody named is taken for a shard; None if its name won't tell."""
    if name.startswith(".") or name.lower().endswith(_NEVER):
        return False
    return ".tfrecord" in name or bool(_NUMBERED.search(name) or _EVENTS.match(name)) or None


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts ``shard-9`` before ``shard-10``."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in parts]


def check_dataset_name(name: str) -> str:
    """Return ``name`` if TFDS takes it for a dataset's name; else it is a `UsageError`."""
    expected = "a letter, then letters, digits and underscores"
    return _checked(name, _DATASET.fullmatch(name) is not None, "name for a dataset", expected)


def check_split_name(name: str) -> str:
    """Return ``name`` if it can be a split's name; else it is a `UsageError`."""
    known = _SPLIT.fullmatch(name) is not None and name != "all"
    expected = "letters, digits and underscores, and not 'all'"
    return _checked(name, known, "name for a split", expected)


def check_version(version: str) -> str:
    """Return ``version`` if it has the form X.Y.Z; else it is a `UsageError`."""
    known = _VERSION.fullmatch(version) is not None
    return _checked(version, known, "version", "three numbers, X.Y.Z")


def _checked(text: str, known: bool, what: str, expected: str) -> str:
    if not known:
        raise UsageError(f"not a {what}", expected=expected, found=repr(text))
    return text
