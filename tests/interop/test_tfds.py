"""What tfrtool writes, TFDS reads; what TFDS writes, tfrtool reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.photos import write_class_folders
from tfrtool.inspection.summary.shard_summary import inspect_shard
from tfrtool.loading.open_dataset import open_dataset

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def tfds() -> Any:
    """Return the tensorflow_datasets module."""
    import tensorflow_datasets

    return tensorflow_datasets


@pytest.fixture(scope="module")
def written_by_tfds(tfds: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a small dataset that TFDS itself wrote."""

    class Pets(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path_factory.mktemp("package")

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(
                    {
                        "image": tfds.features.Image(),
                        "image/filename": tfds.features.Text(),
                        "label": tfds.features.ClassLabel(names=["cat", "dog"]),
                    }
                ),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            for number in range(6):
                image = np.full((8, 9, 3), 40 * number, np.uint8)
                name = f"{number}.png"
                yield number, {"image": image, "image/filename": name, "label": number % 2}

    builder = Pets(data_dir=str(tmp_path_factory.mktemp("tfds")))
    builder.download_and_prepare()
    return Path(str(builder.data_dir))


def test_tfds_reads_what_we_write(tmp_path: Path, tfds: Any) -> None:
    """builder_from_directory gives every image with its label, its name, and the class names."""
    source = write_class_folders(tmp_path / "photos", count=10)
    dataset = tmp_path / "pets" / "2.1.0"
    report = tfrtool.write(source, dataset, splits={"train": 0.7, "test": 0.3}, shards=2)
    builder = tfds.builder_from_directory(str(dataset))
    assert (builder.info.name, str(builder.info.version)) == ("pets", "2.1.0")
    assert builder.info.features["label"].names == ["cat", "dog"]
    names = set()
    for name, split in report.splits.items():
        assert builder.info.splits[name].num_examples == split.records
        pairs = list(builder.as_dataset(split=name, as_supervised=True))
        assert len(pairs) == split.records
        assert all(image.dtype == "uint8" and image.shape[2] == 3 for image, _ in pairs)
        for example in builder.as_dataset(split=name):
            name = example["image/filename"].numpy().decode()
            assert int(example["label"]) == int(name.startswith("dog/"))
            names.add(name)
    assert len(names) == 20
    half = builder.as_dataset(split="train[:50%]")
    assert len(list(half)) == round(report.splits["train"].records / 2)


def test_metadata_is_what_tfds_would_write(tmp_path: Path, written_by_tfds: Path) -> None:
    """Our metadata has the values of TFDS' own, for the same features and records."""
    source = write_class_folders(tmp_path / "photos", count=3)
    tfrtool.write(source, tmp_path / "pets", name="pets")
    theirs = written_by_tfds
    ours = json.loads((tmp_path / "pets" / "features.json").read_text())
    # The one difference: we say that the images are JPEGs.
    image = ours["featuresDict"]["features"]["image"]["image"]
    assert image.pop("encodingFormat") == "jpeg"
    assert ours == json.loads((theirs / "features.json").read_text())
    info = json.loads((tmp_path / "pets" / "dataset_info.json").read_text())
    expected = json.loads((theirs / "dataset_info.json").read_text())
    assert info["supervisedKeys"] == expected["supervisedKeys"]
    assert info["fileFormat"] == expected["fileFormat"]
    assert set(info["splits"][0]) == set(expected["splits"][0])
    assert (tmp_path / "pets" / "label.labels.txt").read_text() == (
        theirs / "label.labels.txt"
    ).read_text()


def test_we_read_what_tfds_writes(written_by_tfds: Path) -> None:
    """A dataset of TFDS' own is inspected and opened, with its class names and counts."""
    (path,) = written_by_tfds.glob("*.tfrecord-*")
    summary = inspect_shard(path)
    assert (summary.records, summary.faults) == (6, ())
    assert [feature.name for feature in summary.features] == ["image", "image/filename", "label"]
    dataset = open_dataset(written_by_tfds)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.split("train").records == 6
    assert (dataset.image_feature, dataset.label_feature) == ("image", "label")
