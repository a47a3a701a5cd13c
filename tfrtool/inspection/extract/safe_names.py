"""File names from records, made so that they stay inside a folder and work on every system.

What a record says is not trusted: it may climb out of the folder, name a device, or be no text at
all. A name that is safe already is kept as it is; whatever is changed is changed in a way that a
reader can undo (``%0A`` for a line break).
"""

import os
import re
import unicodedata

from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.atomic_files import TEMPORARY
from tfrtool.storage.remote_path import AnyPath

# The longest name of a file or folder, in bytes: the limit of ext4, XFS, APFS and NTFS.
NAME_BYTES = 255
# The longest path below the folder: macOS has the shortest limit for a whole path, 1,024.
_PATH_BYTES = 1000
_FOLDERS = 32  # the most folders in a path; beyond, only its last parts are kept
# What comes after a name's last dot is kept when the name is cut, if it is no longer than this.
_SUFFIX_BYTES = 32
_NUMBER_BYTES = 12  # room for what `numbered` adds to a name
# Categories of Unicode that steer terminals and programs, turn text around, or can't be seen.
_UNSEEN = frozenset(("Cc", "Cf", "Zl", "Zp"))
# They are of Cf, and make emoji and the words of many languages what they are.
_JOINERS = "\u200c\u200d"
_SURROGATE = re.compile(r"[\udc80-\udcff]")
_WINDOWS = re.compile(r'[<>:"|?*]')
_DRIVE = re.compile(r"[A-Za-z]:")
_TRAILING = re.compile(r"[. ]+\Z")
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_RESERVED = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3]) *(?:\.|\Z)",
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}")
_SHARD_SUFFIX = re.compile(r"(\.(gz|gzip|zlib|tfrec|tfrecords?))+\Z", re.IGNORECASE)
_SUFFIXES = {
    "image/jpeg": ".jpg",
    "image/tiff": ".tif",
    "application/x-npy": ".npy",
    "application/gzip": ".gz",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "video/quicktime": ".mov",
    "video/x-matroska": ".mkv",
    "text": ".txt",
}
"""Suffixes by what files hold (`describe_bytes`); others are as their kind is called: ``.png``."""


def safe_path(name: bytes, *, windows: bool = os.name == "nt") -> tuple[str, ...]:
    """Make a path that stays inside a folder of a file name that a record gives, any bytes.

    Slashes and backslashes part folders. What leads out (``..``, a root, a drive) is taken away,
    what can't be in a name is written as ``%XX``, and too long names keep their end. Nothing may
    be left.
    """
    tail = name[-4 * _PATH_BYTES :]
    if len(tail) < len(name):
        tail = tail.lstrip(bytes(range(0x80, 0xC0)))  # the cut may lie within a character
    text = tail.decode("utf-8", "surrogateescape").replace("\\", "/")
    text = _SURROGATE.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)
    parts = [_cleaned(part, windows) for part in text.split("/") if part not in ("", ".", "..")]
    while len(parts) > 1 and (len(parts) > _FOLDERS + 1 or _size("/".join(parts)) > _PATH_BYTES):
        del parts[0]
    return tuple(parts)


def safe_part(text: str, *, windows: bool = os.name == "nt") -> str:
    """Make one folder's name of a text; slashes become ``%2F``, and "", "." and ".." nothing."""
    if text in ("", ".", ".."):
        return ""
    part = text[: 4 * NAME_BYTES].replace("/", _escaped("/")).replace("\\", _escaped("\\"))
    return _cleaned(part, windows)


def _cleaned(part: str, windows: bool) -> str:
    clean = part
    if not clean.isprintable():
        for mark in set(clean).difference(_JOINERS):
            if unicodedata.category(mark) in _UNSEEN:
                clean = clean.replace(mark, _escaped(mark))
    if clean[: len(TEMPORARY)].lower() == TEMPORARY:  # a name of tfrtool's own files
        clean = _escaped(clean[0]) + clean[1:]
    if _DRIVE.match(clean):
        clean = clean.replace(":", _escaped(":"), 1)
    if windows:
        clean = _WINDOWS.sub(lambda match: _escaped(match[0]), clean)
    # Windows takes dots and spaces off the end, so that ".. " would be "..".
    clean = _TRAILING.sub(lambda match: _escaped(match[0]), clean)
    if _RESERVED.match(clean):
        clean = f"_{clean}"
    return _cut(clean, NAME_BYTES)


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _split(name: str) -> tuple[str, str]:
    """Return a name's stem and its suffix with the dot; a suffix without an end is none."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - names here aren't paths
    return (stem, suffix) if 1 < _size(suffix) <= _SUFFIX_BYTES else (name, "")


def _cut(name: str, limit: int) -> str:
    """Return a name's start and its suffix, in at most ``limit`` bytes."""
    if _size(name) <= limit:
        return name
    stem, suffix = _split(name)
    stem = stem.encode()[: limit - _size(suffix)].decode("utf-8", "ignore")
    return (stem if suffix else stem.rstrip(". ") or "_") + suffix


def stem_and_suffix(name: str) -> tuple[str, str]:
    """Return a safe name in two; after its stem there is room for any suffix and a number."""
    stem, suffix = _split(name)
    return _cut(stem, NAME_BYTES - _SUFFIX_BYTES - _NUMBER_BYTES), suffix


def numbering_key(name: str) -> str:
    """Return what all names have in common that `numbered` could make the same name of."""
    return _cut(name, NAME_BYTES - _NUMBER_BYTES)


def numbered(name: str, number: int, mark: str = "_") -> str:
    """Return a safe name with a number of up to 11 digits before its suffix: ``cat_2.jpg``."""
    stem, suffix = _split(numbering_key(name))
    return f"{stem}{mark}{number}{suffix}"


def with_suffix(name: str, content: str) -> str:
    """Return a safe name, with a suffix by its content if it has none that could be one."""
    if _SUFFIX.fullmatch(_split(name)[1]):
        return name
    kind, _, form = content.partition("/")
    usual = f".{form}" if kind in ("image", "audio", "video") else ".bin"
    return safe_part(name + _SUFFIXES.get(content, usual))


def shard_stem(shard: AnyPath) -> str:
    """Return what the names of a shard's records begin with: ``train-00003``, ``part-1``."""
    name = ShardName.parse(shard.name)
    if name is not None:
        return name.split if name.count == 1 else f"{name.split}-{name.index:05d}"
    stem = _SHARD_SUFFIX.sub("", shard.name) or shard.name
    # The shard's name too may hold what another system has no name for.
    return safe_part(stem.encode("utf-8", "replace").decode()) or "shard"
