"""Packages import only packages of lower rows, and libraries only where they are allowed."""

from __future__ import annotations

from pathlib import Path

import tfrtool
from tests.rules.breaches import expect_none
from tests.rules.imports import (
    RANKS,
    allowed_instead,
    forbidden_imports,
    import_cycles,
    imported_modules,
)

PACKAGE = Path(tfrtool.__file__).parent
WITHOUT_PACKAGE = {"__init__.py", "__main__.py"}
FILES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).as_posix() not in WITHOUT_PACKAGE
)


def test_packages_import_only_lower_ones() -> None:
    """A file imports only from its own package and from packages of lower rows."""
    found = {path: forbidden_imports(path, (PACKAGE / path).read_text("utf-8")) for path in FILES}
    expect_none(
        [(path, allowed_instead(path, name)) for path, names in found.items() for name in names],
        "A package imports only packages below it, and libraries only where ALLOWED_IN of "
        "tests/rules/imports.py allows them (docs/architecture.md). Move the code, or pass the "
        "value as an argument:",
    )


def test_no_import_cycles() -> None:
    """No two files import each other, directly or through others."""
    sources = {path: (PACKAGE / path).read_text("utf-8") for path in FILES}
    expect_none(
        import_cycles(sources),
        "No two files import each other. Move what both need to a third file, or under "
        "TYPE_CHECKING if it is only a type:",
    )


def test_cycles_are_found() -> None:
    """The check can fail: it finds imports in functions, and cycles of several files."""
    cycle = {
        "records/a.py": "from tfrtool.records import b",
        "records/b.py": "def f():\n    from tfrtool.records.c import x",
        "records/c.py": "import tfrtool.records.a",
        "records/d.py": "import tfrtool.records.a",
    }
    assert import_cycles(cycle) == [["records/a.py", "records/b.py", "records/c.py"]]


def test_every_package_has_a_rank() -> None:
    """RANKS lists each package, and each module directly in ``tfrtool/``."""
    expect_none(
        {path.partition("/")[0].removesuffix(".py") for path in FILES} ^ set(RANKS),
        "RANKS of tests/rules/imports.py lists each package and no other; then run "
        "`make pictures`. Missing there, or only there:",
    )


BROKEN = [
    ("records/a.py", "from tfrtool.examples.schema import Schema"),
    ("records/a.py", "import tfrtool.cli"),
    ("records/a.py", "from tfrtool import examples"),
    ("records/a.py", "from tfrtool import Schema"),
    ("records/a.py", "from ..errors import TfrtoolError"),
    ("records/a.py", "from . import crc"),
    ("errors.py", "from tfrtool.records import crc"),
    ("writing/a.py", "from tfrtool.training.train import train"),
    ("training/a.py", "def f():\n    from tfrtool.convert import job"),
    ("loading/a.py", "if TYPE_CHECKING:\n    from tfrtool.training import train"),
    ("images/a.py", "from tfrtool.examples import schema"),
    ("inspection/a.py", "import tensorflow as tf"),
    ("examples/a.py", "def f():\n    from tensorflow import io"),
    ("cli/a.py", "import keras"),
    ("records/a.py", "import importlib\nimportlib.import_module('tensorflow_datasets')"),
    ("writing/a.py", "from PIL import Image"),
    ("inspection/a.py", "import click"),
    ("loading/a.py", "from tqdm import tqdm"),
    ("inspection/a.py", "from tfrtool.loading import dataset"),
]


def test_forbidden_imports_are_found() -> None:
    """The check can fail: each of these lines is found."""
    for path, source in BROKEN:
        assert len(forbidden_imports(path, source)) == 1, (path, source)


SOUND = [
    ("cli/a.py", "import click\nfrom tfrtool import __version__\nfrom tfrtool.errors import X"),
    ("cli/a.py", "from tfrtool.training import train\nfrom tfrtool.records import crc"),
    ("loading/a.py", "import tensorflow as tf\nfrom tfrtool.records import names"),
    ("training/a.py", "from tfrtool.loading import dataset\nimport keras"),
    ("images/a.py", "from PIL import Image\nfrom tfrtool.records import crc"),
    ("records/a.py", "import os, zlib\nfrom tfrtool.records.framing import mask"),
]


def test_allowed_imports_pass() -> None:
    """The check passes what is allowed."""
    for path, source in SOUND:
        assert forbidden_imports(path, source) == [], (path, source)


def test_imports_are_found_everywhere() -> None:
    """Imports are found in functions, conditions and calls."""
    source = "import a.b\ndef f():\n    from c import d, e\nif x:\n    __import__('g')\n"
    assert sorted(imported_modules(source)) == ["a.b", "c.d", "c.e", "g"]
