"""File names from records, made so that they stay inside a folder and work on every system.

What a record says is not trusted: it may climb out of the folder, name a device, or be no text at
all. A name that is safe already is kept as it is; whatever is changed is changed in a way that a
reader can undo (``%0A`` for a line break), and told.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass

from tfrtool.storage.appearing import TEMPORARY

NAME_BYTES = 255
"""The longest name of a file or folder, in bytes: the limit of ext4, XFS, APFS and NTFS."""

_PATH_BYTES = 1000
"""The longest path below the folder: macOS has the shortest limit for a whole path, 1,024."""

_FOLDERS = 32
"""The most folders in a path; beyond, only its last parts are kept."""

_SUFFIX_BYTES = 32
"""What comes after a name's last dot is kept when the name is cut, if it is no longer than this."""

_NUMBER_BYTES = 12
"""Room for what `numbered` adds to a name."""

_UNSEEN = {"Cc": "control characters", "Cf": "invisible characters"}
_UNSEEN |= {"Zl": _UNSEEN["Cf"], "Zp": _UNSEEN["Cf"]}
"""Categories of Unicode that steer terminals and programs, turn text around, or can't be seen."""

_JOINERS = "\u200c\u200d"
"""They are of Cf, and make emoji and the words of many languages what they are."""

_OWN = re.compile(re.escape(TEMPORARY), re.IGNORECASE)
_SURROGATE = re.compile(r"[\udc80-\udcff]")
_WINDOWS = re.compile(r'[<>:"|?*]')
_DRIVE = re.compile(r"[A-Za-z]:")
_TRAILING = re.compile(r"[. ]+\Z")
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_RESERVED = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3]) *(?:\.|\Z)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SafePath:
    """A path below a folder that can't lead anywhere else, and why it is not what the record said.

    Nothing of a name may be left: then it has no parts. Without a reason it is the very name.
    """

    parts: tuple[str, ...]
    reasons: tuple[str, ...] = ()


def safe_path(name: bytes, *, windows: bool = os.name == "nt") -> SafePath:
    """Make a path that stays inside a folder of a file name that a record gives, any bytes.

    Slashes and backslashes part folders. What leads out (``..``, a root, a drive) is taken away,
    what can't be in a name is written as ``%XX``, and too long names keep their end.
    """
    reasons: dict[str, None] = {}
    kept = name[-4 * _PATH_BYTES :]
    if len(kept) < len(name):
        reasons["too long"] = None
        # The cut may lie within a character.
        kept = kept.lstrip(bytes(range(0x80, 0xC0)))
    text = _decoded(kept, reasons)
    if "\\" in text:
        reasons["backslashes"] = None
    parts: list[str] = []
    for number, part in enumerate(text.replace("\\", "/").split("/")):
        if part == "..":
            reasons["'..'"] = None
        elif part == "":
            reasons["an empty part" if number or not text else "absolute"] = None
        elif part == ".":
            reasons["'.'"] = None
        else:
            parts.append(_cleaned(part, reasons, windows))
    while len(parts) > 1 and (len(parts) > _FOLDERS + 1 or _size("/".join(parts)) > _PATH_BYTES):
        del parts[0]
        reasons["too long"] = None
    return SafePath(parts=tuple(parts), reasons=tuple(reasons))


def safe_part(text: str, *, windows: bool = os.name == "nt") -> SafePath:
    """Make one folder's name of a text; slashes become ``%2F``, and "" and ".." have no parts."""
    reasons: dict[str, None] = {}
    if text in ("", ".", ".."):
        return SafePath(parts=(), reasons=("no name for a folder",))
    part = text[: 4 * NAME_BYTES]
    for mark in "/\\":
        if mark in part:
            part = part.replace(mark, _escaped(mark))
            reasons["slashes"] = None
    return SafePath(parts=(_cleaned(part, reasons, windows),), reasons=tuple(reasons))


def _decoded(name: bytes, reasons: dict[str, None]) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        reasons["not UTF-8"] = None
        text = name.decode("utf-8", "surrogateescape")
        return _SURROGATE.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)


def _cleaned(part: str, reasons: dict[str, None], windows: bool) -> str:
    clean = part
    if not clean.isprintable():
        for mark in sorted(set(clean).difference(_JOINERS)):
            reason = _UNSEEN.get(unicodedata.category(mark))
            if reason is not None:
                clean = clean.replace(mark, _escaped(mark))
                reasons[reason] = None
    if _OWN.match(clean):
        clean = _escaped(clean[0]) + clean[1:]
        reasons["a name of tfrtool's own files"] = None
    if _DRIVE.match(clean):
        clean = clean.replace(":", "%3A", 1)
        reasons["a drive"] = None
    if windows and _WINDOWS.search(clean):
        clean = _WINDOWS.sub(lambda match: _escaped(match[0]), clean)
        reasons["characters that Windows refuses"] = None
    # Windows takes dots and spaces off the end, so that ".. " would be "..".
    if clean[-1] in ". ":
        clean = _TRAILING.sub(lambda match: _escaped(match[0]), clean)
        reasons["dots or spaces at its end"] = None
    if _RESERVED.match(clean):
        clean = f"_{clean}"
        reasons["a device of Windows"] = None
    if _size(clean) > NAME_BYTES:
        clean = _cut(clean, NAME_BYTES)
        reasons["too long"] = None
    return clean


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def split(name: str) -> tuple[str, str]:
    """Return a name's stem and its suffix with the dot; a suffix without an end is none."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - names here are no paths
    return (stem, suffix) if 1 < _size(suffix) <= _SUFFIX_BYTES else (name, "")


def _cut(name: str, limit: int) -> str:
    """Return a name's start and its suffix, in at most ``limit`` bytes."""
    stem, suffix = split(name)
    stem = stem.encode()[: limit - _size(suffix)].decode("utf-8", "ignore")
    return (stem if suffix else stem.rstrip(". ") or "_") + suffix


def numbering_key(name: str) -> str:
    """Return what all names have in common that `numbered` could make the same name of."""
    return _cut(name, NAME_BYTES - _NUMBER_BYTES)


def numbered(name: str, number: int, mark: str = "_") -> str:
    """Return a safe name with a number of up to 11 digits before its suffix: ``cat_2.jpg``."""
    stem, suffix = split(numbering_key(name))
    return f"{stem}{mark}{number}{suffix}"
