"""TFDS as the judge: records that it wrote mean the same to it and to us, damaged ones too."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.features.random_trees import RandomSet, damaged, random_set
from tests.features.tfds_values import differences
from tests.more import more
from tfrtool.examples.example import decode_example
from tfrtool.examples.fields import Struct
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.tfds_tree import tfds_of_tree, tree_of_tfds
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard

SETS = (
    *("audio", "bf16", "deep", "ds_ragged", "ds_rich", "ds_scalar", "ds_seqimg", "dyn3"),
    *("dyn_empty", "enc", "inner_none", "optional", "ragged3", "ragged_tensor", "ragged_zlib"),
    *("seq_bbox", "seq_zlib", "seqdict_ragged", "seqvideo", "slash", "static", "u64", "vv"),
    "zero",
)
"""Sets of rarer features, which TFDS can read."""

COMMON = (
    *("audio", "bbox", "bf16", "dataset", "f64seq", "imagefloat", "labeledimage", "nested"),
    *("ragged", "scalars", "seq_dict", "tensor", "tensor_bytes", "tensor_dyn", "tensor_zlib"),
    *("text", "translation", "translation_var", "video"),
)
"""Sets of a feature type each."""

UNREADABLE = {
    "t_optional": {
        "o": ([0, None, 2], "int64"),
        "os": (["z", None, "z"], "string"),
        "k": ([0, 1, 2], "int64"),
    },
    "h_static2": {
        "x": ([[[1, 2], [3, 4], [5, i]] for i in range(3)], "list<item: list<item: int64>>")
    },
    "h_seq_dyn": {
        "x": (
            [[[[float(j)] * 2] * (j + 1) for j in range(i)] for i in range(1, 4)],
            "list<item: list<item: list<item: float>>>",
        ),
        "n": ([1, 2, 3], "int64"),
    },
    "h_seq_unknown": {"x": ([[1.0] * 4, [1.0] * 8], "list<item: float>"), "k": ([1, 2], "int64")},
}
"""Sets that TFDS wrote and can't read: the values and the Arrow type of each column."""


@pytest.fixture(scope="module")
def tfds(tf: Any) -> Any:  # noqa: ARG001
    """Return the tensorflow_datasets module."""
    import tensorflow_datasets

    return tensorflow_datasets


def rows_of(root: Struct, payloads: list[bytes]) -> list[dict[str, Any]]:
    """Return records that all fit, as rows."""
    table, rejected = FeatureColumns.of(root).decode(payloads)
    assert not rejected
    table.validate(full=True)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def set_of(shared_data: Path, name: str) -> tuple[Path, Struct, tuple[str, ...], list[bytes]]:
    """Return the folder of a set, its tree and notes, and its first records."""
    folder = shared_data / "tfds_types" / name / "1.0.0"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/tfds_types, which is not distributed")
    root, notes = tree_of_tfds(json.loads((folder / "features.json").read_text("utf-8")))
    shard = next(folder.glob("*-train.tfrecord*"))
    records = islice(read_shard(shard), 4)
    return folder, root, notes, [one.payload for one in records if isinstance(one, Record)]


@pytest.mark.parametrize(
    "name", [*(f"t_{name}" for name in COMMON), *(f"h_{name}" for name in SETS), "toy_robot"]
)
def test_each_type_is_read_as_by_tfds(tfds: Any, shared_data: Path, name: str) -> None:
    """Values, dtypes and shapes are those of TFDS; features.json comes back from the tree."""
    folder, root, notes, payloads = set_of(shared_data, name)
    assert not notes
    features = tfds.features.FeaturesDict.from_config(str(folder))
    rows = rows_of(root, payloads)
    for row, payload in zip(rows, payloads, strict=True):
        theirs = tfds.as_numpy(features.deserialize_example(payload))
        assert [*differences(root, row, theirs)] == []
    again, _ = tree_of_tfds(tfds_of_tree(root))
    assert again == root
    tfds.features.FeatureConnector.from_json(tfds_of_tree(root))


@pytest.mark.parametrize("name", UNREADABLE)
def test_sets_that_tfds_cannot_read(shared_data: Path, name: str) -> None:
    """We read what TFDS wrote and can't read; a shape that it didn't store is said to be lost."""
    _, root, notes, payloads = set_of(shared_data, name)
    table, rejected = FeatureColumns.of(root).decode(payloads)
    assert not rejected
    columns = {
        field.name: (table.column(field.name).to_pylist(), str(field.type))
        for field in table.schema
    }
    assert columns == UNREADABLE[name]
    lost = "the shape of 'x' is not stored; its values are one list"
    assert notes == ((lost,) if name == "h_seq_unknown" else ())


def their_values(tfds: Any, dataset: RandomSet, payload: bytes) -> Any:
    """Return what TFDS reads of a record; None if it can't."""
    try:
        return tfds.as_numpy(dataset.features.deserialize_example(payload))
    except Exception:  # noqa: BLE001
        return None


@pytest.mark.parametrize("seeds", [range(50), more(range(50, 500))], ids=str)
def test_random_features_come_back(tf: Any, seeds: range) -> None:  # noqa: ARG001
    """Records encoded from their table have the same features as those that TFDS wrote."""
    for seed in seeds:
        dataset = random_set(seed, 2)
        if dataset is None:
            continue
        root, notes = tree_of_tfds(dataset.content)
        if notes:  # on features that have no place in a table
            continue
        columns = FeatureColumns.of(root)
        table, _ = columns.decode(dataset.payloads)
        again = [decode_example(payload) for payload in columns.encode(table)]
        assert again == [decode_example(payload) for payload in dataset.payloads], seed


BATCHES = [range(20), *(more(range(first, first + 40)) for first in range(20, 500, 40))]


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_random_features_are_read_as_by_tfds(tfds: Any, seeds: range) -> None:
    """Records of random features that TFDS wrote are the same to both, where TFDS can read them."""
    compared = 0
    for seed in seeds:
        dataset = random_set(seed, 2)
        if dataset is None:
            continue
        root, notes = tree_of_tfds(dataset.content)
        rows = rows_of(root, dataset.payloads)
        if notes:  # on shapes that are not stored
            continue
        for row, payload in zip(rows, dataset.payloads, strict=True):
            theirs = their_values(tfds, dataset, payload)
            if theirs is not None:
                compared += 1
                assert [*differences(root, row, theirs)] == [], (seed, dataset.features)
    assert compared > len(seeds)


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
def test_damage_stays_in_its_record(tfds: Any, seeds: range) -> None:
    """One changed feature makes that record a misfit, or means the same to TFDS; others stay."""
    refused = 0
    for seed in seeds:
        dataset = random_set(seed, 3)
        damage = None if dataset is None else damaged(seed, dataset.payloads[1])
        if dataset is None or damage is None:
            continue
        root, notes = tree_of_tfds(dataset.content)
        first, _, last = rows_of(root, dataset.payloads)
        columns = FeatureColumns.of(root)
        table, rejected = columns.decode([dataset.payloads[0], damage.payload, dataset.payloads[2]])
        table.validate(full=True)
        rows = table.to_pylist()
        about = (seed, damage.how, damage.key, dataset.features)
        assert (rows[0], rows[-1]) == (first, last), about
        if rejected:
            assert ([*rejected], len(rows)) == ([1], 2), about
            refused += 1
        elif damage.how != "drop" and not notes:  # what is missing is null
            theirs = their_values(tfds, dataset, damage.payload)
            if theirs is not None:
                assert [*differences(root, rows[1], theirs)] == [], about
    assert refused > len(seeds) // 5
