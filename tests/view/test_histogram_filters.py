"""Bars above the columns of a table: links to the records with these values."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest

import tfrtool
from tests.datasets import write_foreign
from tests.view.test_pages import Page, Viewer, open_and_read
from tfrtool.examples.example import DType, Feature
from tfrtool.inspection.table.column_ranges import ColumnRange
from tfrtool.inspection.table.record_query import answer
from tfrtool.view.page_address import PageAddress

Run = Callable[..., tuple[int, str, str]]

LARGE = 2**60
NOT_A_NUMBER = Feature(dtype=DType.FLOAT32, values=(float("nan"),))


def _row(number: int) -> bytes:
    return tfrtool.encode_example(
        {
            "n": number,
            "x": NOT_A_NUMBER if number % 25 == 3 else 0.1 * number,
            "sky": ["sun", "it's"][number % 2],
            "note": "é" * (number % 23) + f"{number}",
            "pair": [number % 7, number],
            "big": LARGE + 1000 * number,
            **({"half": number / 3} if number % 4 else {}),
        }
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """Return a viewer of 60 records, in which nothing is tagged."""
    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        viewer = open_and_read(write_foreign(folder / "rows", [list(map(_row, range(60)))]))
    yield viewer
    viewer.live.close()


def _bars(page: Page, column: str) -> list[tuple[str, str]]:
    """Return what a screen reader says of the bars of a column, and their addresses."""
    for head in re.findall(r'<th scope="col".*?</th>', page.html, re.DOTALL):
        if f">{column}" in head:
            found = re.findall(r'<a href="([^"]*)" aria-label="([^"]*)"', head)
            return [(html.unescape(label), html.unescape(address)) for address, label in found]
    return []


def _total(viewer: Viewer, address: str) -> int:
    """Return how many records an address asks for."""
    query = dict(parse_qsl(urlsplit(address).query))
    total: int = viewer.live.ask(answer, PageAddress(query, viewer.live.found).question, 0, 1).total
    return total


def _records(page: Page) -> list[int]:
    return sorted(int(one.rpartition("/")[2]) for one in page.values.get("seen", ()))


def test_a_bar_shows_as_many_records_as_it_counts(rows: Viewer) -> None:
    """Of whole numbers, floats, texts by value and by size, and beyond 2**53."""
    page = rows.get("/")
    for column, count in (
        ("n", 10),
        ("x", 10),
        ("sky", 2),
        ("note", 10),
        ("big", 10),
        ("half", 10),
    ):
        bars = _bars(page, column)
        assert len(bars) == count, column
        for label, address in bars:
            assert f": {_total(rows, address)} record" in label, (column, label)
    assert [label for label, _ in _bars(page, "n")][:2] == [
        "0 to 5: 6 records; show only these",
        "6 to 11: 6 records; show only these",
    ]
    label, last = _bars(page, "pair")[-1]
    assert label == "54 to 59: 6 values; show only these"
    assert _records(rows.get(last)) == [*range(54, 60)]  # one of the values is in the range


def test_bars_extend_narrow_and_remove_the_filter(rows: Viewer) -> None:
    """The filter is a condition that can be removed, and part of every other address."""
    first = rows.get(_bars(rows.get("/"), "n")[1][1])
    assert _records(first) == [*range(6, 12)]
    assert first.links["n: 6 to 11 \u2715(remove)"] == "/"
    label, address = _bars(first, "n")[3]
    assert label.endswith("extend the filter to 6 to 23")
    both = rows.get(address)
    assert _records(both) == [*range(6, 24)]
    assert both.html.count('aria-current="true"><rect') == 3
    narrowed = rows.get(_bars(both, "n")[2][1])
    assert _records(narrowed) == [*range(12, 18)]
    (removed,) = [one for label, one in _bars(narrowed, "n") if "remove" in label]
    assert removed == "/"
    sunny = rows.get(dict(_bars(both, "sky"))["sun: 30 records; show only these"], sort="n")
    assert _records(sunny) == [*range(6, 24, 2)]
    assert _records(rows.get(sunny.links["n: 6 to 23 \u2715(remove)"])) == [*range(0, 60, 2)]
    wrong = rows.get("/", **{"in:nn": "[1,2]", "is:sky": "sun"})
    assert "no column 'nn'; did you mean 'n'?" in wrong.text


def test_values_that_have_no_bar_are_links(rows: Viewer) -> None:
    """Records without a value, and those with NaN."""
    page = rows.get("/")
    assert _records(rows.get(page.links["15 missing"])) == [*range(0, 60, 4)]
    assert not _records(rows.get("/", **{"in:x": "[1e999,1e999]"}))
    assert len(_records(rows.get("/", **{"in:x": "[0,1e999)"}))) == 57
    nan = rows.get(page.links["3 NaN"])
    assert _records(nan) == [3, 28, 53]
    assert nan.links["x: NaN \u2715(remove)"] == "/"


@pytest.mark.parametrize(
    "question",
    [
        {"in:n": "[6,23]", "is:sky": "it's", "sort": "n", "descending": "1"},
        pytest.param(
            {"in:x": "[0.5900000095367432,1.5)", "where": "n % 2 = 0 OR n = 9"},
            marks=pytest.mark.more,
        ),
        pytest.param({"in:x": "nan"}, marks=pytest.mark.more),
        pytest.param({"bytes:note": "[4,9]"}, marks=pytest.mark.more),
        pytest.param({"in:pair": "[40,59]", "null:half": "1"}, marks=pytest.mark.more),
        pytest.param({"in:big": f"[{LARGE}.0,{LARGE + 9000}.0)"}, marks=pytest.mark.more),
    ],
)
def test_the_commands_select_the_same_records(
    rows: Viewer,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    question: dict[str, str],
) -> None:
    """The query returns them in the same order, and the filter copies them."""
    monkeypatch.chdir(tmp_path)
    page = rows.get("/", **question)
    shown = [int(one.rpartition("/")[2]) for one in page.values["seen"]]
    query, copy = (
        shlex.split(html.unescape(one))
        for one in re.findall("<dd><code>(tfrtool .*?)</code>", page.html, re.DOTALL)[:2]
    )
    code, text, _ = run(*query[1:], "--format", "jsonl")
    found = [json.loads(line)["n"] for line in text.splitlines()]
    assert (code, sorted(found), len(found) > 1) == (0, sorted(shown), True)
    if "sort" in question:
        assert found == shown
    code, _, error = run(*copy[1:])
    assert code == 0, error
    _, text, _ = run("cat", copy[3], "--select", "n", "--format", "csv")
    copied = [int(line.rpartition(",")[2]) for line in text.split()[1:]]
    assert copied == sorted(shown)


def test_what_no_command_knows_is_said(rows: Viewer) -> None:
    """Search and measurements are of the viewer alone; tags lead to a command."""
    for question in ({"text": "12"}, {"where": "n < 9 -- all"}, {"size": "100"}):
        assert "Commands have no column for the search" in rows.get("/", **question).text
    assert "Commands for these records" not in rows.get("/", sort="n").text


@pytest.mark.parametrize(
    "text", ["[1,2", "1,2", "[1;2]", "[,]", "[1,2] OR 1", "[nan,1]", "[1e9,x]", "[٣,4]", "NaN"]
)
def test_a_range_that_is_none_is_refused(rows: Viewer, text: str) -> None:
    """By a page that says so."""
    page = rows.get("/?" + urlencode({"in:n": text}, quote_via=quote))
    assert (page.status, "invalid range in the address" in page.text) == (400, True)


def test_ranges_contain_and_extend() -> None:
    """An open end is smaller than a closed one."""
    opened, closed = ColumnRange("x", 0.0, 1.0, is_closed=False), ColumnRange("x", 0.5, 1.0)
    assert not opened.contains(closed)
    assert opened.extended(closed) == ColumnRange("x", 0.0, 1.0)
    assert closed.extended(opened).contains(opened)
    assert ColumnRange.parse("x", opened.text) == opened
