"""Trees of files, written as a folder and as archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source

__all__ = ["WRITERS", "contents", "labelled", "open_tree", "write_folder", "write_tar", "write_zip"]

Tree = Mapping[str, bytes]


def write_folder(path: Path, tree: Tree) -> Path:
    """Write the files of a tree below ``path``."""
    path.mkdir(parents=True, exist_ok=True)
    for key, data in tree.items():
        file = path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return path


def write_zip(path: Path, tree: Tree, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write the files of a tree as a zip archive."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for key, data in tree.items():
            archive.writestr(key, data)
    return path


def write_tar(path: Path, tree: Tree, mode: str = "w") -> Path:
    """Write the files of a tree as a tar archive."""
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for key, data in tree.items():
            member = tarfile.TarInfo(key)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


WRITERS: dict[str, Callable[[Path, Tree], Path]] = {
    "folder": write_folder,
    "zip": write_zip,
    "stored.zip": lambda path, tree: write_zip(path, tree, zipfile.ZIP_STORED),
    "tar": write_tar,
    "tar.gz": lambda path, tree: write_tar(path, tree, "w:gz"),
    "tar.bz2": lambda path, tree: write_tar(path, tree, "w:bz2"),
    "tar.xz": lambda path, tree: write_tar(path, tree, "w:xz"),
}
"""Every form that a tree may have, and what writes it."""


def open_tree(path: Path, label_from: LabelFrom = LabelFrom.FOLDER) -> Source:
    """Open a source; what must be kept of it lands beside it."""
    scratch = path.parent / "scratch"
    if path.is_file():
        scratch.mkdir(exist_ok=True)
    return open_source(str(path), label_from, scratch)


def labelled(source: Source) -> list[tuple[str, str]]:
    """Return the keys and labels of a source."""
    return [(item.key, item.label) for item in source.items]


def contents(source: Source) -> dict[str, bytes]:
    """Return the bytes of all items of a source."""
    return {item.key: source.reader.read(item) for item in source.items}
