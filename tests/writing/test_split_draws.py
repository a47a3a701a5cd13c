"""Splits that hold their share of each label, and splits that cut no group."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.photos import image_bytes
from tests.writing.test_plan import NoReader, make_options
from tfrtool.cli import main
from tfrtool.errors import UsageError
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, ObjectAnnotation
from tfrtool.examples.objects.record_features import LabelKind, RecordFeatures
from tfrtool.sources.grouping import group_by_name, group_number
from tfrtool.sources.items import Item, Source
from tfrtool.writing.image_findings import SourceFindings
from tfrtool.writing.image_task import Finding, ImageShard, RecordMaker
from tfrtool.writing.write_plan import plan_shards

THREE = {"train": 0.7, "validation": 0.2, "test": 0.1}
SHARES = st.lists(st.integers(1, 9), min_size=2, max_size=5).map(
    lambda weights: {f"s{n}": weight / sum(weights) for n, weight in enumerate(weights)}
)


def _splits(
    labels: dict[str, str],
    splits: dict[str, float],
    *,
    digests: dict[str, int] | None = None,
    groups: dict[str, str] | None = None,
    **changes: Any,
) -> dict[str, str]:
    """Return the split of each image, given with its label, in its class or with several."""
    keys = sorted(labels)
    several = any(";" in label for label in labels.values())
    features = RecordFeatures(label=LabelKind.CLASSES, separator=";")
    source = Source(
        items=tuple(
            Item(key, labels[key], 10, group=group_number((groups or {}).get(key, "")))
            for key in keys
        ),
        labels=tuple(sorted({name for label in labels.values() for name in label.split(";")})),
        reader=NoReader(),
        features=features if several else RecordFeatures(),
        grouped=bool(groups),
    )
    options = make_options(**{"splits": splits, "stratify": True} | changes)
    shards = _planned(
        source, options, [(digests or {}).get(k, n + 1000) for n, k in enumerate(keys)]
    )
    return {image.item.key: shard.split for shard in shards for image in shard.images}


def _planned(source: Source, options: Any, digests: Iterable[int]) -> list[ImageShard]:
    findings, maker = SourceFindings(len(source.items)), RecordMaker(source, options.recipe)
    for position, digest in enumerate(digests):
        findings.add(position, Finding(digest + 1))
    return plan_shards(source, options, maker, findings)[0]


def _counts(found: dict[str, str], labels: dict[str, str]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for key, split in found.items():
        for label in labels[key].split(";"):
            counts[label][split] += 1
    return counts


@given(SHARES, st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 2**32))
def test_each_split_has_its_very_share_of_each_class(
    shares: dict[str, float], sizes: list[int], seed: int
) -> None:
    """It is off by less than one image; so is the split, but for one more for each further split.

    However rare classes are, they don't all go to the largest split.
    """
    labels = {f"{n}/{i}": str(n) for n, size in enumerate(sizes) for i in range(size)}
    labels |= {f"filler/{i}": "filler" for i in range(50)}
    found = _splits(labels, shares, seed=seed)
    assert found.keys() == labels.keys()
    for counts in _counts(found, labels).values():
        for split, share in shares.items():
            assert abs(counts[split] - share * counts.total()) < 1 + 1e-6
    for split, share in shares.items():
        count = sum(found[key] == split for key in found)
        assert abs(count - share * len(found)) < len(shares)


@settings(max_examples=settings().max_examples // 2)
@given(st.data(), st.integers(0, 2**32), st.booleans())
def test_no_group_is_in_two_splits(data: st.DataObject, seed: int, stratify: bool) -> None:
    """Nor are copies, nor groups that share copies with others, and so on."""
    labels = {f"{n:02}": data.draw(st.sampled_from("abc")) for n in range(60)}
    some = st.dictionaries(st.sampled_from(sorted(labels)), st.integers(0, 15))
    groups = {key: f"patient {n}" for key, n in data.draw(some).items()} or {"00": "one"}
    digests = data.draw(some)
    joined = {key: key for key in labels}

    def end(key: str) -> str:
        return key if joined[key] == key else end(joined[key])

    for same in (groups, digests):
        firsts: dict[Any, str] = {}
        for key, what in same.items():
            joined[end(key)] = end(firsts.setdefault(what, key))
    halves = {"a": 0.5, "b": 0.5}
    try:
        found = _splits(
            labels, halves, groups=groups, digests=digests, seed=seed, stratify=stratify
        )
    except tfrtool.WriteError:  # by chance all is in one
        assert not stratify or len({end(key) for key in labels}) < 10
        return
    splits: dict[str, set[str]] = defaultdict(set)
    for key in labels:
        splits[end(key)].add(found[key])
    assert all(len(some) == 1 for some in splits.values())


def _several(count: int) -> dict[str, str]:
    """Return images with several labels, some of which are rare."""
    draw = random.Random(3)
    chances = {"common": 0.8, "half": 0.5, "tenth": 0.1, "rare": 0.02, "rarest": 0.005}
    some = [[name for name, one in chances.items() if draw.random() < one] for _ in range(count)]
    return {f"{at:05}": ";".join(names) or "none" for at, names in enumerate(some)}


def test_several_labels_have_their_share() -> None:
    """Each label is off by less than one image, as with iterative-stratification 0.1.9."""
    labels = _several(2000)
    for label, counts in _counts(_splits(labels, THREE), labels).items():
        for split, share in THREE.items():
            assert abs(counts[split] - share * counts.total()) < 1.01, (label, counts)


def test_objects_have_their_share() -> None:
    """Of annotated images each split has its share of the objects of each class, and of images."""
    draw, packed = random.Random(0), []
    for _ in range(1000):
        found = draw.choices(range(4), (50, 20, 5, 1), k=draw.choice((0, 1, 1, 2, 9)))
        objects = tuple(ObjectAnnotation(0, 0, 5, 5, label) for label in found)
        packed.append(ExtraFeatures(annotation=ImageAnnotation(10, 10, objects)).pack())
    names = tuple("abcd")
    source = Source(
        items=tuple(Item(f"{at:04}", "", 10, extra=extra) for at, extra in enumerate(packed)),
        labels=names,
        reader=NoReader(),
        features=RecordFeatures(label=LabelKind.NONE, has_objects=True, classes=names),
    )
    options = make_options(splits=THREE, stratify=True)
    maker = RecordMaker(source, options.recipe)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for shard in _planned(source, options, range(1, 1001)):
        for image in shard.images:
            for label in ("images", *maker.labels_of(image.item)):
                counts[label][shard.split] += 1
    for label, count in counts.items():
        for split, share in THREE.items():
            off = abs(count[split] - share * count.total())
            assert off < (20 if label == "images" else 3), (label, count)


def test_an_added_image_moves_few_others() -> None:
    """With --stratify at most an image of each class for each end of a split, of 3,000 images."""
    labels = {f"{kind}/{n}": kind for kind in "abc" for n in range(1000)}
    before, most = _splits(labels, THREE), 0
    for number in range(5):
        after = _splits(labels | {f"b/new{number}": "b"}, THREE)
        most = max(most, sum(after[key] != split for key, split in before.items()))
    assert most <= 6
    groups = {key: key[:3] for key in labels}
    before = _splits(labels, THREE, groups=groups, stratify=False)
    after = _splits(labels | {"a/00": "b"}, THREE, groups=groups | {"a/00": "a/0"}, stratify=False)
    assert before.items() <= after.items()


def _named(*keys: str) -> Source:
    items = tuple(Item(key=key, label="x", bytes=1) for key in sorted(keys))
    return Source(items=items, labels=("x",), reader=NoReader())


def test_an_expression_groups_names(tmp_path: Path) -> None:
    """Its first group counts, or all that it matches; who has none is alone, and counted."""
    names = ("a/p1_x.jpg", "b/p1_y.jpg", "b/p2_x.jpg", "c/zü\udce9.jpg", "c/\n.jpg")
    for pattern in (r"p(\d+)", r"p\d", "(?i)P([0-9])_(.)", r"p(?:\d)|q"):
        found = group_by_name(_named(*names), pattern, tmp_path)
        one, two, three, *alone = (item.group for item in found.items)
        assert one == two != three != 0, pattern
        assert alone == [0, 0]
        assert any("2 of 5" in notice for notice in found.notices)
    assert not group_by_name(_named("p1", "p2"), "p", tmp_path).notices
    for wrong in ("(", "p(?=1)", r"(p)\1", "nowhere", "(a{1000}){1000}"):
        with pytest.raises(UsageError):
            group_by_name(_named(*names), wrong, tmp_path)


def test_a_hostile_expression_ends_soon(tmp_path: Path) -> None:
    """What takes Python's expressions for ever takes no time."""
    keys = ("a" * 60 + "!", "aab")
    assert group_by_name(_named(*keys), "^(a+)+b$", tmp_path).items[0].group == 0


@pytest.mark.tf
@pytest.mark.parametrize("table", ["t.csv", "t.jsonl", "t.parquet"])
def test_a_column_groups_a_table(table: str, tmp_path: Path) -> None:
    """Each patient is in one split, each class in both; what is written is the same otherwise."""
    rows = []
    for number in range(24):
        name, label = f"{number}.jpg", "cat" if number % 2 else "dog"
        data = image_bytes()
        (tmp_path / name).write_bytes(data[:2] + b"\xff\xfe\x00\x0a%08d" % number + data[2:])
        rows.append({"path": name, "label": label, "patient": number // 3 if number < 21 else None})
    path = tmp_path / table
    if table == "t.csv":
        lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
        path.write_text("\n".join(["path,label,patient", *lines]))
    elif table == "t.jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    halves = {"a": 0.5, "b": 0.5}
    report = tfrtool.write(path, tmp_path / "d", splits=halves, stratify=True, group_by="patient")
    assert {split.labels["cat"] for split in report.splits.values()} == {6}
    assert any("'patient'" in notice and "3 of 24" in notice for notice in report.notices)
    assert not any("not written" in notice for notice in report.notices)
    where: dict[int, set[str]] = defaultdict(set)
    for split in halves:
        for record in tfrtool.read(next((tmp_path / "d").glob(f"d-{split}.*"))):
            assert isinstance(record, tfrtool.Record)
            example = tfrtool.parse_example(record.payload)
            assert sorted(example) == ["image", "image/filename", "label"]
            file = example["image/filename"]
            assert isinstance(file, bytes)
            where[int(file.split(b".")[0]) // 3].add(split)
    assert [len(where[patient]) for patient in range(7)] == [1] * 7
    assert report.options["group_by"] == "patient"


@pytest.mark.parametrize("rule", [["--stratify"], ["--group-by", "x"]])
def test_rules_without_splits_are_refused(
    rule: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --split there is nothing to split, and a source's own splits stay."""
    for split in ("train", "test"):
        (tmp_path / "s" / split / "cat").mkdir(parents=True)
        (tmp_path / "s" / split / "cat" / "x.jpg").write_bytes(image_bytes())
    dataset = str(tmp_path / "d")
    assert main(["write", str(tmp_path / "s"), dataset, *rule]) == 2
    assert "--split" in capsys.readouterr().err
    assert main(["write", str(tmp_path / "s"), dataset, *rule, "--split", "a=1"]) == 2
    assert "--split can't be used" in capsys.readouterr().err
