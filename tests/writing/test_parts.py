"""Parts of a write that another process does: looking at images, writing a shard."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.photos import write_class_folders
from tests.writing.test_plan import make_options
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.open_source import open_source
from tfrtool.storage.progress import no_progress
from tfrtool.writing.image_audit import Audit, BadImage
from tfrtool.writing.publish import Staging
from tfrtool.writing.shard_writer import write_shard, write_shards
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import PlannedShard, plan_shards

pytestmark = pytest.mark.tf


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return images of two classes: one is a copy, one is no image."""
    source = write_class_folders(tmp_path / "photos", count=10)
    (source / "cat" / "bad.jpg").write_bytes(b"no image")
    (source / "dog" / "copy.jpg").write_bytes((source / "cat" / "cat.1.jpg").read_bytes())
    return source


def _audit(source: Path, options: WriteOptions) -> Audit:
    return Audit(open_source(str(source), LabelFrom.FOLDER, source.parent), options.recipe)


def _sent(part: PlannedShard) -> PlannedShard:
    """Return what another process gets."""
    sent = pickle.loads(pickle.dumps(part))
    assert isinstance(sent, PlannedShard)
    return sent


def test_what_parts_find_is_what_the_whole_finds(photos: Path) -> None:
    """Images looked at in parts, elsewhere, have the same digests, verdicts, copies and plan."""
    options = make_options(splits={"train": 0.5, "test": 0.5}, shards=2, dedupe=True)
    whole, merged = _audit(photos, options), _audit(photos, options)
    whole.look_at_all(1, no_progress)
    count = len(whole.source.items)
    for start in range(0, count, 5):
        positions = range(start, min(start + 5, count))
        part = pickle.loads(pickle.dumps(merged.part(positions)))
        part.look_at_all(1, no_progress)
        merged.adopt(positions, part.findings())
    assert merged.findings() == whole.findings()
    assert [*whole.problems()] == [*merged.problems()] != []
    prints = [
        [shard.fingerprint for shard in plan_shards(one, options, None)] for one in (whole, merged)
    ]
    assert prints[0] == prints[1]


def test_a_shard_written_elsewhere_has_the_same_bytes(photos: Path, tmp_path: Path) -> None:
    """A part holds its own images alone, has the shard's fingerprint, and gives its bytes."""
    options = make_options(shards=3)
    audit = _audit(photos, options)
    audit.look_at_all(1, no_progress)
    shards = plan_shards(audit, options, None)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here = Staging(tmp_path / "here", resumed=False, left=False)
    reports = write_shards(shards, here, {}, 1, no_progress, nullcontext)
    parts = [_sent(shard.part()) for shard in shards]
    assert [write_shard(part, tmp_path / "there") for part in parts] == reports
    for part, shard in zip(parts, shards, strict=True):
        assert len(part.audit.source.items) == len(shard.positions)
        assert part.fingerprint == shard.fingerprint
        name = str(shard.name)
        assert (tmp_path / "there" / name).read_bytes() == (here.folder / name).read_bytes()


def test_a_bad_image_leaves_no_shard(photos: Path, tmp_path: Path) -> None:
    """Where nobody has looked at an image, the one who writes finds it; no file is left."""
    (shard,) = plan_shards(_audit(photos, make_options()), make_options(), None)
    part = _sent(shard.part())
    (tmp_path / "out").mkdir()
    with pytest.raises(BadImage):
        write_shard(part, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert [entry.key for entry in part.audit.skipped()] == ["cat/bad.jpg"]
