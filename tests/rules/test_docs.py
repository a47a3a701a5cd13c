"""The documentation: named commands, options, links and targets of make exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from course_notebook import NOTEBOOK, PAGE, notebook_text
from option_tables import with_tables

from tests.rules.breaches import expect_none
from tests.rules.imports import RANKS
from tfrtool.cli.app import cli
from tfrtool.cli.help_page import GroupedOption
from tfrtool.loading.augmentations import AUGMENTATIONS

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
SITE = (REPOSITORY / "mkdocs.yml").read_text("utf-8")
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"))
)
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _commands(child, (*path, name))
    else:
        yield path


def _find(path: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def _source(page: str) -> str:
    return (REPOSITORY / page).read_text("utf-8")


def _on_site(page: str) -> str:
    """Return a page as the site has it, with its tables."""
    return with_tables(_source(page))


def test_notebook_has_the_cells_of_its_page() -> None:
    """``make notebook`` writes the notebook of the course from its page."""
    assert NOTEBOOK.read_text("utf-8") == notebook_text(PAGE.read_text("utf-8")), "make notebook"


def test_each_page_has_the_options_of_its_command() -> None:
    """On the site, each command has a page or a section with a table of its options."""
    wrong = []
    general = _source("docs/commands/overview.md")
    for path in _commands(cli):
        name, file = " ".join(path), f"docs/commands/{path[0]}.md"
        page = _on_site(file)
        if not re.search(rf"^#+ tfrtool {name} ", page, re.MULTILINE):
            wrong.append(f"{file} has no heading `tfrtool {name} ...`")
        if f"<!-- options: {name} -->\n`tfrtool {name} --help-all` " not in _source(file):
            wrong.append(f"{file} has no line `<!-- options: {name} -->` and a sentence below")
        section = re.split(rf"^#+ tfrtool {name} ", page, flags=re.MULTILINE)[-1]
        section = re.split(r"^#+ tfrtool ", section, flags=re.MULTILINE)[0]
        for option in _find(path).params:
            flag = f"`{option.opts[0]}"
            if isinstance(option, GroupedOption) and f"\n| {flag}" not in section:
                wrong.append(f"{file} has no row for {flag}")
            elif isinstance(option, click.Option) and flag not in section + general:
                wrong.append(f"overview.md lacks {flag}, which is in no table")
    expect_none(
        wrong,
        "The site has a table of each command's options where docs/commands has the line "
        "`<!-- options: NAME -->`. Readers of the source find a sentence there:",
    )


def test_a_row_has_the_values_default_and_range_of_an_option() -> None:
    """A row of a table has what the help says, with code marked as code."""
    page = _on_site("docs/commands/inspect.md")
    assert (
        "| `--thumb PX` | Size of the thumbnails in pixels. Default: `128`. Range: 32 to 1024. |"
        in page
    )
    assert re.search(r"\| `--out FILE` \| .*`\.png`.* Required\. \|", page)
    assert "\n| `--engine local\\|ray` |" in page


def test_the_page_of_train_has_all_augmentations() -> None:
    """On the site, the page of the input pipeline has a row for each augmentation."""
    page = _on_site("docs/commands/train-pipeline.md")
    notations = [spec.notation.replace("|", "\\|") for spec in AUGMENTATIONS]
    assert [notation for notation in notations if f"\n| `{notation}` |" not in page] == []
    assert "--help-all` lists all augmentations" not in page


def test_a_page_without_marks_stays_as_it_is() -> None:
    """Pages without a mark, or with one in the middle of a line, get no table."""
    for page in ("# Costs\n\nNothing here.\n", "Write `<!-- options: cat -->`.\n\nThen go on.\n"):
        assert with_tables(page) == page


def _known(path: tuple[str, ...]) -> set[str]:
    """Return the options of a command, including those of all commands."""
    names = {name for one in _find(path).params for name in (*one.opts, *one.secondary_opts)}
    return names | {"--help", "--version"}


def _code(page: str) -> Iterator[str]:
    """Yield the code of a page: spans, and the lines of blocks that can be run."""
    text = (REPOSITORY / page).read_text("utf-8")
    for block in _BLOCK.finditer(text):
        if block["language"] in ("sh", "console"):
            yield from re.sub(r" *\\\n *", " ", block["body"]).splitlines()
    yield from (span.replace("\n", " ") for span in _SPAN.findall(_BLOCK.sub("", text)))


def test_commands_and_options_that_are_named_exist() -> None:
    """Pages name only commands and options that exist."""
    options = {path: _known(path) for path in _commands(cli)}
    known = set().union(*options.values())
    wrong = []
    for page, code in [(name, code) for name in PAGES for code in _code(name)]:
        if code.startswith("--"):
            words = re.findall(r"--[a-z-]+", code)
            wrong += [(page, word) for word in words if word not in known]
        for call in re.findall(r"(?<![\w/\"-])tfrtool ([a-z][^|;&]*)", code):
            words = call.split()
            path = tuple(words[: 2 if words[0] == "inspect" else 1])
            if path == ("inspect",) or words[0] == "--":
                continue
            if path not in options:
                wrong.append((page, call))
                continue
            wrong += [
                (page, f"tfrtool {' '.join(path)} {word}")
                for word in re.findall(r"(?<=\s)--[a-z-]+", call)
                if word not in options[path]
            ]
    expect_none(wrong, "Pages name only commands and options that exist. Correct the page:")


def test_links_exist() -> None:
    """The target of a link within the repository exists: a file, or a heading of it."""
    broken = []
    for page in PAGES:
        for link in _LINK.findall(_BLOCK.sub("", _on_site(page))):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (REPOSITORY / page).parent / name if name else REPOSITORY / page
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append((page, link))
    expect_none(broken, "Links in pages lead to a file, or to a heading of one. Broken:")


def _anchors(page: Path) -> set[str]:
    """Return the names of a page's headings in links."""
    headings = _HEADING.findall(_BLOCK.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w -]", "", one.lower()).strip().replace(" ", "-") for one in headings}


def test_every_page_is_in_the_menu() -> None:
    """The site's menu has every page in docs and in the root, except README, and nothing else."""
    menu = re.findall(r"(\S+\.md)$", SITE.split("\nnav:", 1)[1], re.MULTILINE)
    pages = [
        page.removeprefix("docs/") if "/" in page else page.lower()
        for page in PAGES
        if page != "README.md"
    ]
    expect_none(
        sorted(set(menu) ^ set(pages)),
        "The menu in mkdocs.yml (`nav`) lists each page in docs and in the root, except README. "
        "Only in the menu, or only a file:",
    )
    assert len(menu) == len(set(menu))


def test_the_drawing_has_all_packages() -> None:
    """The drawing shows the current packages; `make pictures` updates it."""
    drawing = (REPOSITORY / "docs" / "images" / "packages.svg").read_text("utf-8")
    drawn = re.findall(r'class="n" x="[\d.]+" y="(\d+)"[^>]*>([a-z]+)<', drawing)
    rows = {int(y): RANKS[package] for y, package in drawn}
    update = "docs/images/packages.svg shows other packages than RANKS: run `make pictures`"
    assert [package for _, package in drawn] == list(RANKS), update
    assert [rows[y] for y in sorted(rows)] == sorted(set(RANKS.values())), update


def test_the_readme_is_short() -> None:
    """The README has at most 180 lines: the reference is in docs."""
    limit = 180
    length = len(README.splitlines())
    assert length <= limit, f"README.md has {length} lines, {limit} are allowed: move to docs"


def test_the_makefile_has_all_named_targets() -> None:
    """The Makefile has each target that a page names, such as `make test`."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    assert {"demo", "test"} <= set(re.findall(r"^make (\w+)", README, re.MULTILINE))
    promised = "\n".join((REPOSITORY / page).read_text("utf-8") for page in PAGES)
    named = re.findall(r"(?:^|`)make (?:PYTHON=\S+ )?([a-z-]+)", promised, re.MULTILINE)
    missing = {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)}
    expect_none(missing, "Pages name only targets that the Makefile has. Missing:")
