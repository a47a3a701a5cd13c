"""A folder with all that goes wrong, for what errors tell to do about it."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path

from PIL import Image

import tfrtool
from tests.annotated_sets import scenes, write_yolo
from tests.datasets import flip_bit, image_payload, write_pets
from tests.examples.strategies import int64, string
from tests.photos import image_bytes
from tests.records.checksum_styles import file_of
from tests.records.strategies import shard_of

__all__ = ["write_world"]

GOOD = [image_payload(0), image_payload(1), image_payload(1)]
PIXELS = tfrtool.encode_example(
    {
        "first": string(bytes(range(12)) * 4),
        "second": string(bytes(range(12)) * 4),
        "height": int64(4),
        "width": int64(4),
    }
)
BLOB = tfrtool.encode_example({"image": string(bytes(range(256))), "label": int64(1)})
TWO_IMAGES = tfrtool.encode_example(
    {"left": string(image_bytes()), "right": string(image_bytes(tint=9)), "kind": int64(1)}
)
TEXTS = tfrtool.encode_example({"title": string(b"one"), "kind": int64(1)})
NUMBERS = tfrtool.encode_example({"kind": int64(1), "sort": int64(2)})


def write_world(root: Path) -> None:
    """Write shards, datasets and sources, whole and damaged, to a folder."""
    pets = write_pets(root)  # and the photographs that it is of
    _make_shards(root)
    _make_sources(root)
    for name in ("hurt", "hole"):
        shutil.copytree(pets, root / name)
    flip_bit(next((root / "hurt").glob("*-train.tfrecord-00001*")), 1)
    next((root / "hole").glob("*-train.tfrecord-00001*")).unlink()
    (root / "begun" / ".tfrtool-incomplete").mkdir(parents=True)
    (root / "begun" / ".tfrtool-incomplete").chmod(0o700)
    (root / "foreign").mkdir()
    (root / "foreign" / "thesis.doc").write_text("precious")
    (root / "lined.jsonl").write_text("{}")


def _make_shards(root: Path) -> None:
    good = shard_of(GOOD)
    (root / "a.tfrecord").write_bytes(good)
    (root / "foreign.tfrecord").write_bytes(file_of("zero", GOOD))
    (root / "notes.tfrecord").write_bytes(shard_of([b"some text", b"more of it"]))
    (root / "pixels.tfrecord").write_bytes(shard_of([PIXELS] * 2))
    (root / "sheet.png").write_bytes(b"an earlier one")
    (root / "texts.tfrecord").write_bytes(shard_of([TEXTS, TEXTS.replace(b"one", b"100")]))
    for name, place in (("header", 1), ("damaged", 40)):
        (root / f"{name}.tfrecord").write_bytes(good)
        flip_bit(root / f"{name}.tfrecord", len(GOOD[0]) + 16 + place)
    (root / "packed.tfrecord").write_bytes(gzip.compress(good))
    (root / "zlib.tfrecord").write_bytes(zlib.compress(good))
    (root / "deep" / "x" / "y").mkdir(parents=True)
    (root / "deep" / "x" / "y" / "z.record").write_bytes(good)
    broken = image_payload(1, data=image_bytes()[:300])
    for name, payloads in (
        ("numbers", [NUMBERS]),
        ("blobs", [BLOB, BLOB]),
        ("unclear", [TWO_IMAGES]),
        ("undecodable", [*GOOD, broken, *GOOD]),
    ):
        (root / name).mkdir()
        (root / name / "train.tfrecord").write_bytes(shard_of(payloads))


def _make_sources(root: Path) -> None:
    photos = root / "photos"
    files = sorted(photos.glob("*/*.jpg"))
    for folder in ("flat", "loose", "masks/images", "masks/masks", "one/cat", "circle"):
        (root / folder).mkdir(parents=True)
    for number, file in enumerate(files):
        shutil.copy(file, root / "flat" / f"{file.parent.name}.{number}.jpg")
        shutil.copy(file, root / "loose" / f"{number}.jpg")
        shutil.copy(file, root / "masks" / "images" / f"{number}.jpg")
        Image.new("L", (16, 12), number).save(root / "masks" / "masks" / f"{number}.png")
    shutil.copytree(photos, root / "spoilt")
    (root / "spoilt" / "cat" / "bad.jpg").write_bytes(files[0].read_bytes()[:300])
    for split in ("train", "test"):
        shutil.copytree(photos, root / "splits" / split)
    rows = "".join(f"{file.relative_to(root)},{file.parent.name}\n" for file in files)
    (root / "pets.csv").write_text(f"path,label\n{rows}")
    (root / "latin.csv").write_bytes(
        f"path,label\n{rows}".replace("cat\n", "k\xe4t\n").encode("l1")
    )
    (root / "quote.csv").write_text(f'path,label\n"{rows}')
    (root / "names.csv").write_text(f"wo,was\n{rows}")
    (root / "sub").mkdir()
    (root / "sub" / "up.csv").write_text(f"path,label\n{rows}".replace("photos", "../photos"))
    (root / "float.csv").write_text(
        f"path,label\n{rows}".replace(",cat", ",1.0").replace("dog\n", "2.0\n")
    )
    several = rows.replace(",cat", ",cat|dog")
    (root / "several.csv").write_text(f"path,label\n{several}")
    boxes = rows.replace("\n", ",1,2,3,4\n")
    (root / "boxes.csv").write_text(f"path,label,xmin,ymin,xmax,ymax\n{boxes}")
    for name in ("yolo", "astray"):
        scenes(root / name / "images" / "train")
    write_yolo(root / "yolo")
    (write_yolo(root / "astray") / "labels").rename(root / "strayed")
    (root / "masked.csv").write_text(f"path,label,mask\n{rows}".replace("\n", ",m.png\n")[:-1])
    with tarfile.open(root / "photos.tar", "w") as archive:
        archive.add(photos, "photos")
    (root / "twice.tar").write_bytes((root / "photos.tar").read_bytes() * 2)
    (root / "cut.tar").write_bytes((root / "photos.tar").read_bytes()[:2000])
    for number in range(2):
        Image.new("RGB", (400, 400), number).save(root / "one" / "cat" / f"{number}.bmp")
    with tarfile.open(root / "bomb.tar.gz", "w:gz") as archive:
        archive.add(root / "one" / "cat", "cat")
    for name, images in (("photos", files), ("bomb", sorted((root / "one").glob("*/*")))):
        with zipfile.ZipFile(root / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for file in images:
                packed.write(file, f"{file.parent.name}/{file.name}")
    shutil.copytree(photos / "cat", root / "circle" / "cat")
    for number in range(200):
        (root / "circle" / f"link{number}").symlink_to("cat")
    (root / "cut.zip").write_bytes((root / "photos.zip").read_bytes()[:2000])
