"""Results that are displayed in a notebook."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import image_payload, write_pets
from tests.photos import image_bytes
from tfrtool.errors import UsageError

HOSTILE = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The rows of the tables of a page, and the number of its pictures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.pictures = 0
        self.in_table = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """Begin a row or a cell."""
        self.pictures += tag == "img"
        self.in_table = self.in_table or tag == "table"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        """Add text to the last cell of a table that goes on."""
        if self.rows and self.in_table:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        """End a table."""
        self.in_table = self.in_table and tag != "table"


def test_results_are_tables(make_shard: MakeShard) -> None:
    """Values are rows, with the names of what is in them as a head; all are escaped."""
    schema = tfrtool.Schema.from_notation(["label:int64=-1", f"{HOSTILE}:string"])
    page = schema._repr_html_()
    assert HOSTILE not in page
    rows = Cells(page).rows
    assert rows[0][:3] == ["", "dtype", "shape"]
    assert rows[1][:2] == ["label", "int64"]
    assert rows[2][0] == HOSTILE
    shard = make_shard([b""] * 3)
    shard.write_bytes(shard.read_bytes()[:-2])
    verdict = tfrtool.verify(shard)
    assert ["fault_count", "1"] in Cells(verdict._repr_html_()).rows
    assert len(repr(verdict)) < 300


def test_summaries_are_tables(make_shard: MakeShard) -> None:
    """Each feature is a row, also of statistics; what they are in a line is short."""
    payloads = [image_payload(number % 2, data=image_bytes()) for number in range(4)]
    shard = make_shard(payloads)
    results = tfrtool.inspect_shard(shard), tfrtool.infer_schema(shard), tfrtool.stats(shard)
    for result in results:
        rows = Cells(result._repr_html_()).rows
        (row,) = [row for row in rows if row[0] == "label"]
        assert row[1:3] == ["int64", "4"]
        assert len(repr(result)) < 600
    assert ["records", "4"] in Cells(tfrtool.inspect_dataset(shard.parent)._repr_html_()).rows


def test_a_record_shows_its_picture_and_values(make_shard: MakeShard) -> None:
    """A line for each value, however long it is; a payload that is no Example is named."""
    data = image_bytes(size=(400, 300))
    other = tfrtool.encode_example({"note": HOSTILE, "many": list(range(5000))})
    records = tfrtool.Records(make_shard([image_payload(1, data=data), other, b"no Example"]))
    assert repr(records[0]).startswith("Record(index=0, offset=0, payload=<")
    assert len(repr(records[0])) < 100
    picture = Cells(records[0]._repr_html_())
    assert picture.pictures == 1
    assert ["label", "1"] in picture.rows
    assert len(records[0]._repr_html_()) < 20_000
    page = records[1]._repr_html_()
    assert HOSTILE not in page
    assert ["many", "[0, 1, 2, 3, 4, 5, 6, 7], ... (5,000 values)"] in Cells(page).rows
    assert "not a tf.train.Example" in records[2]._repr_html_()


def test_a_gallery_of_pictures(tmp_path: Path, make_shard: MakeShard) -> None:
    """The first records of each shard are shown, as many as are asked for."""
    for shard in "ab":
        payloads = [image_payload(number, data=image_bytes()) for number in range(5)]
        make_shard(payloads, f"pets/{shard}.tfrecord")
    gallery = tfrtool.show(tmp_path / "pets", n=4)
    names = ["a.tfrecord:0", "a.tfrecord:1", "b.tfrecord:0", "b.tfrecord:1"]
    assert [one.name for one in gallery.records] == names
    page = gallery._repr_html_()
    assert Cells(page).pictures == 4
    assert re.findall(r"<figcaption>(.*?) <", page)[1] == "label 1"
    assert 'title="a.tfrecord:1"' in page
    assert repr(gallery) == "<RecordGallery: 4 records>"
    with pytest.raises(UsageError, match="n must be 1 to 1,000, got 0"):
        tfrtool.show(tmp_path / "pets", n=0)


def test_a_gallery_without_pictures_is_a_table(make_shard: MakeShard) -> None:
    """Records are rows, and features columns."""
    shard = make_shard([tfrtool.encode_example({"x": n, "y": [0.5, n / 4]}) for n in range(20)])
    rows = Cells(tfrtool.show(shard, n=3)._repr_html_()).rows
    assert rows[0] == ["record", "x", "y"]
    assert rows[3] == [f"{shard.name}:2", "2", "[0.5, 0.5]"]
    assert len(rows) == 4


@pytest.mark.tf
def test_a_dataset_is_a_table(tmp_path: Path) -> None:
    """Splits and classes are shown."""
    dataset = tfrtool.dataset(write_pets(tmp_path))
    rows = Cells(dataset._repr_html_()).rows
    assert ["train", f"{dataset.splits['train'].records}"] in [row[:2] for row in rows]
    assert any("cat" in row[-1] for row in rows)
    assert len(repr(dataset)) < 600


def test_reports_are_tables(tmp_path: Path, make_shard: MakeShard) -> None:
    """Also those of commands that write; empty lists and columns are left out."""
    make_shard([tfrtool.encode_example({"n": number}) for number in range(4)], "numbers/a.tfrecord")
    source, target = tmp_path / "numbers", tmp_path / "new"
    report = tfrtool.reshard(source, target, shards=2)
    rows = Cells(report._repr_html_()).rows
    assert ["records_out", "4"] in rows
    assert "faults" not in [row[0] for row in rows]
    assert len(repr(report)) < 700
    assert ["same", "true"] in Cells(tfrtool.diff(source, target)._repr_html_()).rows
    table = tfrtool.convert(source, tmp_path / "a.parquet")
    assert any(row[0] == "seconds" for row in Cells(table._repr_html_()).rows)


def test_an_error_is_a_line_and_the_callers(tmp_path: Path) -> None:
    """IPython prints the lines of the caller, none of the package, and the message."""
    with pytest.raises(tfrtool.ShardError) as caught:
        tfrtool.inspect_shard(tmp_path / "none.tfrecord")
    *callers, message = caught.value._render_traceback_()
    assert message == f"ShardError: {caught.value}"
    (caller,) = callers
    assert caller.endswith(': tfrtool.inspect_shard(tmp_path / "none.tfrecord")')


def test_arguments_that_calls_do_not_take(tmp_path: Path) -> None:
    """The error names the function that was called, and says what it takes."""
    with pytest.raises(TypeError, match=r"verify\(\) takes only shards by position, got 2 values"):
        tfrtool.verify(tmp_path, tmp_path)  # type: ignore[arg-type, call-arg]
    with pytest.raises(UsageError, match="read_records reads one shard; use tfrtool"):
        tfrtool.read_records(tmp_path)
