"""The class ``Features``: read from a dataset, TFDS or Arrow, and written for other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tfrtool
from tests.features.test_tfds_tree import PRESENT, features_dict, sequence, tensor
from tfrtool import Features
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame

LINES = [
    "id: int64",
    "label: label (2 classes)",
    "steps: list of structs",
    "  action: float32[2]",
    "  done: bool",
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return a folder with a shard of two episodes, a features.json and a file of classes."""
    content = features_dict(
        id=tensor("int64"),
        label={
            "pythonClassName": "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": "2"},
        },
        mesh={"pythonClassName": "project.Mesh", "jsonFeature": {"json": "{}"}},
        steps=sequence(features_dict(action=tensor("float32", "2"), done=tensor("bool"))),
    )
    (tmp_path / "features.json").write_text(json.dumps(content))
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    payloads = [
        encode_example(
            {
                "id": number,
                "label": number,
                "mesh": b"m",
                "steps/action": [0.5] * 2 * (number + 1),
                "steps/done": [0] * number + [1],
            }
        )
        for number in range(2)
    ]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(frame, payloads)))
    return tmp_path


def test_features_of_a_dataset(dataset: Path) -> None:
    """features.json says what features are; what it can't say is a note."""
    features = Features.read(dataset)
    assert str(features).splitlines() == LINES
    assert [*features] == ["id", "label", "steps"]
    assert repr(features).splitlines() == ["Features(", *(f"  {line}" for line in LINES), ")"]
    assert [note.partition(":")[0] for note in features.notes] == [
        "'mesh' is not shown", "not shown"
    ]  # fmt: skip
    assert features == Features.from_tfds(dataset)
    assert features == Features.from_tfds(dataset / "features.json")
    table = tfrtool.read_table(dataset).to_arrow()
    assert [(one.name, one.type) for one in table.schema] == [
        (one.name, one.type) for one in features.to_arrow()
    ]


def test_inferred_features(tmp_path: Path) -> None:
    """Without metadata, types are those of all records; a feature of several types is a note."""
    records: list[dict[str, Any]] = [
        {"n": 1, "text": "a", "list": [1.0, 2.0], "mixed": 1},
        {"n": 2, "list": [1.0], "mixed": "x"},
    ]
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(b"".join(frame(encode_example(one)) for one in records))
    features = Features.read(shard)
    assert str(features).splitlines() == ["list: list of float32", "n: int64", "text: text"]
    assert features.notes == ("'mixed' is not shown: its values have several types",)
    shapes = {one.name: (one.dtype, one.shape) for one in features.stored()}
    assert shapes == {
        "list": (DType.FLOAT32, None), "n": (DType.INT64, ()), "text": (DType.STRING, None)
    }  # fmt: skip


def test_features_of_sequence_examples(tf: Any, tmp_path: Path) -> None:
    """SequenceExamples have a context and lists of steps; TensorFlow parses what is stored."""
    example = tf.train.SequenceExample()
    example.context.feature["n"].int64_list.value.append(3)
    for size in (1, 2):
        example.feature_lists.feature_list["x"].feature.add().float_list.value.extend([1.0] * size)
        example.feature_lists.feature_list["y"].feature.add().int64_list.value.append(size)
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(frame(example.SerializeToString()))
    features = Features.read(shard)
    assert str(features).splitlines() == [
        "context:",
        "  n: int64",
        "feature_lists:",
        "  x: list of list of float32",
        "  y: list of int64",
    ]
    assert {(one.name, one.shape, one.is_list) for one in features.stored()} == {
        ("n", (), False), ("x", None, True), ("y", (), True)
    }  # fmt: skip


def test_records_of_other_kinds(tmp_path: Path) -> None:
    """Other payloads are one field of bytes, which no feature stores."""
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(frame(b"\xff\xff\xff"))
    features = Features.read(shard)
    assert str(features) == "payload: bytes"
    with pytest.raises(tfrtool.SchemaError, match="store no features"):
        features.stored()


def test_features_of_a_features_dict(tf: Any) -> None:  # noqa: ARG001
    """A FeaturesDict has the names of classes, too, at any depth."""
    from tensorflow_datasets.core import features as tfds

    theirs = tfds.FeaturesDict(
        {
            "label": tfds.ClassLabel(names=["cat", "dog"]),
            "steps": tfds.Dataset({"a": tfds.ClassLabel(names=["x"]), "f": tfds.Text()}),
            "o": tfds.Tensor(shape=(2,), dtype=np.int64, optional=True),
        }
    )
    features = Features.from_tfds(theirs)
    hf = features.to_hf()
    assert hf["label"] == {"names": ["cat", "dog"], "_type": "ClassLabel"}
    assert hf["steps"]["feature"]["a"]["names"] == ["x"]
    again = tfds.FeatureConnector.from_json(features.to_tfds())
    assert repr(again["o"]) == repr(theirs["o"])
    assert again["steps"]["f"].dtype == theirs["steps"]["f"].dtype
    assert Features.from_tfds(features.to_tfds()) == features


def test_features_of_an_arrow_schema() -> None:
    """A tree comes back from its own schema: types that Arrow lacks and classes, too."""
    content = features_dict(image=PRESENT["featuresDict"]["features"]["image"], h=tensor("float16"))
    features = Features.from_tfds(content)
    assert Features.from_arrow(features.to_arrow()) == features
    bare = features.to_arrow().remove_metadata()
    assert str(Features.from_arrow(bare)).splitlines() == ["image: bytes", "h: float32"]
    changed = features.to_arrow().set(0, pa.field("image", pa.string()))
    assert "image: text" in str(Features.from_arrow(changed))


def test_class_names_survive_an_arrow_schema(dataset: Path) -> None:
    """The names of classes are in the schema's metadata, so that others can make labels of them."""
    again = Features.from_arrow(tfrtool.read_table(dataset).to_arrow().schema)
    assert again.to_hf()["label"] == {"names": ["cat", "dog"], "_type": "ClassLabel"}


def test_class_names_of_many_labels(tmp_path: Path) -> None:
    """Each label has the names in its own file, however many labels there are; others have none."""
    label = {"pythonClassName": "tensorflow_datasets.x.ClassLabel", "classLabel": {}}
    content = features_dict(
        **{f"l{n}": label for n in range(5)}, s=sequence(features_dict(l=label))
    )
    (tmp_path / "features.json").write_text(json.dumps(content))
    for file, name in (("l1", "a"), ("l4", "b"), ("s-l", "c")):
        (tmp_path / f"{file}.labels.txt").write_text(f"{name}\n")
    found = Features.from_tfds(tmp_path).to_hf()
    names = {name: found[name].get("names") for name in found if name != "s"}
    assert names == {"l0": None, "l1": ["a"], "l2": None, "l3": None, "l4": ["b"]}
    assert found["s"]["feature"]["l"]["names"] == ["c"]


def test_types_of_arrow() -> None:
    """Every type that a feature can have is read from a schema of others."""
    schema = pa.schema(
        {
            "s": pa.struct({"b": pa.bool_(), "u": pa.uint16()}),
            "l": pa.large_list(pa.large_string()),
            "m": pa.list_(pa.list_(pa.float64(), 3), 2),
            "n": pa.list_(pa.list_(pa.int8(), 3)),
            "o": pa.list_(pa.struct({"x": pa.large_binary()}), 4),
            "t": pa.timestamp("us", "UTC"),
            "d": pa.date32(),
            "c": pa.decimal128(8, 2),
            "h": pa.float16(),
        }
    )
    assert str(Features.from_arrow(schema)).splitlines() == [
        "s:",
        "  b: bool",
        "  u: uint16",
        "l: list of text",
        "m: float64[2,3]",
        "n: list of int8[3]",
        "o: list of 4 structs",
        "  x: bytes",
        "t: timestamp(UTC)",
        "d: date",
        "c: decimal(8,2)",
        "h: float16",
    ]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.map_(pa.string(), pa.int8()), "found map<string, int8>"),
        (pa.list_(pa.null()), "found list<item: null>"),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "have the same name"),
        (pa.struct([]), "a struct without fields"),
        (pa.list_(pa.int8(), 2**27), "a tensor of 134,217,728 values"),
    ],
    ids=str,
)
def test_types_that_features_do_not_have(kind: pa.DataType, why: str) -> None:
    """The error names the column and its type."""
    with pytest.raises(tfrtool.SchemaError) as caught:
        Features.from_arrow(pa.schema({"column": kind}))
    assert why in str(caught.value)
    assert "column" in str(caught.value) or "struct without" in why


def test_damaged_metadata_of_arrow_is_ignored() -> None:
    """Metadata that isn't ours says nothing: the types of the columns do."""
    kind = {"a": pa.int64()}
    for content in (
        *(b"", b"{", b"[]", b'{"features": 3}', b'{"features": {"struct": {"a": "zlib:text"}}}'),
        b'{"features": {"struct": {"a": {"struct": {}}}}}',
        b'{"features": {"struct": {"a": "label"}}, "classes": {"a": 3}}',
        b'{"features": {"struct": {"a": "label"}}, "classes": [1]}',
        b'{"features": {"struct": {"a": {"list": "int64[*]"}}}}',
        b'{"features": ' + b'{"list": ' * 5000 + b'"text"' + b"}" * 5000 + b"}",
    ):
        schema = pa.schema(kind, metadata={b"tfrtool": content})
        assert str(Features.from_arrow(schema)) == "a: int64"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (3, tfrtool.UsageError),
        ({"featuresDict": []}, tfrtool.SchemaError),
        ({"a": {1, 2}}, tfrtool.SchemaError),
        ("nowhere/features.json", tfrtool.DatasetError),
    ],
)
def test_what_is_no_description_of_features(content: Any, error: type[Exception]) -> None:
    """Other values are errors of tfrtool."""
    with pytest.raises(error):
        Features.from_tfds(content)


def test_a_damaged_features_json(tmp_path: Path) -> None:
    """The error names the file; a dataset with it is read without."""
    path = tmp_path / "features.json"
    path.write_text(
        '{"featuresDict": {"features": {"a": {"tensor": {"dtype": "int64", "shape": 1e999}}}}}'
    )
    with pytest.raises(tfrtool.DatasetError, match=r"features\.json: invalid metadata of TFDS"):
        Features.from_tfds(path)
    (tmp_path / "a.tfrecord").write_bytes(frame(encode_example({"a": 1})))
    features = Features.read(tmp_path / "a.tfrecord")
    assert str(features) == "a: int64"
    assert "types are inferred" in features.notes[0]


def test_hugging_face_features() -> None:
    """Hugging Face's datasets make features of it, with images, tensors and lists."""
    datasets = pytest.importorskip("datasets")
    found = datasets.Features.from_dict(Features.from_tfds(PRESENT).to_hf())
    assert found["image"] == datasets.Image()
    assert found["steps"] == datasets.List(
        datasets.List(datasets.List(datasets.Value("int8"), length=3), length=2)
    )
    assert found["objects"] == datasets.List(
        {
            "bbox": datasets.List(datasets.Value("float32"), length=4),
            "area": datasets.Value("float32"),
        }
    )
    times = pa.schema({"t": pa.timestamp("us", "UTC"), "d": pa.date32(), "c": pa.decimal128(8, 2)})
    found = datasets.Features.from_dict(Features.from_arrow(times).to_hf())
    assert found.arrow_schema.field("t").type == pa.timestamp("us", "UTC")
    assert found.arrow_schema.field("d").type == pa.date32()
    assert found.arrow_schema.field("c").type == pa.decimal128(8, 2)


def test_stored_features_are_parsed_by_tensorflow(tf: Any, dataset: Path) -> None:
    """What records store is a feature_description that parses them."""
    stored = Features.read(dataset).stored()
    payload = next(iter(tfrtool.read_records(dataset / "a.tfrecord"))).payload
    parsed = tf.io.parse_single_example(payload, stored.to_feature_description(tf))
    assert tf.sparse.to_dense(parsed["steps/action"]).numpy().tolist() == [0.5, 0.5]
    assert {spec.name: (spec.dtype, spec.shape) for spec in stored} == {
        "id": (DType.INT64, ()),
        "label": (DType.INT64, ()),
        "steps/action": (DType.FLOAT32, None),
        "steps/done": (DType.INT64, None),
    }


def test_disagreeing_files(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Shards of two folders whose features.json differ are an error that names both files."""
    other = tmp_path_factory.mktemp("other")
    (other / "features.json").write_text(json.dumps(features_dict(id=tensor("int8"))))
    (other / "b.tfrecord").write_bytes(frame(encode_example({"id": 1})))
    with pytest.raises(tfrtool.SchemaError, match=r"describes other features than") as caught:
        Features.read([dataset / "a.tfrecord", other / "b.tfrecord"])
    assert str(dataset / "features.json") in str(caught.value)
    assert str(other / "features.json") in str(caught.value)


def test_features_that_most_records_contradict(dataset: Path) -> None:
    """A features.json that is wrong for most records is an error with field, expected and found."""
    content = features_dict(steps=sequence(features_dict(action=tensor("float32", "3"))))
    (dataset / "features.json").write_text(json.dumps(content))
    payloads = [
        encode_example({"steps/action": Feature(dtype=DType.FLOAT32, values=(0.5,) * size)})
        for size in (2, 4, 3)
    ]
    (dataset / "a.tfrecord").write_bytes(b"".join(map(frame, payloads)))
    with pytest.raises(tfrtool.SchemaError) as caught:
        Features.read(dataset)
    text = str(caught.value)
    assert "'steps/action' is a multiple of 3 values; records 0, 1 have 2, 4" in text
    assert caught.value.hint is not None
    assert "--as-stored" in caught.value.hint
