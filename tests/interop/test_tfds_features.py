"""A features.json made from shards alone: TFDS reads them with it, and finds what they hold."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.examples.strategies import UNSET, entry, float32, int64, raw_example, string
from tests.inspection.real_files import payloads_of
from tfrtool.examples.example import Feature, decode_example, encode_example
from tfrtool.examples.schema_fold import SchemaFold
from tfrtool.examples.tfds_features import TfdsFeatures, tfds_features
from tfrtool.examples.tfds_metadata import DatasetInfo, SplitInfo
from tfrtool.records.framing import frame


@pytest.fixture(scope="module")
def tfds() -> Any:
    """Return the tensorflow_datasets module."""
    import tensorflow_datasets

    return tensorflow_datasets


def described(payloads: list[bytes], *, labels: bool = True) -> TfdsFeatures:
    """Return the TFDS features of some records."""
    fold = SchemaFold(values=True)
    for payload in payloads:
        assert fold.add_payload(payload)
    return tfds_features(fold.features(), fold.records, labels=labels)


def read_by_tfds(tfds: Any, directory: Path, payloads: list[bytes], content: Any) -> list[Any]:
    """Write records with a features.json as a dataset, and return what TFDS reads."""
    directory = directory / "made" / "1.0.0"
    directory.mkdir(parents=True)
    shard = directory / "made-train.tfrecord-00000-of-00001"
    shard.write_bytes(b"".join(map(frame, payloads)))
    split = SplitInfo(name="train", shard_lengths=(len(payloads),), bytes=1)
    info = DatasetInfo(name="made", version="1.0.0", splits=(split,)).to_json()
    del info["supervisedKeys"]
    (directory / "dataset_info.json").write_text(json.dumps(info))
    (directory / "features.json").write_text(json.dumps(content))
    builder = tfds.builder_from_directory(directory)
    return list(builder.as_dataset(split="train", shuffle_files=False).as_numpy_iterator())


def picture(number: int, form: str, mode: str) -> bytes:
    """Return an image of a size of its own."""
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(number).integers(0, 256, (4 + number, 5, *channels), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def features_of(content: Any) -> dict[str, str]:
    """Return the classes of features by name."""
    features = content["featuresDict"]["features"]
    return {name: item["pythonClassName"].rpartition(".")[2] for name, item in features.items()}


@pytest.mark.tf
def test_any_name(tfds: Any, tmp_path: Path) -> None:
    """Names with control characters, spaces and a byte order mark are read under themselves."""
    record = {"a\tb": int64(1), "\ufeffid": int64(2), "\x1b[31m": int64(3), "a\xa0b": int64(4)}
    payloads = [encode_example(record)] * 2
    read = read_by_tfds(tfds, tmp_path, payloads, described(payloads).content)
    assert [dict(found) for found in read] == [{n: v.values[0] for n, v in record.items()}] * 2


def test_every_sort_of_feature(tf: Any, tfds: Any, tmp_path: Path) -> None:
    """Images, texts, labels, vectors, lists of any length and missing values are read as stored."""
    records: list[dict[str, Feature]] = []
    for n in range(4):
        record = {
            "photo": string(picture(n, "jpeg", "RGB")),
            "gray": string(picture(n, "png", "L")),
            "alpha": string(picture(n, "png", "RGBA")),
            "frames": string(*(picture(k, "png", "RGB") for k in range(n))),
            "name": string(f"im {n} \xfc".encode()),
            "blob": string(bytes([255, n])),
            "image/label": int64(n % 3),
            "sparse_label": int64(10 * n),
            "weight": float32(n / 4),
            "box": float32(0.5, n, 1.0, 2.0),
            "ids": int64(*range(n)),
            "words": string(*[b"a", b"\xff"][: n % 3]),
            "never": UNSET,
        }
        if n % 2:
            record["maybe"] = int64(n)
        records.append(record)
    payloads = [encode_example(record) for record in records]
    made = described(payloads)
    assert made.skipped == {}
    assert features_of(made.content) == {
        "photo": "Image", "gray": "Image", "alpha": "Image", "frames": "Sequence", "name": "Text",
        "blob": "Scalar", "image/label": "ClassLabel", "sparse_label": "Scalar",
        "weight": "Scalar", "box": "Tensor", "ids": "Sequence", "words": "Sequence",
        "never": "Sequence", "maybe": "Sequence",
    }  # fmt: skip
    read = read_by_tfds(tfds, tmp_path, payloads, made.content)
    assert len(read) == len(records)
    for record, found in zip(records, read, strict=True):
        for name in ("photo", "gray", "alpha"):
            pixels = tf.io.decode_image(record[name].values[0]).numpy()
            assert np.array_equal(found[name], pixels), name
        for name in ("name", "blob", "image/label", "sparse_label", "weight"):
            assert found[name] == record[name].values[0]
        for name in ("box", "ids", "words", "frames", "maybe", "never"):
            values = record[name].values if name in record else ()
            assert found[name].tolist() == list(values), name


@pytest.mark.tf
def test_ragged_lists(tfds: Any, tmp_path: Path) -> None:
    """Lists of lists in the layout of TFDS are nested."""
    records = [
        {
            "x/ragged_flat_values": int64(*range(n)),
            "x/ragged_row_lengths_0": int64(n - 1, 1),
            "y/ragged_row_lengths_0": int64(1, 1),
            "z": int64(n),
        }
        for n in (1, 3)
    ]
    payloads = [encode_example(record) for record in records]
    made = described(payloads)
    names = ["x", "y/ragged_row_lengths_0", "z"]
    assert sorted(made.content["featuresDict"]["features"]) == names
    read = read_by_tfds(tfds, tmp_path, payloads, made.content)
    assert [[row.tolist() for row in found["x"]] for found in read] == [[[], [0]], [[0, 1], [2]]]
    assert read[0]["y/ragged_row_lengths_0"].tolist() == [1, 1]


@pytest.mark.tf
def test_deep_png(tfds: Any, tmp_path: Path) -> None:
    """16 bits a channel stay 16."""
    buffer = io.BytesIO()
    pixels = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000
    Image.fromarray(pixels).save(buffer, "png")
    payloads = [encode_example({"depth": string(buffer.getvalue()), "y": int64(1)})]
    (found,) = read_by_tfds(tfds, tmp_path, payloads, described(payloads).content)
    assert found["depth"][..., 0].tolist() == pixels.tolist()


@pytest.mark.tf
def test_what_tfds_can_not_hold_is_named(tfds: Any, tmp_path: Path) -> None:
    """Conflicts of type, feature lists and names that are not UTF-8 are skipped with a reason."""
    payloads = [
        raw_example(
            [entry(b"x", value), entry(b"ok", int64(1)), entry(b"caf\xe9", int64(1))], lists
        )
        for value, lists in ((int64(1), {b"steps": [int64(1)]}), (float32(1.0), {}))
    ]
    made = described(payloads)
    assert sorted(made.skipped) == ["caf\udce9", "steps", "x"]
    assert "int64 and float32" in made.skipped["x"] or "float32 and int64" in made.skipped["x"]
    read = read_by_tfds(tfds, tmp_path, payloads, made.content)
    assert [found["ok"] for found in read] == [1, 1]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("label", [0, 1, 2], "ClassLabel"),
        ("image/class/label", [0, 1], "ClassLabel"),
        ("labelled_at", [0, 1], "Scalar"),
        ("label", [1, 2], "Scalar"),
        ("label", [0, 2], "Scalar"),
        ("label", [0, 0], "Scalar"),
        ("rank", [0, 1], "Scalar"),
    ],
)
def test_class_labels(name: str, values: list[int], expected: str) -> None:
    """An int64 is a class where it is called so and counts from 0 without gaps."""
    payloads = [encode_example({name: int64(value)}) for value in values]
    assert features_of(described(payloads).content) == {name: expected}
    assert features_of(described(payloads, labels=False).content) == {name: "Scalar"}


def test_image_among_others_is_no_image() -> None:
    """Where one record holds something else, the bytes are read as bytes."""
    png = picture(0, "png", "L")
    for other in (b"", b"text", b"GIF89a"):
        payloads = [encode_example({"image": string(value)}) for value in (png, other)]
        assert features_of(described(payloads).content) == {"image": "Scalar"}


def test_mnist(tf: Any, tfds: Any, shared_data: Path, tmp_path: Path) -> None:
    """The digits that TFDS wrote are read as what they are: 28 x 28 x 1, ten classes."""
    path = shared_data / "tfrecord/tfds_mnist/mnist-test.tfrecord-00000-of-00001"
    payloads = payloads_of(path, 500)
    made = described(payloads)
    read = read_by_tfds(tfds, tmp_path, payloads, made.content)
    assert features_of(made.content) == {"image": "Image", "label": "ClassLabel"}
    for payload, found in zip(payloads, read, strict=True):
        features = decode_example(payload).features
        assert np.array_equal(found["image"], tf.io.decode_png(features["image"].values[0]))
        assert found["image"].shape == (28, 28, 1)
        assert found["label"] == features["label"].values[0]
