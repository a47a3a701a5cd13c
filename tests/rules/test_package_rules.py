"""Rules for the package: unique names, renames only in storage, the field's words, dependencies."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import tfrtool
from tests.rules.breaches import expect_none
from tests.rules.imports import imported_modules, nodes_of

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
"""Words that users of TensorFlow would have to guess at; the field has another word for each."""


def repeated_modules(paths: list[str]) -> list[str]:
    """Return the file names that more than one module has, except ``__init__.py``."""
    names = Counter(Path(path).name for path in paths)
    return sorted(name for name, count in names.items() if count > 1 and name != "__init__.py")


def repeated_classes(sources: dict[str, str]) -> list[str]:
    """Return the names that several classes share, including private ones."""
    names = Counter(
        node.name
        for source in sources.values()
        for node in nodes_of(source)
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def renames(source: str) -> list[int]:
    """Return the lines that rename a file, such as by ``os.rename`` or ``Path.replace``."""
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
    """Return the words of NOT_OUR_WORDS in a text, also as parts of a name."""
    spaced = re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", text).lower()
    return re.findall(rf"\b(?:{'|'.join(map(re.escape, NOT_OUR_WORDS))})(?:s|ed)?\b", spaced)


def test_module_names_are_unique() -> None:
    """No two modules of the package have the same name."""
    expect_none(
        repeated_modules(list(SOURCES)),
        "Each module has a file name of its own: rename all but one of",
    )


def test_class_names_are_unique() -> None:
    """No two classes of the package have the same name."""
    expect_none(
        repeated_classes(SOURCES),
        "Each class has a name of its own, also a private one: rename all but one of",
    )


def test_only_storage_renames_files() -> None:
    """Only ``tfrtool/storage`` makes temporary names and renames files."""
    found = {path: renames(SOURCES[path]) for path in SOURCES if not path.startswith("storage/")}
    expect_none(
        found,
        "Only tfrtool/storage renames files and makes temporary names: use "
        "storage/atomic_files.py, or Staging for several files. Lines that do it elsewhere:",
    )


def test_words_are_those_of_tensorflow() -> None:
    """Code, help, messages and documentation use none of NOT_OUR_WORDS."""
    texts = SOURCES | {path: (REPOSITORY / path).read_text("utf-8") for path in DOCS}
    found = {path: strange_words(text) for path, text in texts.items()}
    expect_none(
        found,
        "Use words that users of TensorFlow know, instead of those in NOT_OUR_WORDS:",
    )


def test_checks_can_fail() -> None:
    """Each check finds a violation, and passes what is allowed."""
    assert repeated_modules(["a/plan.py", "b/plan.py", "b/c.py"]) == ["plan.py"]
    assert repeated_classes({"a": "class A: ...", "b": "class A: ...\nclass B: ..."}) == ["A"]
    assert renames("os.replace(a, b)\npath.rename(b)\npath.replace(b)") == [1, 2, 3]
    assert renames("'a'.replace('b', 'c')\nreplace(options, a=1)\noptions.replace(a=1)") == []
    assert strange_words("class SalvageReport: 'the learner'") == ["salvage", "learner"]
    assert strange_words("feedback of a materialised view, salvageable") == []


def test_imported_libraries_are_dependencies() -> None:
    """Imported libraries are dependencies, except Ray, fsspec, PyTorch and five optional ones."""
    project = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    lists = re.findall(
        r"^(?:dependencies|tensorflow) = \[\n(.*?)^\]", project, re.DOTALL | re.MULTILINE
    )
    assert len(lists) == 2
    names = {
        re.split("[><=;]", line, maxsplit=1)[0] for line in re.findall('"(.*?)"', "".join(lists))
    }
    modules = {"pillow": "PIL", "protobuf": "google", "pyyaml": "yaml"}
    installed = {modules.get(name, name.replace("-", "_")) for name in names}
    imported = {
        name.partition(".")[0]
        for source in SOURCES.values()
        for name in imported_modules(source)
        if not name.startswith(".")
    }
    foreign = imported - set(sys.stdlib_module_names) - {"tfrtool", "_typeshed"}
    installed |= {"markupsafe"}  # Jinja2 requires it
    used_if_installed = {"boto3", "botocore", "pandas", "pillow_heif", "polars"}
    expect_none(
        sorted(foreign - installed - used_if_installed - {"ray", "fsspec", "torch"}),
        "A library that the package imports is in `dependencies` of pyproject.toml, or its extra "
        "`tensorflow`, and pinned in constraints.txt. Missing:",
    )
