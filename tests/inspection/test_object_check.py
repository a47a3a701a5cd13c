"""What verify finds in objects: boxes, classes, lists of other lengths, sizes of images."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeShard
from tests.emulators import Bucket
from tests.examples.strategies import float32, int64, string
from tests.objects_written import changed, name_classes, object_record
from tests.records.strategies import offsets_of
from tfrtool.examples.objects.label_map import label_map_text, object_names
from tfrtool.examples.objects.record_features import Layout
from tfrtool.examples.roles import LabelNames
from tfrtool.inspection.verify.verify import verify
from tfrtool.records.framing import FaultKind
from tfrtool.storage.remote_path import remote_path

TWO = [(16, 24, 80, 72, 0), (8, 8, 40, 48, 2)]
XMIN, XMAX = "image__object__bbox__xmin", "image__object__bbox__xmax"
LABEL, TEXT = "image__object__class__label", "image__object__class__text"


@pytest.mark.parametrize("layout", Layout)
def test_sound_objects_have_no_faults(layout: Layout, make_shard: MakeShard) -> None:
    """Records as they are written are sound, with their images and class names or without."""
    fields = {"area": 12.0, "crowd": True, "keypoints": (1.0, 2.0, 2.0), "segmentation": "[]"}
    records = [object_record(TWO, layout=layout), object_record([], layout=layout)]
    records.append(object_record(TWO, layout=layout, optional=fields, masks=[b"a", b"b"]))
    path = make_shard(records)
    assert verify([path], images=False).is_sound
    name_classes(path.parent, layout)
    assert verify([path]).is_sound


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({XMIN: float32(-0.5, 0.05)}, "object 0: box (-0.5, 0.2, 0.5, 0.6) extends outside"),
        ({XMIN: float32(0.1, 0.9)}, "object 1: box (0.9, 0.0666667, 0.25, 0.4) is inverted"),
        ({XMIN: float32(0.5, 0.05)}, "object 0: box (0.5, 0.2, 0.5, 0.6) is empty"),
        ({XMAX: float32(0.5, math.nan)}, "object 1: box is not four finite numbers"),
        ({XMAX: float32(0.5)}, "xmin 2, ymin 2, xmax 1, ymax 2"),
        ({XMAX: int64(1, 1)}, "is int64, not float32"),
        ({LABEL: int64(1)}, "'image/object/class/label' has 1 values for 2 boxes"),
        ({LABEL: int64(1, 0)}, "object 1: class number 0 is not in the label map"),
        ({LABEL: int64(1, 2)}, "class 2 is 'dog' in the label map, not 'traffic light'"),
        ({TEXT: string(b"cat", b"lamp")}, "is 'traffic light' in the label map, not 'lamp'"),
        ({"image__object__is_crowd": int64(0, 0, 1)}, "has 3 values for 2 boxes"),
    ],
)
def test_what_is_wrong_is_told(
    features: dict[str, Any], message: str, make_shard: MakeShard
) -> None:
    """A record's objects are one fault: with the file, the record and its offset."""
    sound = object_record(TWO)
    payloads = [sound, changed(sound, **features), sound]
    path = make_shard(payloads)
    name_classes(path.parent)
    (verdict,) = verify([path]).shards
    (fault,) = verdict.faults
    assert (fault.kind, fault.record) == (FaultKind.PARSE, 1)
    assert fault.offset == offsets_of(payloads)[1]
    assert message in fault.message
    assert verdict.n_faults == 1


def test_tfds_layout_and_its_names(make_shard: MakeShard) -> None:
    """Boxes of fours and numbers from 0 are held against TFDS' file of names."""
    sound = object_record(TWO, layout=Layout.TFDS)
    path = make_shard(
        [
            changed(sound, objects__label=int64(0, 3)),
            changed(sound, objects__bbox=float32(0.5, 0.1, 0.2, 0.3, 0, 0, 1, 1)),
            changed(sound, objects__bbox=float32(0, 0, 1, 1, 0.5)),
        ]
    )
    name_classes(path.parent, Layout.TFDS)
    (verdict,) = verify([path]).shards
    told = [fault.message for fault in verdict.faults]
    assert told[0] == "object 1: class number 3 is not in the label map"
    assert told[1] == "object 0: box (0.1, 0.5, 0.3, 0.2) is inverted"
    assert told[2].startswith("'objects/bbox' has 5 values")


def test_sizes_are_those_of_images(make_shard: MakeShard) -> None:
    """With images, another size than the image's is a fault; the image itself stays checked."""
    sound = object_record(TWO)
    turned = changed(sound, image__width=int64(120), image__height=int64(160))
    broken = changed(turned, image__encoded=string(b"\x89PNG\r\n\x1a\n cut"))
    path = make_shard([sound, turned, broken])
    assert verify([path]).is_sound
    (verdict,) = verify([path], images=True).shards
    assert [fault.record for fault in verdict.faults] == [1, 2]
    message = verdict.faults[0].message
    assert message.index("120 x 160") < message.index("160 x 120")
    assert "feature 'image/encoded'" in verdict.faults[1].message


def test_other_names_of_label_maps(tmp_path: Path, bucket: Bucket) -> None:
    """Roboflow's CELLS_label_map.pbtxt is found like label_map.pbtxt, in folders of splits too."""
    for name, folder in (("cells_label_map.pbtxt", "a/train"), ("tf_label_map.pbtxt", "b")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(label_map_text({1: name}))
        assert object_names(tmp_path / folder) == {1: name}
    assert object_names(tmp_path / "a") == {1: "cells_label_map.pbtxt"}
    assert LabelNames.read(tmp_path / "b", "image/class/label").names == ("", "tf_label_map.pbtxt")
    bucket.put_folder(tmp_path, "maps/")
    stored = remote_path(f"{bucket.url}/maps")
    assert object_names(stored / "a") == {1: "cells_label_map.pbtxt"}
    assert LabelNames.read(stored / "b", "image/class/label").names == ("", "tf_label_map.pbtxt")
    (tmp_path / "b" / "label_map.pbtxt").write_text(label_map_text({1: "usual"}))
    assert object_names(tmp_path / "b") == {1: "usual"}
    (tmp_path / "a" / "train" / "b_label_map.pbtxt").write_text(label_map_text({1: "other"}))
    assert object_names(tmp_path / "a") == {}
