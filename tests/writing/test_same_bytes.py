"""Shards have the bytes of earlier versions: the same images, splits, order and cuts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import tfrtool

pytestmark = pytest.mark.tf

PETS = Path(__file__).parents[2] / "fixtures" / "pets"
SPLITS = {"train": 0.7, "validation": 0.1, "test": 0.2}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "number": ({"shards": 3, "seed": 5, "dedupe": True}, "ca337c7dfba84e81"),
    "size": ({"shard_size": 50_000, "dedupe": True}, "569b319f84eaf6e4"),
    "in order": ({"shard_size": 50_000, "shuffle": False, "dedupe": True}, "17092fa31785eedb"),
    "split": ({"splits": SPLITS, "shards": 2}, "22bfa2d08997c408"),
    "stratified": ({"splits": SPLITS, "stratify": True, "dedupe": True}, "f2641b81c89debf8"),
    "grouped": ({"splits": SPLITS, "group_by": r"(\d)\.jpg"}, "80eb96419c6e1546"),
    "grouped and stratified": (
        {"splits": SPLITS, "group_by": r"(\d\d)\.jpg", "stratify": True},
        "1727fbabf8a2b633",
    ),
}
"""Options, and a digest of the shards that version 0.1 at 59cd0ec wrote with them."""


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes(case: str, tmp_path: Path) -> None:
    """Options that were there before give the shards that they gave."""
    options, wanted = CASES[case]
    tfrtool.write(PETS, tmp_path / "d", name="d", **options)
    digest = hashlib.sha256()
    for path in sorted((tmp_path / "d").glob("*.tfrecord-*")):
        digest.update(path.name.encode() + path.read_bytes())
    assert digest.hexdigest()[:16] == wanted
