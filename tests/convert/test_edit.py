"""Edits of datasets: what changes, what stays, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit, write_foreign, write_pets
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.parsing import parse_example
from tfrtool.records.framing import Record


def _payloads(folder: Path) -> dict[str, list[bytes]]:
    """Return the payloads of each shard in a directory, by its name."""
    return {
        shard.name: [item.payload for item in tfrtool.read(shard) if isinstance(item, Record)]
        for shard in tfrtool.find_shards(folder)
    }


def _files(folder: Path) -> dict[str, bytes]:
    """Return all files of a dataset, but for the report, which tells the time."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffixes != [".json"]}


def _record(number: int, **more: Any) -> bytes:
    return tfrtool.encode_example({"id": number, "text": f"{number}", **more})


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two splits with two shards each."""
    return write_pets(tmp_path_factory.mktemp("edit"))


@pytest.mark.tf
def test_tfds_and_tf_read_what_was_cast_added_and_renamed(pets: Path, tmp_path: Path) -> None:
    """Shards stay one to one; TFDS has the new names, classes and types, and tf.io the values."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    report = tfrtool.edit(
        pets,
        tmp_path / "pets" / "2.0.0",
        drop=["image/filename"],
        rename={"label": "class", "image": "picture"},
        add={"source": "kaggle", "weight": 0.5, "box": [1, 2]},
        resize=(8, 6),
        encode="png",
    )
    before, after = _payloads(pets), _payloads(tmp_path / "pets" / "2.0.0")
    assert {name: len(found) for name, found in after.items()} == {
        name: len(found) for name, found in before.items()
    }
    assert (report.records_in, report.records_out, report.corrupt) == (20, 20, 0)
    assert report.digest_in != report.digest_out
    builder = tfds.builder_from_directory(tmp_path / "pets" / "2.0.0")
    assert builder.info.features["class"].names == ["cat", "dog"]
    assert builder.info.features["picture"].shape == (6, 8, 3)
    assert builder.info.supervised_keys == ("picture", "class")
    found = next(iter(builder.as_dataset(split="train")))
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "picture": (6, 8, 3), "class": (), "source": (), "weight": (), "box": (2,),
    }  # fmt: skip
    tfrtool.edit(pets, tmp_path / "cast", cast={"label": "float32"}, select=["label"], name="pets")
    spec = {"label": tf.io.FixedLenFeature([], tf.float32)}
    for name, payloads in _payloads(tmp_path / "cast").items():
        parsed = [float(tf.io.parse_single_example(one, spec)["label"]) for one in payloads]
        assert parsed == [float(parse_example(one)["label"]) for one in before[name]]  # type: ignore[arg-type]
    assert not list((tmp_path / "cast").glob("*.labels.txt"))
    cast = tfds.builder_from_directory(tmp_path / "cast")
    assert next(iter(cast.as_dataset(split="train")))["label"].dtype == tf.float32


def test_records_without_the_feature_keep_their_bytes(tmp_path: Path) -> None:
    """Unknown fields, unpacked lists and doubled names stay where nothing is to be changed."""
    odd = b"\x0a\x10\x0a\x0e\x0a\x01x\x12\x09\x1a\x07\x08\x01\x08\x02\xfa\x01\x00" + b"\xfa\x01\x00"
    source = write_foreign(tmp_path / "in", [[_record(0, old=1), odd], [odd, b""]])
    report = tfrtool.edit(source, tmp_path / "out", rename={"old": "new"}, name="ids")
    first, second = _payloads(tmp_path / "out").values()
    assert second == [odd, b""]
    assert first[1] == odd
    assert parse_example(first[0])["new"] == 1
    assert list(report.splits) == ["train"]
    assert report.splits["train"].shards[1].path == "ids-train.tfrecord-00001-of-00002"


def test_listed_records_get_a_tag(tmp_path: Path) -> None:
    """It is 1 for them and 0 for others, in every shard; a list of what isn't there is an error."""
    shards = [[_record(1), _record(2)], [_record(3)]]
    source = write_foreign(tmp_path / "in", shards)
    first, second = (f"part-0000{n}-of-00002.tfrecord" for n in range(2))
    (tmp_path / "a=b.txt").write_text(f"{first}:1\n{second}:0")
    (tmp_path / "c").write_text(f"# none of the first\n{source / second} 0\n")
    words = [f"--tag=blurry={tmp_path}/a=b.txt", f"--tag=c={tmp_path}/c", "--add", "d=7"]
    assert main(["edit", str(source), str(tmp_path / "out"), *words]) == 0
    payloads = [one for shard in _payloads(tmp_path / "out").values() for one in shard]
    found = [[parse_example(one)[name] for name in ("blurry", "c", "d")] for one in payloads]
    assert found == [[0, 0, 7], [1, 0, 7], [1, 1, 7]]
    for line, message in (("x:1", "line 1: no shard 'x'"), (f"{second}:1", "less than 1")):
        (tmp_path / "c").write_text(line)
        with pytest.raises(tfrtool.TfrtoolError, match=message):
            tfrtool.edit(source, tmp_path / "new", tag={"c": tmp_path / "c"})
        assert not (tmp_path / "new").exists()
    with pytest.raises(tfrtool.UsageError, match="--add and --tag both add 'c'"):
        tfrtool.edit(source, tmp_path / "new", tag={"c": tmp_path / "c"}, add={"c": 1})


def test_bad_values_are_named_or_skipped(tmp_path: Path) -> None:
    """A value that is no number names file, record and offset; or it is listed, and the rest go."""
    source = write_foreign(tmp_path / "in", [[_record(1), _record(2, text="two"), _record(3)]])
    with pytest.raises(tfrtool.DatasetError, match=r"'text'.*int64") as caught:
        tfrtool.edit(source, tmp_path / "out", cast={"text": "int64"})
    assert (caught.value.record, caught.value.offset) == (1, len(_record(1)) + 16)
    assert caught.value.path is not None
    assert caught.value.path.endswith("part-00000-of-00001.tfrecord")
    assert not (tmp_path / "out").exists()
    report = tfrtool.edit(source, tmp_path / "out", cast={"text": "int64"}, on_error="skip")
    assert (report.records_in, report.records_out, report.corrupt) == (3, 2, 1)
    assert [(found.fault.record, found.path.name) for found in report.faults] == [
        (1, "part-00000-of-00001.tfrecord")
    ]
    (payloads,) = _payloads(tmp_path / "out").values()
    assert [parse_example(one)["text"] for one in payloads] == [1, 3]


def test_an_error_names_all_features_that_cannot_be_cast(tmp_path: Path) -> None:
    """It has the first record of each; and no feature whose values all can be cast."""
    records = [_record(1, a=1.5), _record(2, a=2.5, b=3.5), _record(3, text="three", b=4.5)]
    source = write_foreign(tmp_path / "in", [records])
    cast = dict.fromkeys(("a", "b", "id", "text"), "int64")
    with pytest.raises(tfrtool.DatasetError) as caught:
        tfrtool.edit(source, tmp_path / "out", cast=cast)
    assert caught.value.record == 0
    assert caught.value.what == (
        "value 1.5 in feature 'a' can't be cast to int64; "
        "value 3.5 in feature 'b' can't be cast to int64 (record 1); "
        "text in feature 'text' can't be cast to int64 (record 2)"
    )
    assert not (tmp_path / "out").exists()


def test_damage_is_listed_or_stops_the_work(tmp_path: Path) -> None:
    """A damaged record is left out and listed, or nothing is written at all."""
    source = write_foreign(tmp_path / "in", [[_record(number) for number in range(5)]])
    flip_bit(source / "part-00000-of-00001.tfrecord", 20)
    report = tfrtool.edit(source, tmp_path / "out", drop=["text"], on_error="skip")
    assert (report.records_out, report.corrupt) == (4, 1)
    with pytest.raises(tfrtool.CorruptShardError):
        tfrtool.edit(source, tmp_path / "stop", drop=["text"])
    assert not (tmp_path / "stop").exists()


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"drop": ["txt"]}, "'txt'.*'text'"),
        ({"drop": ["zzzz"]}, "'zzzz'.*id, text"),
        ({"cast": {"text": "int32"}}, "string, int64, float32"),
        ({"encode": "raw", "drop": ["text"]}, "one of jpeg, png, keep"),
        ({"resize": 8}, "--resize"),
        ({"on_error": "keep"}, "one of"),
        ({"add": {"x": 2**70}}, "feature 'x'.*int64"),
        ({"add": {"id": 2}}, "two features"),
        ({"name": "a-b", "drop": ["text"]}, "dataset name"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any], want: str) -> None:
    """The error says what is known, and nothing has been written."""
    source = write_foreign(tmp_path / "in", [[_record(1)]])
    with pytest.raises(tfrtool.UsageError, match=want):
        tfrtool.edit(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_feature_that_no_first_record_has_is_found(tmp_path: Path) -> None:
    """What only a later record has can be named; what none has can't."""
    source = write_foreign(tmp_path / "in", [[_record(1), _record(2, rare=7)]])
    tfrtool.edit(source, tmp_path / "out", select=["rare"])
    (payloads,) = _payloads(tmp_path / "out").values()
    assert [parse_example(one) for one in payloads] == [{}, {"rare": 7}]
    with pytest.raises(tfrtool.UsageError, match="'rare'"):
        tfrtool.edit(source, tmp_path / "other", select=["rarer"])


def test_workers_and_resuming_make_no_difference(tmp_path: Path) -> None:
    """Two processes write the same bytes as one; a run that resumes finds all done."""
    shards = [[_record(10 * shard + n, old=n) for n in range(10)] for shard in range(3)]
    source = write_foreign(tmp_path / "in", shards)
    packed = source / "part-00001-of-00003.tfrecord"
    packed.write_bytes(gzip.compress(packed.read_bytes(), mtime=0))
    options: dict[str, Any] = {"cast": {"text": "float32"}, "add": {"new": b"\xff"}, "name": "n"}
    one = tfrtool.edit(source, tmp_path / "one", workers=1, **options)
    two = tfrtool.edit(source, tmp_path / "two", workers=2, **options)
    assert _files(tmp_path / "one") == _files(tmp_path / "two")
    assert one.digest_out == two.digest_out
    names = sorted(_files(tmp_path / "one"))
    assert [(tmp_path / "one" / n).read_bytes()[:2] == b"\x1f\x8b" for n in names] == [
        False, True, False,
    ]  # fmt: skip
    again = tfrtool.edit(source, tmp_path / "one", workers=1, existing="resume", **options)
    assert again.complete
    with pytest.raises(tfrtool.UsageError, match="already exists"):
        tfrtool.edit(source, tmp_path / "one", **options)
    planned = tfrtool.edit(source, tmp_path / "plan", dry_run=True, **options)
    assert (planned.dry_run, planned.records_out) == (True, 30)
    assert not (tmp_path / "plan").exists()


@pytest.mark.tf
def test_metadata_is_made_anew_where_names_are_parts(pets: Path, tmp_path: Path) -> None:
    """A feature that TFDS has inside another one is changed, and all is described from records."""
    source = tmp_path / "in"
    tfrtool.edit(pets, source, rename={"image/filename": "about/name"})
    features = json.loads((source / "features.json").read_text())
    inner = features["featuresDict"]["features"].pop("about/name")
    about = {"featuresDict": {"features": {"name": inner}}, "pythonClassName": "FeaturesDict"}
    features["featuresDict"]["features"]["about"] = about
    (source / "features.json").write_text(json.dumps(features))
    tfrtool.edit(source, tmp_path / "out", rename={"about/name": "name"})
    made = json.loads((tmp_path / "out" / "features.json").read_text())["featuresDict"]["features"]
    assert sorted(made) == ["image", "label", "name"]
    assert made["label"]["classLabel"] == {"numClasses": "2"}


def test_metadata_of_earlier_versions_of_tfds(tmp_path: Path) -> None:
    """Their features.json is read, and the edited dataset has the present form."""
    source = tmp_path / "in"
    source.mkdir()
    record = tfrtool.encode_example({"photo": image_bytes(), "n": 1})
    (source / "a-train.tfrecord-00000-of-00001").write_bytes(shard_of([record]))
    image = {"shape": [None, None, 3], "dtype": "uint8", "encoding_format": "jpeg"}
    number = {"shape": [], "dtype": "int64", "encoding": "none"}
    parts = {"photo": {"type": "x.Image", "content": image}}
    parts["n"] = {"type": "x.Tensor", "content": number}
    older = {"type": "x.FeaturesDict", "content": parts}
    (source / "features.json").write_text(json.dumps(older))
    tfrtool.edit(source, tmp_path / "out", resize=(8, 6), rename={"n": "m"})
    made = json.loads((tmp_path / "out" / "features.json").read_text())["featuresDict"]["features"]
    assert made["photo"]["image"]["shape"]["dimensions"] == ["6", "8", "3"]
    assert made["m"]["tensor"]["dtype"] == "int64"


def test_an_edit_needs_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one nothing is copied."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example({"n": 1})]))
    assert main(["edit", str(path), str(tmp_path / "out")]) == 2
    assert "--select, --drop" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", ["1234567891.0", "1e300"])
def test_an_added_number_is_not_rounded_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """A whole number with a point, beyond what float32 counts, needs a type."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example({"n": 1})]))
    assert main(["edit", str(path), str(tmp_path / "out"), "--add", f"id={value}"]) == 2
    error = capsys.readouterr().err
    assert value in error
    assert "float32: expected id:int64=" in error
    assert main(["edit", str(path), str(tmp_path / "out"), "--add", f"id:string={value}"]) == 0


def test_the_error_of_a_damaged_shard_says_how_to_skip_it(tmp_path: Path) -> None:
    """The hint has the option of this command besides the commands for damaged shards."""
    source = tmp_path / "a.tfrecord"
    source.write_bytes(shard_of([tfrtool.encode_example({"a": n}) for n in range(3)]))
    flip_bit(source, 40)
    with pytest.raises(tfrtool.CorruptShardError) as caught:
        tfrtool.edit(source, tmp_path / "new", add={"b": 1})
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("use --on-error skip to skip such records, or run tfrtool")
    report = tfrtool.edit(source, tmp_path / "new", add={"b": 1}, on_error="skip")
    assert (report.records_out, report.corrupt) == (2, 1)
