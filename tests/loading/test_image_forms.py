"""Images that are no files, as TensorFlow wrote them, and which features are images and labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.datasets import write_foreign
from tests.loading.form_records import SIZE, feature, loaded_labels
from tests.photos import image_bytes
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import Feature, encode_example
from tfrtool.loading.corrupt import naming_damage
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.forms import ImageEncoding
from tfrtool.loading.labels import Task
from tfrtool.loading.open_dataset import open_dataset

pytestmark = pytest.mark.tf

PIXELS = np.random.default_rng(3).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
UNIT = (PIXELS / 255).astype(np.float32)


def image_record(image: Feature, shape: Sequence[int] = (), label: int = 0) -> bytes:
    """Return an Example of an image of some form, with the shape beside it if there is one."""
    sides = dict(zip(("height", "width", "depth"), map(feature, shape), strict=False))
    return encode_example({"image": image, "label": feature(label), **sides})


def _flat(pixels: Any) -> Feature:
    return feature(*pixels.ravel().tolist())


@pytest.mark.parametrize("element", ["uint8", "float32", "float64", "float16"])
@pytest.mark.parametrize("grey", [False, True])
def test_serialized_tensors(element: str, grey: bool, tmp_path: Path, tf: Any) -> None:
    """What tf.io.serialize_tensor wrote comes out as the pixels that went in, of any size."""
    images = [PIXELS, np.roll(PIXELS, 1)[:, :5]]
    tensors = [image[..., 0] if grey else image for image in images]
    if element != "uint8":
        tensors = [(image / 255).astype(element) for image in tensors]
    payloads = [
        image_record(feature(tf.io.serialize_tensor(image).numpy()), label=number)
        for number, image in enumerate(tensors)
    ]
    dataset = open_dataset(write_foreign(tmp_path / "d", [payloads]))
    assert dataset.image_form.encoding is ImageEncoding.TENSOR
    told = element if element == "uint8" else f"{element}, 0 to 1"
    assert dataset.notes == (f"serialized tensors of {told}",)
    assert _first_image(dataset, PIXELS[..., :1] if grey else PIXELS) <= 0.5
    assert sorted(loaded_labels(dataset)) == [0, 1]


def _first_image(dataset: Dataset, expected: Any) -> float:
    """Return how far the loader's first image is from the pixels expected, in grey levels."""
    batches = dataset.load(image_size=SIZE, training=False, rescale=None)
    image = next(iter(batches))[0][0].numpy().astype(float)
    return float(np.abs(image - expected).max())


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (UNIT, "float32, 0 to 1"),
        (UNIT * 2 - 1, "float32, -1 to 1"),
        (PIXELS.astype(np.float32), "float32, 0 to 255"),
        (PIXELS.astype(np.int64), "int64, 0 to 255"),
    ],
)
def test_arrays_of_numbers(values: Any, told: str, tmp_path: Path) -> None:
    """Numbers with a shape beside them are pixels; the range is told from them, and said."""
    payloads = [image_record(_flat(values), values.shape, label) for label in (0, 1)]
    dataset = open_dataset(write_foreign(tmp_path / "d", [payloads]))
    assert dataset.notes == (f"arrays of {told}",)
    assert _first_image(dataset, PIXELS) <= 0.5


def _bad_images(tf: Any) -> dict[str, tuple[bytes, bytes]]:
    """Return a good record and a bad one, by what is wrong."""

    def tensor(pixels: Any) -> bytes:
        return image_record(feature(tf.io.serialize_tensor(pixels).numpy()))

    def array(pixels: Any, shape: Any = None) -> bytes:
        return image_record(_flat(pixels), pixels.shape if shape is None else shape)

    proto = tf.make_tensor_proto(PIXELS)
    proto.tensor_shape.dim[0].size = 2**40
    splat = tf.make_tensor_proto(PIXELS)
    splat.tensor_content = b""
    splat.int_val.append(1)
    nothing = UNIT.copy()
    nothing[1, 1, 1] = np.nan
    good, floats = tensor(PIXELS), array(UNIT)
    return {
        "another dtype": (good, tensor(UNIT)),
        "another rank": (good, tensor(PIXELS[0])),
        "a shape that claims a terabyte": (good, image_record(feature(proto.SerializeToString()))),
        "one value for all": (good, image_record(feature(splat.SerializeToString()))),
        "no tensor": (good, image_record(feature(b"none"))),
        "too bright": (floats, array(UNIT * 3)),
        "no number": (floats, array(nothing)),
        "another shape": (floats, array(UNIT, (7, 7))),
        "below 0": (floats, array(UNIT, (-6, -6))),
        "integers": (floats, array(PIXELS.astype(np.int64))),
    }


@pytest.mark.parametrize("skip", [False, True])
def test_wrong_pixels_are_named_or_skipped(skip: bool, tmp_path: Path, tf: Any) -> None:
    """Whatever a record claims of its image, it is an error with its place, or left out."""
    for name, (good, bad) in _bad_images(tf).items():
        directory = write_foreign(tmp_path / name, [[good, bad, good]])
        dataset = open_dataset(directory, "skip" if skip else "stop")
        if skip:
            dataset, report = dataset.drop_corrupt(tmp_path / f"{name} scratch")
            assert [one.fault.record for one in report.skipped] == [1], name
            assert len(loaded_labels(dataset)) == 2
            continue
        with pytest.raises(DatasetError) as caught, naming_damage(dataset, "train"):
            loaded_labels(dataset)
        assert caught.value.record == 1, name


def _lacking(directory: Path, found: str, **features: Feature) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        open_dataset(write_foreign(directory, [[encode_example(features)]]))
    assert str(caught.value.found) == found
    return caught.value


def test_what_candidates_lack_is_said(tmp_path: Path) -> None:
    """An error has a clause for each feature that could be meant, and the option that names one."""
    image = feature(image_bytes())
    error = _lacking(
        tmp_path / "a",
        "label: float32, 2 values; needs int64 or string",
        image=image,
        label=feature(0.5, 2.0),
    )
    assert "--label-feature NAME" in str(error)
    error = _lacking(
        tmp_path / "b",
        "label: int64, 1 value; needs string / other: int64, 70 values; needs string, or its "
        "height and width in int64 features or features.json / "
        "x: 5 bytes of text data; needs a JPEG, PNG, GIF, BMP or WebP "
        "file, a serialized tensor, or uint8 pixels with a height and width in each record or in "
        "features.json",
        x=feature(b"words"),
        label=feature(1),
        other=feature(*range(70)),
    )
    assert "--image-feature NAME" in str(error)
    many = {f"n{number}": feature(number) for number in range(8)}
    found = " / ".join(f"n{number}: int64, 1 value; possible" for number in range(6))
    _lacking(tmp_path / "c", found, image=image, **many)


def test_features_are_named(tmp_path: Path) -> None:
    """What is named is taken, whatever else there is; what can't be it says why."""
    record = encode_example(
        {
            "image": feature(image_bytes()),
            "right": feature(image_bytes(tint=90)),
            "label": feature(0),
            "height": feature(4),
            "tags": feature(b"sea", b"sky"),
            "score": feature(0.5),
        }
    )
    directory = write_foreign(tmp_path / "d", [[record]])
    dataset = open_dataset(directory, image_feature="right", label_feature="tags")
    assert (dataset.image_feature, dataset.label_feature) == ("right", "tags")
    assert (dataset.task, dataset.class_names) == (Task.MULTI, ("sea", "sky"))
    assert open_dataset(directory, label_feature="height").class_names == ("4",)
    for role, name, lack in (
        ("image", "tags", "string, 2 values; needs one"),
        ("label", "score", "float32, 1 value; needs int64 or string"),
        ("label", "image", "the image feature"),
    ):
        with pytest.raises(DatasetError, match=f"feature '{name}' can't be the {role}") as odd:
            open_dataset(directory, **{f"{role}_feature": name})
        assert odd.value.found == lack
    with pytest.raises(UsageError) as caught:
        open_dataset(directory, label_feature="tag")
    assert caught.value.hint == "did you mean 'tags'?"
