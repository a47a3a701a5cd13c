"""Images of every form as the loader gives them, held against TensorFlow's own functions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.examples.strategies import int64
from tests.loading.form_records import feature, loaded_labels
from tests.objects_written import changed, object_record
from tests.photos import image_bytes, write_class_folders
from tfrtool import Dataset, DatasetError, UsageError
from tfrtool.examples.example import Feature, encode_example
from tfrtool.examples.objects.record_features import Layout
from tfrtool.loading.decoding import rescaler, standard_rescale
from tfrtool.loading.options import Rescale

pytestmark = pytest.mark.tf

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def encoded(format_: str, mode: str = "RGB", pixels: Any = PIXELS, **how: Any) -> bytes:
    """Return an image file."""
    output = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(output, format_, **how)
    return output.getvalue()


def opened(directory: Path, payloads: list[bytes], **how: Any) -> Dataset:
    """Return a dataset of one shard."""
    return tfrtool.dataset(write_foreign(directory, [payloads]), **how)


def images_of(dataset: Dataset, size: int, **options: Any) -> Any:
    """Return all images in the order of their records, uint8."""
    chosen = {"training": False, "rescale": None, "batch_size": 1, **options}
    return [images[0].numpy() for images, _ in dataset.load(image_size=size, **chosen)]


FORMATS = [
    *(("JPEG", mode) for mode in ("RGB", "L", "CMYK")),
    *(("PNG", mode) for mode in ("RGB", "L", "P", "1", "RGBA", "LA")),
    *(("GIF", "P"), ("BMP", "RGB"), ("WEBP", "RGB")),
]


@pytest.mark.parametrize("size", [7, 20, 32])
def test_every_format_is_decoded_as_tensorflow_does(size: int, tmp_path: Path) -> None:
    """An image is decoded and resized as by tf.image, to half a gray level, or exactly as float."""
    files = [encoded(*kind) for kind in FORMATS]
    files.append(encoded("PNG", pixels=PIXELS[:, :20]))
    dataset = opened(tmp_path / "d", [image_payload(0, data=data) for data in files])
    rounded = images_of(dataset, size)
    exact = images_of(dataset, size, recipe="naive", rescale=(1.0, 0.0))
    for data, found, floats in zip(files, rounded, exact, strict=True):
        full = tf.io.decode_image(data, channels=3, expand_animations=False)
        expected = tf.image.resize(full, (size, size)).numpy()
        assert (found.shape, found.dtype) == ((size, size, 3), np.uint8)
        assert np.abs(found - expected).max() <= 0.5
        np.testing.assert_array_equal(floats, expected)


def test_deep_png_keeps_its_high_bytes(tmp_path: Path) -> None:
    """Of 16 bits a channel the upper 8 count."""
    deep = (np.arange(12 * 12, dtype=np.uint16) * 450).reshape(12, 12)
    output = io.BytesIO()
    Image.fromarray(deep).save(output, "PNG")
    (image,) = images_of(opened(tmp_path / "d", [image_payload(0, data=output.getvalue())]), 12)
    np.testing.assert_array_equal(image, np.repeat((deep >> 8)[..., None], 3, 2))


def raw_payload(pixels: Any, names: tuple[str, ...] = ("height", "width")) -> bytes:
    """Return an Example of bare pixels, as others write it, with the sides under given names."""
    sides = dict(zip(names, map(feature, pixels.shape), strict=False))
    return encode_example({"image_raw": feature(pixels.tobytes()), "label": feature(1), **sides})


@pytest.mark.parametrize("names", [("height", "width", "depth"), ("image/height", "image/width")])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_bare_pixels(names: tuple[str, ...], channels: int, tmp_path: Path) -> None:
    """Each record's pixels have its own size; gray is repeated, and alpha dropped."""
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (*size, channels), np.uint8) for size in ((9, 7), (8, 8))]
    dataset = opened(tmp_path / "d", [raw_payload(image, names) for image in images])
    for found, pixels in zip(images_of(dataset, 8), images, strict=True):
        colored = np.repeat(pixels[..., :1], 3, 2) if channels <= 2 else pixels[..., :3]
        assert np.abs(found - tf.image.resize(colored, (8, 8))).max() <= 0.5


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("resize", [(9, 10), None])
def test_raw_shards_of_our_own(
    resize: tuple[int, int] | None, metadata: bool, tmp_path: Path
) -> None:
    """What `write --encode raw` stores comes out pixel for pixel, with metadata and without."""
    source = write_class_folders(tmp_path / "photos", count=3)
    tfrtool.write(source, tmp_path / "pets", encode="raw", resize=resize)
    for path in (tmp_path / "pets").iterdir() if not metadata else ():
        if path.suffix in (".json", ".txt"):
            path.unlink()
    dataset = tfrtool.dataset(tmp_path / "pets")
    sizes = (10, 9) if metadata and resize else ("image/height", "image/width")
    assert dataset.image_form.size == sizes
    records = tf.data.TFRecordDataset([str(path) for path in dataset.split("train").shards])
    for found, record in zip(images_of(dataset, 8), records, strict=True):
        example = tf.train.Example.FromString(record.numpy()).features.feature
        stored = np.frombuffer(example["image"].bytes_list.value[0], np.uint8)
        sides = [example[f"image/{side}"].int64_list.value[0] for side in ("height", "width")]
        assert np.abs(found - tf.image.resize(stored.reshape(*sides, 3), (8, 8))).max() <= 0.5


def smooth(width: int, height: int, format_: str = "JPEG") -> bytes:
    """Return a smooth picture."""
    y, x = np.mgrid[:height, :width]
    planes = [x * 255 / width, y * 255 / height, (x + y) * 255 / (width + height)]
    return encoded(format_, pixels=np.stack(planes, -1).astype(np.uint8), quality=95)


FAST = [(31, 400, 1), (63, 63, 2), (130, 126, 4), (128, 125, 2), (301, 253, 8)]


def test_fast_decodes_large_jpegs_smaller(tmp_path: Path) -> None:
    """A JPEG is decoded at the smallest size that has 32 pixels both ways; nothing else is."""
    files = [smooth(width, height) for width, height, _ in FAST] + [smooth(300, 256, "PNG")]
    dataset = opened(tmp_path / "d", [image_payload(0, data=data) for data in files])
    fast, exact = (images_of(dataset, 32, decode=how) for how in ("fast", "exact"))
    np.testing.assert_array_equal(fast[-1], exact[-1])
    for (width, height, ratio), data, found, full in zip(FAST, files, fast, exact, strict=False):
        # The height and the width to the nearest: libjpeg rounds up.
        sides = [(side + ratio // 2) // ratio for side in (height, width)]
        shrunk = tf.io.decode_jpeg(data, 3, ratio=ratio)[: sides[0], : sides[1]]
        expected = tf.image.resize(tf.cast(shrunk, tf.float32), (32, 32)) + 0.5
        assert np.array_equal(found, tf.cast(expected, tf.uint8))
        assert np.abs(found.astype(int) - full).max() <= (12 if ratio > 1 else 0)


@pytest.mark.parametrize(("side", "ratio"), [(257, 4), (265, 8)])
def test_fast_does_not_stretch(side: int, ratio: int, tmp_path: Path) -> None:
    """Sides that are a pixel more than a multiple leave things where exact decoding has them."""
    dataset, size = (
        opened(tmp_path / "d", [image_payload(0, data=smooth(side, side))]),
        side // ratio,
    )
    fast, exact = (images_of(dataset, size, decode=how)[0] for how in ("fast", "exact"))
    # A pixel of the original is a gray level; libjpeg's last pixels reach 3 and 7 beyond it.
    difference = fast[size // 2, -8:, 0].astype(float) - exact[size // 2, -8:, 0]
    assert abs(difference.mean()) < 1.5


# A function of the user's

FUNCTIONS = """
import tensorflow as tf

def tensors(record):
    parsed = tf.io.parse_single_example(record, {
        "image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)
    })
    image = tf.io.parse_tensor(parsed["image"], tf.float32)
    image = tf.cast(tf.ensure_shape(image, [None, None, 3]) * 255 + 0.5, tf.uint8)
    return image, parsed["label"]

def vectors(record):
    image, label = tensors(record)
    return image, tf.one_hot(label, 4)

def floats(record):
    return tf.io.parse_tensor(record, tf.float32), 0

def broken(record):
    raise RuntimeError("no such thing")
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    """Return the path of a file with functions that decode records."""
    path = tmp_path / f"decode_{tmp_path.name}.py"
    path.write_text(FUNCTIONS)
    return str(path)


def tensor_payload(label: int) -> bytes:
    """Return an Example of a serialized float32 tensor."""
    tensor = tf.io.serialize_tensor((PIXELS / 255).astype(np.float32) / (1 + label)).numpy()
    return encode_example({"image": feature(tensor), "label": feature(label)})


def test_a_function_decodes_other_forms(tmp_path: Path, functions: str) -> None:
    """Images and labels are the function's, with every cache, for classes and for vectors."""
    payloads = [tensor_payload(label) for label in (2, 0, 1)]
    with pytest.raises(DatasetError, match="--decode-function FILE"):
        opened(tmp_path / "d", payloads)
    dataset = tfrtool.dataset(tmp_path / "d", decode_function=f"{functions}:tensors")
    assert dataset.class_names == ("0", "1", "2")
    assert loaded_labels(dataset).tolist() == [2, 0, 1]
    assert dataset.notes == (f"records are decoded by {functions}:tensors",)
    for options in ({}, {"cache": "disk", "cache_directory": tmp_path / "c"}):
        first, *_ = images_of(dataset, 10, **options)
        expected = tf.image.resize(np.round(PIXELS / 3), (10, 10))
        assert np.abs(first - expected).max() <= 1.5
    several = tfrtool.dataset(tmp_path / "d", decode_function=f"{functions}:vectors")
    np.testing.assert_array_equal(loaded_labels(several), np.eye(4)[[2, 0, 1]])
    clean, report = several.drop_corrupt(tmp_path / "scratch")
    assert (clean.split("train").records, report.n_skipped) == (3, 0)


def test_a_function_that_returns_something_else(tmp_path: Path, functions: str) -> None:
    """The error names the function, what it must return, and what it returns."""
    directory = write_foreign(tmp_path / "d", [[tensor_payload(0)]])
    for name, problem in {
        "floats": "floats returns the wrong types: expected uint8 .*found float32",
        "broken": "broken fails: .*no such thing",
        "absent": "no function 'absent'",
    }.items():
        with pytest.raises(UsageError, match=problem):
            tfrtool.dataset(directory, decode_function=f"{functions}:{name}")
    with pytest.raises(UsageError, match="excludes --image-feature"):
        tfrtool.dataset(directory, decode_function=len, image_feature="image")


def test_a_record_that_a_function_cannot_decode_is_named(tmp_path: Path, functions: str) -> None:
    """It is skipped on request, and its place is reported."""
    payloads = [tensor_payload(0), image_payload(0), tensor_payload(1)]
    name = f"{functions}:vectors"
    dataset = opened(tmp_path / "d", payloads, on_error="skip", decode_function=name)
    _, report = dataset.drop_corrupt(tmp_path / "scratch")
    assert [one.fault.record for one in report.skipped] == [1]


# Which features are used


def _lacking(directory: Path, **features: Feature) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        opened(directory, [encode_example(features)])
    return caught.value


def test_what_candidates_lack_is_said(tmp_path: Path) -> None:
    """An error shows what each feature is, and names the options that choose one."""
    image = feature(image_bytes())
    error = _lacking(tmp_path / "a", image=image, label=feature(0.5, 2.0))
    assert error.what == "feature 'label' can't be the label"
    assert error.expected == "int64, text or a vector of 0 and 1, or float32 for --task regression"
    assert error.found == "label: float32, 2 values"
    error = _lacking(tmp_path / "b", image=image, kind=feature(0))
    assert error.what == "can't detect the label feature"
    assert error.found == "image: string, 1 value of image/jpeg / kind: int64, 1 value"
    assert "--label-feature NAME" in str(error)
    error = _lacking(tmp_path / "c", x=feature(b"words"), label=feature(1))
    assert error.found == "label: int64, 1 value / x: string, 1 value of text"
    assert "--image-feature NAME" in str(error)


@pytest.mark.parametrize(
    "features",
    [
        {"image": feature(b"II*\0 a TIFF file"), "label": feature(1)},
        {"image": feature(bytes(range(256))), "label": feature(1)},
        {"image": feature(bytes(6)), **dict.fromkeys(("label", "height", "width"), feature(2))},
        {"picture": feature(b""), "label": feature(1)},
    ],
)
def test_unusable_images_are_refused(features: dict[str, Feature], tmp_path: Path) -> None:
    """Images that can't be decoded are an error before training starts."""
    assert "the image" in _lacking(tmp_path / "d", **features).what


def test_features_are_named(tmp_path: Path) -> None:
    """What is named is taken, whatever else there is; what can't be it says why."""
    features = {
        **{"image": feature(image_bytes()), "right": feature(image_bytes(tint=90))},
        **{"label": feature(0), "height": feature(4)},
        **{"tags": feature(b"sea", b"sky"), "score": feature(0.5)},
    }
    directory = write_foreign(tmp_path / "d", [[encode_example(features)]])
    dataset = tfrtool.dataset(directory, image_feature="right", label_feature="tags")
    assert (dataset.image_feature, dataset.label_feature) == ("right", "tags")
    assert (dataset.task.value, dataset.class_names) == ("multi-label", ("sea", "sky"))
    assert tfrtool.dataset(directory, label_feature="height").class_names == ("4",)
    for role, name in (("image", "tags"), ("label", "score"), ("label", "image")):
        with pytest.raises(DatasetError, match=f"feature '{name}' can't be the {role}"):
            tfrtool.dataset(directory, **{f"{role}_feature": name})  # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        tfrtool.dataset(directory, label_feature="tag")
    assert caught.value.hint == "did you mean 'tags'?"


TWO = [(16.0, 24.0, 80.0, 72.0, 0), (8.0, 8.0, 40.0, 48.0, 2)]


@pytest.mark.parametrize("layout", Layout)
def test_records_with_boxes(layout: Layout, tmp_path: Path) -> None:
    """Boxes alone are refused; a label of the image is used, and the objects are ignored."""
    for count in (1, 2):
        with pytest.raises(DatasetError, match="boxes but no label") as met:
            opened(tmp_path / str(count), [object_record(TWO[:count], layout=layout)] * 3)
        one = "objects/bbox" if layout is Layout.TFDS else "image/object/bbox/xmin"
        assert one in str(met.value.found)
    name = "label" if layout is Layout.TFDS else "image/class/label"
    records = [
        changed(object_record(TWO[:count], layout=layout), **{name: int64(label)})
        for count, label in ((1, 1), (2, 0), (0, 1))
    ]
    dataset = opened(tmp_path / "d", records)
    assert dataset.label_feature == name
    assert dataset.notes[-1].startswith("features of objects are ignored: ")
    assert loaded_labels(dataset).tolist() == [1, 0, 1]


# Rescaling


def test_statistics_equal_numpy() -> None:
    """Mean and deviation are those of all pixels, however they are batched."""
    images = np.random.default_rng(3).integers(0, 256, (23, 8, 6, 3), dtype=np.uint8)
    images[..., 2] = 200  # a channel without variation is divided by 255
    pairs = tf.data.Dataset.from_tensor_slices((images, np.arange(23)))
    rescale = standard_rescale(pairs.batch(7))
    assert rescale == standard_rescale(pairs.batch(3))
    pixels = images.reshape(-1, 3).astype(np.float64)
    deviation = np.where(pixels.std(0), pixels.std(0), 255)
    np.testing.assert_allclose(rescale.scale, 1 / deviation, rtol=1e-12)
    np.testing.assert_allclose(rescale.offset, -pixels.mean(0) / deviation, rtol=1e-12)
    rescaled = rescaler(rescale)(tf.constant(images)).numpy()
    np.testing.assert_allclose(rescaled.mean((0, 1, 2)), 0, atol=1e-5)
    with pytest.raises(DatasetError):
        standard_rescale(pairs.take(0).batch(3))


def test_no_drift() -> None:
    """One odd pixel among two million shows to the last digit; float32 sums would lose it."""
    white = np.full((2, 1024, 1024, 3), 255, np.uint8)
    white[0, 0, 0] = 254
    rescale = standard_rescale(tf.data.Dataset.from_tensors((white, 0)))
    count = 2 * 1024 * 1024
    scale, offset = np.array(rescale.scale), np.array(rescale.offset)
    np.testing.assert_allclose(-offset / scale, 255 - 1 / count, rtol=1e-15)
    np.testing.assert_allclose(1 / scale, np.sqrt((1 - 1 / count) / count), rtol=1e-12)


@pytest.mark.parametrize("numbers", [(1 / 255, 0.0), (1 / 127.5, -1.0), (0.017, -2.1), (1.0, 0.0)])
def test_gray_levels_are_the_same_in_any_dtype(numbers: tuple[float, float]) -> None:
    """Cached images are uint8 and others whole float32: they are equal to the last bit."""
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, -1)
    rescale = rescaler(Rescale(scale=numbers[0], offset=numbers[1]))
    found = [rescale(tf.constant(levels.astype(kind))).numpy() for kind in (np.uint8, np.float32)]
    assert found[0].tobytes() == found[1].tobytes()
