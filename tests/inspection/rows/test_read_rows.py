"""Records for programs: batches and data frames, and records decoded for a loader."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import flip_bit, image_payload
from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.records.framing import LocatedFault

ROWS = [{"n": n, "x": n / 2, "name": f"a{n}"} for n in range(100)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a shard of these rows."""
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in ROWS]))
    return path


def test_batches_and_data_frames(path: Path, tmp_path: Path) -> None:
    """The columns that are asked for come in batches, as a table, and in pandas and polars."""
    rows = tfrtool.read_table(path, columns=["x", "n"])
    assert rows.schema.names == ["x", "n"]
    for _ in range(2):
        assert [n for batch in rows for n in batch["n"].to_pylist()] == list(range(100))
    assert rows.to_arrow().column("x").to_pylist() == [n / 2 for n in range(100)]
    assert rows.to_pandas()["n"].sum() == 4950
    assert rows.to_polars()["x"].dtype.is_float()
    assert tfrtool.read_table([tmp_path], columns="all").schema.names == ["n", "name", "x"]
    assert tfrtool.read_table(path, columns="name").to_arrow().num_columns == 1


def test_what_can_not_be_read(path: Path) -> None:
    """Damage is raised, or given to who takes it; unknown columns are usage errors."""
    with pytest.raises(tfrtool.UsageError, match="name"):
        tfrtool.read_table(path, columns=["nam"])
    flip_bit(path, 20)
    with pytest.raises(tfrtool.CorruptShardError) as caught:
        tfrtool.read_table(path, columns="all").to_arrow()
    assert (caught.value.record, caught.value.offset) == (0, 0)
    faults: list[LocatedFault] = []
    assert tfrtool.read_table(path, columns="all", on_fault=faults.append).to_arrow().num_rows == 99
    assert [one.fault.record for one in faults] == [0]


def test_examples_for_a_loader(tmp_path: Path) -> None:
    """Numbers are arrays, of no dimension where there is one; bytes are bytes."""
    features = {
        "n": int64(7),
        "some": int64(1, 2),
        "x": float32(0.5),
        "none": float32(),
        "name": string(b"a"),
        "names": string(b"a", b"b"),
    }
    sequence = raw_example([entry(b"n", int64(1))], {b"steps": [int64(1), int64(2, 3)]})
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example(features), sequence, b"noise"]))
    examples = pickle.loads(pickle.dumps(tfrtool.open_records(path, decode="example")))
    assert len(examples) == 3
    first = examples[0]
    assert {name: getattr(value, "dtype", None) for name, value in first.items()} == {
        "n": np.int64,
        "some": np.int64,
        "x": np.float32,
        "none": np.int64 if first["none"].dtype == np.int64 else np.float32,
        "name": None,
        "names": None,
    }
    assert (first["n"].shape, first["n"], first["x"]) == ((), 7, 0.5)
    assert first["some"].tolist() == [1, 2]
    assert (first["name"], first["names"]) == (b"a", [b"a", b"b"])
    (second,) = examples[1:2]
    assert [step.tolist() for step in second["steps"]] == [1, [2, 3]]
    for last in (2, -1):
        with pytest.raises(tfrtool.ShardError) as caught:
            [examples[index] for index in (0, last)]
        assert (caught.value.path, caught.value.record) == (str(path), 2)
    with pytest.raises(IndexError):
        examples[3]
    with pytest.raises(tfrtool.UsageError, match="example, image"):
        tfrtool.open_records(path, decode="pixels")  # type: ignore[call-overload]


def test_images_for_a_loader(tmp_path: Path) -> None:
    """Images come as pixels in RGB with their labels; one that does not decode is named."""
    path = tmp_path / "a.tfrecord"
    grey = image_bytes(mode="L")
    broken = image_bytes()[:200]
    payloads = [image_payload(n, data=data) for n, data in enumerate([image_bytes(), grey, broken])]
    path.write_bytes(shard_of([*payloads, tfrtool.encode_example({"label": 1})]))
    images = tfrtool.open_records(path, decode="image")
    for index in (0, 1):
        pixels, label = images[index]
        assert (pixels.dtype, pixels.ndim, pixels.shape[2]) == (np.uint8, 3, 3)
        assert label == index
        assert type(label) is int
    for index in (2, 3):
        with pytest.raises(tfrtool.ShardError, match="image") as caught:
            images[index]
        assert caught.value.record == index
        assert caught.value.offset == tfrtool.open_records(path)[index].offset
    path.write_bytes(shard_of([tfrtool.encode_example({"a": 1, "b": 2})]))
    with pytest.raises(tfrtool.ShardError, match="'a', 'b'"):
        tfrtool.open_records(path, decode="image")
    path.write_bytes(shard_of([b"noise"]))
    with pytest.raises(tfrtool.ShardError, match=r"not a tf\.train"):
        tfrtool.open_records(path, decode="image")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_pytorch(tmp_path: Path, workers: int) -> None:
    """PyTorch's default collate makes batches of images with labels, and of Examples."""
    data: Any = pytest.importorskip("torch").utils.data
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([image_payload(n, data=image_bytes()) for n in range(5)]))
    height, width, _ = tfrtool.open_records(path, decode="image")[0][0].shape

    def batches(decode: Any) -> list[Any]:
        return [*data.DataLoader(tfrtool.open_records(path, decode=decode), 2, num_workers=workers)]

    first, _, last = batches("image")
    assert first[0].shape == (2, height, width, 3)
    assert last[0].shape == (1, height, width, 3)
    assert [str(part.dtype) for part in first] == ["torch.uint8", "torch.int64"]
    assert first[1].tolist() == [0, 1]
    path.write_bytes(
        shard_of([tfrtool.encode_example(ROWS[n] | {"x": [n / 1, 1]}) for n in (1, 2)])
    )
    (batch,) = batches("example")
    assert batch["n"].tolist() == [1, 2]
    assert batch["name"] == [b"a1", b"a2"]
    assert (batch["x"].tolist(), str(batch["x"].dtype)) == ([[1, 1], [2, 1]], "torch.float32")
