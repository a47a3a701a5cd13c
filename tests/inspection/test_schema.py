"""One schema of several shards."""

from __future__ import annotations

import functools
import json
import math
import random
import re
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.conftest import SHARED_DATA, MakeShard
from tests.examples.arrow.checking import any_payloads
from tests.examples.strategies import UNSET, entry, float32, int64, raw_example, string
from tests.records.strategies import shard_of
from tfrtool.errors import ShardError
from tfrtool.examples.example import DType, encode_example
from tfrtool.inspection.schema import shard_schema as schema_module
from tfrtool.inspection.schema.shard_schema import InferredSchema, infer_schema
from tfrtool.records.framing import FaultKind
from tfrtool.records.shards import find_shards

CAT = encode_example({"label": int64(0), "name": string(b"cat")})


def numbered(start: int, stop: int) -> list[bytes]:
    """Return Examples with a number each."""
    return [encode_example({"n": int64(number)}) for number in range(start, stop)]


def test_shards_are_one(make_shard: MakeShard) -> None:
    """Counts, ranges and histograms are those of all shards together."""
    one = make_shard([encode_example({"a": int64(1), "b": float32(0.5)})] * 2, "1.tfrecord")
    other = make_shard([encode_example({"a": int64(5)})], "2.tfrecord")
    found = infer_schema([one, other])
    a, b = found.features
    assert (found.shards, found.records, found.sampled, found.losses) == (2, 3, False, ())
    assert (a.present, a.range.minimum, a.range.maximum) == (3, 1, 5)
    assert a.range.distinct == {1: 2, 5: 1}
    assert (b.present, [str(spec) for spec in found.schema]) == (2, ["a:int64", "b:float32:[*]"])


def test_processes_find_the_same(make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes give the result of one, in whatever order they end."""
    paths = [
        make_shard([encode_example({"x": f}) for f in (int64(n), float32(n / 2))], f"{n}.tfrecord")
        for n in range(6)
    ]
    alone = infer_schema(paths)
    monkeypatch.setattr(schema_module, "_MIN_BYTES_PER_PROCESS", 1)
    assert infer_schema(paths, workers=2) == alone
    (x,) = alone.features
    first = {dtype: kind.first for dtype, kind in x.values.items()}
    assert first == {DType.INT64: (str(paths[0]), 0), DType.FLOAT32: (str(paths[0]), 1)}


@pytest.mark.parametrize(
    ("sample", "expected", "sampled"),
    [
        (1, [20], True),
        (2, [10, 20], True),
        (3, [0, 10, 20], True),
        (7, [0, 1, 10, 11, 20, 21, 22], True),
        (29, [*range(9), *range(10, 20), *range(20, 30)], True),
        (30, [*range(30)], False),
        (99, [*range(30)], False),
    ],
)
def test_sample(make_shard: MakeShard, sample: int, expected: list[int], sampled: bool) -> None:
    """A sample takes the first records of each shard, in shares that differ by one at most."""
    paths = [make_shard(numbered(n, n + 10), f"{n}.tfrecord") for n in (0, 10, 20)]
    found = infer_schema(paths, sample=sample)
    assert found.features[0].range.distinct == dict.fromkeys(expected, 1)
    assert (found.records, found.sampled) == (len(expected), sampled)


def test_damage_is_skipped_and_told(make_shard: MakeShard) -> None:
    """A damaged record is not in, and its shard is named with its first faults."""
    path, good = make_shard(numbered(0, 30), "bad.tfrecord"), make_shard([CAT], "good.tfrecord")
    data = bytearray(path.read_bytes())
    size = len(data) // 30
    for index in range(12):
        data[size * index + 14] ^= 1
    path.write_bytes(data)
    found = infer_schema([path, good])
    (loss,) = found.losses
    assert (found.records, loss.path, loss.count, loss.content) == (19, path, 12, None)
    assert [fault.record for fault in loss.faults] == list(range(10))
    assert loss.faults[0].kind is FaultKind.PAYLOAD_CRC


def test_strangers_are_skipped_and_told(make_shard: MakeShard) -> None:
    """A record of another kind among Examples is a loss, and so is a whole shard of them."""
    mixed = make_shard([CAT, b"hello", CAT], "mixed.tfrecord")
    text = make_shard([b"hello", b"world"], "text.tfrecord")
    found = infer_schema([mixed, text])
    assert found.records == 2
    one, other = found.losses
    assert (one.content, one.count, one.faults[0].record) == (None, 1, 1)
    assert other.content == "text payloads"


@pytest.mark.parametrize(
    ("payloads", "found"),
    [
        ([b"hello"], "text"),
        ([b"\xff\xd8\xff\xe0"] * 3, "image/jpeg payloads"),
        ([b"\xff\0"], "binary payloads"),
        ([b"\n" + bytes([len(CAT)]) + CAT], "ExampleListWithContext payloads"),
        ([b""], "empty records"),
        ([], "empty"),
    ],
)
def test_shards_of_another_kind(make_shard: MakeShard, payloads: list[bytes], found: str) -> None:
    """Where there is no Example at all, the error says what there is."""
    path = make_shard(payloads)
    with pytest.raises(ShardError) as caught:
        infer_schema([path])
    assert caught.value.path == str(path)
    assert found in str(caught.value)


@functools.cache
def inferred(path: Path) -> InferredSchema:
    """Return the schema of a file; several tests look at the same ones."""
    return infer_schema([path], workers=1)


TYPES = {"bytes": "string", "int64": "int64", "float": "float32"}
LINE = re.compile(r"^Features of `(?P<name>[^`]+)` [^:]*: (?P<features>.*)$")
FEATURE = re.compile(
    r"'(?P<list>\[seq\] )?(?P<name>[^']+)' (?P<types>[^\[]+)\[(?P<low>\d+)\.\.(?P<high>\d+)\]"
    r"(?: \((?P<present>\d+)/(?P<records>\d+)\))?"
)


def feature_lines() -> list[tuple[str, str]]:
    """Return files and features of the manifest; nothing where there is none."""
    manifest = SHARED_DATA / "MANIFEST.md"
    found, folder = [], ""
    for line in manifest.read_text("utf-8").splitlines() if manifest.is_file() else ():
        folder = line[4:].strip() if line.startswith("### ") else folder
        match = LINE.match(line)
        if match:
            found.append((f"{folder}/{match['name']}", match["features"]))
    return found


LINES = feature_lines()


@pytest.mark.usefixtures("shared_data")
def test_manifest_has_features() -> None:
    """The manifest tells the features of many files."""
    assert len(LINES) >= 10


@pytest.mark.parametrize(("name", "line"), LINES, ids=[name for name, _ in LINES])
def test_real_files(shared_data: Path, name: str, line: str) -> None:
    """Types, lengths and presence are those that the manifest was made with."""
    found = inferred(shared_data / "tfrecord" / name)
    features = {(item.name, item.is_list): item for item in found.features}
    wanted = list(FEATURE.finditer(line))
    assert len(wanted) == len(features) == line.count("[") - line.count("[seq]")
    for match in wanted:
        item = features[match["name"], match["list"] is not None]
        types = {TYPES[text] for text in match["types"].split("/") if text != "EMPTY"}
        assert {dtype.value for dtype in item.dtypes} == types, match["name"]
        assert (item.unset > 0) == ("EMPTY" in match["types"]), match["name"]
        low, high = item.lengths
        lengths = (0 if item.unset else low, high)
        assert lengths == (int(match["low"]), int(match["high"])), match["name"]
        there = found.records if match["present"] is None else int(match["present"])
        assert item.present + (0 if item.is_list else item.unset) == there, match["name"]


def test_values_of_real_files(shared_data: Path) -> None:
    """The digits have ten classes and gray pictures; a table has its NaN."""
    mnist = inferred(find_shards([str(shared_data / "tfrecord/tfds_mnist")])[0])
    image, label = mnist.features
    assert image.content == {"image/png": 10_000}
    assert image.range.pixels == {(1, 8)}
    assert label.range.distinct is not None
    assert sorted(label.range.distinct) == list(range(10))
    assert sum(label.range.distinct.values()) == 10_000
    titanic = inferred(shared_data / "tfrecord/titanic/test.tfrecord")
    (fare,) = (item for item in titanic.features if item.name == "fare")
    assert fare.range.nan == 1
    assert fare.range.maximum is not None
    assert math.isfinite(fare.range.maximum)


CONTENTS = [
    {"a": string(b"a", b"plain text"), "b": float32(0.0, -0.0, float("nan"), float("inf"))},
    {"a": string("größer".encode(), b"GIF89a", b"Row\n"), "b": float32(-0.0), "c": int64()},
    {"a": string(b"", b"\x89PNG\r\n\x1a\n" + bytes(20)), "b": int64(-(2**63), 300, 7), "c": UNSET},
    {"a": string(*[b"x"] * 70), "b": float32(float("-inf"), 1.5), "c": int64(1, 2)},
    {"a": string(b"y" * 65), "d": string(b"\xff\xd8\xff", b"binary\0")},
]


@given(found=st.lists(any_payloads, max_size=6), draw=st.randoms(use_true_random=False))
def test_batches_say_what_single_records_say(
    tmp_path_factory: pytest.TempPathFactory, found: list[bytes], draw: random.Random
) -> None:
    """Shards of many records, of which batches are scanned, have the same summary and schema."""
    usual = [raw_example([entry(k.encode(), v) for k, v in one.items()]) for one in CONTENTS]
    chosen = draw.sample(usual, draw.randrange(6))
    payloads = draw.choice([chosen, [*chosen, *found], found])
    path = tmp_path_factory.mktemp("batches") / "shard.tfrecord"
    damage = b"\xff" * draw.choice([0, 20])  # records behind it are another batch
    path.write_bytes(shard_of(payloads) + damage + shard_of(payloads))
    reports = []
    for many in (0, 1, 10**9):
        with patch("tfrtool.inspection.profile._MANY_RECORDS", many):
            try:
                schema = tfrtool.infer_schema(path).to_json()
            except ShardError as error:
                schema = {"error": str(error)}
            reports.append(json.dumps([schema, tfrtool.inspect_shard(path).to_json()]))
    assert reports[0] == reports[1] == reports[2]
