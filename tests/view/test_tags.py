"""Tags of records in the viewer: a review ends in a list, a command or a feature."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.datasets import write_foreign
from tests.examples.strategies import int64, string
from tests.view.asking import ask
from tests.view.test_pages import EVIL, Open, Page, Viewer, open_viewer
from tfrtool.examples.example import encode_example
from tfrtool.view.marks import marks_folder
from tfrtool.view.server import application

__all__ = ["open_viewer"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return two shards with three records each."""
    shards = [[encode_example({"n": int64(3 * s + n)}) for n in range(3)] for s in range(2)]
    return write_foreign(tmp_path / "rows", shards)


def _tag(viewer: Viewer, *keys: str, untag: tuple[str, ...] = ()) -> None:
    viewer.post([("mark", key) for key in keys] + [("seen", key) for key in (*keys, *untag)])


def test_a_record_has_several_tags(open_viewer: Open, rows: Path) -> None:
    """They are counted, chosen, taken away one by one, and there after a restart."""
    viewer = open_viewer(rows)
    _tag(viewer, "0/1", "0/1/blurry", "1/2/blurry", "1/0/Dark-2")
    page = open_viewer(rows).get("/", tag="blurry")
    for name, seen in (("blurry", ["0/1/blurry", "1/2/blurry"]), ("dark-2", ["1/0/blurry"])):
        chosen = viewer.get("/", tag="blurry", tagged=name)
        assert chosen.values["seen"] == seen
        assert f"{name} {len(seen)}" in page.text
    assert "blurry" in viewer.record(0, 1).text
    _tag(viewer, untag=("0/1/blurry", "1/2/blurry"))
    assert sorted(viewer.live.marks.tags) == ["dark-2", "marked"]
    assert len(list(marks_folder().iterdir())) == 2  # a tag without records has no list
    answer = viewer.post([("bulk", "use"), ("new", "New"), ("back", "/record/0/1?n=2&tag=old")])
    assert dict(answer.headers)["location"] == "/record/0/1?n=2&tag=new"
    viewer.post([("bulk", "mark"), ("query", "tag=all&where=n+%3E+3")])
    assert viewer.bytes("/marked.txt?tag=all").body.decode().count("\n") == 2
    answer = viewer.post([("seen", "0/0/all"), ("mark", "0/0/all"), ("script", "1")])
    assert json.loads(answer.body) == {"all": 3}


def test_the_commands_of_the_bar_work(
    open_viewer: Open, rows: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is run as it is shown: to drop the records, to keep them, and to write the tags."""
    monkeypatch.chdir(tmp_path)
    viewer = open_viewer(rows.relative_to(tmp_path))
    _tag(viewer, "0/1/blurry", "1/2/blurry", "1/2/wrong")
    html = viewer.get("/", tag="blurry").html
    commands = [one.partition("</code>")[0] for one in html.split("<code>tfrtool ")[1:]]
    found = []
    for command in commands:
        code, _, errors = run(*shlex.split(command))
        assert code == 0, errors
        _, out, _ = run("query", shlex.split(command)[2], "FROM records ORDER BY n", "--json")
        lines = map(json.loads, out.splitlines())
        found.append(
            [[row[name] for name in ("n", "blurry", "wrong") if name in row] for row in lines]
        )
    drop, keep, edit = found
    assert (drop, keep) == ([[0], [2], [3], [4]], [[1], [5]])
    assert edit == [[0, 0, 0], [1, 1, 0], [2, 0, 0], [3, 0, 0], [4, 0, 0], [5, 1, 1]]


@pytest.mark.parametrize(
    "tag", [*EVIL, "../x", "a/b", "", " ", "a.b", "x" * 41, "-a", "a b", "%2e"]
)
def test_names_that_are_no_tags_are_refused(open_viewer: Open, rows: Path, tag: str) -> None:
    """In an address and in a form; nothing is stored, and no file gets such a name."""
    viewer = open_viewer(rows)
    if tag.strip("\0 \u2028") not in ("", "nul"):
        for page in (
            viewer.get("/", tag=tag),
            Page(viewer.post([("bulk", "use"), ("new", tag)])),
            Page(viewer.post([("mark", f"0/0/{tag}")])),
        ):
            assert page.status == 400
            assert page.tags.count("script") == 0
    assert not marks_folder().exists()


def test_two_viewers_of_the_same_shards(open_viewer: Open, rows: Path) -> None:
    """Tags of both stay, and each shows those of the other; nothing piles up on the disk."""
    first, second = open_viewer(rows), open_viewer(rows)
    _tag(first, "0/1", "0/1/blurry")
    _tag(second, "0/2", "1/0/dark")
    assert first.live.marks.path("marked").read_text().count("\n") == 2
    assert first.get("/", tagged="dark").values["seen"] == ["1/0"]
    for _ in range(3):
        _tag(second, untag=("0/1", "0/1/blurry"))
        assert "blurry" not in first.get("/").text
        _tag(second, "0/1", "0/1/blurry")
        assert "blurry 1" in first.get("/", tag="blurry").text
    folder = first.live.found.table.folder
    assert len([*folder.glob("marks-*")]) == 2  # the empty one, and the last


def test_lists_that_were_edited(open_viewer: Open, rows: Path) -> None:
    """Comments and records of other shards stay; what isn't text is not replaced."""
    viewer = open_viewer(rows)
    _tag(viewer, "0/1")
    path = viewer.live.marks.path("marked")
    path.write_text(f"# reviewed\nelsewhere:7\n{path.read_text()}")
    _tag(viewer, "0/2")
    lines = path.read_text().splitlines()
    assert lines[:2] == ["# reviewed", "elsewhere:7"]
    assert [one.rpartition(":")[2] for one in lines[2:]] == ["1", "2"]
    _tag(viewer, untag=("0/1", "0/2"))
    assert path.read_text() == "# reviewed\nelsewhere:7\n"
    path.write_bytes("caf\u00e9:1\n".encode("latin-1"))
    answer = Page(viewer.post([("mark", "0/1")]))
    assert "can't be read" in answer.text
    assert (answer.status, path.read_bytes()) == (400, b"caf\xe9:1\n")


def test_tags_that_are_too_many(open_viewer: Open, rows: Path) -> None:
    """They are refused, and those before stay."""
    viewer = open_viewer(rows)
    assert Page(viewer.post([("mark", f"0/0/t{n}") for n in range(51)])).status == 400
    assert not viewer.live.marks.tags


def test_records_are_downloaded_with_their_tags(open_viewer: Open, tmp_path: Path) -> None:
    """Those of a filter, in its order, as ``query`` writes them; long values are whole."""
    payloads = [
        encode_example({"n": int64(n), "text": string((f'a,"{n}"\n' * 500).encode())})
        for n in range(4)
    ]
    viewer = open_viewer(write_foreign(tmp_path / "texts", [payloads]))
    _tag(viewer, "0/1/blurry", "0/3", "0/3/blurry")
    question = "tagged=blurry&sort=n&descending=1"
    answers = {form: viewer.bytes(f"/download.{form}?{question}") for form in ("csv", "parquet")}
    assert dict(answers["csv"].headers)["content-disposition"] == 'attachment; filename="texts.csv"'
    (tmp_path / "a.parquet").write_bytes(answers["parquet"].body)
    names = [f"part-00000-of-00001.tfrecord:{n}" for n in (3, 1)]
    table = pq.read_table(tmp_path / "a.parquet").to_pydict()
    assert (table["_name"], table["n"]) == (names, [3, 1])
    assert table["_tags"] == [["blurry", "marked"], ["blurry"]]
    assert table["text"][0] == 'a,"3"\n' * 500
    lines = csv.DictReader(io.StringIO(answers["csv"].body.decode(), newline=""))
    assert [(one["_name"], one["text"]) for one in lines] == [
        *zip(names, table["text"], strict=True)
    ]
    assert not list(viewer.live.found.table.folder.glob("download-*"))
    assert Page(viewer.bytes("/download.csv?where=n+%3E+9")).status == 400
    assert ask(application(viewer.live), "/download.exe").status == 404
