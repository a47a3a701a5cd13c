"""Small datasets of shards that tests make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tfrtool
from tests.photos import image_bytes, write_class_folders
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame

__all__ = ["flip_bit", "image_payload", "write_foreign", "write_pets"]


def write_pets(directory: Path, *, count: int = 10, shards: int = 2) -> Path:
    """Write a dataset of two classes and two splits, train and validation; return its directory."""
    source = write_class_folders(directory / "photos", count=count)
    splits = {"train": 0.7, "validation": 0.3}
    tfrtool.write(source, directory / "pets", splits=splits, shards=shards)
    return directory / "pets"


def image_payload(
    label: int, *, image: str = "image", target: str = "label", data: bytes | None = None
) -> bytes:
    """Return an Example with an image and a label under the names given."""
    data = image_bytes(tint=20 * label) if data is None else data
    return encode_example(
        {
            image: Feature(dtype=DType.STRING, values=(data,)),
            target: Feature(dtype=DType.INT64, values=(label,)),
        }
    )


def write_foreign(directory: Path, shards: Sequence[Sequence[bytes]]) -> Path:
    """Write payloads as shards without any metadata; return their directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, payloads in enumerate(shards):
        path = directory / f"part-{number:05d}-of-{len(shards):05d}.tfrecord"
        path.write_bytes(b"".join(map(frame, payloads)))
    return directory


def flip_bit(path: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(bytes(data))
