"""``verify`` and ``inspect dataset`` compare records with features.json."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import tfrtool
from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.inspection.test_split_shards import parts_of
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.example import Feature, encode_example
from tfrtool.examples.fields import Kind, ListOf, Struct, Values
from tfrtool.features.feature_match import FeatureMatch
from tfrtool.features.tfds_tree import tfds_of_tree
from tfrtool.inspection.verify.feature_faults import FeatureFault
from tfrtool.records import frames
from tfrtool.records.framing import frame
from tfrtool.records.reader import RecordReader

Capture = pytest.CaptureFixture[str]
Features = dict[str, Feature]
SHARD = "toy-train.tfrecord-00000-of-00001"
LABEL = Values(kind=Kind.LABEL, info={"numClasses": "3"})
ROOT = Struct(
    {
        "label": LABEL,
        "title": Values.parse("text"),
        "ok": Values.parse("bool"),
        "box": Values.parse("float32[4]"),
        "free": Values.parse("float32[*,2]"),
        "packed": Values.parse("zlib:uint16[*,*]"),
        "image": Values(kind=Kind.IMAGE),
        "steps": ListOf(
            item=Struct(
                {
                    "small": Values.parse("int8"),
                    "action": Values.parse("float32[2]"),
                    "words": ListOf(item=Values.parse("int64")),
                }
            )
        ),
    }
)


def features() -> Features:
    """Return the features of a record that is as features.json says."""
    return {
        "label": int64(1),
        "title": string("Ü".encode()),
        "ok": int64(1),
        "box": float32(0, 0, 1, 1),
        "free": float32(1, 2, 3, 4),
        "packed/shape": int64(1, 2),
        "packed/value": string(zlib.compress(np.array([1, 2], "<u2").tobytes())),
        "image": string(b"\xff\xd8" * 2000),
        "steps/small": int64(1, -128),
        "steps/action": float32(1, 2, 3, 4),
        "steps/words/ragged_flat_values": int64(7, 8, 9),
        "steps/words/ragged_row_lengths_0": int64(1, 2),
    }


def changed(**others: Feature | None) -> Features:
    """Return the features of a record with some others; None leaves a feature out."""
    named = {name.replace("__", "/"): feature for name, feature in others.items()}
    found = features() | {name: one for name, one in named.items() if one is not None}
    return {name: one for name, one in found.items() if named.get(name, one) is not None}


def write(folder: Path, records: Sequence[Mapping[str, Feature]], root: Struct = ROOT) -> Path:
    """Write records with the metadata that TFDS would have; return the folder."""
    payloads = [encode_example(one) for one in records]
    split = {
        "name": "train",
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        "numBytes": str(sum(map(len, payloads))),
        "shardLengths": [str(len(payloads))],
    }
    info = {"fileFormat": "tfrecord", "name": "toy", "version": "1.0.0", "splits": [split]}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(tfds_of_tree(root)))
    (folder / SHARD).write_bytes(shard_of(payloads))
    return folder


def feature_faults(folder: Path) -> list[FeatureFault]:
    """Return how the records differ from features.json."""
    return [one for one in tfrtool.verify(folder).faults if isinstance(one, FeatureFault)]


def output(capsys: Capture, *words: str | Path) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed, on one line."""
    code = main([*map(str, words)])
    return code, " ".join(capsys.readouterr().out.split())


FAULTS: list[tuple[Features, str, str, str]] = [
    (changed(label=None), "label", "label", "no such feature"),
    (changed(label=int64(3)), "label", "a class from -1 to 2", "3"),
    (changed(label=int64(-2)), "label", "a class from -1 to 2", "-2"),
    (changed(label=int64(1, 2)), "label", "one value", "2"),
    (changed(label=float32(1)), "label", "int64 values", "float32 values"),
    (changed(title=int64(1)), "title", "string values", "int64 values"),
    (changed(ok=int64(2)), "ok", "0 or 1", "2"),
    (changed(box=float32(1, 2, 3)), "box", "4 values ([4])", "3"),
    (changed(free=float32(1, 2, 3)), "free", "a multiple of 2 values", "3"),
    (changed(packed__shape=int64(3, 2)), "packed", "the stored shape", "2"),
    (changed(packed__shape=None), "packed/shape", "2 sizes a tensor", "0"),
    (changed(packed__value=string(b"no")), "packed", "zlib data", "*"),
    (changed(image=string(b"a", b"b")), "image", "one value", "2"),
    (changed(steps__small=int64(1, 128)), "steps/small", "int8", "128"),
    (changed(steps__small=int64(1)), "steps/small", "*", "1 instead of 2"),
    (changed(steps__action=float32(1, 2, 3)), "steps/action", "a multiple of 2 values", "3"),
    (
        changed(steps__words__ragged_row_lengths_0=int64(1, 1)),
        "steps/words/ragged_flat_values",
        "as many values as the row lengths say",
        "3 instead of 2",
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: f"{case[1]}: {case[2]}")
def test_a_record_that_differs(
    case: tuple[Features, str, str, str], tmp_path: Path, capsys: Capture
) -> None:
    """One record is a fault that names it, the feature, and what was expected and found."""
    wrong, feature, expected, found = case
    write(tmp_path, [features(), features(), wrong, features()])
    (fault,) = feature_faults(tmp_path)
    offset = 2 * len(shard_of([encode_example(features())]))
    assert (fault.path.name, fault.record, fault.offset, fault.count) == (SHARD, 2, offset, 1)
    assert fault.feature == feature
    assert expected in ("*", fault.expected)
    assert found == "*" or fault.found == (found,)
    for words in (["verify"], ["inspect", "dataset"]):
        code, text = output(capsys, *words, tmp_path)
        assert code == 3
        assert f"feature {feature!r}" in text
        assert f"{SHARD}:2 at offset {offset}" in text
        assert "match features.json" not in text


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: f"{case[1]}: {case[2]}")
def test_what_cannot_be_shown_is_a_fault(
    case: tuple[Features, str, str, str], tmp_path: Path, capsys: Capture
) -> None:
    """What cat leaves out is a fault of verify; it shows unknown classes and missing features."""
    wrong, _, expected, found = case
    write(tmp_path, [features(), wrong, features(), features()])
    is_shown = expected.startswith("a class") or found == "no such feature"
    code = main(["cat", str(tmp_path)])
    captured = capsys.readouterr()
    assert code == (0 if is_shown else 3)
    assert len(captured.out.splitlines()) == (4 if is_shown else 3)
    assert is_shown or f"{SHARD}:1: " in captured.err


def test_records_that_match(tmp_path: Path, capsys: Capture) -> None:
    """Records match if all are as features.json says; lists may be missing."""
    no_steps = {name: one for name, one in features().items() if not name.startswith("steps")}
    write(tmp_path, [features(), no_steps, changed(label=int64(-1)), features()])
    code, text = output(capsys, "verify", tmp_path)
    assert (code, "features 4 records match features.json" in text) == (0, True)
    code, text = output(capsys, "inspect", "dataset", tmp_path)
    assert code == 0
    assert "features 4 records match features.json" in text


def test_a_wrong_schema_is_one_fault(tmp_path: Path, capsys: Capture) -> None:
    """What is wrong in most records is told once for a feature, with their number."""
    wrong = [changed(box=float32(*range(n % 4)), title=None) for n in range(250)]
    write(tmp_path, [features(), *wrong])
    by_feature = {one.feature: one for one in feature_faults(tmp_path)}
    assert {name: one.count for name, one in by_feature.items()} == {"box": 250, "title": 250}
    assert by_feature["box"].found == ("0", "1", "2")
    assert [one.record for one in by_feature["box"].records] == [*range(1, 101)]
    code, text = output(capsys, "verify", tmp_path)
    assert code == 3
    assert "found 0, 1, 2, ...; records 1, 2, 3, 4, 5 of" in text
    assert f"{SHARD} and 245 more" in text
    assert "2 faults" in text


def test_shards_are_compared_together(tmp_path: Path) -> None:
    """Parts of shards are counted together, and records get their index in the shard."""
    image = string(b"\xff\xd8")
    records = [changed(label=int64(n % 5), image=image) for n in range(200)]
    write(tmp_path, records)
    (whole,) = feature_faults(tmp_path)
    assert [one.record for one in whole.records][:4] == [3, 4, 8, 9]
    with parts_of(10_000):
        (fault,) = feature_faults(tmp_path)
    assert fault == whole


def test_text_that_is_not_utf8(tmp_path: Path, capsys: Capture) -> None:
    """Text in another encoding is a note, as TFDS reads it; the record is compared all the same."""
    latin, nul = string(b"caf\xe9"), string(b"\0" + b"a" * 3000)
    write(tmp_path, [features(), changed(title=latin), changed(title=nul)])
    code, text = output(capsys, "verify", tmp_path)
    assert code == 0
    assert f"expected text, found bytes that are not UTF-8; {SHARD}:1 at" in text
    write(tmp_path, [changed(title=latin, steps__action=float32(1, 2))])
    assert [one.feature for one in feature_faults(tmp_path)] == ["steps/action"]


def test_features_that_are_not_described(tmp_path: Path, capsys: Capture) -> None:
    """Other features are a note with their names, and how many records have them."""
    write(tmp_path, [changed(extra=int64(1)), changed(extra=int64(2), more=int64(3)), features()])
    for words in (["verify"], ["inspect", "dataset"]):
        code, text = output(capsys, *words, tmp_path)
        assert code == 0
        assert "2 features not in features.json: extra (2 records), more (1 record)" in text


def test_long_values_are_compared(tmp_path: Path) -> None:
    """Next to a long image, everything else is compared, and long tensors are unpacked."""
    root = Struct({"image": Values(kind=Kind.IMAGE), "raw": Values.parse("raw:uint8[4000]")})
    image = string(b"\xff" * 5000)
    good = {"image": image, "raw": string(b"\xfe" * 4000)}
    write(tmp_path, [good, good | {"raw": string(b"\xfe" * 3999)}, good], root)
    (fault,) = feature_faults(tmp_path)
    assert (fault.feature, fault.record, fault.found) == ("raw", 1, ("3999",))


@pytest.mark.parametrize("text", ["{", '{"featuresDict": 3}', "[]"])
def test_a_features_json_that_is_damaged(text: str, tmp_path: Path, capsys: Capture) -> None:
    """A features.json that TFDS can't read is a fault; without a dataset_info.json, a note."""
    write(tmp_path, [features()])
    (tmp_path / "features.json").write_text(text)
    for words in (["verify"], ["inspect", "dataset"]):
        code, output_text = output(capsys, *words, tmp_path)
        assert (code, "features.json" in output_text) == (3, True)
    (tmp_path / "dataset_info.json").unlink()
    code, output_text = output(capsys, "verify", tmp_path)
    assert (code, "features.json" in output_text) == (0, True)


def test_records_of_another_kind(tmp_path: Path) -> None:
    """Among Examples, a record that is none is a fault, and the others are compared."""
    write(tmp_path, [features()] * 3)
    payloads = [encode_example(features()), b"\xff\xff", encode_example(changed(label=None))]
    (tmp_path / SHARD).write_bytes(shard_of(payloads))
    report = tfrtool.verify(tmp_path)
    assert [fault.record for fault in report.shards[0].faults] == [1]
    assert [fault.record for fault in feature_faults(tmp_path)] == [2]
    summary = tfrtool.inspect_dataset(tmp_path)
    kinds = [(one.fault.kind.value, one.fault.record) for one in summary.faults]
    assert {("parse", 1), ("schema", 2)} <= {*kinds}
    write(tmp_path, [{"n": int64(1)}] * 3, Struct({"n": Values.parse("int64")}))
    payloads = [encode_example({"n": int64(1)}), b"\xff\xff", encode_example({"n": int64(2)})]
    (tmp_path / SHARD).write_bytes(shard_of(payloads))
    assert tfrtool.inspect_dataset(tmp_path).features_checked == 2


def image_of(form: str, width: int, height: int) -> Feature:
    """Return an image of a size as a feature."""
    data = io.BytesIO()
    Image.new("RGB", (width, height)).save(data, form)
    return string(data.getvalue())


def test_sizes_of_images(tmp_path: Path, capsys: Capture) -> None:
    """With --images, images have the width and height of their shape, and can have its channels."""
    shape = {"dimensions": ["8", "5", "4"]}
    root = Struct({"image": Values(kind=Kind.IMAGE, info={"shape": shape, "dtype": "uint8"})})
    images = [image_of("PNG", 5, 8), image_of("PNG", 8, 5), image_of("JPEG", 5, 8)]
    write(tmp_path, [{"image": image} for image in images], root)
    assert not feature_faults(tmp_path)
    with parts_of(50):
        faults = tfrtool.verify(tmp_path, images=True).faults
    found = [one for one in faults if isinstance(one, FeatureFault)]
    assert [(one.record, one.expected, one.found) for one in found] == [
        (1, "5 x 8 pixels", ("8 x 5",)),
        (2, "4 channels", ("JPEG",)),
    ]
    code, text = output(capsys, "verify", tmp_path, "--images")
    assert (code, "match features.json" in text) == (3, False)


def test_json_output(tmp_path: Path, capsys: Capture) -> None:
    """The JSON of both commands has the number of records, and each fault's parts."""
    write(tmp_path, [features(), changed(label=int64(9))])
    assert main(["verify", str(tmp_path), "--json"]) == 3
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    (fault,) = report["faults"]
    assert (report["features_checked"], fault["kind"], fault["count"]) == (2, "schema", 1)
    assert (fault["feature"], fault["expected"]) == ("label", "a class from -1 to 2")
    assert [one["record"] for one in fault["records"]] == [1]
    assert main(["inspect", "dataset", str(tmp_path), "--json"]) == 3
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    (fault,) = summary["faults"]
    assert (summary["features_checked"], fault["kind"], fault["record"]) == (2, "schema", 1)


def test_nulls_of_a_table(tmp_path: Path) -> None:
    """Values that a table has as nulls may be missing in its records; other features may not."""
    columns = {"n": [1, None], "day": [date(2020, 1, 1), None], "full": [1, 2], "list": [[1], None]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    folder = tmp_path / "records"
    tfrtool.convert(tmp_path / "a.parquet", folder)
    report = tfrtool.verify(folder)
    assert (report.is_sound, report.features_checked) == (True, 2)
    (shard,) = folder.glob("*.tfrecord*")
    shard.write_bytes(shard_of([encode_example({"full": int64(1)}), encode_example({})]))
    (fault,) = feature_faults(folder)
    assert (fault.feature, fault.record) == ("full", 1)


def test_what_tfds_refuses(shared_data: Path, capsys: Capture) -> None:
    """A dataset from the field whose features.json asks for more than its records have."""
    robot = shared_data / "reports" / "read" / "03_features_json" / "robot" / "1.0.0"
    for words in (["verify"], ["inspect", "dataset"]):
        code, text = output(capsys, *words, robot)
        assert code == 3
        assert "expected a multiple of 8 values, found 14, 21, 28; records 0, 1, 2 of" in text
        assert "expected text, found no such feature; records 0, 1, 2 of" in text


def test_what_tfds_wrote(shared_data: Path) -> None:
    """Datasets of all types match their features.json, but one that TFDS can't read either."""
    folders = sorted((shared_data / "tfds_types").glob("*/1.0.0"))
    assert len(folders) >= 48
    found = {folder.parent.name: tfrtool.verify(folder, workers=1) for folder in folders}
    different = {name: one.faults for name, one in found.items() if not one.is_sound}
    assert [*different] == ["t_optional"]
    assert [fault.record for fault in different["t_optional"]] == [1]
    assert all(one.features_checked == one.records for one in found.values())


def test_a_report_has_them(tmp_path: Path) -> None:
    """The page of a dataset lists what verify finds, with the feature's name and the record."""
    folder = tmp_path / "toy"
    folder.mkdir()
    write(folder, [{"label": int64(1)}, {"label": int64(9)}], Struct({"label": LABEL}))
    report = tfrtool.report(folder, tmp_path / "report.html")
    assert report.faults == 1
    page = (tmp_path / "report.html").read_text()
    assert "feature &#39;label&#39;: expected a class from -1 to 2, found 9" in page


SIMPLE = Struct(
    {
        **{name: ROOT.fields[name] for name in ("label", "title", "ok", "box", "free", "image")},
        "big": Values.parse("uint64"),
        "half": Values.parse("float16"),
        "small": ListOf(item=Values.parse("int8")),
        "pairs": ListOf(item=Values.parse("float32[2]")),
        "three": ListOf(item=Values.parse("text"), length=3),
    }
)
"""Features that are each stored as one, without a size elsewhere."""


def simple(**others: Feature | None) -> Features:
    """Return the features of a record of `SIMPLE` with some others; None leaves a feature out."""
    found: dict[str, Feature | None] = {name: features().get(name) for name in SIMPLE.fields}
    found |= {"big": int64(-1), "half": float32(1.5), "small": int64(-128, 127), "pairs": float32()}
    found |= {"three": string(b"a", "\U0001f600".encode(), b"")} | others
    return {name: one for name, one in found.items() if one is not None}


UNUSUAL = [
    *(simple(label=int64(label)) for label in (-1, 2, 3, -2, 2**62)),
    simple(label=int64()),
    simple(label=Feature(dtype=None, values=())),
    *(simple(title=string(text)) for text in (b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"")),
    *(simple(title=string(text)) for text in (b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf")),
    *(simple(ok=int64(number)) for number in (0, -1, 2)),
    *(simple(box=float32(*range(size))) for size in (0, 3, 4, 8)),
    *(simple(free=float32(*range(size))) for size in (0, 1, 2, 3)),
    *(simple(small=int64(*numbers)) for numbers in ([], [128], [-129], [0] * 40)),
    *(simple(pairs=float32(*range(size))) for size in (1, 2, 3)),
    *(simple(three=string(*[b"x"] * size)) for size in (0, 2, 3, 6)),
    *(simple(**{name: None}) for name in SIMPLE.fields),
    *(simple(**{name: string(b"1")}) for name in SIMPLE.fields),
    *(simple(**{name: int64(1)}) for name in SIMPLE.fields),
    *(simple(**{name: float32(1)}) for name in SIMPLE.fields),
    dict(reversed(simple().items())),
    simple(other=int64(1)),
    {},
]


@pytest.mark.skipif(frames.native is None, reason="records are compared in Python")
def test_the_same_is_found_in_c(tmp_path: Path) -> None:
    """What is simple is compared in C, and the report is the one of Python."""
    match = FeatureMatch.of(SIMPLE)
    assert match is not None
    assert FeatureMatch.of(ROOT) is None
    shard = shard_of([encode_example(one) for one in (simple(), simple(other=int64(1)), simple())])
    (piece,) = RecordReader(io.BytesIO(shard)).pieces()
    assert isinstance(piece, frames.Frames)
    assert match.differing(piece) == b"\0\1\0"
    records = [one for unusual in UNUSUAL for one in (simple(), unusual, simple())]
    folder = write(tmp_path, records, SIMPLE)
    twice = raw_example([entry(key.encode(), one) for key, one in [*simple().items()] * 2])
    for more in (b"", frame(twice) * 3, frame(b"\x0a\x00") * 500):
        path = folder / SHARD
        path.write_bytes(path.read_bytes() + more)
        report = tfrtool.verify(folder).to_json()
        with patch.object(frames, "native", None):
            assert tfrtool.verify(folder).to_json() == report
        assert report["faults"]
