"""House rules that a program can check: unique names, one home for renames, known words."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import tfrtool
from tests.contracts.imports import imported_modules, nodes_of

PACKAGE = Path(tfrtool.__file__).parent
REPOSITORY = PACKAGE.parent
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
    if "_pb2" not in path.name
}
DOCS = [
    path.relative_to(REPOSITORY).as_posix()
    for path in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
]
NOT_OUR_WORDS = (
    "what learns",
    "learner",
    "material",
    "feed",
    "salvage",
    "told rightly",
    "stranger",
    "rival",
    "twin",
    "gone on with",
    "to draw the next from",
)
"""Words that TensorFlow's users would have to guess at; each has one of the field's own."""


def repeated_modules(paths: list[str]) -> list[str]:
    """Return the names that more than one module has; packages may be called as their verb is."""
    names = Counter(Path(path).name for path in paths)
    return sorted(name for name, count in names.items() if count > 1 and name != "__init__.py")


def repeated_classes(sources: dict[str, str]) -> list[str]:
    """Return the names that more than one class has, private ones too."""
    names = Counter(
        node.name
        for source in sources.values()
        for node in nodes_of(source)
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def renames(source: str) -> list[int]:
    """Return the lines that rename a file: ``os.rename``, ``Path.replace`` and their like."""
    calls = [node for node in nodes_of(source) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if _renames(call)]


def _renames(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr != "replace":
        return call.func.attr in ("rename", "renames", "link", "hardlink_to", "mkstemp", "mktemp")
    # str.replace takes two arguments, dataclasses.replace keywords, Path.replace one.
    of_os = isinstance(call.func.value, ast.Name) and call.func.value.id == "os"
    return of_os or (len(call.args) == 1 and not call.keywords)


def strange_words(text: str) -> list[str]:
    """Return the words that are not the field's, however they stand in a name."""
    spaced = re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", text).lower()
    return re.findall(rf"\b(?:{'|'.join(map(re.escape, NOT_OUR_WORDS))})(?:s|ed)?\b", spaced)


def test_modules_have_names_of_their_own() -> None:
    """No two modules of the house are called the same."""
    assert repeated_modules(list(SOURCES)) == []


def test_classes_have_names_of_their_own() -> None:
    """No two classes of the house are called the same."""
    assert repeated_classes(SOURCES) == []


def test_files_are_renamed_in_one_place() -> None:
    """Only storage makes temporary names and renames: how files appear is decided there."""
    found = {path: renames(SOURCES[path]) for path in SOURCES if not path.startswith("storage/")}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_words_are_those_of_the_field() -> None:
    """Code, help, messages and documentation use words that TensorFlow's users know."""
    texts = SOURCES | {path: (REPOSITORY / path).read_text("utf-8") for path in DOCS}
    found = {path: strange_words(text) for path, text in texts.items()}
    assert {path: words for path, words in found.items() if words} == {}


def test_checks_can_fail() -> None:
    """Each check finds what it is for."""
    assert repeated_modules(["a/plan.py", "b/plan.py", "b/c.py"]) == ["plan.py"]
    assert repeated_classes({"a": "class A: ...", "b": "class A: ...\nclass B: ..."}) == ["A"]
    assert renames("os.replace(a, b)\npath.rename(b)\npath.replace(b)") == [1, 2, 3]
    assert renames("'a'.replace('b', 'c')\nreplace(options, a=1)\noptions.replace(a=1)") == []
    assert strange_words("class SalvageReport: 'the learner'") == ["salvage", "learner"]
    assert strange_words("feedback of a materialised view, salvageable") == []


def test_pip_install_brings_what_the_package_imports() -> None:
    """Of imported libraries, only Ray, fsspec and PyTorch are not dependencies."""
    project = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    base = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    assert base is not None
    names = {re.split("[><=;]", line, maxsplit=1)[0] for line in re.findall('"(.*?)"', base[1])}
    modules = {"pillow": "PIL", "protobuf": "google", "pyyaml": "yaml"}
    brought = {modules.get(name, name.replace("-", "_")) for name in names}
    imported = {
        name.partition(".")[0]
        for source in SOURCES.values()
        for name in imported_modules(source)
        if not name.startswith(".")
    }
    foreign = imported - set(sys.stdlib_module_names) - {"tfrtool", "_typeshed"}
    brought |= {"keras", "array_record", "markupsafe"}  # which these require themselves
    used_if_there = {"boto3", "botocore", "pandas", "polars"}
    assert foreign - brought == {"ray", "fsspec", "torch"} | used_if_there
