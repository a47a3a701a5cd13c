"""Statistics of shards: TFDV's figures, every sort of record, and any number of workers."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import flip_bit, image_payload, write_foreign
from tests.examples.strategies import UNSET, entry, float32, int64, raw_example, string
from tests.inspection.stats.test_distance import TFDV
from tests.inspection.stats.tfdv_data import records
from tests.photos import image_bytes
from tfrtool.examples.example import Feature, decode_example, encode_example
from tfrtool.records.framing import Record, crc32c, frame
from tfrtool.storage.json_values import to_json_values


def payload(record: Mapping[str, list[Any]]) -> bytes:
    """Return a record of lists as an Example; empty lists are floats."""
    sorts: dict[type, Callable[..., Feature]] = {bytes: string, int: int64}
    held: dict[str, Feature] = {}
    for name, values in record.items():
        make = sorts.get(type(values[0]), float32) if values else float32
        held[name] = make(*values)
    return encode_example(held)


def stream(payloads: Iterable[bytes]) -> io.BytesIO:
    """Return payloads as a shard that is read once."""
    return io.BytesIO(b"".join(map(frame, payloads)))


def by_name(features: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return features by their names."""
    return {one["name"]: one for one in features}


@pytest.fixture
def sides(make_shard: MakeShard) -> list[Path]:
    """Return the records of which TFDV's figures are known, as two shards."""
    return [make_shard(map(payload, records(n)), f"{n}.tfrecord") for n in (0, 1)]


def test_figures_are_tfdvs(sides: list[Path]) -> None:
    """Presence, lengths, means, deviations, ranges, zeros, NaN and commonest strings."""
    for path, expected in zip(sides, TFDV["features"], strict=True):
        found = by_name(tfrtool.stats(path).features)
        assert set(found) == set(expected)
        for name, theirs in expected.items():
            ours = found[name]
            lengths = ours["lengths"]
            assert (ours["present"], ours["missing"]) == (theirs["present"], theirs["missing"])
            spread = [lengths["min"], lengths["max"], lengths["mean"]]
            assert spread == pytest.approx(theirs["lengths"])
            if "top" in theirs:
                assert ours["distinct"] == theirs["unique"]
                top = [[one["value"]["text"], one["count"]] for one in ours["common"]]
                # Those that come as often stand in another order there.
                assert sorted(top) == sorted(theirs["top"])
                assert ours["bytes"]["mean"] == theirs["avg_length"]
                continue
            values = ours["values"]
            assert values["count"] + values["nan"] == theirs["values"]
            for here, there in (
                ("mean", "mean"),
                ("std", "std_dev"),
                ("min", "min"),
                ("max", "max"),
            ):
                assert values[here] == pytest.approx(theirs[there], rel=1e-6), (name, here)
            assert (values["zeros"], values["nan"]) == (theirs["num_zeros"], theirs["nan"])
            assert values["histogram"]["edges"] == pytest.approx(theirs["edges"], rel=1e-6)
            # TFDV's are read off a sketch of quantiles, where integers may be on either side of an
            # edge; ours are counted.
            if name == "wave":
                counts = values["histogram"]["counts"]
                assert counts == pytest.approx(theirs["counts"], abs=0.02 * values["count"])


def test_distances_are_tfdvs(sides: list[Path]) -> None:
    """Those of strings to the digit; those of numbers nearly: TFDV's bins differ on each side."""
    report = tfrtool.stats(sides[0], against=sides[1])
    assert report.against is not None
    found = {(one["feature"], one["of"]): one for one in report.against["distances"]}
    theirs = TFDV["distances"]
    assert found["word", "values"]["distance"] == pytest.approx(theirs["word"], abs=1e-12)
    assert found["word", "values"]["measure"] == "l_infinity"
    for name in ("steps", "list"):
        assert found[name, "values"]["distance"] == pytest.approx(theirs[name], abs=0.06)
        assert found[name, "values"]["measure"] == "jensen_shannon"
    assert found["seldom", "presence"]["distance"] == pytest.approx(0.8 - 0.6)
    assert tfrtool.stats(sides[0], against=sides[0]).farther_than(0.0) == []


def test_the_same_on_any_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and sketches come out alike, whichever process took them."""
    monkeypatch.setattr("tfrtool.inspection.stats.stats._MIN_BYTES_PER_PROCESS", 1)
    parts = [
        [
            encode_example(
                {
                    "n": [n * 8191 % 50_021, n],
                    "x": [math.sin(20 * n + k) for k in range(20)],
                    "s": [f"{20 * n + k}" for k in range(20)],
                }
            )
            for n in range(start, start + 1_500)
        ]
        for start in (0, 500)
    ]
    folder = write_foreign(tmp_path / "many", parts)
    one, two = (to_json_values(tfrtool.stats(folder, workers=n)) for n in (1, 2))
    assert one == two
    integers, texts, numbers = one["features"]
    assert (one["shards"], one["records"]) == (2, 3_000)
    assert (integers["values"]["count"], texts["bytes"]["count"]) == (6_000, 60_000)
    assert integers["values"]["rank_error"] == 0
    assert numbers["values"]["rank_error"] > 0
    assert not texts["distinct_exact"]


def test_features_of_every_sort() -> None:
    """Missing, empty, without a kind, of two types, and infinite."""
    made = [
        raw_example([entry(b"x", int64(1, 2)), entry(b"u", UNSET)]),
        raw_example([entry(b"x", string(b"a")), entry(b"e", int64())]),
        raw_example([entry(b"f", float32(math.inf, math.nan, -0.0))]),
    ]
    found = tfrtool.stats(stream(made))
    rows = {(one["name"], one["dtype"]): one for one in found.features}
    assert set(rows) == {
        ("x", "int64"),
        ("x", "string"),
        ("u", None),
        ("e", "int64"),
        ("f", "float32"),
    }
    assert [rows["x", kind]["present"] for kind in ("int64", "string")] == [1, 1]
    assert rows["u", None]["present"] == 0
    assert (rows["e", "int64"]["present"], rows["e", "int64"]["lengths"]["zeros"]) == (1, 1)
    values = rows["f", "float32"]["values"]
    assert [values[key] for key in ("count", "zeros", "nan", "infinite")] == [1, 1, 1, 1]


def test_sequences() -> None:
    """Feature lists are counted by steps, and by the values of a step."""
    made = [
        raw_example([entry(b"id", int64(n))], {b"w": [string(*[b"a"] * k) for k in range(n)]})
        for n in range(4)
    ]
    report = tfrtool.stats(stream(made))
    assert report.payload.value == "sequence_example"
    found = by_name(report.features)
    words = found["w"]
    assert (words["list"], words["present"], words["missing"]) == (True, 4, 0)
    assert [words["steps"][key] for key in ("min", "max", "mean")] == [0, 3, 1.5]
    assert [words["lengths"][key] for key in ("count", "min", "max")] == [6, 0, 2]
    assert words["common"] == [{"value": {"bytes": 1, "content": "text", "text": "a"}, "count": 4}]
    assert "list" not in found["id"]


def test_images_and_labels(tmp_path: Path) -> None:
    """Headers say sizes and formats; class names stand beside the shards."""
    made = [image_payload(n % 2, data=image_bytes(size=(20 + n, 30))) for n in range(4)]
    made.append(image_payload(1, data=b"\xff\xd8\xff cut"))
    folder = write_foreign(tmp_path / "pets", [made])
    (folder / "label.labels.txt").write_text("cat\ndog\n")
    found = by_name(tfrtool.stats(folder).features)
    images = found["image"]["images"]
    assert images["formats"] == {"image/jpeg": 5}
    assert images["unreadable"] == 1
    assert (images["width"]["min"], images["width"]["max"]) == (20, 23)
    assert (images["height"]["min"], images["height"]["max"]) == (30, 30)
    assert images["channels"]["3"] == 4
    assert found["label"]["common"] == [
        {"value": 1, "count": 3, "name": "dog"},
        {"value": 0, "count": 2, "name": "cat"},
    ]


def test_damage_is_named(make_shard: MakeShard) -> None:
    """What is damaged, or is no Example, is left out and named."""
    path = make_shard([*map(payload, records(0)[:5]), b"no example at all"])
    flip_bit(path, 60)
    report = tfrtool.stats(path)
    assert report.records == 4
    (loss,) = report.losses
    assert [fault.kind.value for fault in loss.faults] == ["payload-crc", "parse"]


@pytest.mark.more
def test_splits_of_one_dataset_do_not_drift(shared_data: Path) -> None:
    """TFX's train and eval splits: no number is far away, and all agree with TFDV's formula."""
    folder = shared_data / "tfrecord" / "tfx_csv_example_gen"
    splits = [folder / "Split-train", folder / "Split-eval"]
    report = tfrtool.stats(splits[0], against=splits[1])
    assert report.against is not None
    found = {
        one["feature"]: one["distance"]
        for one in report.against["distances"]
        if (one["of"], one["measure"]) == ("values", "jensen_shannon")
    }
    assert len(found) == 15
    columns = [_numbers(split, found) for split in splits]
    for name, distance in found.items():
        assert distance < 0.004, name
        edges = np.unique(np.quantile(np.concatenate([one[name] for one in columns]), TENTHS))
        shares = [np.histogram(one[name], np.append(edges, np.inf))[0] for one in columns]
        assert distance == pytest.approx(_tfdv_divergence(*shares), abs=0.003), name


TENTHS = np.linspace(0, 1, 11)


def _numbers(split: Path, names: Iterable[str]) -> dict[str, list[float]]:
    """Return the values of features in all records, as the parser of single records reads them."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for path in sorted(split.glob("*.gz")):
        for record in tfrtool.read(path):
            assert isinstance(record, Record)
            features = decode_example(record.payload).features
            for name, values in found.items():
                values.extend(
                    value for value in features[name].values if not isinstance(value, bytes)
                )
    return found


def _tfdv_divergence(p: Any, q: Any) -> float:
    """Return TFDV's divergence of two histograms with the same edges, as its metrics.cc says."""
    p, q = p / p.sum(), q / q.sum()
    middle = (p + q) / 2
    parts = [np.sum(one[one > 0] * np.log2(one[one > 0] / middle[one > 0])) for one in (p, q)]
    return float(sum(parts) / 2)


def test_long_strings_are_counted_by_their_content(make_shard: MakeShard) -> None:
    """Of strings that are not held, equal ones count as one, next to short ones."""
    texts = [b"a" * 300, b"b" * 300, b"a" * 300, b"short", b"short", b""]
    found = tfrtool.stats(make_shard([encode_example({"s": text}) for text in texts]))
    (feature,) = found.features
    assert feature["distinct"] == 4
    assert [one["count"] for one in feature["common"]] == [2, 2, 1, 1]
    assert {"bytes": 300, "crc32c": f"{crc32c(b'a' * 300):08x}", "content": "text"} in [
        one["value"] for one in feature["common"]
    ]
