"""HEIC photographs, with and without the decoder of the extra `heic`."""

from __future__ import annotations

import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.examples.example import encode_example
from tfrtool.training.prediction import find_images

Run = Callable[..., tuple[int, str, str]]

BOX = b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf"
GENERIC = b"\0\0\0\x18ftypmif1\0\0\0\0mif1miaf"
MISSING = "HEIC; install tfrtool[heic]"


@pytest.fixture
def no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Python believe that pillow-heif isn't installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder with one JPEG and four HEIC photographs of different names."""
    root = tmp_path / "photos"
    for key in ("cat/a.HEIC", "cat/b.heif", "dog/c.jpg", "dog/d.hif"):
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(BOX if key[-1] != "f" else GENERIC)
    (root / "cat" / "e.jpg").write_bytes(image_bytes())
    return root


EXPECTED = {
    "cat/a.HEIC": MISSING,
    "cat/b.heif": "HEIF; install tfrtool[heic]",
    "dog/c.jpg": MISSING,
    "dog/d.hif": "HEIF; install tfrtool[heic]",
}


def _zipped(photos: Path) -> list[Path | str]:
    path = photos.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in photos.rglob("*.*"):
            archive.write(file, file.relative_to(photos))
    return [path]


def _listed(photos: Path) -> list[Path | str]:
    keys = sorted(file.relative_to(photos).as_posix() for file in photos.rglob("*.*"))
    rows = ["path,label", *(f"{key},{key[:3]}" for key in keys)]
    (photos / "list.csv").write_text("\n".join(rows))
    return [photos / "list.csv"]


def _annotated(photos: Path) -> list[Path | str]:
    keys = sorted(file.relative_to(photos).as_posix() for file in photos.rglob("*.*"))
    coco = {
        "images": [
            {"id": number, "file_name": key, "width": 16, "height": 12}
            for number, key in enumerate(keys)
        ],
        "annotations": [
            {"id": number, "image_id": number, "category_id": 1, "bbox": [0, 0, 4, 4]}
            for number in range(len(keys))
        ],
        "categories": [{"id": 1, "name": "pet"}],
    }
    path = photos.parent / "coco.json"
    path.write_text(json.dumps(coco))
    return [photos, "--annotations", f"coco:{path}"]


@pytest.mark.tf
@pytest.mark.usefixtures("no_decoder")
@pytest.mark.parametrize("source", [lambda photos: [photos], _zipped, _listed, _annotated])
def test_heic_is_listed_in_every_source(
    source: Callable[[Path], list[Path | str]], photos: Path, tmp_path: Path, run: Run
) -> None:
    """HEIC is found by name or content, listed with what to install, and the exit code is 3."""
    first, *more = source(photos)
    words = ("--name", "pets", "--dry-run", "--json")
    code, output, _ = run("write", first, tmp_path / "out", *more, *words)
    report = json.loads(output)
    assert code == 3
    assert {entry["key"]: entry["reason"] for entry in report["rejected"]} == EXPECTED
    assert report["ignored"] == []
    assert report["splits"]["train"]["records"] == 1


@pytest.mark.tf
@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz"])
def test_images_without_suffix_in_archives(suffix: str, tmp_path: Path, run: Run) -> None:
    """Members that are images by their content are listed, as those of a folder are."""
    for key in ("cat/a.jpg", "cat/b", "dog/c.jpg_large", "dog/notes.txt", "dog/x.bin"):
        (tmp_path / "in" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / key).write_bytes(image_bytes() if key[-1] != "n" else bytes(99))
    (tmp_path / "in" / "dog" / "d").write_bytes(BOX)
    formats = {".zip": "zip", ".tar": "tar", ".tar.gz": "gztar"}
    path = shutil.make_archive(str(tmp_path / "in"), formats[suffix], tmp_path / "in")
    code, output, _ = run("write", path, tmp_path / "out", "--name", "p", "--dry-run", "--json")
    report = json.loads(output)
    unnamed = "image by its content, without a file name extension of images"
    assert code == 3
    assert {entry["key"]: entry["reason"] for entry in report["rejected"]} == {
        "cat/b": f"a JPEG {unnamed}",
        "dog/c.jpg_large": f"a JPEG {unnamed}",
        "dog/d": f"a HEIC {unnamed}",
    }
    assert [entry["key"] for entry in report["ignored"]] == ["dog/notes.txt", "dog/x.bin"]


@pytest.mark.usefixtures("no_decoder")
def test_heic_in_records_is_a_fault(tmp_path: Path, run: Run) -> None:
    """Verify lists a HEIC image of a record, with what to install."""
    payloads = [encode_example({"image": data, "label": 0}) for data in (image_bytes(), BOX)]
    (tmp_path / "x.tfrecord").write_bytes(shard_of(payloads))
    code, output, _ = run("verify", "--images", tmp_path / "x.tfrecord")
    assert code == 3
    assert MISSING in output


def test_a_folder_for_predictions_lists_heic(photos: Path) -> None:
    """Photographs by name count as images to classify."""
    found = {Path(image.path).name: image.problem for image in find_images(photos)}
    assert found == dict.fromkeys(["a.HEIC", "b.heif", "c.jpg", "d.hif", "e.jpg"])


@pytest.mark.tf
def test_heic_is_decoded(tmp_path: Path, run: Run) -> None:
    """With the extra, a photograph is written as a JPEG of its size, whatever its name."""
    heif = pytest.importorskip("pillow_heif", reason="needs the extra heic")
    output = io.BytesIO()
    image = Image.radial_gradient("L").resize((48, 32)).convert("RGB")
    heif.from_pillow(image).save(output, quality=90)
    for key in ("cat/a.HEIC", "dog/b.jpg"):
        (tmp_path / "in" / key).parent.mkdir(parents=True)
        (tmp_path / "in" / key).write_bytes(output.getvalue())
    code, text, _ = run("write", tmp_path / "in", tmp_path / "out", "--name", "pets", "--json")
    assert code == 0
    report = json.loads(text)
    assert [(one["from"], one["reason"]) for one in report["converted"]] == [
        ("HEIF", "not a JPEG but HEIF")
    ] * 2
    code, text, _ = run("extract", tmp_path / "out", tmp_path / "back")
    assert code == 0
    (written, _) = sorted((tmp_path / "back").rglob("*.*"))
    with Image.open(written) as found:
        assert found.size == (48, 32)
        difference = max(
            abs(left - right)
            for left, right in zip(found.convert("RGB").tobytes(), image.tobytes(), strict=True)
        )
    assert difference < 25
