"""Texts for users are plain English: no ruled-out words, and no sentence over 35 words.

A count can't judge a sentence: this catches habits that make texts hard to read, and doesn't
replace a reader.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

import tfrtool
from tests.rules.breaches import expect_none
from tests.rules.imports import nodes_of
from tfrtool.cli.app import cli

PACKAGE = Path(tfrtool.__file__).parent
REPOSITORY = PACKAGE.parent
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"))
)
MODULES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if not path.name.endswith("_pb2.py")
)
TEMPLATES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for pattern in ("view/templates/*.html", "view/static/*.js")
    for path in PACKAGE.glob(pattern)
)

RULED_OUT = re.compile(
    r"\b(told|tells?|said|anew|unasked|likewise|beside|of which|for it (?:is|has|holds)"
    r"|very share|so many|what is there"
    r"|(?<!there )(?:is|are) no (?!longer\b|more\b|need\b|such\b|way\b)[a-z]+"
    r"|gets? its name|asks? records|at last|left out|leaves? out|leave out|makes no sense"
    r"|nothing fulfils|impossible (?!to\b)[a-z]+)\b",
    re.IGNORECASE,
)
"""Words and phrases that readers have to decode."""

EXCEPTIONS: dict[str, set[str]] = {}
"""Phrases in which such a word is right, by file."""

LONGEST = 35
"""Words in a sentence."""

RULE = f"""Text that users read is plain English, for which CONTRIBUTING.md has a section.
A sentence has at most {LONGEST} words: split it. None of the words in RULED_OUT of
tests/rules/test_plain_english.py occurs: say it in the words of a native speaker. Found:"""


def prose_of(text: str) -> str:
    """Return a Markdown page without code blocks, tables, headings and link targets."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(\||#|!\[|\[\w+\]:|<|:::|\s+options:).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", text)


def long_sentences(text: str) -> list[str]:
    """Return the sentences with more than LONGEST words."""
    paragraphs = re.split(r"\n\s*\n", text)
    sentences = (s for one in paragraphs for s in re.split(r"(?<=[.!?:])\s+", one))
    return [" ".join(s.split()) for s in sentences if len(s.split()) > LONGEST]


def ruled_out(text: str, where: str) -> list[str]:
    """Return the ruled-out words of a text, each with 30 characters of context."""
    text = " ".join(text.split())
    for phrase in EXCEPTIONS.get(where, ()):
        text = text.replace(phrase, "")
    return [text[max(m.start() - 30, 0) : m.end() + 30] for m in RULED_OUT.finditer(text)]


def strings_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of all strings in a module that are not docstrings.

    Values in f-strings are replaced by ``x``.
    """
    inside: set[ast.AST] = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(node.value)
        if isinstance(node, ast.JoinedStr):
            inside |= {part for part in node.values if isinstance(part, ast.Constant)}
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "x"
                    for part in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command and group."""
    yield path
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))


def help_texts(path: tuple[str, ...]) -> Iterator[str]:
    """Yield a command's help, and that of each of its options."""
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    yield command.help or ""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield parameter.help or ""


def test_pages_are_plain() -> None:
    """No page has a ruled-out word, or a sentence of more than 35 words."""
    found = []
    for page in PAGES:
        text = (REPOSITORY / page).read_text("utf-8")
        code_free = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        found += [(page, hit) for hit in ruled_out(code_free, page)]
        found += [(page, sentence) for sentence in long_sentences(prose_of(text))]
    expect_none(found, RULE)


def test_help_is_plain() -> None:
    """The help of commands and options is plain."""
    texts = [(path, text) for path in commands(cli) for text in help_texts(path)]
    found = [
        (f"tfrtool {' '.join(path)} --help", hit)
        for path, text in texts
        for hit in (*ruled_out(text, "help"), *long_sentences(prose_of(text)))
    ]
    expect_none(found, RULE)


def test_messages_are_plain() -> None:
    """Messages are plain: all strings in the code except docstrings."""
    found = []
    for module in MODULES:
        for line, text in strings_of((PACKAGE / module).read_text("utf-8")):
            hits = ruled_out(text, module) + long_sentences(text)
            found += [f"{module}:{line}: {hit}" for hit in hits]
    expect_none(found, RULE)


def test_pages_of_viewer_and_report_are_plain() -> None:
    """The pages that the tool renders are plain."""
    found = []
    for template in TEMPLATES:
        text = (PACKAGE / template).read_text("utf-8")
        text = re.sub(r"\{#.*?#\}|//.*?$", "", text, flags=re.MULTILINE)
        found += [(template, hit) for hit in ruled_out(text, template)]
    expect_none(found, RULE)


def test_public_docstrings_are_plain() -> None:
    """The docstrings of public functions and types are plain."""
    found = []
    for name, (module, inner) in tfrtool._HOME_OF.items():
        source = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text("utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == inner:
                text = ast.get_docstring(node) or ""
                found += [(f"tfrtool.{name}", hit) for hit in ruled_out(text, f"tfrtool.{name}")]
    expect_none(found, RULE)


def test_the_guard_can_fail() -> None:
    """Each check finds a violation, and passes what is allowed."""
    assert ruled_out("its kind is told from its content", "x") != []
    assert ruled_out("payloads that are no Examples", "x") != []
    assert ruled_out("there is no such file, and it is no longer needed", "x") == []
    assert len(long_sentences("word " * 36)) == 1
    full = "word " * 34 + "word. "
    assert long_sentences(full * 2) == []
    assert long_sentences(prose_of("| " + "word " * 50)) == []
    code = 'def f():\n    """Told."""\n    raise E(f"told {x} twice")\n'
    assert [text for _, text in strings_of(code)] == ["told x twice"]
