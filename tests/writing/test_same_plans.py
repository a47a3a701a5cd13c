"""Plans are those of earlier versions: the same items, in the same shards, in the same order."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.storage.test_external_sort import keep_little_in_memory
from tests.writing.test_plan import make_options
from tfrtool.images.audit import ImageVerdict
from tfrtool.images.recipe import Encode, ImageRecipe, Resize
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.writing.image_audit import Audit, digest_of
from tfrtool.writing.job_report import ShardReport
from tfrtool.writing.record_sizes import record_sizes
from tfrtool.writing.write_plan import plan_digest, plan_shards
from tfrtool.writing.write_report import report_on

NAMES = (
    *("cat/1.jpg", "cat/10.jpg", "cat/2.JPEG", "dog/1.png", "dog/é.jpg", "dog/\u00e9\u0301.jpg"),
    *("dog/\uffee.gif", "dog/\U0001f436.jpg", "dog/a\udce9b.jpg", "cat-big/1.jpg", "cat/x/y.jpg"),
    *("cat/notes.txt", "readme.md", "stray.jpg", "zebra/z.webp", "cat/.hidden.jpg"),
    *(f"cat/{number:03d}.jpg" for number in range(40)),
    *(f"dog/d{number * 7919 % 97}.png" for number in range(40)),
)
"""Of files; some order differently as text and as UTF-8, and one is no UTF-8."""

PLANS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by number": {"shards": 3, "seed": 5},
    "in order": {"shuffle": False, "shards": 2},
    "split": {"splits": {"train": 0.6, "validation": 0.2, "test": 0.2}, "shard_bytes": 9000},
    "pixels": {"recipe": ImageRecipe(encode=Encode.RAW, resize=Resize(width=40, height=30))},
    "png": {"recipe": ImageRecipe(encode=Encode.PNG), "splits": {"a": 0.5, "b": 0.5}},
    "once": {"dedupe": True, "shard_bytes": 9000},
}

WANTED = json.loads((Path(__file__).parent / "same_plans.json").read_text())
"""Digests of sources and plans, made by the version before items were kept on the disk."""


def _data(name: str) -> bytes:
    draw = random.Random(name.encode("utf-8", "surrogateescape"))
    return bytes([draw.randrange(25)]) * (draw.randrange(1, 5) * 400)


def _folder(path: Path) -> str:
    for name in NAMES:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(_data(name))
    (path / "dog" / "link.jpg").symlink_to("1.png")
    (path / "dog" / "lost.jpg").symlink_to("nowhere")
    return str(path)


def _splits(path: Path) -> str:
    for number, split in enumerate(("train", "val", "test")):
        for name in NAMES[number:90:2]:
            (path / split / name).parent.mkdir(parents=True, exist_ok=True)
            (path / split / name).write_bytes(_data(name))
    return str(path)


def _zip(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(NAMES):
            kind = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode())
            archive.writestr(info, _data(name), kind)
    return str(path)


def _tar(path: Path) -> str:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in (*NAMES, *NAMES[:5]):
            member = tarfile.TarInfo(name)
            member.size = len(_data(name))
            archive.addfile(member, io.BytesIO(_data(name)))
        for name, target in (("cat/soft.jpg", "../dog/1.png"), ("cat/gone.jpg", "nothing.jpg")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return str(path)


def _table(path: Path) -> str:
    _folder(path / "files")
    draw, lines = random.Random(1), ["path,label,split"]
    for name in (*NAMES[:5], *NAMES[16:], *NAMES[30:50]):
        split = draw.choice(("train", "train", "test", "dev"))
        lines.append(f"files/{name},{'odd' if draw.random() < 0.05 else name[:3]},{split}")
    (path / "table.csv").write_text("\n".join(lines))
    return str(path / "table.csv")


SOURCES = {"folder": _folder, "splits": _splits, "zip": _zip, "tar": _tar, "table": _table}


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _listed(source: Source) -> str:
    items = [(i.key, i.label, i.bytes, i.place, i.split) for i in source.items]
    left = [one.key for one in (*source.rejected, *source.ignored)]
    return _digest(items, source.labels, source.splits, left, source.notices)


def _planned(source: Source, **changes: Any) -> str:
    options = make_options(**{"shards": None, "shard_bytes": 20_000, **changes})
    if source.splits:
        options = make_options(**{**changes, "shards": None, "splits": {}, "shard_bytes": 20_000})
    audit = Audit(source, options.recipe)
    sizes = record_sizes(audit, 1)
    for at, item in enumerate(source.items):
        audit.digests[at] = digest_of(source.reader.read(item))
        audit.unknown[at] = 0
        if at in audit.notable:
            del audit.notable[at]
        if at % 17 == 3:
            audit.notable[at] = ImageVerdict(problem=f"bad {at % 3}", format="PNG")
        elif at % 7 == 3:
            audit.notable[at] = ImageVerdict(conversion="not a JPEG", format="PNG")
    if options.dedupe:
        audit.leave_out_copies()
    planned = plan_shards(audit, options, None if options.shards else sizes.records)
    shards = [(str(one.name), [*one.positions], one.fingerprint) for one in planned]
    written = [ShardReport(str(one.name), len(one.positions), 1) for one in planned]
    report = report_on(audit, options, planned, written).to_json()
    for one in (*report["rejected"], *report["ignored"]):
        del one["reason"]
    return _digest(shards, plan_digest(planned, "1.0.0"), json.dumps(report), [*sizes.records])


def digests_of(name: str, folder: Path) -> dict[str, str]:
    """Return digests of a source and of its plans."""
    scratch = folder / "scratch"
    scratch.mkdir()
    source = open_source(SOURCES[name](folder / name), LabelFrom.FOLDER, scratch)
    source = replace(source, notices=())  # that folders lie in class folders, say
    plans = {plan: _planned(source, **changes) for plan, changes in PLANS.items()}
    return {"source": _listed(source), **plans}


@pytest.mark.parametrize("held", [None, 16], ids=["in memory", "on the disk"])
@pytest.mark.parametrize("name", SOURCES)
def test_the_same_plans(
    name: str, held: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the source and the options, and wherever its items are, a plan is what it was."""
    if held is not None:
        keep_little_in_memory(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert digests_of(name, tmp_path) == WANTED[name]
