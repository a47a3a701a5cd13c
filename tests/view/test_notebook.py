"""Results that are displayed in a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import write_pets


def test_results_are_text(make_shard: MakeShard) -> None:
    """The values are in a <pre>, escaped."""
    schema = tfrtool.Schema.from_notation(["label:int64=-1", "<script>:string"])
    page = schema._repr_html_()
    assert page.startswith("<pre>label:\n  dtype: int64\n")
    assert "&lt;script&gt;:" in page
    shard = make_shard([b""] * 3)
    shard.write_bytes(shard.read_bytes()[:-2])
    assert "\nfault_count: 1\n" in tfrtool.verify(shard)._repr_html_()


@pytest.mark.tf
def test_a_dataset_is_text(tmp_path: Path) -> None:
    """Splits and classes are shown."""
    dataset = tfrtool.dataset(write_pets(tmp_path))
    page = dataset._repr_html_()
    assert f"train:\n    records: {dataset.splits['train'].records}\n" in page
    assert "- cat\n" in page
