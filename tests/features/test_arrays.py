"""Records as NumPy arrays: those of TFDS, the same rank and dtype in every record."""

from __future__ import annotations

import datetime
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tfrtool
from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.features.random_trees import damaged, random_set
from tests.features.robot import LENGTHS, write_robot
from tests.features.test_against_tfds import COMMON, SETS, set_of, tfds, their_values
from tests.features.tfds_values import items_of
from tests.more import more
from tests.records.strategies import shard_of
from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values
from tfrtool.features.tfds_tree import tree_of_tfds

__all__ = ["tfds"]


def array_differences(
    item: Field, ours: Any, theirs: Any, path: str = "", lists: tuple[bool, ...] = ()
) -> Iterator[str]:
    """Yield where an array isn't that of TFDS in value, dtype and shape.

    ``lists`` are those around the item: whether TFDS has a Dataset. That is a list of elements with
    TFDS, which are stacked with us.
    """
    if isinstance(item, Struct):
        if {*ours} != {*item.fields}:
            yield f"{path}: {[*ours]} and {[*item.fields]}"
        for name, part in item.fields.items():
            below = _below(theirs, name, lists)
            yield from array_differences(part, ours[name], below, f"{path}/{name}", lists)
    elif isinstance(item, ListOf):
        if item.is_dataset:
            theirs = [*theirs] if not lists else [[*one] for one in theirs]
        lists = (*lists, item.is_dataset)
        yield from array_differences(item.item, ours, theirs, path, lists)
    else:
        yield from _leaf_differences(item, ours, theirs, path, len(lists), any(lists))


def _below(theirs: Any, name: str, lists: tuple[bool, ...]) -> Any:
    return [one[name] for one in theirs] if any(lists) else theirs[name]


def _leaf_differences(
    values: Values, ours: Any, theirs: Any, path: str, level: int, is_stacked: bool
) -> Iterator[str]:
    if values.kind in (Kind.IMAGE, Kind.AUDIO):  # bytes with us, and pixels with TFDS
        return
    if level and (level > 1 or is_stacked or isinstance(ours, list)):
        theirs = theirs if is_stacked else items_of(theirs)
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} and {len(theirs)} items"
            return
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            where = f"{path}[{number}]"
            yield from _leaf_differences(values, one, other, where, level - 1, False)
        return
    one, other = np.asarray(ours), np.asarray(theirs)
    if one.dtype.kind == "S":
        one, other = one.astype(object), other.astype(object)
    if level and not one.size and other.shape == (0,):  # TFDS has lost the shape of no tensors
        other = other.reshape(0, *(size or 0 for size in values.shape))
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        yield f"{path}: {one.dtype}{one.shape} and {other.dtype}{other.shape}"
    elif one.tolist() != other.tolist() and one.tobytes() != other.tobytes():
        yield f"{path}: {one} and {other}"


@pytest.mark.parametrize(
    "name", [*(f"t_{name}" for name in COMMON), *(f"h_{name}" for name in SETS), "toy_robot"]
)
def test_each_type_is_an_array_as_in_tfds(tfds: Any, shared_data: Path, name: str) -> None:
    """Values, dtypes and shapes of records are those of TFDS, except that images stay bytes."""
    folder, root, _, payloads = set_of(shared_data, name)
    theirs = tfds.features.FeaturesDict.from_config(str(folder))
    features = tfrtool.Features.from_tfds(folder)
    for payload in payloads:
        ours = tfrtool.parse_example(payload, features)
        expected = tfds.as_numpy(theirs.deserialize_example(payload))
        assert [*array_differences(root, ours, expected)] == []


BATCHES = [range(20), *(more(range(first, first + 50)) for first in range(0, 500, 50))]


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_random_features_are_arrays_as_in_tfds(tfds: Any, seeds: range) -> None:
    """Records of random features are the arrays of TFDS; damaged ones, too, or an error."""
    compared = refused = 0
    for seed in seeds:
        dataset = random_set(seed, 2)
        if dataset is None:
            continue
        root, notes = tree_of_tfds(dataset.content)
        features = tfrtool.Features.from_tfds(dataset.content)
        if notes:  # on shapes that are not stored
            continue
        damage = damaged(seed, dataset.payloads[1])
        for payload in [*dataset.payloads, *([damage.payload] if damage else [])]:
            about = (seed, damage, dataset.features)
            try:
                ours = tfrtool.parse_example(payload, features)
            except tfrtool.SchemaError:
                assert payload not in dataset.payloads, about
                refused += 1
                continue
            if payload not in dataset.payloads and damage and damage.how == "drop":
                continue  # what is missing has as many items as the other fields of its list
            theirs = their_values(tfds, dataset, payload)
            if theirs is not None:
                compared += 1
                assert [*array_differences(root, ours, theirs)] == [], about
    assert compared > len(seeds)
    assert refused > len(seeds) // 5


def kinds(value: Any) -> Any:
    """Return the dtype and rank of each array in a dictionary."""
    if isinstance(value, dict):
        return {name: kinds(part) for name, part in value.items()}
    return (getattr(value, "dtype", type(value)), np.ndim(value))


def test_every_record_has_the_same_ranks_and_dtypes(tmp_path: Path) -> None:
    """Lists of structs are stacked, without a step, too; values are those of the records."""
    folder = write_robot(tmp_path / "robot")
    records = pickle.loads(pickle.dumps(tfrtool.open_records(folder, decode="features")))
    numbers, images = (np.dtype(np.float32), 2), (np.dtype(object), 1)
    expected = {
        "file": (bytes, 0),
        "split_number": (np.dtype(np.uint8), 0),
        "steps": {
            "action": numbers,
            "reward": (np.dtype(np.float32), 1),
            "is_last": (np.dtype(np.bool_), 1),
            "camera": images,
            "observation": {"wrist": images, "state": (np.dtype(np.float64), 2)},
        },
    }
    assert [kinds(record) for record in records] == [expected] * len(LENGTHS)
    for length, record in zip(LENGTHS, records, strict=True):
        steps = record["steps"]
        assert steps["action"].tolist() == [[2 * step, 2 * step + 1] for step in range(length)]
        assert steps["observation"]["state"].tolist() == [[step] * 3 for step in range(length)]
        assert steps["is_last"].tolist() == [step == length - 1 for step in range(length)]
        assert all(image.startswith(b"\x89PNG") for image in steps["camera"])
    last = records[-1]
    assert (last["file"], last["split_number"], LENGTHS) == (b"/episodes/2.npy", 2, (2, 0, 3))
    last["steps"]["action"] *= 2  # arrays can be written to


def test_missing_values_keep_ranks_and_dtypes(tmp_path: Path) -> None:
    """A missing number is the lowest, text is empty, and a list has as many items as the others."""
    changes = {"file": None, "split_number": None, "steps/reward": None}
    changes |= {"steps/camera": None, "steps/observation/state": None}
    record = tfrtool.open_records(write_robot(tmp_path / "a", **changes), decode="features")[2]
    assert (record["file"], record["split_number"]) == (b"", 0)
    steps = record["steps"]
    assert steps["reward"].tolist() == [np.finfo(np.float32).min] * 3
    assert steps["camera"].tolist() == [b""] * 3
    assert steps["observation"]["state"].tolist() == [[np.finfo(np.float64).min] * 3] * 3
    assert steps["action"].shape == (3, 2)


def test_a_record_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """The file, the record and the feature are in the error; other records are read."""
    folder = write_robot(tmp_path / "robot")
    (shard,) = folder.glob("*tfrecord*")
    good = [record.payload for record in tfrtool.read_records(shard)]
    bad = tfrtool.encode_example({"steps/action": [1.0] * 4, "steps/reward": [1.0] * 3})
    event = b"\x09" + bytes(7) + b"@"
    others = [bad, b"noise", event, raw_example([], {b"steps": [int64(1)]})]
    shard.write_bytes(shard_of([*good * 3, *others]))
    records = tfrtool.open_records(folder, decode="features")
    errors = (
        "'steps/action': expected as many items as 'steps/reward', found 2 instead of 3",
        "not a tf.train.Example",
        "not a tf.train.Example",
        "a tf.train.SequenceExample, not a tf.train.Example",
    )
    for index, error in enumerate(errors, 9):
        with pytest.raises(tfrtool.ShardError, match=error) as caught:
            records[index]
        assert (caught.value.path, caught.value.record) == (str(shard), index)
    assert records[8]["split_number"] == 2


def test_without_features_json_features_are_lists(tmp_path: Path) -> None:
    """Each feature is an array of one dimension and its dtype, an empty one, too."""
    features = {"n": int64(7), "x": float32(0.5, 1), "none": float32(), "name": string(b"a")}
    steps = {b"steps": [int64(1), int64(2, 3)], b"texts": [string()]}
    path = tmp_path / "a.tfrecord"
    path.write_bytes(
        shard_of([tfrtool.encode_example(features), raw_example([entry(b"n", int64())], steps)])
    )
    first, second = tfrtool.open_records(path, decode="features")
    assert kinds(first) == {
        "n": (np.dtype(np.int64), 1),
        "x": (np.dtype(np.float32), 1),
        "none": (np.dtype(np.float32), 1),
        "name": (np.dtype(object), 1),
    }
    assert (first["n"].tolist(), first["x"].tolist(), [*first["name"]]) == ([7], [0.5, 1], [b"a"])
    assert kinds(second["n"]) == (np.dtype(np.int64), 1)
    assert [step.tolist() for step in second["steps"]] == [[1], [2, 3]]
    assert [kinds(text) for text in second["texts"]] == [(np.dtype(object), 1)]


def test_a_damaged_features_json_is_an_error(tmp_path: Path) -> None:
    """Types are not guessed where a features.json can't be read."""
    folder = write_robot(tmp_path / "robot")
    (folder / "features.json").write_text("{")
    with pytest.raises(tfrtool.SchemaError, match="JSON") as caught:
        tfrtool.open_records(folder, decode="features")
    assert caught.value.path == str(folder / "features.json")


def test_times_and_decimals_are_arrays() -> None:
    """Times are datetime64, decimals are text; what is none is an error."""
    fields = [("t", pa.timestamp("us")), ("d", pa.date32()), ("m", pa.decimal128(5, 2))]
    features = tfrtool.Features.from_arrow(pa.schema([*fields, ("days", pa.list_(pa.date32()))]))
    day = 86_400_000_000
    values = {"t": 1, "d": day, "m": "1.50", "days": [0, -day]}
    found = tfrtool.parse_example(tfrtool.encode_example(values), features)
    assert kinds(found["t"]) == (np.dtype("datetime64[us]"), 0)
    assert found["t"].tolist() == datetime.datetime(1970, 1, 1, 0, 0, 0, 1)
    assert (found["d"].tolist(), found["m"]) == (datetime.date(1970, 1, 2), b"1.50")
    assert found["days"].tolist() == [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)]
    missing = tfrtool.parse_example(b"", features)
    assert np.isnat(missing["t"])
    assert (missing["m"], missing["days"].dtype) == (b"", np.dtype("datetime64[D]"))
    for name, value in {"d": 5, "m": "x", "days": [day, 1]}.items():
        with pytest.raises(tfrtool.SchemaError, match=f"'{name}'.*another value"):
            tfrtool.parse_example(tfrtool.encode_example({**values, name: value}), features)


_ZLIB, _RAW = "zlib", "bytes"


@pytest.mark.parametrize(
    ("dtype", "sizes", "encoding", "values", "error"),
    [
        ("uint8", [], "none", {"x": 256}, "'x': expected uint8, found 256"),
        ("bool", [], "none", {"x": 2}, "'x': expected 0 or 1, found 2"),
        ("int64", [], "none", {"x": [1, 2]}, "'x': expected one value, found 2"),
        ("int64", [], "none", {"x": 1.0}, "'x': expected int64 values, found float32"),
        ("int64", [2, -1], "none", {"x": [1] * 3}, "'x': expected a multiple of 2 values, found 3"),
        ("int64", [2, 2], "none", {"x": [1] * 3}, r"'x': expected 4 values .*, found 3"),
        ("int16", [2], _ZLIB, {"x": b"no"}, "'x': expected zlib data, found other bytes"),
        ("int16", [2], _ZLIB, {"x": zlib.compress(b"12345")}, "found more than 4 bytes"),
        ("int16", [2], _RAW, {"x": b"123"}, "'x': expected a multiple of 2 bytes, found 3"),
        ("int16", [2], _RAW, {"x": b"12"}, r"'x': expected 2 values \(\[2\]\), found 1"),
        ("int8", [-1, -1], _RAW, {"x/value": b"12"}, "'x/shape': expected 2 sizes a tensor"),
        (
            *("int8", [-1, -1], _RAW, {"x/value": b"12", "x/shape": [3, 1]}),
            "'x': expected the stored shape, found 2",
        ),
        ("int8", [-1, -1], _RAW, {"x/value": b"", "x/shape": [-1, 0]}, "expected sizes, found -1"),
    ],
)
def test_values_that_do_not_fit(
    dtype: str, sizes: list[int], encoding: str, values: dict[str, Any], error: str
) -> None:
    """What a type can't hold is an error that names the feature, what it should be, and is."""
    shape = {"dimensions": [str(size) for size in sizes]}
    tensor = {"shape": shape, "dtype": dtype, "encoding": encoding}
    connector = "tensorflow_datasets.core.features.tensor_feature.Tensor"
    content = {"features": {"x": {"pythonClassName": connector, "tensor": tensor}}}
    root = {"pythonClassName": "FeaturesDict", "featuresDict": content}
    features = tfrtool.Features.from_tfds(root)
    with pytest.raises(tfrtool.SchemaError, match=error):
        tfrtool.parse_example(tfrtool.encode_example(values), features)


def test_features_of_other_messages_are_refused(tmp_path: Path) -> None:
    """Features of SequenceExamples, which have feature lists, decode no Examples."""
    path = tmp_path / "a.tfrecord"
    payload = raw_example([entry(b"n", int64(1))], {b"steps": [int64(1)]})
    path.write_bytes(shard_of([payload]))
    with pytest.raises(tfrtool.SchemaError, match=r"arrays only of tf\.train\.Example"):
        tfrtool.parse_example(payload, tfrtool.Features.read(path))
