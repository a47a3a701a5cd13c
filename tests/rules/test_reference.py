"""The public names, and that stub and reference list them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import tfrtool
from tests.rules.breaches import expect_none

VERBS = {
    "append", "bench", "contact_sheet", "convert", "count", "croissant", "dataset", "diff", "edit",
    "encode_example", "evaluate", "extract", "filter_records", "find_shards", "infer_schema",
    "inspect_dataset", "inspect_shard", "load_model", "open_records", "parse_example", "predict",
    "read_records", "read_table", "repair", "report", "reshard", "show", "stats", "train", "verify",
    "write",
}  # fmt: skip
TYPES = {
    "Dataset",
    "Fault",
    "FeatureSpec",
    "Features",
    "Record",
    "Records",
    "Schema",
    "Shard",
    "Split",
}
ERRORS = {
    "ClusterError", "CorruptShardError", "DatasetError", "SchemaError", "ShardError",
    "SourceError", "TfrtoolError", "TrainingError", "UsageError", "WeightsError", "WriteError",
}  # fmt: skip


def reference_names() -> list[str]:
    """Return the names in the Python section of the docs, in order of pages."""
    pages = sorted((Path(__file__).parents[2] / "docs" / "python").glob("*.md"))
    text = "".join(page.read_text("utf-8") for page in pages)
    return re.findall(r"^::: (tfrtool\..+)$", text, re.MULTILINE)


def test_the_public_names_are_these() -> None:
    """The public names are functions, their types, and errors. A new one is a promise: list it."""
    expect_none(
        set(tfrtool.__all__) ^ (VERBS | TYPES | ERRORS),
        "The public names are listed in _HOMES of tfrtool/__init__.py, __init__.pyi, docs/python, "
        "and here. Only in __init__.py, or only here:",
    )


def test_the_reference_has_every_name_once() -> None:
    """Each name in __all__ is on one page of the reference."""
    homes = {f"{home}.{name}": f"tfrtool.{name}" for name, (home, _) in tfrtool._HOME_OF.items()}
    names = [homes.get(name, name).removeprefix("tfrtool.") for name in reference_names()]
    listed = Counter(name for name in names if "." not in name)
    expect_none(
        [name for name in {*listed, *tfrtool.__all__} if listed[name] != (name in tfrtool.__all__)],
        "Each public name is on one page of docs/python, as `::: tfrtool.NAME`. Missing, twice, "
        "or not public:",
    )
    assert "tfrtool.convert" not in reference_names()  # a package of this name is documented


def test_the_stub_has_all_public_names() -> None:
    """The stub for type checkers has the public names and the former ones."""
    stub = Path(tfrtool.__file__).with_suffix(".pyi").read_text("utf-8")
    names = set(re.findall(r"import \w+ as (\w+)|^(\w+) = ", stub, re.MULTILINE))
    old = {"open", "read", "filter"}
    expect_none(
        {one or other for one, other in names} ^ ({*tfrtool.__all__} | old),
        "tfrtool/__init__.pyi imports each public name once more, for type checkers. Only in one:",
    )
    assert set(tfrtool.__all__) <= set(dir(tfrtool))
