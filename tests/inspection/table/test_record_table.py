"""The table of records: what is in its rows, and the questions that can be asked about them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.datasets import flip_bit, image_payload, write_foreign
from tests.examples.strategies import float32, int64, string
from tests.inspection.test_split_shards import parts_of
from tests.photos import image_bytes
from tfrtool.errors import TfrtoolError, UsageError, WriteError
from tfrtool.examples.example import encode_example
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.inspection.profile_dataset import profile_dataset
from tfrtool.inspection.rows.query import query
from tfrtool.inspection.table.gallery import _CROWD, describe_table, sorted_classes
from tfrtool.inspection.table.offset_reader import OffsetReader
from tfrtool.inspection.table.record_query import (
    Question,
    answer,
    columns_of,
    query_of,
    select_records,
)
from tfrtool.inspection.table.record_table import (
    RecordTable,
    RowRequest,
    TablePiece,
    merge_pieces,
    write_side,
)

Read = Callable[..., RecordTable]


def write_rows(paths: Sequence[Path], folder: Path, workers: int = 1) -> tuple[TablePiece, ...]:
    """Write the rows of shards, and return their pieces."""
    pieces: list[TablePiece] = []
    rows = RowRequest(folder, {path: n for n, path in enumerate(paths)}, pieces.append)
    profile_dataset(paths, VerifyOptions(workers=workers), rows)
    return tuple(pieces)


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Read]:
    """Return what reads shards to a table; the number of the shard is its split."""

    def table_of(folder: Path, *, workers: int = 1, **more: Any) -> RecordTable:
        paths = sorted(folder.glob("part*"))
        scratch = tmp_path / "table"
        scratch.mkdir(exist_ok=True)
        table = RecordTable.begin(scratch, [(path, f"split{n}") for n, path in enumerate(paths)])
        pieces = write_rows(paths, scratch, workers)
        return replace(table, pieces=pieces, **more)

    yield table_of
    query_of.cache_clear()


def places(table: RecordTable, **question: Any) -> list[tuple[int, int]]:
    """Return the records of a question, in order."""
    return [row[:2] for row in answer(table, Question(**question), 0, 1000).rows]


ROWS: Sequence[dict[str, Any]] = [
    {"n": 1, "text": "Cat", "x": 0.5, "label": 0, "list": [1, 2]},
    {"n": 2, "text": "dog", "x": float("nan"), "label": 1, "list": [3]},
    {"n": 3, "text": "it's", "label": 2, "Label": "other"},
    {"n": 4, "text": "bird cat", "x": 1.5, "label": 1, "long": "y" * 20_000},
]


@pytest.fixture
def rows(tmp_path: Path, read: Read) -> RecordTable:
    """Return a table of two shards; the features of the second one have other forms."""
    first = [encode_example(row) for row in ROWS]
    second = [encode_example({"n": [5, 6], "text": b"\xff\xfe", "x": "a text", "label": 0})]
    folder = write_foreign(tmp_path / "rows", [first, second])
    folder.joinpath("label.labels.txt").write_text("cat\ndog\n")
    return read(folder, class_names=("cat", "dog"))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x < 1", []),  # a column of two types is left out, so that this is an error
        ("label_ = 1", [1, 3]),
        ("n[1] > 2", [2, 3, 4]),
        ("len(n) = 2", [4]),
        ("text = 'dog'", [1]),
        ("label_name = 'cat'", [0, 4]),
        ("label_name IS NULL", [2]),
        ("_record = 0 AND _split = 'split1'", [4]),
        ("_shard LIKE '%part-00000%' AND _bytes > 1000", []),
        ("_offset = 0", [0, 4]),
        ("Label = 'other'", [2]),  # the later of two names that differ in case gets a _
        ("long IS NULL", [0, 1, 2, 3, 4]),  # texts of more than 16 KiB are not kept
        ("list_contains(list, 2)", [0]),
        ("label_ = 1 -- a comment", [1, 3]),
    ],
)
def test_conditions(rows: RecordTable, where: str, expected: list[int]) -> None:
    """Features of all shards are columns, also if their forms differ."""
    if where == "x < 1":
        with pytest.raises(UsageError, match="no column 'x'"):
            answer(rows, Question(where=where), 0, 9)
        return
    if where.startswith("_shard"):
        assert places(rows, where=where) == [(0, 3)]
        return
    found = [(0, n) if n < 4 else (1, 0) for n in expected]
    assert places(rows, where=where) == found


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("labell = 1", "no column 'labell'"),
        ("label =", "invalid condition"),
        ("label = 1) OR (1 = 1", "invalid condition"),
        ("; DROP TABLE records", "invalid condition"),
        ("EXISTS (FROM read_text('/etc/passwd'))", "can't read '/etc/passwd'"),
        ("1 IN (SELECT 1 FROM glob('/etc/*'))", "can't read"),
        ("(WITH a AS (COPY (SELECT 1) TO '/tmp/x') SELECT 1) = 1", "invalid condition"),
        ("label_ = 'x'", "can't be compared with 'x'"),
        ("count(*) > 1", "aggregate"),
    ],
)
def test_conditions_that_are_refused(rows: RecordTable, where: str, what: str) -> None:
    """They reach no file, change nothing, and are explained in plain words."""
    with pytest.raises(TfrtoolError, match=what) as caught:
        answer(rows, Question(where=where), 0, 9)
    assert str(caught.value).isprintable()
    assert len(places(rows)) == 5


def test_search_filters_and_sorting(rows: RecordTable) -> None:
    """Text is found in any feature and in class names; null comes last in either direction."""
    assert places(rows, text="CAT") == [(0, 0), (0, 3), (1, 0)]  # the last one by its class
    assert places(rows, text="it's") == [(0, 2)]
    assert places(rows, text="%") == []
    assert places(rows, split="split1") == places(rows, shard=1) == [(1, 0)]
    assert places(rows, label="dog") == [(0, 1), (0, 3)]
    assert places(rows, label="2") == [(0, 2)]
    assert places(rows, size=100) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert places(rows, sort="label", descending=True)[:2] == [(0, 2), (0, 1)]
    assert places(rows, sort="_bytes")[-1] == (0, 3)
    without = [(0, 2), (0, 3), (1, 0)]  # these records have no feature "list"
    assert places(rows, sort="list") == [(0, 0), (0, 1), *without]
    assert places(rows, sort="list", descending=True) == [(0, 1), (0, 0), *without]
    with pytest.raises(UsageError, match="no column 'lable'") as caught:
        places(rows, sort="lable")
    assert caught.value.hint == "did you mean 'label'?"
    found = answer(rows, Question(label="dog"), 1, 1, columns=columns_of(rows).shown, facets=True)
    assert (found.total, [row[:2] for row in found.rows]) == (2, [(0, 3)])
    assert dict(zip(query_of(rows).features, found.values[0], strict=False))["text"] == b"bird cat"
    # The facet that is chosen shows its other values, too.
    assert found.facets["label"] == [("cat", 2), ("dog", 2), ("2", 1)]
    assert found.facets["shard"] == [(0, 2)]


def test_suggestions_are_conditions_on_its_own_columns(rows: RecordTable) -> None:
    """Each can be asked, and holds for some but not for all records."""
    columns = columns_of(rows)
    assert set(columns.shown) <= set(columns.names)
    assert columns.examples
    for one in columns.examples:
        assert 0 < len(places(rows, where=one)) < 5


def test_marks_and_faults_are_columns_of_their_own(rows: RecordTable) -> None:
    """They come from files that are written later."""
    faults = write_side(rows.folder, "faults", [(0, 1, ["parse", "count"])], 1)
    marks = write_side(rows.folder, "marks", [(1, 0, ["marked"]), (0, 0, ["blurry", "marked"])], 1)
    table = replace(rows, faults=faults, marks=marks)
    assert places(table, fault="any") == places(table, fault="count") == [(0, 1)]
    assert places(table, marked=True) == [(0, 0), (1, 0)]
    found = answer(table, Question(marked=False), 0, 9, facets=True)
    assert [row.faults for row in found.rows[:1]] == [["parse", "count"]]
    assert places(table, tagged="blurry") == [(0, 0)]
    assert found.total == 3
    facets = answer(table, Question(), 0, 9, facets=True).facets
    assert facets["tagged"] == [("marked", 2), ("blurry", 1)]


@given(seeds=st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_copies(tmp_path_factory: pytest.TempPathFactory, seeds: list[int]) -> None:
    """All but the first of each same image are what "mark all but one" marks."""
    folder = tmp_path_factory.mktemp("copies")
    payloads = [image_payload(n, data=image_bytes(tint=60 * seed)) for n, seed in enumerate(seeds)]
    shards = write_foreign(folder / "shards", [payloads])
    scratch = folder / "table"
    scratch.mkdir()
    pieces = write_rows(sorted(shards.iterdir()), scratch)
    table = RecordTable.begin(scratch, [(shards, None)])
    table = replace(table, has_images=True, pieces=pieces)
    expected = [n for n, seed in enumerate(seeds) if seed in seeds[:n]]
    found = select_records(table, Question(), copies=True)
    assert sorted(record for _, record in found) == expected
    again = [n for n, seed in enumerate(seeds) if seeds.count(seed) > 1]
    assert sorted(record for _, record in select_records(table, Question(copies="any"))) == again
    same = [n for n, seed in enumerate(seeds) if seed == seeds[0]]
    assert [r for _, r in select_records(table, Question(copies=(0, 0)))] == same


def _picture(pixels: Any, quality: int = 90) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).resize((90, 80)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def test_the_gallery(tmp_path: Path, read: Read) -> None:
    """Examples, unusual and similar images, histograms and strips are of the right records."""
    draw = np.random.default_rng(0)
    looks = [draw.integers(0, 256, (8, 9), np.uint8) for _ in range(3)]
    payloads = [
        image_payload(0, data=_picture(looks[0])),
        image_payload(0, data=_picture(looks[1])),
        image_payload(1, data=_picture(looks[0], 60)),
        image_payload(1, data=image_bytes(size=(300, 20))),
        image_payload(1, data=_picture(np.zeros((8, 9), np.uint8))),
        image_payload(1, data=b"not an image \x00"),
    ]
    folder = write_foreign(tmp_path / "images", [payloads, payloads[:1]])
    flip_bit(sorted(folder.iterdir())[1], 100)
    folder.joinpath("label.labels.txt").write_text("cat\ndog\n")
    table = read(folder, class_names=("cat", "dog"), has_images=True)
    shown = describe_table(table)
    assert shown.shard_rows == {0: 6, 1: 1}
    assert shown.classes == {"split0": {"cat": 2, "dog": 4}}
    assert [row.record for row in shown.examples["cat"]] == [0, 1]
    assert [row.record for row in shown.examples["dog"]] == [2, 3, 4, 5]
    assert shown.strips == {0: ["cat", "cat", "dog", "dog", "dog", "dog"], 1: [None]}
    ((count, rows),) = shown.similar
    assert (count, [row.record for row in rows]) == (2, [0, 2])
    assert shown.all_compared
    assert [row.record for row in shown.unusual["widest"]] == [3]
    assert shown.unusual["widest"][0].note == "300 x 20"
    assert shown.unusual["nearly black"][0].record == 4
    counts, edges = shown.histograms["width"]
    assert (sum(counts), edges[0], edges[-1]) == (5, 90, 300)
    assert places(table, like=(0, 2)) == [(0, 0), (0, 2)]
    # A row without a payload, and one whose image can't be decoded.
    assert places(table, fault="payload-crc") == [(1, 0)]
    assert places(table, fault="image") == [(0, 5)]
    assert places(table, size=0) == []
    assert places(table, size=512) == [(0, 3)]


def test_a_common_look_is_not_compared(tmp_path: Path, read: Read) -> None:
    """Too many hashes with the same quarter are only compared for equality, and this is said."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    payload = image_payload(0)
    table = read(write_foreign(tmp_path / "one", [[payload]]), has_images=True)
    (piece,) = table.pieces
    held = pq.read_table(table.folder / piece.file)
    many = pa.concat_tables([held] * (_CROWD + 1))
    hashes = pa.array([n << 16 | 5 for n in range(len(many))], pa.uint64())
    many = many.set_column(many.schema.get_field_index("hash"), "hash", hashes)
    pq.write_table(many, table.folder / piece.file)
    query_of.cache_clear()
    assert not describe_table(table).all_compared


def test_any_payload_has_a_row(tmp_path: Path, read: Read) -> None:
    """Also those that are no Examples, and with any number of processes."""
    payloads = [b"\x00no protobuf", b"", encode_example({"a": 1}), encode_example({"b": "x"})]
    folder = write_foreign(tmp_path / "any", [payloads, [b"\x00"] * 3])
    for workers in (1, 2):
        table = read(folder, workers=workers)
        assert places(table) == [(0, n) for n in range(4)] + [(1, n) for n in range(3)]
        assert places(table, where="a = 1") == [(0, 2)]


def test_merged_pieces_are_the_same_rows(rows: RecordTable) -> None:
    """With fewer files, if some have the same features."""
    again = replace(rows, pieces=rows.pieces + rows.pieces)
    merged = replace(rows, pieces=merge_pieces(rows.folder, again.pieces))
    assert (len(again.pieces), len(merged.pieces)) == (4, 2)
    assert merged.rows == again.rows == 10
    for where in ("true", "n[1] > 2", "label_name = 'cat'"):
        assert places(merged, where=where) == places(again, where=where)


def test_rows_of_a_shard_in_parts(tmp_path: Path) -> None:
    """Records have their numbers in the shard, also damaged ones, and in merged pieces."""
    folder = write_foreign(tmp_path / "a", [[encode_example({"n": n}) for n in range(300)]])
    (path,) = folder.iterdir()
    flip_bit(path, 150 * path.stat().st_size // 300 + 20)
    with parts_of(900):
        pieces = write_rows([path], folder, workers=2)
    assert len({piece.start for piece in pieces}) > 5
    table = replace(RecordTable.begin(folder, [(path, None)]), pieces=pieces)
    for one in (table, replace(table, pieces=merge_pieces(folder, pieces))):
        found = answer(one, Question(), 0, 1000, columns=["n"])
        assert [row.record for row in found.rows] == list(range(300))
        (damaged,) = [row.record for row in found.rows if row.faults]
        expected = [None if n == damaged else n for n in range(300)]
        assert [value for (value,) in found.values] == expected


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the folder and the reason."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    folder = write_foreign(tmp_path / "a", [[image_payload(0)]])
    monkeypatch.setattr("tfrtool.inspection.table.record_table.pq.write_table", full)
    with pytest.raises(WriteError, match="can't store temporary data"):
        write_rows(sorted(folder.iterdir()), tmp_path)


def test_single_records_are_read_again(tmp_path: Path) -> None:
    """By their offsets, also of a compressed shard; what isn't one is None."""
    import gzip

    payloads = [encode_example({"n": n}) for n in range(20)]
    folder = write_foreign(tmp_path / "a", [payloads])
    (path,) = folder.iterdir()
    packed = folder / "b.tfrecord.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    size = path.stat().st_size // 20
    for shards in ([path], [packed]):
        reader = OffsetReader(shards)
        for n in (5, 0, 3, 19):
            record = reader.read(0, size * n)
            assert record is not None
            assert record.payload == payloads[n]
        assert reader.read(0, 1) is None
        assert reader.read(0, 10**6) is None


def test_classes_are_in_the_order_of_their_numbers() -> None:
    """Known names first, then numbers, then other names."""
    names = ["b", "10", "2", "zebra", "cat", "dog"]
    assert sorted_classes(names, ("dog", "cat")) == ["dog", "cat", "2", "10", "b", "zebra"]


def test_types_of_features_that_strategies_make(tmp_path: Path, read: Read) -> None:
    """Lists, absent features and floats keep their values."""
    rows = [{"f": float32(1.5, 2.5)}, {"f": float32()}, {"s": string(b"a", b"b"), "i": int64(7)}]
    table = read(write_foreign(tmp_path / "f", [list(map(encode_example, rows))]))
    found = answer(table, Question(), 0, 9, columns=["f", "i", "s"])
    assert list(query_of(table).features) == ["f", "i", "s"]
    assert found.values[0] == ([1.5, 2.5], None, None)
    assert found.values[2][1:] == (7, ["a", "b"])


def test_types_are_those_of_query(tmp_path: Path, read: Read) -> None:
    """A condition means the same in both: text is what `query` takes for text."""
    rows = [
        {"plain": "é", "control": "a", "later": "a", "many": ["a", "b"], "n": 1},
        {"plain": "b", "control": "\1", "later": "b", "many": "c", "x": 0.5},
        {"plain": "", "control": "", "later": b"\xff", "many": "", "n": 2},
    ]
    payloads = list(map(encode_example, rows))
    table = read(write_foreign(tmp_path / "f", [payloads[:2], payloads[2:]]))
    described = dict(row[:2] for row in query_of(table).fetch("DESCRIBE records"))
    shards = [tmp_path / "f" / path.name for path in sorted((tmp_path / "f").glob("part*"))]
    with query(shards, "DESCRIBE records", on_fault=print) as reader:
        types = {row["column_name"]: row["column_type"] for row in reader.read_all().to_pylist()}
    assert {name: described[name] for name in rows[0]} == {name: types[name] for name in rows[0]}
    assert [types[name] for name in ("plain", "control", "later")] == ["VARCHAR", "BLOB", "BLOB"]
