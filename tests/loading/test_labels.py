"""Labels in the forms in which people keep them, as the loader gives them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.datasets import write_foreign
from tests.loading.form_records import SIZE, feature, loaded_labels
from tests.more import more
from tests.photos import image_bytes
from tests.training.runs import planned, small_options
from tfrtool import train
from tfrtool.errors import DatasetError
from tfrtool.examples.example import Feature, Value, encode_example
from tfrtool.loading.corrupt import naming_damage
from tfrtool.loading.labels import LabelEncoding, Task
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.records.framing import frame

pytestmark = pytest.mark.tf


def labelled(values: Sequence[Value] | None, tint: int = 0, **more: Feature) -> bytes:
    """Return an Example of an image and a label of some values; None leaves the label out."""
    image = feature(image_bytes("PNG", tint=tint))
    label = {} if values is None else {"label": feature(*values)}
    return encode_example({"image": image, **label, **more})


def write_labels(directory: Path, labels: Sequence[Sequence[Value] | None]) -> Path:
    """Write records with these labels as two shards."""
    payloads = [labelled(label, 7 * number) for number, label in enumerate(labels)]
    return write_foreign(directory, [payloads[:2], payloads[2:]])


def hot(rows: Sequence[Sequence[int]], classes: int) -> Any:
    """Return the vectors, float32, of lists of classes."""
    vectors = np.zeros((len(rows), classes), np.float32)
    for vector, row in zip(vectors, rows, strict=True):
        vector[list(row)] = 1
    return vectors


FORMS: dict[str, tuple[list[Any], LabelEncoding, tuple[str, ...], Any, tuple[str, ...]]] = {
    "one-hot": (
        [(0, 1, 0), (1, 0, 0), (0, 0, 1)],
        LabelEncoding.ONE_HOT,
        ("0", "1", "2"),
        [1, 0, 2],
        ("one-hot vectors",),
    ),
    "one-hot floats": (
        [(0.0, 1.0), (1.0, 0.0), (0.0, 1.0)],
        LabelEncoding.ONE_HOT,
        ("0", "1"),
        [1, 0, 1],
        ("one-hot vectors",),
    ),
    "multi-hot": (
        [(1, 1, 0), (0, 0, 0), (0, 0, 1)],
        LabelEncoding.MULTI_HOT,
        ("0", "1", "2"),
        hot([(0, 1), (), (2,)], 3),
        ("multi-hot vectors",),
    ),
    "multi-hot floats": (
        [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0)],
        LabelEncoding.MULTI_HOT,
        ("0", "1"),
        hot([(0, 1), (1,), ()], 2),
        ("multi-hot vectors",),
    ),
    "lists": (
        [(2,), (0, 3, 3), (), (1, 0)],
        LabelEncoding.LIST,
        ("0", "1", "2", "3"),
        hot([(2,), (0, 3), (), (0, 1)], 4),
        ("lists of class numbers",),
    ),
    "lists of 0 and 1": (
        [(0, 1), (1,), (0,)],
        LabelEncoding.LIST,
        ("0", "1"),
        hot([(0, 1), (1,), (0,)], 2),
        ("lists of class numbers",),
    ),
    "lists with gaps": (
        [(90,), (4, 7), None, (7,)],
        LabelEncoding.LIST,
        ("4", "7", "90"),
        hot([(2,), (0, 1), (), (1,)], 3),
        ("lists of class numbers", "labels 4, 7, 90 are classes 0 to 2"),
    ),
    "lists of names": (
        [(b"sea", b"sky"), (b"cat",), None],
        LabelEncoding.LIST,
        ("cat", "sea", "sky"),
        hot([(1, 2), (0,), ()], 3),
        ("lists of class names",),
    ),
    "from 1": (
        [(3,), (1,), (2,), (5,), (4,)],
        LabelEncoding.CLASS,
        ("1", "2", "3", "4", "5"),
        [2, 0, 1, 4, 3],
        ("labels 1, 2, 3, 4, 5 are classes 0 to 4",),
    ),
    "gaps": (
        [(30,), (10,), (2**62,)],
        LabelEncoding.CLASS,
        ("10", "30", str(2**62)),
        [1, 0, 2],
        (f"labels 10, 30, {2**62} are classes 0 to 2",),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_labels_of_every_form(name: str, tmp_path: Path) -> None:
    """The form is told from the records; the loader gives classes, or vectors of 0 and 1."""
    values, encoding, names, expected, notes = FORMS[name]
    dataset = open_dataset(write_labels(tmp_path / "d", values))
    assert (dataset.label_form.encoding, dataset.class_names) == (encoding, names)
    assert dataset.notes == notes
    multi = np.ndim(expected) == 2
    assert dataset.task is (Task.MULTI if multi else Task.SINGLE)
    found = loaded_labels(dataset)
    assert found.dtype == (np.float32 if multi else np.int64)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", [more("one-hot"), more("multi-hot"), "lists of names"])
def test_labels_by_every_way(name: str, tmp_path: Path) -> None:
    """Caches and the published pipelines give the same labels."""
    values, _, _, expected, _ = FORMS[name]
    dataset = open_dataset(write_labels(tmp_path / "d", values))
    disk = {"cache": "disk", "cache_directory": tmp_path / "cache"}
    for options in ({"cache": "memory"}, {"batched_parse": 4}, disk, disk):
        np.testing.assert_array_equal(loaded_labels(dataset, batch_size=2, **options), expected)
    naive = dataset.load(image_size=SIZE, training=False, recipe="naive")
    np.testing.assert_array_equal(np.concatenate([one.numpy() for _, one in naive]), expected)


WRONG: dict[str, tuple[list[Any], int]] = {
    "one-hot": ([(0, 1, 0)] * 4 + [(0, 1)], 3),
    "one-hot with a 2": ([(0, 1, 0)] * 4 + [(0, 2, 0)], 3),
    "one-hot of floats": ([(0.0, 1.0, 0.0)] * 4 + [(0.0, 0.5, 0.0)], 3),
    "multi-hot": ([(0, 1, 1)] * 4 + [(0, -1, 1)], 3),
    "multi-hot without": ([(0, 1, 1)] * 4 + [None], 3),
    "lists": ([(0, 1, 4)] * 4 + [(0, -1)], 3),
    "from 1": ([(1,), (2,), (5,), (4,), (-1,)], 4),
    "names": ([(b"a",), (b"b",), (b"a", b"b"), None, (b"\xff",)], 2),
    "one class": ([(0,), (1,), (0,), (1,), None], 2),
}


_MORE = ("one-hot", "one-hot of floats", "multi-hot without", "multi-hot", "from 1", "one class")


@pytest.mark.parametrize("name", [more(name) if name in _MORE else name for name in WRONG])
def test_wrong_label_is_named_or_skipped(name: str, tmp_path: Path) -> None:
    """A label unlike the others is an error with its place; or one record is left out."""
    values, classes = WRONG[name]
    directory = write_labels(tmp_path / "d", values)
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert caught.value.path == str(max(directory.iterdir()))
    assert caught.value.record == 2
    dataset, report = open_dataset(directory, on_error="skip").drop_corrupt(tmp_path / "scratch")
    assert len(dataset.class_names) == classes
    assert [one.fault.record for one in report.skipped] == [2]
    assert len(loaded_labels(dataset)) == 4


@pytest.mark.parametrize(
    ("name", "at_once"),
    [("one-hot", None), ("multi-hot", 4), ("lists with gaps", None), ("lists of names", 4)],
)
def test_label_that_changed_since_is_named(name: str, at_once: int | None, tmp_path: Path) -> None:
    """The graph refuses a wrong label as well, and the record is named."""
    values = FORMS[name][0]
    directory = write_labels(tmp_path / "d", values)
    dataset = open_dataset(directory)
    wrong = {"one-hot": (1, 1, 0), "multi-hot": (0, 7, 0), "lists of names": (b"sky", b"dog")}
    last = max(directory.iterdir())
    write_labels(directory, [*values[:2], wrong.get(name, (4, 5)), *values[3:]])
    with pytest.raises(DatasetError) as caught, naming_damage(dataset, "train"):
        loaded_labels(dataset, batched_parse=at_once)
    assert (caught.value.path, caught.value.record) == (str(last), 0)
    assert "invalid label in feature 'label': expected" in caught.value.what
    assert "indices" not in caught.value.what


def test_names_beside_numbers(tmp_path: Path) -> None:
    """Where each number has its name in its place, classes have these names, if they are unique."""

    def classes(*records: tuple[tuple[int, ...], str]) -> tuple[str, ...]:
        payloads = []
        for numbers, names in records:
            image, texts = feature(image_bytes()), feature(*map(str.encode, names.split()))
            features = {"image/class/label": feature(*numbers), "image/class/text": texts}
            payloads.append(encode_example({"image/encoded": image, **features}))
        directory = write_foreign(tmp_path / str(records), [payloads])
        return open_dataset(directory, label_feature="image/class/label").class_names

    assert classes(((1,), "tench"), ((3,), "shark")) == ("tench", "shark")
    assert classes(((1, 3), "cat fur"), ((3,), "fur"), ((2, 1), "dog cat")) == ("cat", "dog", "fur")
    assert classes(((0,), "a"), ((0,), "b"), ((1,), "b")) == ("0", "1")
    assert classes(((0,), "a"), ((1,), "a"), ((2,), "b")) == ("0", "1", "2")


def test_lists_that_tfds_wrote(tmp_path: Path) -> None:
    """A sequence of class labels is several classes an image."""
    import tensorflow_datasets as tfds

    features = {
        "image": tfds.features.Image(shape=(9, 9, 1)),
        "label": tfds.features.Sequence(tfds.features.ClassLabel(names=["a", "b", "c"])),
    }

    class LikeTags(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc, call-arg]
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self) -> Any:
            described = tfds.features.FeaturesDict(features)
            keys = ("image", "label")
            return tfds.core.DatasetInfo(builder=self, features=described, supervised_keys=keys)

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            for number, label in enumerate((["a"], [], ["c", "b"], ["b"])):
                image = np.full((9, 9, 1), number * 8, np.uint8)
                yield number, {"image": image, "label": label}

    builder = LikeTags(data_dir=str(tmp_path))
    builder.download_and_prepare()
    dataset = open_dataset(str(builder.data_dir))
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.notes == ("lists of class numbers",)
    (images, labels), *_ = dataset.load(image_size=9, training=False, rescale=None)
    theirs = list(builder.as_dataset("train"))
    for image, label, example in zip(images, labels, theirs, strict=True):
        np.testing.assert_array_equal(image, np.broadcast_to(example["image"].numpy(), image.shape))
        assert np.flatnonzero(label).tolist() == sorted(example["label"].numpy().tolist())


def write_splits(directory: Path, **labels: Sequence[Sequence[Value] | None]) -> Path:
    """Write a shard of each split, with these labels."""
    directory.mkdir()
    for split, found in labels.items():
        payloads = [labelled(label, 7 * number) for number, label in enumerate(found)]
        (directory / f"{split}-00000-of-00001.tfrecord").write_bytes(b"".join(map(frame, payloads)))
    return directory


def test_a_split_without_labels_is_left_aside(tmp_path: Path) -> None:
    """It doesn't stop training on another split, even if it is the first, and it is noted."""
    labels: dict[str, Any] = {"train": [(2,), (7,), (2,), (7,)], "validation": [None]}
    labels["others"] = [None] * 8  # a name without a split
    folder = write_splits(tmp_path / "d", **labels)
    for feature_name in (None, "label"):
        dataset = open_dataset(folder, label_feature=feature_name)
        assert dataset.class_names == ("2", "7")
        assert dataset.unlabeled_splits == ("all", "validation")
        assert "split 'all' has no labels" in dataset.notes
        assert loaded_labels(dataset).tolist() == [0, 1, 0, 1]
    with pytest.raises(DatasetError, match="split 'validation' has no labels"):
        train(**small_options(folder, validation="validation"))
    plan = planned(**small_options(folder))
    assert (plan.train_images, plan.validation_images) == (4, 0)
    assert "split 'validation' has no labels" in plan.forms
    unknown = write_splits(tmp_path / "f", train=[(0,), (1,)], test=[(-1,), (-1,)])
    assert open_dataset(unknown).unlabeled_splits == ("test",)
    one_missing = write_splits(tmp_path / "e", train=[(2,), None], validation=[(7,)])
    with pytest.raises(DatasetError, match=r":1, .*invalid label in feature 'label'"):
        open_dataset(one_missing)


@pytest.mark.parametrize("name", ["valid", "val"])
def test_splits_that_are_validated_on(name: str, tmp_path: Path) -> None:
    """A split with another usual name for validation is used for it."""
    labels: dict[str, Any] = {"train": [(0,), (1,)], name: [(0,)]}
    plan = planned(**small_options(write_splits(tmp_path / "d", **labels)))
    assert (plan.train_images, plan.validation_images) == (2, 1)


def _flagged(directory: Path, rows: Sequence[dict[str, Value]], split: str = "train") -> Path:
    """Write records with a feature for each class."""
    directory.mkdir(exist_ok=True)
    image = feature(image_bytes("PNG"))
    payloads = [
        encode_example({"image": image, **{name: feature(value) for name, value in row.items()}})
        for row in rows
    ]
    shard = directory / f"{split}-00000-of-00001.tfrecord"
    shard.write_bytes(b"".join(map(frame, payloads)))
    return directory


def test_a_feature_for_each_class(tmp_path: Path) -> None:
    """Features of 0 and 1 that are named together are several labels, in their order."""
    rows: list[dict[str, Value]] = [
        {"tube - bad": 0, "tube": 1},
        {"tube - bad": 1, "tube": 1},
        {"tube - bad": 0, "tube": 0},
    ]
    folder = _flagged(tmp_path / "d", rows)
    _flagged(folder, [{}, {}], "test")
    dataset = open_dataset(folder, label_feature="tube,tube - bad")
    assert (dataset.task, dataset.class_names) == (Task.MULTI, ("tube", "tube - bad"))
    assert dataset.unlabeled_splits == ("test",)
    assert loaded_labels(dataset).tolist() == [[1, 0], [1, 1], [0, 0]]
    assert loaded_labels(dataset, batched_parse=4).tolist() == [[1, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("wrong", [{"a": 2, "b": 1}, {"a": 1}, {"a": 1.0, "b": 0}])
def test_a_class_that_is_neither_0_nor_1(wrong: dict[str, Value], tmp_path: Path) -> None:
    """Such a record is an error with its place, or is left out."""
    good: dict[str, Value] = {"a": 1, "b": 0}
    folder = _flagged(tmp_path / "d", [good, good, wrong, good])
    with pytest.raises(DatasetError, match=r"invalid label in feature '[ab]': expected 0 or 1"):
        open_dataset(folder, label_feature="a,b")
    found = open_dataset(folder, label_feature="a,b", on_error="skip")
    dataset, report = found.drop_corrupt(tmp_path / "scratch")
    assert [one.fault.record for one in report.skipped] == [2]
    assert loaded_labels(dataset).tolist() == [[1, 0]] * 3
