"""Records with objects: the image with its single label is used, and what is not is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.datasets import write_foreign
from tests.examples.strategies import int64
from tests.loading.form_records import loaded_labels
from tests.objects_written import changed, object_record
from tfrtool.errors import DatasetError
from tfrtool.examples.objects.record_features import Layout
from tfrtool.loading.open_dataset import open_dataset

pytestmark = pytest.mark.tf
TWO = [(16.0, 24.0, 80.0, 72.0, 0), (8.0, 8.0, 40.0, 48.0, 2)]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("layout", Layout)
def test_boxes_alone_are_refused(layout: Layout, count: int, tmp_path: Path) -> None:
    """Without a label of the image the error names the features, also where there is one box."""
    records = [object_record(TWO[:count], layout=layout)] * 3
    with pytest.raises(DatasetError, match="boxes but no label") as met:
        open_dataset(write_foreign(tmp_path / "d", [records]))
    one = "objects/bbox" if layout is Layout.TFDS else "image/object/bbox/xmin"
    assert one in str(met.value.found)


@pytest.mark.parametrize("layout", Layout)
def test_the_label_beside_boxes_is_used(layout: Layout, tmp_path: Path) -> None:
    """The image's own label is taken, and the objects are said to be left aside."""
    name = "label" if layout is Layout.TFDS else "image/class/label"
    records = [
        changed(object_record(TWO[:count], layout=layout), **{name: int64(label)})
        for count, label in ((1, 1), (2, 0), (0, 1))
    ]
    dataset = open_dataset(write_foreign(tmp_path / "d", [records]))
    assert dataset.label_feature == name
    assert dataset.notes[-1].startswith("features of objects are ignored: ")
    assert loaded_labels(dataset, split="train").tolist() == [1, 0, 1]
