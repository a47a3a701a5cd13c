"""Decoding records, held against the pixels that went in and against TensorFlow's own functions."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.photos import image_bytes, write_class_folders
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.decoding import (
    decoder,
    full_image,
    parser,
)
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.records.reader import read_records

pytestmark = pytest.mark.tf

SIZE = 32
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def _one(directory: Path, payload: bytes) -> tuple[Dataset, bytes]:
    return open_dataset(write_foreign(directory / "d", [[payload]])), payload


def _image(format_: str, mode: str = "RGB", pixels: Any = PIXELS) -> bytes:
    output = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(output, format_)
    return output.getvalue()


def _raw_payload(pixels: Any, *, names: tuple[str, ...], data: bytes | None = None) -> bytes:
    """Return an Example of bare pixels, as others write it, with the sides under given names."""
    features = {
        name: Feature(dtype=DType.INT64, values=(size,))
        for name, size in zip(names, pixels.shape, strict=False)
    }
    value = pixels.tobytes() if data is None else data
    image = Feature(dtype=DType.STRING, values=(value,))
    label = Feature(dtype=DType.INT64, values=(1,))
    return encode_example({"image_raw": image, "label": label, **features})


@pytest.mark.parametrize(
    ("format_", "mode"),
    [
        ("JPEG", "RGB"),
        ("JPEG", "L"),
        ("JPEG", "CMYK"),
        ("PNG", "RGB"),
        ("PNG", "L"),
        ("PNG", "P"),
        ("PNG", "1"),
        ("PNG", "RGBA"),
        ("PNG", "LA"),
        ("GIF", "P"),
        ("BMP", "RGB"),
        ("WEBP", "RGB"),
    ],
)
def test_every_format_becomes_rgb(format_: str, mode: str, tmp_path: Path, tf: Any) -> None:
    """An image is decoded and resized as tf.image does it, to within half a grey level."""
    data = _image(format_, mode)
    dataset, payload = _one(tmp_path, image_payload(0, data=data))
    image, label = decoder(dataset, SIZE)(payload)
    assert (image.shape, image.dtype, label.dtype) == ((SIZE, SIZE, 3), tf.uint8, tf.int64)
    full = tf.io.decode_image(data, channels=3, expand_animations=False)
    expected = tf.image.resize(full, (SIZE, SIZE)).numpy()
    assert np.abs(image.numpy() - expected).max() <= 0.5
    exact, _ = decoder(dataset, SIZE, floats=True)(payload)
    np.testing.assert_array_equal(exact, expected)


def test_deep_png_keeps_its_high_bytes(tmp_path: Path) -> None:
    """Of 16 bits a channel the upper 8 count."""
    deep = (np.arange(12 * 12, dtype=np.uint16) * 450).reshape(12, 12)
    output = io.BytesIO()
    Image.fromarray(deep).save(output, "PNG")
    dataset, payload = _one(tmp_path, image_payload(0, data=output.getvalue()))
    image, _ = decoder(dataset, 12)(payload)
    np.testing.assert_array_equal(image.numpy()[..., 0], deep >> 8)
    np.testing.assert_array_equal(image.numpy()[..., 0], image.numpy()[..., 2])


@pytest.fixture(scope="module")
def pngs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset of encoded images and two classes."""
    payloads = [image_payload(label) for label in (0, 1)]
    return open_dataset(write_foreign(tmp_path_factory.mktemp("pngs"), [payloads]))


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_resizing_is_that_of_tensorflow(
    pngs: Dataset, tf: Any, height: int, width: int, size: int
) -> None:
    """Whatever the sizes, the wanted one included, pixels are tf.image's, rounded."""
    decode = tf.function(decoder(pngs, size))
    for sides in ((height, width), (size, size)):
        pixels = np.random.default_rng(size).integers(0, 256, (*sides, 3), np.uint8)
        image, _ = decode(tf.constant(image_payload(0, data=_image("PNG", pixels=pixels))))
        expected = tf.image.resize(tf.cast(pixels, tf.float32), (size, size)).numpy()
        assert np.abs(image.numpy() - expected).max() <= 0.5


@pytest.mark.parametrize("names", [("height", "width", "depth"), ("image/height", "image/width")])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_bare_pixels_of_any_size(names: tuple[str, ...], channels: int, tmp_path: Path) -> None:
    """Where records say the size of their pixels, each is read by its own."""
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (*size, channels), np.uint8) for size in ((9, 7), (8, 8))]
    payloads = [_raw_payload(image, names=names) for image in images]
    dataset = open_dataset(write_foreign(tmp_path / "d", [payloads]))
    for payload, pixels in zip(payloads, images, strict=True):
        full = full_image(dataset, parser(dataset)(payload)).numpy()
        np.testing.assert_array_equal(full, pixels)
    image, label = decoder(dataset, 8)(payloads[1])
    colored = np.repeat(images[1][..., :1], 3, 2) if channels <= 2 else images[1][..., :3]
    np.testing.assert_array_equal(image, colored)
    assert int(label) == 0  # the only class


def test_pixels_in_base64(tmp_path: Path) -> None:
    """Pixels as web-safe base64, as tensorflow-recorder writes them, with padding or not."""
    names = ("image_height", "image_width", "image_channels")
    for pixels in (PIXELS, PIXELS[:7, :5]):
        data = base64.urlsafe_b64encode(pixels.tobytes())
        directory = tmp_path / str(pixels.size)
        dataset, payload = _one(directory, _raw_payload(pixels, names=names, data=data))
        full = full_image(dataset, parser(dataset)(payload))
        np.testing.assert_array_equal(full, pixels)


def _write_raw(tmp_path: Path, resize: tuple[int, int] | None) -> Path:
    source = write_class_folders(tmp_path / "photos", count=3)
    tfrtool.write(source, tmp_path / "pets", encode="raw", resize=resize)
    return tmp_path / "pets"


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("resize", [(9, 10), None])
def test_raw_shards_of_our_own(
    resize: tuple[int, int] | None, metadata: bool, tmp_path: Path, tf: Any
) -> None:
    """What `write --encode raw` stores comes out pixel for pixel, with metadata and without."""
    directory = _write_raw(tmp_path, resize)
    if not metadata:
        for path in directory.iterdir():
            if path.suffix in (".json", ".txt"):
                path.unlink()
    dataset = open_dataset(directory)
    said = (10, 9) if metadata and resize else ("image/height", "image/width")
    assert dataset.image_form.size == said
    (path,) = dataset.split("train").shards
    with path.open("rb") as file:
        payloads = [item.payload for item in read_records(file) if hasattr(item, "payload")]
    assert len(payloads) == 6
    for payload in payloads:
        example = tf.train.Example.FromString(payload).features.feature
        height, width = (
            example[f"image/{side}"].int64_list.value[0] for side in ("height", "width")
        )
        stored = np.frombuffer(example["image"].bytes_list.value[0], np.uint8)
        stored = stored.reshape(height, width, 3)
        np.testing.assert_array_equal(full_image(dataset, parser(dataset)(payload)), stored)
        image, _ = decoder(dataset, 8)(payload)
        assert np.abs(image.numpy() - tf.image.resize(stored, (8, 8))).max() <= 0.5


def test_fitting_pixels_cost_no_resize(tmp_path: Path, tf: Any) -> None:
    """Where the metadata gives all images the wanted size, nothing is resized or rounded."""
    dataset = open_dataset(_write_raw(tmp_path, (10, 10)))

    def kinds(size: int) -> set[str]:
        graph = tf.function(decoder(dataset, size)).get_concrete_function(
            tf.TensorSpec([], tf.string)
        )
        return {operation.type for operation in graph.graph.get_operations()}

    assert "ResizeBilinear" not in kinds(10)
    assert "ResizeBilinear" in kinds(11)


def test_parsing_in_batches_is_the_same(tmp_path: Path, tf: Any) -> None:
    """Records that are parsed in batches give the images and labels of those parsed one by one."""
    payloads = [image_payload(n % 3, data=image_bytes(tint=9 * n)) for n in range(7)]
    dataset = open_dataset(write_foreign(tmp_path / "d", [payloads]))
    records = tf.data.Dataset.from_tensor_slices(payloads)
    single = list(records.map(decoder(dataset, SIZE)))
    parsed = records.batch(3).map(parser(dataset, batched=True)).unbatch()
    batched = list(parsed.map(decoder(dataset, SIZE, parsed=True)))
    assert len(single) == len(batched) == 7
    for (image, label), (other, number) in zip(single, batched, strict=True):
        np.testing.assert_array_equal(image, other)
        assert int(label) == int(number)


def test_names_become_numbers(tmp_path: Path) -> None:
    """String labels are numbered in the order of the class names."""
    names = ["zebra", "ant", "cow", "ant"]
    payloads = [named_payload(name) for name in names]
    dataset = open_dataset(write_foreign(tmp_path / "d", [payloads]))
    assert dataset.class_names == ("ant", "cow", "zebra")
    labels = [int(decoder(dataset, SIZE)(payload)[1]) for payload in payloads]
    assert labels == [2, 0, 1, 0]


def test_names_beside_several_numbers(tmp_path: Path) -> None:
    """Where each number of a list has its name in its place, classes have these names."""
    labels = [((1, 3), "cat fur"), ((), ""), ((3,), "fur"), ((2, 1), "dog cat")]
    payloads = []
    for numbers, names in labels:
        image = Feature(dtype=DType.STRING, values=(image_bytes(),))
        number = Feature(dtype=DType.INT64, values=numbers)
        text = Feature(dtype=DType.STRING, values=tuple(map(str.encode, names.split())))
        features = {"image/encoded": image, "image/class/label": number, "image/class/text": text}
        payloads.append(encode_example(features))
    dataset = open_dataset(
        write_foreign(tmp_path / "d", [payloads]), label_feature="image/class/label"
    )
    assert dataset.class_names == ("cat", "dog", "fur")


def named_payload(name: str) -> bytes:
    """Return an Example whose label is a name."""
    image = Feature(dtype=DType.STRING, values=(image_bytes(),))
    label = Feature(dtype=DType.STRING, values=(name.encode(),))
    return encode_example({"image/encoded": image, "image/class/text": label})


def test_wrong_label_fails(tmp_path: Path, tf: Any) -> None:
    """A number or a name that is no class is an error when the record is decoded."""
    dataset, _ = _one(tmp_path, image_payload(2))
    for label in (-1, 3):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decoder(dataset, SIZE)(image_payload(label))
    named, _ = _one(tmp_path / "n", named_payload("cat"))
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoder(named, SIZE)(named_payload("dog"))
