"""Pages: the same blocks as plain text and on a terminal."""

from __future__ import annotations

import io

import pytest

from tfrtool.cli.render.page import Facts, Heading, Lines, Page, Table, Tone, Toned, plain, styled

PAGE: Page = (
    Heading("shard.tfrecord"),
    Facts([("size", "1 KiB"), ("CRCs", Toned("all hold", Tone.GOOD))]),
    Table(
        head=("feature", "present"), rows=[("image", "9"), ("label", "10")], right=frozenset({1})
    ),
    Lines(["[bold]not markup[/bold]"]),
)


def test_plain_text_is_laid_out_in_columns() -> None:
    """Labels and cells stand in columns, blocks are an empty line apart, no escape is in it."""
    assert plain(PAGE) == (
        "shard.tfrecord\n"
        "  size   1 KiB\n"
        "  CRCs   all hold\n"
        "\n"
        "  feature  present\n"
        "  image          9\n"
        "  label         10\n"
        "\n"
        "  [bold]not markup[/bold]"
    )


@pytest.mark.parametrize("colours", [True, False])
def test_a_terminal_shows_the_same_words(colours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All words are there; colours are, unless NO_COLOR is set."""
    from rich.console import Console

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    file = io.StringIO()
    Console(file=file, force_terminal=True, width=80, markup=False).print(styled(PAGE))
    shown = file.getvalue()
    for words in ("shard.tfrecord", "1 KiB", "all hold", "label", "10", "[bold]not markup[/bold]"):
        assert words in shown
    assert ("\x1b[32m" in shown) is colours


@pytest.mark.parametrize("width", [40, 80, 200])
def test_long_cells_are_whole(width: int) -> None:
    """Names that begin alike are told apart: wrapped on a narrow terminal, whole in a pipe."""
    from rich.console import Console

    names = [f"{'camera/front/' * 8}{number}" for number in range(3)]
    page: Page = [Table(head=("name", "type"), rows=[(name, "int64") for name in names])]
    assert all(name in plain(page) for name in names)
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, markup=False).print(styled(page))
    first_column = "".join(line.split()[0] for line in file.getvalue().splitlines() if line.split())
    assert all(name in first_column for name in names)
