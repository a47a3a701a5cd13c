"""Pages of datasets whose features are named like ours or like SQL, or that go away meanwhile."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.examples.strategies import entry, int64, raw_example, string
from tests.records.strategies import shard_of
from tests.view.asking import ask
from tfrtool.cli import main
from tfrtool.examples.example import Feature
from tfrtool.view import page_routes, server
from tfrtool.view.live import Live

NAMES = (
    *("split", "path", "shard", "record", "offset", "bytes", "width", "hash", "fault", "kinds"),
    *("marked", "classes", "verified", "value", "context", "_shard", "#shard", "v0", "c0", "x"),
    *("select", "from", "order", "true", "records", "rowid", "a.b", 'a"b', "a'b", "a b", "a;--"),
    *("A", "a", "ä", "*", "?", "$1", "{x}", "%s", ""),
)
"""Columns of our own, keywords, and what has a meaning in SQL."""

ROWS: list[dict[str, Any]] = [
    {name: n if at % 2 else f"t{n}" for at, name in enumerate(NAMES)} | {"label": n % 2}
    for n in range(4)
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset with features of such names, and class names."""
    folder = tmp_path_factory.mktemp("hostile") / "h"
    folder.mkdir()
    (folder / "label.labels.txt").write_text("cat\nit's\n")
    path = folder / "h-train.tfrecord-00000-of-00001"
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in ROWS]))
    return folder


@pytest.fixture
def viewers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Live]]:
    """Return a list of viewers, which are closed at the end."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    opened: list[Live] = []
    yield opened
    for live in opened:
        live.close()


def view(shards: Path, viewers: list[Live]) -> tuple[Live, Any]:
    """Return a viewer that has read everything, and its pages."""
    live = Live(shards, workers=1)
    viewers.append(live)
    live.found.fill(workers=1)
    live.done = True
    return live, server.application(live)


def test_features_of_any_name_are_viewed(hostile: Path, viewers: list[Live]) -> None:
    """They are shown, sorted by, and named in conditions and in the examples of conditions."""
    live, app = view(hostile, viewers)
    queries = [{"view": "table"}, {"text": "T1"}, {"sort": "split"}, {"sort": "a.b"}]
    queries += [{"where": where} for where in ('"from" = 1', "label_name = 'it''s'")]
    for query in queries:
        answer = ask(app, "/", urlencode(query))
        assert answer.status == 200, query
        assert b'role="alert"' not in answer.body, query
    columns = live.columns[1]
    assert {*NAMES} <= {*columns.names}
    assert columns.examples
    for where in columns.examples:
        assert b'role="alert"' not in ask(app, "/", urlencode({"where": where})).body, where
    for path in ("/overview", live.found.record_names.path(0, 1)):
        assert ask(app, path).status == 200


def test_features_of_any_name_are_reported_and_queried(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values come under their names; those that a row or another feature has get a ``_``."""
    assert main(["report", str(hostile), "--out", str(tmp_path / "r.html")]) == 0
    capsys.readouterr()
    sql = "SELECT * EXCLUDE (_record, _offset, _bytes, _split, label_name) FROM records"
    assert main(["query", str(hostile), sql, "--json"]) == 0
    renamed = {"": "_", "_shard": "_shard_", "a": "a_"}
    for line, row in zip(capsys.readouterr().out.splitlines(), ROWS, strict=True):
        found = {name: value for name, value in json.loads(line).items() if name != "_shard"}
        assert found == {renamed.get(name, name): value for name, value in row.items()}
    assert main(["query", str(hostile), "SELECT context, label_name n FROM records", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"context": r["context"], "n": ["cat", "it's"][r["label"]]} for r in ROWS]
    for name in ('"select"', '"a""b"', '"a.b"', "split"):
        key = name.strip('"').replace('""', '"')
        value = ROWS[2][key] if isinstance(ROWS[2][key], int) else f"'{ROWS[2][key]}'"
        assert main(["cat", str(hostile), "--where", f"{name} = {value}", "--select", "label"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["record"] == 2


def test_features_without_a_kind_are_no_fault(make_shard: MakeShard, viewers: list[Live]) -> None:
    """The pages count the faults that verify finds: none in records with such features."""
    unset = Feature(dtype=None, values=())
    context = [entry(b"id", int64(5)), entry(b"note", unset)]
    payloads = [raw_example(context, {b"words": [string(b"a")]})] * 3
    payloads += [raw_example([entry(b"id", int64(6)), entry(b"note", string(b"x"))])]
    live, app = view(make_shard(payloads), viewers)
    page = ask(app, "/", "view=table").body.decode()
    assert live.found.verdict is not None
    assert live.found.verdict.is_sound
    assert "No problems found." in page
    assert "all with a fault" not in page
    assert page.count('<td class="n">5<') == 3  # the values of other features are shown


def test_features_named_like_columns_of_other_types(
    make_shard: MakeShard, viewers: list[Live]
) -> None:
    """A number called label_name and a list called width break no examples of conditions."""
    rows = [{"label_name": n, "width": [n, 2], "n": n} for n in range(3)]
    live, app = view(make_shard([tfrtool.encode_example(row) for row in rows]), viewers)
    assert ask(app, "/").status == 200
    assert live.columns[1].examples == ["label_name < 1", "n < 1"]


def test_a_dataset_that_goes_away(hostile: Path, tmp_path: Path, viewers: list[Live]) -> None:
    """The overview says what can't be read; the records that were read are still shown."""
    folder = tmp_path / "copy"
    shutil.copytree(hostile, folder)
    live, app = view(folder, viewers)
    shutil.rmtree(folder)
    answer = ask(app, "/overview")
    assert answer.status == 400
    assert "can&#39;t be read: no such file or directory" in answer.body.decode()
    assert ask(app, "/").status == 200
    assert live.found.table.rows == len(ROWS)


def test_an_unexpected_error_is_a_page_and_logged(
    hostile: Path,
    viewers: list[Live],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The page names no details, which are in the terminal, with the address."""

    def fail(*_: object) -> str:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(page_routes, "overview_page", fail)
    _, app = view(hostile, viewers)
    with caplog.at_level(logging.ERROR):
        answer = ask(app, "/overview")
    assert answer.status == 500
    assert "unexpected error; the terminal of tfrtool view shows it" in answer.body.decode()
    assert "a mistake of ours" not in answer.body.decode()
    assert "/overview" in caplog.text
    assert "RuntimeError: a mistake of ours" in caplog.text
