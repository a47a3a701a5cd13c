"""What files are called that come out of records: folders, stems and suffixes."""

from __future__ import annotations

import re
from pathlib import Path

from tfrtool.inspection.extract.safe_names import SafePath, safe_part, split
from tfrtool.records.shard_sets import ShardName

_SUFFIXES = {
    "image/jpeg": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "image/png": (".png", ".apng"),
    "image/gif": (".gif",),
    "image/webp": (".webp",),
    "image/bmp": (".bmp", ".dib"),
    "image/tiff": (".tif", ".tiff"),
    "image/avif": (".avif",),
    "application/x-npy": (".npy",),
    "application/gzip": (".gz",),
    "audio/flac": (".flac",),
    "audio/ogg": (".ogg",),
    "audio/wav": (".wav",),
    "video/avi": (".avi",),
    "text": (".txt",),
}
"""The suffixes that say what bytes hold (`describe_bytes`); a file without one gets the first."""

_IMAGE_SUFFIXES = frozenset(
    suffix
    for content, suffixes in _SUFFIXES.items()
    if content.startswith("image/")
    for suffix in suffixes
)
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}")
_SHARD_SUFFIX = re.compile(r"(\.(gz|gzip|zlib|tfrecords?))+\Z", re.IGNORECASE)


def shard_stem(shard: Path) -> str:
    """Return what the names of a shard's records begin with: ``train-00003``, ``part-1``."""
    name = ShardName.parse(shard.name)
    if name is not None:
        return name.split if name.count == 1 else f"{name.split}-{name.index:05d}"
    stem = _SHARD_SUFFIX.sub("", shard.name) or shard.name
    # The shard's name too may hold what another system has no name for.
    return "".join(safe_part(stem.encode("utf-8", "replace").decode()).parts) or "shard"


def with_suffix(name: str, content: str) -> str:
    """Return a safe name, with a suffix by its content if it has none that could be one."""
    stem, suffix = split(name)
    if stem and _SUFFIX.fullmatch(suffix):
        return name
    return safe_part(name + _SUFFIXES.get(content, (".bin",))[0]).parts[0]


def is_misnamed(name: str, content: str) -> bool:
    """Return whether a name promises an image, and its file is none or one of another format."""
    suffix = split(name)[1].lower()
    return suffix in _IMAGE_SUFFIXES and suffix not in _SUFFIXES.get(content, ())


def below_class(folder: SafePath, recorded: tuple[str, ...]) -> tuple[str, ...]:
    """Return a file's recorded folders, with the class before them if it is not there.

    Letter case is no matter: TFDS writes the class "cat" of a file that lay in "PetImages/Cat".
    """
    wanted = {part.casefold() for part in folder.parts}
    return recorded if wanted <= {part.casefold() for part in recorded} else folder.parts + recorded
