"""Class folders: ``cat/1.jpg``, ``dog/2.jpg``, or the same one or more folders further down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tfrtool.errors import SourceError, os_reason
from tfrtool.sources.items import Item, LeftOut, Source

__all__ = ["IMAGE_SUFFIXES", "read_class_folders"]

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"}
    | {".avif", ".pgm", ".ppm"}
)
"""Names that promise an image, in lower case. What the bytes are is for the audit to tell."""

_CLUTTER = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


def read_class_folders(directory: Path) -> Source:
    """List the images below ``directory``, each labelled with the class folder that it lies in.

    Folders that hold nothing but one folder are looked through, so that a directory which holds
    ``PetImages/Cat`` and ``PetImages/Dog`` has the classes Cat and Dog; keys keep the whole path.
    Folders inside a class folder belong to that class. Hidden files are passed over; links are
    followed.

    Raises:
        SourceError: there is no such directory, it can't be read, or it holds no class folder
            with an image.
    """
    if not directory.is_dir():
        missing = not directory.exists()
        raise SourceError(
            "no such directory" if missing else "not a directory",
            path=directory,
            expected="a directory of class folders, such as cat/ and dog/",
        )
    try:
        root = _class_root(directory)
        return _read(directory, root)
    except OSError as error:
        raise SourceError(
            f"can't be read: {os_reason(error)}", path=error.filename or directory
        ) from error


def _read(directory: Path, root: Path) -> Source:
    items: list[Item] = []
    rejected: list[LeftOut] = []
    ignored: list[LeftOut] = []
    for path in _files(directory, frozenset()):
        key = path.relative_to(directory).as_posix()
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            ignored.append(LeftOut(key=key, reason="no image by its name"))
            continue
        below = path.relative_to(root).parts if path.is_relative_to(root) else ()
        if len(below) < 2:
            rejected.append(LeftOut(key=key, reason="not in a class folder"))
            continue
        items.append(
            Item(key=key, label=_checked(below[0], root), path=path, bytes=path.stat().st_size)
        )
    if not items:
        hint = "images lie in it directly; move them into one folder a class" if rejected else None
        raise SourceError(
            "no images in class folders",
            path=directory,
            expected="folders such as cat/ and dog/ with images in them",
            hint=hint,
        )
    return Source(
        items=tuple(sorted(items, key=lambda item: item.key)),
        labels=tuple(sorted({item.label for item in items})),
        rejected=tuple(sorted(rejected, key=lambda entry: entry.key)),
        ignored=tuple(sorted(ignored, key=lambda entry: entry.key)),
    )


def _class_root(directory: Path) -> Path:
    """Return the folder whose folders are the classes."""
    entries = [entry for entry in os.scandir(directory) if not _is_clutter(entry.name)]
    folders = [entry for entry in entries if entry.is_dir()]
    if len(folders) != 1 or _has_image(entries):
        return directory
    inside = [entry for entry in os.scandir(folders[0].path) if not _is_clutter(entry.name)]
    if _has_image(inside) or not any(entry.is_dir() for entry in inside):
        return directory
    return _class_root(Path(folders[0].path))


def _has_image(entries: list[os.DirEntry[str]]) -> bool:
    return any(
        Path(entry.name).suffix.lower() in IMAGE_SUFFIXES and not entry.is_dir()
        for entry in entries
    )


def _is_clutter(name: str) -> bool:
    return name.startswith(".") or name.lower() in _CLUTTER


def _files(directory: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """Yield every file below a directory, following links but never in a circle."""
    status = directory.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if _is_clutter(entry.name):
                continue
            if entry.is_dir():
                yield from _files(directory / entry.name, above | {identity})
            else:
                yield directory / entry.name


def _checked(label: str, root: Path) -> str:
    """Return a class name that a line of UTF-8 text can hold."""
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        raise SourceError("the name of a class folder is no UTF-8", path=root / label) from None
    if len(label.splitlines()) != 1 or label.strip() != label:
        raise SourceError(
            "the name of a class folder can't stand on a line of its own", path=root / label
        )
    return label
