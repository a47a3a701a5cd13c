"""Records decoded for a loader: features, and images with labels or objects."""

from __future__ import annotations

import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.datasets import image_payload
from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.objects_written import CLASSES, Thing, changed, name_classes, object_record
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.examples.fields import Struct, Values
from tfrtool.examples.objects.record_features import Layout
from tfrtool.features.tfds_tree import tfds_of_tree
from tfrtool.images.masks import mask_png

THINGS: list[Thing] = [(16, 24, 80, 72, 0), (100, 60, 160, 120, 2)]


def _write(path: Path, *payloads: bytes) -> Path:
    path.write_bytes(shard_of([*payloads]))
    return path


def test_examples_for_a_loader(tmp_path: Path) -> None:
    """Numbers are arrays, of no dimension where there is one; bytes are bytes."""
    features = {
        "n": int64(7),
        "some": int64(1, 2),
        "x": float32(0.5),
        "none": float32(),
        "name": string(b"a"),
        "names": string(b"a", b"b"),
    }
    sequence = raw_example([entry(b"n", int64(1))], {b"steps": [int64(1), int64(2, 3)]})
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example(features), sequence, b"noise"]))
    examples = pickle.loads(pickle.dumps(tfrtool.open_records(path, decode="example")))
    assert len(examples) == 3
    first = examples[0]
    assert {name: getattr(value, "dtype", None) for name, value in first.items()} == {
        "n": np.int64,
        "some": np.int64,
        "x": np.float32,
        "none": np.float32,
        "name": None,
        "names": None,
    }
    assert (first["n"].shape, first["n"], first["x"]) == ((), 7, 0.5)
    assert first["some"].tolist() == [1, 2]
    assert (first["name"], first["names"]) == (b"a", [b"a", b"b"])
    (second,) = examples[1:2]
    assert [step.tolist() for step in second["steps"]] == [1, [2, 3]]
    for last in (2, -1):
        with pytest.raises(tfrtool.ShardError) as caught:
            [examples[index] for index in (0, last)]
        assert (caught.value.path, caught.value.record) == (str(path), 2)
    with pytest.raises(IndexError):
        examples[3]
    with pytest.raises(tfrtool.UsageError, match="features, image"):
        tfrtool.open_records(path, decode="pixels")  # type: ignore[call-overload]


def test_images_for_a_loader(tmp_path: Path) -> None:
    """Images come as pixels in RGB with their labels; one that does not decode is named."""
    path = tmp_path / "a.tfrecord"
    grey = image_bytes(mode="L")
    broken = image_bytes()[:200]
    payloads = [image_payload(n, data=data) for n, data in enumerate([image_bytes(), grey, broken])]
    path.write_bytes(shard_of([*payloads, tfrtool.encode_example({"label": 1})]))
    images = tfrtool.open_records(path, decode="image")
    for index in (0, 1):
        pixels, label = images[index]
        assert (pixels.dtype, pixels.ndim, pixels.shape[2]) == (np.uint8, 3, 3)
        assert label == index
        assert type(label) is int
    for index in (2, 3):
        with pytest.raises(tfrtool.ShardError, match="image") as caught:
            images[index]
        assert caught.value.record == index
        assert caught.value.offset == tfrtool.open_records(path)[index].offset
    path.write_bytes(shard_of([tfrtool.encode_example({"a": 1, "b": 2})]))
    with pytest.raises(tfrtool.ShardError, match="'a', 'b'"):
        tfrtool.open_records(path, decode="image")
    path.write_bytes(shard_of([b"noise"]))
    with pytest.raises(tfrtool.ShardError, match=r"not a tf\.train"):
        tfrtool.open_records(path, decode="image")


def test_images_of_a_test_set(tmp_path: Path) -> None:
    """Records without a label have None in its place."""
    path = tmp_path / "test.tfrecord"
    payload = {"image": image_bytes(), "image_name": "a", "age": 7, "sex": 1}
    path.write_bytes(shard_of([tfrtool.encode_example(payload)]))
    pixels, label = tfrtool.open_records(path, decode="image")[0]
    assert (pixels.ndim, label) == (3, None)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_pytorch(tmp_path: Path, workers: int) -> None:
    """PyTorch's default collate makes batches of images with labels, and of Examples."""
    data: Any = pytest.importorskip("torch").utils.data
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([image_payload(n, data=image_bytes()) for n in range(5)]))
    height, width, _ = tfrtool.open_records(path, decode="image")[0][0].shape

    def batches(decode: Any) -> list[Any]:
        return [*data.DataLoader(tfrtool.open_records(path, decode=decode), 2, num_workers=workers)]

    first, _, last = batches("image")
    assert first[0].shape == (2, height, width, 3)
    assert last[0].shape == (1, height, width, 3)
    assert [str(part.dtype) for part in first] == ["torch.uint8", "torch.int64"]
    assert first[1].tolist() == [0, 1]
    path.write_bytes(
        shard_of(
            [tfrtool.encode_example({"n": n, "name": f"a{n}", "x": [n / 1, 1]}) for n in (1, 2)]
        )
    )
    (batch,) = batches("example")
    assert batch["n"].tolist() == [1, 2]
    assert batch["name"] == [b"a1", b"a2"]
    assert (batch["x"].tolist(), str(batch["x"].dtype)) == ([[1, 1], [2, 1]], "torch.float32")
    kinds = {"n": "label", "name": "text", "x": "float64[2]", "u": "uint8"}
    root = Struct({name: Values.parse(kind) for name, kind in kinds.items()})
    (tmp_path / "features.json").write_text(json.dumps(tfds_of_tree(root)))
    (batch,) = batches("features")
    assert batch["n"].tolist() == [1, 2]
    assert batch["name"] == [b"a1", b"a2"]
    assert (batch["x"].tolist(), str(batch["x"].dtype)) == ([[1, 1], [2, 1]], "torch.float64")
    assert (batch["u"].tolist(), str(batch["u"].dtype)) == ([0, 0], "torch.uint8")


def test_sizes_and_transforms(tmp_path: Path) -> None:
    """All images get one size, as Pillow scales them; a function changes what is returned."""
    sizes = [(31, 44), (640, 200), (12, 9)]
    data = [image_bytes(size=size) for size in sizes]
    path = _write(tmp_path / "a.tfrecord", *(image_payload(n, data=d) for n, d in enumerate(data)))
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    images = tfrtool.open_records(path, decode="image", resize=(20, 10))
    assert images.class_names == ("cat", "dog")
    assert [pixels.shape for pixels, _ in images] == [(10, 20, 3)] * 3
    with Image.open(io.BytesIO(data[0])) as image:
        scaled = image.resize((20, 10), Image.Resampling.LANCZOS, reducing_gap=3)
    assert (images[0][0] == np.array(scaled)).all()
    shorter = tfrtool.open_records(path, decode="image", resize=8)
    assert [pixels.shape[:2] for pixels, _ in shorter] == [(11, 8), (8, 26), (8, 11)]

    def transform(element: Any) -> Any:
        if element[1] == 2:
            raise ValueError("two")
        return element[0].transpose(2, 0, 1), -element[1]

    moved = tfrtool.open_records(path, decode="image", transform=transform)
    assert moved[1][0].shape == (3, 200, 640)
    assert moved[1][1] == -1
    with pytest.raises(tfrtool.ShardError, match="two") as caught:
        moved[2]
    assert caught.value.record == 2
    wrong: Any
    for wrong in ({"transform": len}, {"resize": 8}, {"resize": 8, "decode": "example"}):
        with pytest.raises(tfrtool.UsageError, match="requires decode"):
            tfrtool.open_records(path, **wrong)
    with pytest.raises(tfrtool.UsageError, match="0x8"):
        tfrtool.open_records(path, decode="image", resize=(0, 8))


def test_damaged_images_fail_where_pillow_fails(tmp_path: Path) -> None:
    """Whatever happens to a JPEG, its pixels are Pillow's, or it can't be decoded by either."""
    chance, whole, versions = random.Random(0), image_bytes(size=(99, 70)), [image_bytes(mode="L")]
    for number in range(120):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        versions.append(bytes(damaged[: chance.randrange(len(whole))] if number % 3 else damaged))
    path = _write(tmp_path / "a.tfrecord", image_payload(0))
    path.write_bytes(shard_of([image_payload(0, data=data) for data in [whole, *versions]]))
    ours, failed = tfrtool.open_records(path, decode="image"), 0
    for number, data in enumerate(versions, 1):
        try:
            with Image.open(io.BytesIO(data)) as image:
                pixels = np.array(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError):
            failed += 1
            with pytest.raises(tfrtool.ShardError, match="image"):
                ours[number]
        else:
            assert (ours[number][0] == pixels).all()
    assert 60 < failed < 120


def _mask(thing: Thing) -> Any:
    bitmap = np.zeros((120, 160), np.uint8)
    bitmap[int(thing[1]) : int(thing[3]), int(thing[0]) : int(thing[2])] = 1
    return bitmap


@pytest.mark.parametrize("layout", [Layout.TFOD, Layout.TFDS])
def test_objects(tmp_path: Path, layout: Layout) -> None:
    """Boxes, labels, masks and key points are in pixels of the image, scaled along with it."""
    masks = [mask_png(_mask(thing)) for thing in THINGS]
    points = {"keypoints": (16.0, 24.0, 2.0, 0.0, 0.0, 0.0), "crowd": True, "segmentation": ""}
    outline = {"segmentation": json.dumps([[16, 24, 80, 24, 80, 72, 16, 72]])}
    path = _write(
        tmp_path / "a.tfrecord",
        object_record(THINGS, layout=layout, masks=masks, optional=points),
        object_record(THINGS[:1], layout=layout, optional=outline),
        object_record([], layout=layout),
    )
    name_classes(tmp_path, layout)
    records = tfrtool.open_records(path, decode="objects")
    first = 1 if layout is Layout.TFOD else 0
    assert records.class_names == ("",) * first + CLASSES
    pixels, targets = records[0]
    assert pixels.shape == (120, 160, 3)
    assert targets["boxes"].tolist() == [[*thing[:4]] for thing in THINGS]
    assert targets["boxes"].dtype == np.float32
    assert targets["labels"].tolist() == [first, first + 2]
    assert targets["iscrowd"].tolist() == [1, 1]
    assert targets["keypoints"].tolist() == [[[16, 24, 2], [0, 0, 0]]] * 2
    assert (targets["masks"] == np.stack([_mask(thing) for thing in THINGS])).all()
    assert ((pixels == 0).all(2) == targets["masks"].any(0)).all()
    assert (records[1][1]["masks"] == _mask(THINGS[0])[None]).all()
    none = records[2][1]
    assert (none["boxes"].shape, none["labels"].dtype) == ((0, 4), np.int64)
    assert none["masks"].shape == (0, 120, 160)  # as Mask R-CNN of torchvision requires
    small, targets = tfrtool.open_records(path, decode="objects", resize=(80, 120))[0]
    assert small.shape == (120, 80, 3)
    assert targets["boxes"].tolist() == [[8, 24, 40, 72], [50, 60, 80, 120]]
    assert targets["keypoints"][0].tolist() == [[8, 24, 2], [0, 0, 0]]
    assert targets["masks"].shape == (2, 120, 80)
    assert [int(mask.sum()) for mask in targets["masks"]] == [32 * 48, 30 * 60]


def test_invalid_objects(tmp_path: Path) -> None:
    """What can't be a target is an error with its record; boxes are clipped or left out."""
    mask, outline = mask_png(_mask(THINGS[0])), {"segmentation": "[[1, 2, 3]]"}
    path = _write(
        tmp_path / "a.tfrecord",
        object_record([(-16, 0, 80, 60, 0), (200, 0, 220, 60, 0)]),
        changed(object_record(THINGS), image__object__bbox__xmin=[0.1]),
        changed(object_record(THINGS), image__object__class__label=int64()),
        object_record(THINGS, size=(80, 60), masks=[mask, mask], optional={"segmentation": ""}),
        object_record(THINGS, optional=outline),
        tfrtool.encode_example({"label": 1}),
    )
    records = tfrtool.open_records(path, decode="objects")
    assert records[0][1]["boxes"].tolist() == [[0, 0, 80, 60]]
    for number, text in enumerate(("differ in length", "class number", "size", "outline", "image")):
        with pytest.raises(tfrtool.ShardError, match=text) as caught:
            records[number + 1]
        assert caught.value.record == number + 1
    path.write_bytes(shard_of([image_payload(1)]))
    with pytest.raises(tfrtool.ShardError, match="no image with boxes"):
        tfrtool.open_records(path, decode="objects")


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.several)])
def test_a_source_of_grain(tmp_path: Path, workers: int) -> None:
    """Grain reads records in its own order, in threads or other processes, and resumes."""
    grain: Any = pytest.importorskip("grain", reason="Grain is not installed")
    flags: Any = pytest.importorskip("absl.flags")
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    payloads = [image_payload(n, data=image_bytes(size=(9 + n, 12))) for n in range(24)]
    path = _write(tmp_path / "a.tfrecord", *payloads)
    source = tfrtool.open_records(path, decode="image", resize=(8, 6))
    labels = []
    for rank in range(2):
        part = grain.MapDataset.source(source).shuffle(seed=1)[rank::2].batch(4).to_iter_dataset()
        if workers:
            part = part.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        batches = iter(part)
        pixels, first = next(batches)
        assert pixels.shape == (4, 6, 8, 3)
        state = batches.get_state()
        rest = [batch[1].tolist() for batch in batches]
        batches.set_state(state)
        assert [batch[1].tolist() for batch in batches] == rest
        labels += [*first.tolist(), *(label for some in rest for label in some)]
    assert sorted(labels) == [*range(24)] != labels
