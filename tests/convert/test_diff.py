"""Comparing records: held against counters, and told by shard and number."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import flip_bit
from tfrtool.cli import main
from tfrtool.convert.diff import Place, diff
from tfrtool.errors import ShardError, UsageError
from tfrtool.records.framing import frame

Sides = dict[str, list[tuple[bytes, bytes]]]
"""Keys and contents of records, by split."""

_records = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b""]), st.sampled_from([b"x", b"y"])), max_size=6
)
_sides = st.fixed_dictionaries({"train": _records, "test": _records})


def write_side(folder: Path, side: Sides) -> Path:
    """Write records as a dataset of two splits; one with the key "" has none."""
    folder.mkdir()
    for split, records in side.items():
        payloads = [
            tfrtool.encode_example({"v": value} | ({"k": key} if key else {}))
            for key, value in records
        ]
        path = folder / f"d-{split}.tfrecord-00000-of-00001"
        path.write_bytes(b"".join(map(frame, payloads)))
    return folder


def counted(a: Sides, b: Sides, *, by_key: bool) -> tuple[int, int, int, int]:
    """Return how many are only in A, only in B, changed and moved, by counters alone."""
    one, other = (Counter((s, *r) for s, rs in side.items() for r in rs) for side in (a, b))
    rest = []
    for left, right in ((one, other), (other, one)):
        rest.append(Counter(place[1:] for place in (left - right).elements()))
    moved = rest[0] & rest[1]
    alone = [left - moved for left in rest]
    changed = Counter[bytes]()
    if by_key:
        keys = [Counter(key for key, _ in left.elements() if key) for left in alone]
        changed = keys[0] & keys[1]
    pairs = changed.total()
    return alone[0].total() - pairs, alone[1].total() - pairs, pairs, moved.total()


@given(_sides, _sides, st.booleans())
def test_counts_are_those_of_counters(a: Sides, b: Sides, by_key: bool) -> None:
    """Multisets of any records: each is the same, in another split, changed, or on one side."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [write_side(Path(folder) / name, side) for name, side in (("a", a), ("b", b))]
        keyed = by_key and any(key for side in (a, b) for rs in side.values() for key, _ in rs)
        report = diff(*paths, key="k" if keyed else None)
    found = (report.only_a, report.only_b, report.changed, report.moved)
    assert found == counted(a, b, by_key=keyed)
    assert report.records == tuple(sum(map(len, side.values())) for side in (a, b))
    assert report.features == ({"v": report.changed} if report.changed else {})
    assert report.splits == {s: (len(a[s]), len(b[s])) for s in ("test", "train")}


def test_order_shards_and_compression_make_no_difference(
    make_shard: MakeShard, tmp_path: Path
) -> None:
    """The same records in other shards, in another order and compressed are the same."""
    payloads = [tfrtool.encode_example({"label": n}) for n in range(100)]
    one = make_shard(payloads, "one.tfrecord")
    for number in range(3):
        data = b"".join(map(frame, payloads[::-1][number::3]))
        (tmp_path / f"part-{number}.tfrecord.gz").write_bytes(gzip.compress(data))
    report = tfrtool.diff(one, str(tmp_path / "part-*"), workers=2)
    assert report.same
    assert report.splits == {}


def test_places_and_features_are_told(make_shard: MakeShard) -> None:
    """What differs has its shard and its number; what changed, the features in which it did."""
    one = [tfrtool.encode_example({"id": f"{n}", "label": n, "x": 0.5, "old": 1}) for n in range(9)]
    other = [
        tfrtool.encode_example({"id": f"{n}", "label": n % 8, "x": [0.5, 1.0] if n == 3 else 0.5})
        for n in range(1, 10)
    ]
    a, b = make_shard(one, "a.tfrecord"), make_shard(other, "b.tfrecord")
    report = diff(a, b, key="id", limit=2)
    assert (report.only_a, report.only_b, report.changed, report.moved) == (1, 1, 8, 0)
    assert report.examples["only_a"] == [{"a": Place(shard=a, record=0)}]
    assert report.examples["only_b"] == [{"b": Place(shard=b, record=8)}]
    first = report.examples["changed"][0]
    assert (first["a"].shard, first["b"].shard) == (a, b)
    assert first["a"].record == first["b"].record + 1
    assert len(report.examples["changed"]) == 2
    assert report.features == {"label": 1, "old": 8, "x": 1}
    assert report.schema == {"old": ("int64", None), "x": ("float32", "float32[]")}
    assert not report.same


def test_damage_is_named_and_numbers_stay(make_shard: MakeShard) -> None:
    """A damaged record is no difference but a fault; those behind it keep their numbers."""
    payloads = [tfrtool.encode_example({"id": f"{n:04d}"}) for n in range(5)]
    a, b = make_shard(payloads, "a.tfrecord"), make_shard([*payloads[:4], b""], "b.tfrecord")
    flip_bit(a, a.read_bytes().index(b"0001"))
    report = diff(a, b)
    assert report.corrupt == 1
    assert [(fault.path, fault.fault.record) for fault in report.faults] == [(a, 1)]
    assert report.examples["only_a"] == [{"a": Place(shard=a, record=4)}]
    assert [place["b"].record for place in report.examples["only_b"]] == [1, 4]


def test_payloads_that_are_no_examples(make_shard: MakeShard) -> None:
    """They are compared as bytes; with a key they have none."""
    a = make_shard([b"\xff1", b"\xff2", tfrtool.encode_example({"k": "a"})], "a.tfrecord")
    b = make_shard([b"\xff2", b"\xff3", tfrtool.encode_example({"k": "a"})], "b.tfrecord")
    for key in (None, "k"):
        report = diff(a, b, key=key)
        assert (report.only_a, report.only_b, report.changed) == (1, 1, 0)
    assert report.without_key == (2, 2)


def test_errors(make_shard: MakeShard, tmp_path: Path) -> None:
    """No such key, no such file, no shard."""
    shard = make_shard([tfrtool.encode_example({"a": 1})])
    (tmp_path / "text.tfrecord").write_bytes(b"hello" * 100)
    with pytest.raises(UsageError, match="'nope'"):
        diff(shard, shard, key="nope")
    with pytest.raises(ShardError, match="none"):
        diff(shard, tmp_path / "none")
    with pytest.raises(ShardError, match="not a TFRecord file"):
        diff(shard, tmp_path / "text.tfrecord")


def test_exit_codes(make_shard: MakeShard, capsys: pytest.CaptureFixture[str]) -> None:
    """0 if nothing differs, 3 if something does; the page has the places."""
    a = make_shard([tfrtool.encode_example({"a": 1})], "a.tfrecord")
    b = make_shard([tfrtool.encode_example({"a": 2}), b"\n"], "b.tfrecord")
    assert main(["diff", str(a), str(a)]) == 0
    assert "same records" in capsys.readouterr().out
    assert main(["diff", str(a), str(b), "--limit", "1"]) == 3
    text = capsys.readouterr().out
    assert "differ: 1 only in SOURCE, 2 only in TARGET" in text
    assert f"{b}:0\n" in text
    assert "1 more" in text
    assert main(["diff", str(a), str(b), "--key", "nope", "--json"]) == 2


def test_damage_is_not_called_the_same(
    make_shard: MakeShard, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where intact records agree and some are damaged, heading and JSON say so."""
    a = make_shard([tfrtool.encode_example({"id": f"{n:04d}"}) for n in range(5)], "a.tfrecord")
    flip_bit(a, a.read_bytes().index(b"0001"))
    assert main(["diff", str(a), str(a)]) == 3
    heading = capsys.readouterr().out.splitlines()[0]
    assert "same intact records" in heading
    assert "2 faults" in heading
    assert main(["diff", str(a), str(a), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["same"] is False


def test_digests_are_those_of_other_commands(tmp_path: Path) -> None:
    """The digest of each side is what reshard prints of these records, in whatever order."""
    side = {"train": [(b"a", b"x"), (b"b", b"y"), (b"b", b"y")], "test": [(b"", b"x")]}
    one = write_side(tmp_path / "a", side)
    other = write_side(tmp_path / "b", {"train": side["test"], "test": side["train"][::-1]})
    report = tfrtool.reshard(one, tmp_path / "c", shards=1)
    assert diff(one, other).digests == (report.digest_in, report.digest_in)
    changed = write_side(tmp_path / "d", {"train": side["train"], "test": []})
    assert len({*diff(one, changed).digests}) == 2
