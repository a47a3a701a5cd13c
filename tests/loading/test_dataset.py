"""Opening a directory of shards."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tests.more import more
from tests.photos import image_bytes
from tfrtool.cli import main
from tfrtool.errors import CorruptShardError, DatasetError, ShardError, UsageError
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.loading.decoding import decoder
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import LoadOptions
from tfrtool.records.compression import Compression
from tfrtool.records.framing import frame

pytestmark = pytest.mark.tf


def test_our_dataset(tmp_path: Path) -> None:
    """Name, splits, counts, features and class names come from the metadata."""
    dataset = open_dataset(write_pets(tmp_path))
    assert (dataset.name, dataset.class_names) == ("pets", ("cat", "dog"))
    assert (dataset.image_feature, dataset.label_feature) == ("image", "label")
    assert sum(split.records for split in dataset.splits.values()) == 20
    assert all(len(split.shards) == 2 for split in dataset.splits.values())


def test_shards_without_metadata(tmp_path: Path) -> None:
    """All shards are one split, classes are numbered; a label without a usual name is named."""
    payloads = [image_payload(label, image="pic", target="kind") for label in (0, 3, 1)]
    folder = write_foreign(tmp_path / "d", [payloads, payloads[:1]])
    with pytest.raises(DatasetError, match=r"kind: int64, 1 value / pic.*--label-feature"):
        open_dataset(folder)
    dataset = open_dataset(folder, label_feature="kind")
    assert dataset.split("train").records == 4
    assert dataset.class_names == ("0", "1", "3")
    assert dataset.notes == ("labels 0, 1, 3 are classes 0 to 2",)
    assert (dataset.image_feature, dataset.label_feature) == ("pic", "kind")


def test_a_pattern_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A quoted pattern names the shards to open, train and evaluate on; others are left out."""
    for name in ("train00-3", "train01-3", "test00-3"):
        target = "label" if name.startswith("train") else "id"
        payloads = [image_payload(n % 2, target=target) for n in range(3)]
        folder = write_foreign(tmp_path / "d" / name, [payloads])
        next(folder.iterdir()).rename(tmp_path / "d" / f"{name}.tfrec")
    pattern = str(tmp_path / "d" / "train*.tfrec")
    dataset = open_dataset(pattern)
    assert (dataset.directory, dataset.split("train").records) == (tmp_path / "d", 6)
    assert os.fspath(dataset) == pattern
    monkeypatch.chdir(tmp_path)
    words = ["--model", "cnn", "--image-size", "32", "--trainable", "head", "--epochs", "1"]
    words += ["--on-error", "skip", "--out", "run"]
    assert main(["train", "d/train*.tfrec", *words]) == 0
    assert "6 for training" in capfd.readouterr().out
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["dataset"] == pattern
    assert main(["evaluate", "run", "d/train00*", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["images"] == 3
    with pytest.raises(ShardError, match=r"nothing\*"):
        open_dataset("d/nothing*")


def test_a_list_of_shards(tmp_path: Path) -> None:
    """Files are opened, trained and evaluated on as one dataset, and verified without others."""
    folder = write_foreign(tmp_path / "d", [[image_payload(n) for n in (0, 1, 1)]] * 3)
    *files, other = sorted(folder.iterdir())
    flip_bit(other, 0)
    dataset = open_dataset(files)
    assert (dataset.directory, dataset.split("train").shards) == (folder, tuple(files))
    assert [shard.path for shard in dataset.verify().shards] == files
    words: dict[str, Any] = {"model": "cnn", "image_size": 32, "trainable": "head"}
    words["out"] = tmp_path / "run"
    assert tfrtool.train(map(str, files), **words, epochs=1).plan.train_images == 6
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["dataset"] == [str(file) for file in files]
    with pytest.raises(UsageError, match="pass DATASET again"):
        tfrtool.train(out=words["out"], resume=True)
    report = tfrtool.train(dataset, out=words["out"], resume=True, epochs=2)
    assert [epoch.epoch for epoch in report.epochs] == [1, 2]
    assert tfrtool.evaluate(words["out"], files[:1]).images == 3
    with pytest.raises(UsageError, match="Dataset"):
        tfrtool.inspect_dataset(dataset)
    with pytest.raises(UsageError, match="empty"):
        open_dataset([])


def test_compressed_shards(tmp_path: Path) -> None:
    """Compression is told from the bytes, for the whole split."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0), image_payload(1)]])
    (path,) = directory.iterdir()
    path.write_bytes(gzip.compress(path.read_bytes()))
    split = open_dataset(directory).split("train")
    assert (split.compression, split.records) == (Compression.GZIP, 2)


def test_mixed_compression_is_an_error(tmp_path: Path) -> None:
    """TensorFlow reads one kind at a time: a mixed split is refused, not misread."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0)], [image_payload(1)]])
    path = min(directory.iterdir())
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DatasetError, match="gzip, none"):
        open_dataset(directory)


def test_missing_shard_is_an_error(tmp_path: Path) -> None:
    """TensorFlow would read the rest in silence; the missing file is named."""
    directory = write_pets(tmp_path)
    missing = directory / "pets-train.tfrecord-00001-of-00002"
    missing.unlink()
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert caught.value.path == str(missing)


def test_shard_cut_between_records_is_an_error(tmp_path: Path) -> None:
    """A shard that lost whole records is whole to TensorFlow; the metadata tells otherwise."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0)]])
    shard = write_pets(tmp_path / "p") / "pets-train.tfrecord-00000-of-00002"
    shard.write_bytes(next(directory.iterdir()).read_bytes())
    with pytest.raises(DatasetError) as caught:
        open_dataset(shard.parent)
    assert (caught.value.path, caught.value.found) == (str(shard), 1)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"name": "x"}', '{"name": 1, "splits": [{"shardLengths": ["a"]}]}']
)
def test_malformed_metadata_is_an_error(text: str, tmp_path: Path) -> None:
    """Whatever dataset_info.json holds, the error names it."""
    directory = write_pets(tmp_path)
    (directory / "dataset_info.json").write_text(text)
    with pytest.raises(DatasetError):
        open_dataset(directory)


def test_hostile_names_in_metadata_are_refused(tmp_path: Path) -> None:
    """A dataset's name with a path in it leads nowhere."""
    directory = write_pets(tmp_path)
    path = directory / "dataset_info.json"
    info = json.loads(path.read_text()) | {"name": "../../etc/passwd"}
    path.write_text(json.dumps(info))
    with pytest.raises((DatasetError, UsageError)):
        open_dataset(directory)


@pytest.mark.parametrize("layout", ["missing", "file", "empty", "no-records", "no-images"])
def test_no_dataset_is_an_error(layout: str, tmp_path: Path) -> None:
    """What is no directory of image shards is refused, and named."""
    path = tmp_path / "d"
    if layout == "file":
        path.write_text("x")
    elif layout == "empty":
        path.mkdir()
    elif layout == "no-records":
        write_foreign(path, [[]])
    elif layout == "no-images":
        write_foreign(path, [[encode_example({})]])
    with pytest.raises(DatasetError) as caught:
        open_dataset(path)
    assert caught.value.path is not None


def test_unknown_split_names_those_there_are(tmp_path: Path) -> None:
    """The error for a split that isn't there lists the others."""
    dataset = open_dataset(write_pets(tmp_path))
    with pytest.raises(UsageError) as caught:
        dataset.split("test")
    assert caught.value.expected == "train or validation"


def test_label_that_is_no_class_is_named(tmp_path: Path) -> None:
    """Without class names, a negative label is an error with its record."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0), image_payload(-1)]])
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert caught.value.record == 1


def test_payload_damage_is_named_while_classes_are_counted(tmp_path: Path) -> None:
    """Where the records must tell the classes, a damaged one is an error, and not left out."""
    first = image_payload(0)
    directory = write_foreign(tmp_path / "d", [[first, image_payload(1)]])
    (path,) = directory.iterdir()
    flip_bit(path, len(first) + 16 + 40)
    with pytest.raises(CorruptShardError) as caught:
        open_dataset(directory)
    assert (caught.value.record, caught.value.offset) == (1, len(first) + 16)


def _example(**features: int | bytes) -> bytes:
    """Return an Example of single values; two underscores in a name are a slash."""
    return encode_example(
        {
            name.replace("__", "/"): Feature(
                dtype=DType.STRING if isinstance(value, bytes) else DType.INT64, values=(value,)
            )
            for name, value in features.items()
        }
    )


def _write_named(directory: Path, shards: dict[str, list[bytes]]) -> Path:
    directory.mkdir()
    for name, payloads in shards.items():
        (directory / name).write_bytes(b"".join(map(frame, payloads)))
    return directory


def test_labels_from_one_with_names_beside_them(tmp_path: Path) -> None:
    """As TensorFlow's models have ImageNet: the names beside the numbers name the classes."""
    tench, shark = (
        _example(image__encoded=image_bytes(), image__class__label=label, image__class__text=text)
        for label, text in ((1, b"tench"), (3, b"shark"))
    )
    shards = {
        "train-00000-of-00002": [tench, shark],
        "train-00001-of-00002": [tench],
        "validation-00000-of-00001": [shark],
    }
    dataset = open_dataset(_write_named(tmp_path / "d", shards))
    assert dataset.class_names == ("tench", "shark")
    assert dataset.notes == ("labels 1, 3 are classes 0 to 1",)
    assert {name: split.records for name, split in dataset.splits.items()} == {
        "train": 3,
        "validation": 1,
    }
    assert (dataset.image_feature, dataset.label_feature) == ("image/encoded", "image/class/label")


def test_names_instead_of_numbers(tmp_path: Path) -> None:
    """A label that is text is one of the sorted names."""
    payloads = [
        _example(image=image_bytes(), label=name)
        for name in (b"dog", b"cat", "\xe4ffchen".encode())
    ]
    dataset = open_dataset(write_foreign(tmp_path / "d", [payloads]))
    assert dataset.label_form.dtype is DType.STRING
    assert dataset.class_names == ("cat", "dog", "\xe4ffchen")


def test_number_of_classes_is_believed(tmp_path: Path) -> None:
    """features.json says how many classes there are, so that the records need not be read."""
    directory = write_pets(tmp_path)
    (directory / "label.labels.txt").unlink()
    path = directory / "features.json"
    content = json.loads(path.read_text())
    content["featuresDict"]["features"]["label"]["classLabel"]["numClasses"] = "5"
    path.write_text(json.dumps(content))
    assert open_dataset(directory).class_names == ("0", "1", "2", "3", "4")


def test_shard_that_the_names_count_is_missing(tmp_path: Path) -> None:
    """Without metadata the names tell which shard is not there."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0)], [image_payload(1)]])
    missing = max(directory.iterdir())
    missing.unlink()
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert caught.value.path == str(missing)
    assert open_dataset(directory, on_error="skip").split("train").records == 1


def test_shards_of_two_writes_are_refused(tmp_path: Path) -> None:
    """Shards that an earlier write left behind would come twice."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0)], [image_payload(1)]])
    (directory / "part-00000-of-00001.tfrecord").write_bytes(frame(image_payload(0)))
    with pytest.raises(DatasetError, match=r"00001\.tfrecord and .*00002\.tfrecord"):
        open_dataset(directory)


def test_empty_shards_are_not_read(tmp_path: Path) -> None:
    """A file without records belongs to no split that is trained on."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0)], [], [image_payload(1)]])
    assert [path.stat().st_size > 0 for path in open_dataset(directory).split("train").shards] == [
        True,
        True,
    ]


@pytest.fixture(scope="module")
def tfds(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the tensorflow_datasets module, with the datasets of this file registered."""
    import tensorflow_datasets

    _define(tensorflow_datasets, tmp_path_factory.mktemp("package"))
    return tensorflow_datasets


def _define(tfds: Any, package: Path) -> None:
    features = tfds.features

    class Base(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc, call-arg]
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = package
        FEATURES: Any = None
        SHAPE = (9, 9, 3)
        DTYPE: Any = np.uint8

        def _info(self) -> Any:
            dictionary = features.FeaturesDict(self.FEATURES)
            keys = ("image", "label")
            return tfds.core.DatasetInfo(builder=self, features=dictionary, supervised_keys=keys)

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples(4), "test": self._generate_examples(2)}

        def _generate_examples(self, count: int) -> Any:
            for number in range(count):
                image = np.full(self.SHAPE, number * 8, self.DTYPE)
                yield number, {"image": image, "label": number % 2}

    class LikeHorsesOrHumans(Base):
        FEATURES = {  # noqa: RUF012
            "image": features.Image(shape=(9, 9, 3)),
            "label": features.ClassLabel(names=["horses", "humans"]),
        }

    class LikeMnist(Base):
        SHAPE = (9, 9, 1)
        FEATURES = {  # noqa: RUF012
            "image": features.Image(shape=(9, 9, 1)),
            "label": features.ClassLabel(num_classes=10),
        }

    class LikePixels(Base):
        FEATURES = {  # noqa: RUF012
            "image": features.Tensor(shape=(9, 9, 3), dtype=np.uint8, encoding="bytes"),
            "label": features.ClassLabel(num_classes=2),
        }

    class LikeDepths(Base):
        SHAPE = (9, 9, 1)
        DTYPE = np.float32
        FEATURES = {  # noqa: RUF012
            "image": features.Image(shape=(9, 9, 1), dtype=np.float32),
            "label": features.ClassLabel(num_classes=2),
        }


def _prepare(tfds: Any, name: str, data_dir: Path) -> Path:
    builder = tfds.builder(name, data_dir=str(data_dir))
    builder.download_and_prepare()
    return Path(os.fspath(builder.data_dir))


@pytest.mark.parametrize(
    ("name", "classes", "size"),
    [
        more("like_horses_or_humans", ("horses", "humans"), ()),
        ("like_mnist", tuple("0123456789"), ()),
        ("like_pixels", ("0", "1"), (9, 9)),
    ],
)
def test_datasets_that_tfds_wrote(
    name: str, classes: tuple[str, ...], size: tuple[int, ...], tfds: Any, tf: Any, tmp_path: Path
) -> None:
    """Splits, classes and pixels are those that TFDS itself reads."""
    directory = _prepare(tfds, name, tmp_path)
    dataset = open_dataset(directory)
    assert dataset.class_names == classes
    assert dataset.image_form.size == size
    assert {name: split.records for name, split in dataset.splits.items()} == {
        "train": 4,
        "test": 2,
    }
    paths = [os.fspath(path) for path in dataset.split("train").shards]
    ours = list(tf.data.TFRecordDataset(paths).map(decoder(dataset, LoadOptions(image_size=9))))
    options = tfds.ReadConfig(interleave_cycle_length=1)
    theirs = tfds.builder_from_directory(directory).as_dataset("train", read_config=options)
    for (image, label), example in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(image, np.broadcast_to(example["image"].numpy(), image.shape))
        assert int(label) == int(example["label"])


def test_depths_of_tfds_are_refused(tfds: Any, tmp_path: Path) -> None:
    """Floats that TFDS keeps as the bytes of colors are not taken for a picture."""
    with pytest.raises(DatasetError, match="'image' can't be the image"):
        open_dataset(_prepare(tfds, "like_depths", tmp_path))


def test_mnist_as_it_is_published(shared_data: Path) -> None:
    """A shard of TFDS without its metadata: one split by its name, ten classes by its records."""
    dataset = open_dataset(shared_data / "tfrecord" / "tfds_mnist")
    assert dataset.class_names == tuple("0123456789")
    assert dataset.split("test").records == 10_000
