"""Shards to take something out of, and what came out of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.examples.strategies import int64, string
from tfrtool.examples.example import Feature, encode_example
from tfrtool.records.framing import frame

__all__ = ["JPEG", "PNG", "files_below", "lines_beside", "photo", "workshop", "write_shard"]

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"
PNG = b"\x89PNG\r\n\x1a\n"


def photo(
    data: bytes, name: bytes | None = None, label: int | bytes | None = None, **others: Feature
) -> bytes:
    """Return a record with an image, and a name and a label if they are given."""
    features = {"image": string(data), **others}
    if name is not None:
        features["image/filename"] = string(name)
    if label is not None:
        features["label"] = string(label) if isinstance(label, bytes) else int64(label)
    return encode_example(features)


def write_shard(path: Path, payloads: Iterable[bytes], classes: Iterable[str] = ()) -> Path:
    """Write a shard, and the class names beside it if there are some; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(frame, payloads)))
    if classes:
        lines = "".join(f"{name}\n" for name in classes)
        (path.parent / "label.labels.txt").write_text(lines, "utf-8")
    return path


def files_below(directory: Path) -> dict[str, bytes]:
    """Return what every file below a directory holds, by its path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() or path.is_symlink()
    }


def lines_beside(directory: Path) -> list[dict[str, Any]]:
    """Return the objects in the JSON Lines file beside a directory."""
    text = directory.with_name(f"{directory.name}.jsonl").read_text("ascii")
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def workshop() -> Iterator[Path]:
    """Give an empty directory for one example of a property test."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
