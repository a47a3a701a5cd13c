"""Pages: the same blocks as plain text and on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.strategies import entry, raw_example, string
from tests.records.strategies import shard_of
from tfrtool.cli.layout import render
from tfrtool.page import Good, Heading, Page, Prose, Table, facts

PAGE: Page = (
    Heading("shard.tfrecord"),
    facts(("size", "1 KiB"), ("CRCs", Good("all hold"))),
    Table(head=("feature", "present"), rows=[("image", "9"), ("label", "10")], right=(1,)),
    "[bold]not markup[/bold] :smile: 'x'",
)


def test_plain_text_is_laid_out_in_columns() -> None:
    """Labels and cells stand in columns, blocks are an empty line apart, no escape is in it."""
    assert render(PAGE, terminal=False) == (
        "shard.tfrecord\n"
        "  size   1 KiB\n"
        "  CRCs   all hold\n"
        "\n"
        "  feature  present\n"
        "  image          9\n"
        "  label         10\n"
        "\n"
        "  [bold]not markup[/bold] :smile: 'x'"
    )


@pytest.mark.parametrize("colors", [True, False])
def test_a_terminal_shows_the_same_words(colors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All words are there; colors are, unless NO_COLOR is set."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if not colors:
        monkeypatch.setenv("NO_COLOR", "1")
    shown = render(PAGE, terminal=True)
    for words in ("shard.tfrecord", "1 KiB", "all hold", "label", "10", "[bold]not markup[/bold]"):
        assert words in shown
    assert ("\x1b[32m" in shown) is colors


@pytest.mark.parametrize("width", [40, 80, 200])
def test_long_cells_are_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that begin alike are told apart: wrapped on a narrow terminal, whole in a pipe."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"{'camera/front/' * 8}{number}" for number in range(3)]
    page: Page = [Table(head=("name", "type"), rows=[(name, "int64") for name in names])]
    assert all(name in render(page, terminal=False) for name in names)
    lines = re.sub("\x1b.*?m", "", render(page, terminal=True)).splitlines()
    assert max(map(len, lines)) <= width
    first_column = "".join(line.split()[0] for line in lines if line.split())
    assert all(name in first_column for name in names)


def test_a_narrow_terminal_wraps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prose and facts are as wide as the terminal, and parts stay an empty line apart."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    words = " ".join(["seven"] * 30)
    page: Page = [Prose(words, "- "), Heading("head"), facts(("size", words))]
    lines = re.sub("\x1b.*?m", "", render(page, terminal=True)).splitlines()
    assert "" in map(str.strip, lines)
    assert max(map(len, lines)) <= 60
    full = [line for line in lines if line.count("seven") >= 7]
    assert len(full) >= 6  # no line is cut short by a second wrap


@pytest.mark.parametrize("columns", ["1", "14"])
def test_the_narrowest_terminals(
    run: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
) -> None:
    """Commands print their facts and values on terminals of any width; values are cut, not lost."""
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(shard_of([raw_example([entry(b"n" * 40, string(b"value" * 40))])]))
    monkeypatch.setenv("COLUMNS", columns)
    for call in (("verify",), ("inspect", "shard"), ("inspect", "schema"), ("inspect", "stats")):
        code, out, err = run(*call, shard)
        assert (code, err) == (0, ""), call
        assert "Example" in out or "n" * 40 in out
    assert "'value" in run("inspect", "shard", shard)[1]
    lines = render(PAGE, terminal=True).splitlines()
    assert any("shard.tfrecord" in line for line in lines)
    assert any("all hold" in line for line in lines)
