"""One read of a dataset finds what the commands find one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import flip_bit, image_payload
from tests.objects_written import object_record
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.inspection.profile_dataset import profile_dataset


@pytest.fixture
def folder(make_shard: MakeShard) -> Path:
    """Return a dataset with damage, duplicate images, objects, and payloads of another kind."""
    for split, count in (("train", 90), ("test", 9)):
        records = [image_payload(n % 2) for n in range(count)]
        records[3:5] = [object_record([(0, 0, 30, 30, 0)], size=(300, 300)), b"\xff no message"]
        path = make_shard(records, f"d/d-{split}.tfrecord-00000-of-00001")
    flip_bit(path, 40)
    make_shard([b"text"] * 70, "d/d-other.tfrecord-00000-of-00001")
    return path.parent


def test_all_at_once(folder: Path) -> None:
    """Everything is as the commands report it."""
    found = profile_dataset(folder, VerifyOptions(images=True, workers=1))
    assert (found.summary, found.errors) == (tfrtool.inspect_dataset(folder), {})
    assert found.schema is not None
    assert found.statistics is not None
    assert found.verdict is not None
    schema, statistics = tfrtool.infer_schema(folder), tfrtool.stats(folder)
    assert found.verdict.to_json() == tfrtool.verify(folder, images=True).to_json()
    assert found.schema.to_json()["features"] == schema.to_json()["features"]
    assert found.statistics.features == statistics.features


def test_files_and_what_fails(make_shard: MakeShard) -> None:
    """Without a directory there is no summary; without Examples there is no schema."""
    found = profile_dataset([make_shard([b"text"] * 3)], VerifyOptions(workers=1))
    assert (found.summary, found.schema, found.statistics) == (None, None, None)
    assert found.verdict is not None
    assert set(found.errors) == {"schema", "statistics"}
