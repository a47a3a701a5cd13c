"""Names of shards, and which files belong together by them; which of these are missing."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from tfrtool.errors import UsageError
from tfrtool.records.partitions import (
    PartitionFolder,
    folder_of_partitions,
    split_of_partition,
)
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.remote_path import AnyPath

COMPRESSED_NAME = re.compile(r"\.(gz|gzip|zlib|z)$", re.IGNORECASE)
"""The end of the name of a compressed file."""

_DATASET = re.compile(r"[a-zA-Z]\w*", re.ASCII)
_SPLIT_NAME = re.compile(r"\w+", re.ASCII)
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)
_TEMPLATE = re.compile(
    r"(?P<dataset>[a-zA-Z]\w*)-(?P<split>\w+)\.tfrecord-(?P<index>\d{5,})-of-(?P<count>\d{5,})",
    re.ASCII,
)
_SHARD_NUMBER = re.compile(r"-\d{5,}-of-\d{5,}", re.ASCII)
_OTHER_FORMAT = re.compile(
    r"\.(?:array_record|riegeli|bagz?|parquet|arrow|feather|avro|orc|tar|h5|hdf5|np[yz])"
    r"(?:-\d{5,}-of-\d{5,})?",
    re.ASCII | re.IGNORECASE,
)
"""The end of a name that shows another format: records of other libraries, tables, arrays."""
_EVENTS = re.compile(r"events\.out\.tfevents\.")
_BESIDE = (".json", ".jsonl", ".txt", ".md", ".idx", ".spec", ".csv", ".pbtxt", ".html")
_COPIES = (".tmp", ".part", ".partial", ".crdownload", ".bak", ".old", ".orig", "~")
_NEVER = (*_BESIDE, *_COPIES)

MISSING_NAMED = 1000
"""Missing files that are named at most: the count in a name is whatever somebody wrote there."""

# TensorFlow's "-00000-of-00008" with any number of digits that fit 64 bits, or with underscores.
_NUMBERED = re.compile(
    r"(?P<prefix>.*)(?<!\d)(?P<index>\d{1,18})(?P<of>[-_]of[-_])(?P<count>\d{1,18})"
    r"(?P<suffix>(?:\D.*)?)",
    re.ASCII | re.DOTALL,
)
_TFDS = re.compile(r"[a-zA-Z]\w*-(?P<split>\w+)\.[a-z_]+-", re.ASCII)
_TFX_FOLDER = "Split-"
_TABLES = (".parquet", ".jsonl", ".csv", ".tar")
"""What files of other formats with records end in: by custom their split stands before a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSet:
    """Shards that belong together by their names (``train-00000-of-00008`` and so on).

    A file without a number is a set of its own, number 0 of it, with its whole name as ``prefix``.
    The ``count`` is what a name claims, and may be absurd.
    """

    directory: AnyPath
    prefix: str  # what stands before the number, ``mnist-test.tfrecord-``
    ending: str = ""  # what stands after it in the first shard's name, ``-of-00008.gz``
    digits: int = 1  # how many the number has, where zeros fill it up
    split: str | None = None  # None where neither the names nor the folder say one
    count: int | None = None  # None where they have no numbers
    shards: Mapping[int, AnyPath]  # by their numbers, from 0, in order
    duplicates: Mapping[
        int, tuple[AnyPath, ...]
    ]  # further files with a number, as compressed copies

    @property
    def name(self) -> str:
        """What the set is called in messages: ``train-*-of-00008``, or the file's name."""
        return self.prefix if self.count is None else f"{self.prefix}*{self.ending}"

    def split_below(self, root: AnyPath) -> str | None:
        """Return its split: that of the names, or else of a folder in a dataset's directory."""
        if is_event_name(self.prefix) and self.directory != root:
            return run_of(self.directory, root)
        inner = folder = folder_of_partitions(self.directory, root)
        if self.split is not None or folder == root:
            return self.split
        while folder not in (root, folder.parent):
            if (split := split_named(folder.name)) is not None:
                return split
            folder = folder.parent
        return inner.name.removeprefix(_TFX_FOLDER)

    @property
    def paths(self) -> tuple[AnyPath, ...]:
        """All files of the set in the order of their numbers, duplicates included."""
        return tuple(
            path
            for index, shard in self.shards.items()
            for path in (shard, *self.duplicates.get(index, ()))
        )

    @property
    def extra(self) -> tuple[AnyPath, ...]:
        """The files whose number is too high for the count: ``train-00009-of-00008``."""
        count = self.count
        return tuple(p for index, p in self.shards.items() if count is not None and index >= count)

    @property
    def n_missing(self) -> int:
        """How many shards the names say that there are, and there are not."""
        count = self.count or 0
        return count - sum(index < count for index in self.shards) if count else 0

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the files that are missing, the first `MISSING_NAMED` of them."""
        numbers = range(self.count or 0) if self.n_missing else ()
        absent = (index for index in numbers if index not in self.shards)
        return tuple(
            f"{self.prefix}{index:0{self.digits}}{self.ending}"
            for index in islice(absent, MISSING_NAMED)
        )


def group_shards(paths: Paths) -> tuple[ShardSet, ...]:
    """Group files into the sets that their names say, in the order in which they first come.

    Files belong together if they are in one folder and their names differ in the number alone; a
    compression's ending (``.gz``) makes no difference. ``train-00000-of-00002`` and
    ``train-00000-of-00004`` are of two sets: see `find_conflicts`.
    """
    groups: dict[tuple[AnyPath, str, int | None, str], list[tuple[int, str, AnyPath]]] = {}
    for path in dict.fromkeys(as_paths(paths)):
        match = _NUMBERED.fullmatch(path.name)
        if match is None:
            groups.setdefault((path.parent, path.name, None, ""), []).append((0, "", path))
            continue
        suffix = COMPRESSED_NAME.sub("", match["suffix"])
        key = (path.parent, match["prefix"], int(match["count"]), suffix)
        groups.setdefault(key, []).append((int(match["index"]), path.name, path))
    sets = []
    for (directory, prefix, count, suffix), members in groups.items():
        members.sort(key=lambda member: (*member[:2], str(member[2])))
        shards: dict[int, AnyPath] = {}
        duplicates: dict[int, tuple[AnyPath, ...]] = {}
        for index, _, path in members:
            if shards.setdefault(index, path) is not path:
                duplicates[index] = (*duplicates.get(index, ()), path)
        ending, digits = "", 1
        if match := _NUMBERED.fullmatch(members[0][1]):
            ending = match["of"] + match["count"] + match["suffix"]
            if match["index"].startswith("0") or len(match["index"]) == len(match["count"]):
                digits = len(match["index"])
        sets.append(
            ShardSet(
                directory=directory,
                prefix=prefix,
                ending=ending,
                digits=digits,
                split=_split(directory, prefix, suffix),
                count=count,
                shards=shards,
                duplicates=duplicates,
            )
        )
    return tuple(sets)


def find_conflicts(sets: Iterable[ShardSet]) -> tuple[tuple[ShardSet, ...], ...]:
    """Return the sets that can't all be meant: alike in all but their counts.

    An earlier write with another number of shards leaves such files behind, and a glob takes both.
    """
    groups: dict[tuple[AnyPath, str, str], list[ShardSet]] = {}
    for one in sets:
        if one.count is not None:
            suffix = re.sub(r"^[-_]of[-_]\d+", "", COMPRESSED_NAME.sub("", one.ending))
            groups.setdefault((one.directory, one.prefix, suffix), []).append(one)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _split(directory: AnyPath, prefix: str, suffix: str) -> str | None:
    match = _TFDS.fullmatch(prefix)
    if match is not None:
        return match["split"]
    folder = folder_of_partitions(directory).name
    if (split := split_of_partition(PartitionFolder.parse(folder))) is not None:
        return split
    if folder.startswith(_TFX_FOLDER) and len(folder) > len(_TFX_FOLDER):
        return folder.removeprefix(_TFX_FOLDER)
    parts = [word.rstrip("0123456789") for word in re.split(r"[-_.]", prefix)]
    words = [word for word in parts if word.lower() in SPLIT_NAMES]
    if len(words) == 1:
        return words[0]
    if not words and folder.lower() in SPLIT_NAMES:
        return split_named(folder)
    named = re.findall(r"\w+", prefix)
    return named[-1] if named and suffix.lower() in _TABLES else None


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
            raise ValueError(f"shard index must be 0 to {self.count - 1}, got {self.index}")

    def __str__(self) -> str:
        return f"{self.dataset}-{self.split}.tfrecord-{self.index:05d}-of-{self.count:05d}"

    @classmethod
    def parse(cls, name: str) -> "ShardName | None":
        """Return what ``name`` says, or None if it has another form."""
        match = _TEMPLATE.fullmatch(name)
        if match is None or match["split"] == "all" or int(match["index"]) >= int(match["count"]):
            return None
        index, count = int(match["index"]), int(match["count"])
        parsed = cls(dataset=match["dataset"], split=match["split"], index=index, count=count)
        return parsed if str(parsed) == name else None


def is_shard_name(name: str) -> bool | None:
    """Return whether a file in a folder counts as a shard; None if its name doesn't show it."""
    if name.startswith(".") or name.lower().endswith(_NEVER):
        return False
    return ".tfrecord" in name or bool(_SHARD_NUMBER.search(name) or _EVENTS.match(name)) or None


def is_event_name(name: str) -> bool:
    """Return whether a file has events of TensorBoard, by its name."""
    return "tfevents" in name and is_shard_name(name) is not False


def run_of(folder: AnyPath, root: AnyPath) -> str:
    """Return the run of event files in a folder, as TensorBoard names it; ``.`` is the root."""
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else str(folder)


def has_other_format(name: str) -> bool:
    """Return whether a file's name shows another format than TFRecord."""
    found = _OTHER_FORMAT.search(name)
    return found is not None and found.end() == len(name) and ".tfrecord" not in name


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts ``shard-9`` before ``shard-10``."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in parts]


def check_dataset_name(name: str) -> str:
    """Return ``name`` if TFDS takes it for a dataset's name; else it is a `UsageError`."""
    expected = "a letter, then letters, digits and underscores"
    return _checked(name, _DATASET.fullmatch(name) is not None, "dataset name", expected)


def check_split_name(name: str) -> str:
    """Return ``name`` if it can be a split's name; else it is a `UsageError`."""
    known = _SPLIT_NAME.fullmatch(name) is not None and name != "all"
    expected = "letters, digits and underscores, and not 'all'"
    return _checked(name, known, "split name", expected)


def check_version(version: str) -> str:
    """Return ``version`` if it has the form X.Y.Z; else it is a `UsageError`."""
    known = VERSION.fullmatch(version) is not None
    return _checked(version, known, "version", "three numbers, X.Y.Z")


def _checked(text: str, known: bool, what: str, expected: str) -> str:
    if not known:
        raise UsageError(f"invalid {what}", expected=expected, found=repr(text))
    return text


SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val"), "validation"),
    **{"dev": "dev", "eval": "eval"},
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of splits in common use, in lower case, and TFDS' own for what means the same."""

SPLIT_ORDER = tuple(dict.fromkeys(SPLIT_NAMES.values()))
"""The order that splits are given in."""

_UNLABELED = {"pred": "pred", **dict.fromkeys(("unlabeled", "unlabelled"), "unlabeled")}
"""Names of folders of images without labels, and of their splits."""

UNLABELED_SPLITS = ("test", *dict.fromkeys(_UNLABELED.values()))
"""Splits whose images may have no labels, as in competitions."""

FOLDER_SPLITS = (*SPLIT_ORDER, *UNLABELED_SPLITS[1:])
"""The order that the splits of folders are given in."""

_FOLDERS = {**SPLIT_NAMES, **_UNLABELED}
_FOLDER = re.compile(
    rf"(?:seg[ _-])?(?P<split>{'|'.join(_FOLDERS)})"
    r"(?:[ _-]?(?:set|data|images|imgs|records|tfrecords?|tfrecs?))?",
    re.IGNORECASE,
)


def split_named(folder: str) -> str | None:
    """Return the split that a folder's name stands for, such as ``seg_train``; None without one."""
    match = _FOLDER.fullmatch(folder)
    return _FOLDERS[match["split"].lower()] if match else None
