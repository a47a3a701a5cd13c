"""MLCommons' description of a dataset, accepted by its own validator."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.cli.inspecting import Capture
from tests.datasets import flip_bit, image_payload, write_foreign
from tests.examples.strategies import UNSET, entry, float32, int64, raw_example, string
from tfrtool.cli import main
from tfrtool.records.framing import frame


def validated(directory: Path, content: dict[str, Any]) -> Any:
    """Return a description as mlcroissant reads it; it raises what is wrong with it."""
    import mlcroissant

    path = directory / "croissant.json"
    path.write_text(json.dumps(content))
    return mlcroissant.Dataset(str(path)).metadata


@pytest.mark.filterwarnings("ignore")
def test_a_dataset_with_metadata(tmp_path: Path, capsys: Capture) -> None:
    """Shards with their digests, features with their types, splits and class names."""
    pets = tmp_path / "pets"
    pets.mkdir()
    for split, count in (("train", 6), ("validation", 4)):
        for shard in range(2):
            records = (image_payload(n % 2) for n in range(count // 2))
            name = f"pets-{split}.tfrecord-{shard:05d}-of-00002"
            (pets / name).write_bytes(b"".join(map(frame, records)))
    (pets / "label.labels.txt").write_text("cat\ndog\n")
    words = ["inspect", "dataset", str(pets), "--emit", "croissant"]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    made = validated(pets, content)
    assert made.name == "pets"
    files = {one.id: one.sha256 for one in made.file_objects}
    shards = tfrtool.find_shards(pets)
    assert files == {
        shard.name: hashlib.sha256(shard.read_bytes()).hexdigest() for shard in map(Path, shards)
    }
    assert made.file_sets[0].includes == sorted(files)
    sets = {one.id: one for one in made.record_sets}
    assert [row["splits/name"] for row in sets["splits"].data] == ["train", "validation"]
    assert [row["labels/name"] for row in sets["labels"].data] == ["cat", "dog"]
    types = {one.name: str(one.data_types[0]).rpartition("/")[2] for one in sets["records"].fields}
    assert types == {"image": "ImageObject", "label": "Int64"}


@pytest.mark.filterwarnings("ignore")
def test_a_plain_directory(tmp_path: Path) -> None:
    """Odd names, lists, bytes, and what is never set are described; nothing is made up."""
    record = raw_example(
        [
            entry("größe m".encode(), float32(1, 2)),
            entry(b"caf\xe9", string(b"\x00\xff")),
            entry(b"a%20b", int64(1)),
            entry(b"split", string(b"x")),
            entry(b"u", UNSET),
        ]
    )
    folder = write_foreign(tmp_path / "some shards", [[record], [record]])
    made = tfrtool.croissant(folder)
    assert made.whole
    assert "version" not in made.content
    fields = {one.name: one for one in validated(folder, made.content).record_sets[0].fields}
    assert set(fields) == {"größe m", "caf\\udce9", "a%20b", "split", "u"}
    assert fields["größe m"].repeated
    assert not fields["a%20b"].repeated
    assert str(fields["caf\\udce9"].data_types[0]).endswith("UInt8")


@pytest.mark.filterwarnings("ignore")
def test_damage(tmp_path: Path, capsys: Capture) -> None:
    """It is named beside the description, and makes exit code 3."""
    record = raw_example([entry(b"x", int64(1))])
    folder = write_foreign(tmp_path / "shards", [[record] * 3])
    flip_bit(folder / "part-00000-of-00001.tfrecord", 14)
    assert main(["inspect", "dataset", str(folder), "--emit", "croissant"]) == 3
    out, err = capsys.readouterr()
    assert "payload-crc" in err
    validated(folder, json.loads(out))
    assert main(["inspect", "dataset", str(folder), "--emit", "croissant", "--json"]) == 2
