"""Results that show themselves in a notebook."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import write_pets


def shown(result: object) -> str:
    """Return the page in the frame of a cell."""
    cell = result._repr_html_()  # type: ignore[attr-defined]
    (inside,) = re.findall(r'^<iframe sandbox="" srcdoc="([^"]*)"[^<>]*></iframe>$', cell)
    return html.unescape(inside)


def test_a_schema() -> None:
    """Its features, escaped."""
    page = shown(tfrtool.Schema.from_notation(["label:int64=-1", "<script>:string"]))
    assert re.search(r"label</th><td>int64</td><td>\[\]</td><td>-1<", page)
    assert "&lt;script&gt;</th>" in page
    assert "<script" not in page


def test_a_verdict(make_shard: MakeShard) -> None:
    """Whether all is sound, and if not, what is wrong."""
    shard = make_shard([b""] * 3)
    assert "No problems found" in shown(tfrtool.verify(shard))
    shard.write_bytes(shard.read_bytes()[:-2])
    page = shown(tfrtool.verify(shard))
    assert "1 fault in 1 shard" in page
    assert "truncated" in page


@pytest.mark.tf
@pytest.mark.usefixtures("quick_graphs", "quick_cnn")
def test_a_dataset_and_a_run(tmp_path: Path) -> None:
    """Splits and classes; curves and epochs."""
    dataset = tfrtool.dataset(write_pets(tmp_path))
    page = shown(dataset)
    records = dataset.splits["train"].records
    assert re.search(rf'train</th><td class="n">{records}</td>', page)
    assert "cat, dog" in page
    report = tfrtool.train(dataset, model="cnn", image_size=32, epochs=2)
    page = shown(report)
    assert "loss: training from" in page
    assert page.count("<tr>") == 3  # a head and two epochs
