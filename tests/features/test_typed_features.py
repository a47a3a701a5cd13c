"""Types that a user or another program's metadata has for features: --type and types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.records.strategies import shard_of
from tfrtool.errors import SchemaError, UsageError
from tfrtool.examples.example import DType, Feature
from tfrtool.examples.proto import example_pb2 as pb

Run = Callable[..., tuple[int, str, str]]
PIXELS = [np.arange(2 * width * 3, dtype=np.uint8).reshape(2, width, 3) for width in (4, 5)]
EMPTY = Feature(dtype=DType.INT64, values=())
WAVE = np.linspace(-1, 1, 6, dtype=np.float32)


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write a shard of records."""
    payloads = [tfrtool.encode_example(record) for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shard_of(payloads))
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a shard of raw images of two sizes."""
    records = [
        {
            "image": pixels.tobytes(),
            "shape": [*pixels.shape],
            "height": pixels.shape[0],
            "width": pixels.shape[1],
            "name": f"n{number}",
        }
        for number, pixels in enumerate(PIXELS)
    ]
    return write(tmp_path / "images.tfrecord", records)


def column(shard: Path, name: str, word: str) -> list[Any]:
    """Return the values of a feature that is read as a type, as Arrow and NumPy have them."""
    table = tfrtool.read_table(shard, types={name: word}).to_arrow()
    found: list[Any] = table.column(name).to_pylist()
    records = tfrtool.open_records(shard, decode="features", types={name: word})
    arrays = [record[name] for record in records]
    assert [np.asarray(one).tolist() for one in arrays] == found
    return found


@pytest.mark.parametrize(
    "word",
    [
        "raw:uint8[@shape]",
        "raw:uint8[@height,@width,3]",
        "raw:uint8[@shape,@shape,@shape]",
        "raw:uint8[2,*,3]",
        "raw:uint8[@height,*,3]",
    ],
)
def test_sizes_of_raw_arrays(images: Path, word: str) -> None:
    """Sizes are numbers, those of other features, or follow from the length."""
    assert column(images, "image", word) == [pixels.tolist() for pixels in PIXELS]


def test_other_features_are_inferred(images: Path) -> None:
    """A type changes its own feature alone."""
    plain = tfrtool.read_table(images).to_arrow()
    typed = tfrtool.read_table(images, types={"image": "raw:uint8[@shape]"}).to_arrow()
    assert typed.drop_columns("image").to_pylist() == plain.drop_columns("image").to_pylist()
    assert typed.schema.field("name").type == pa.string()


def test_features_that_are_missing_or_empty_are_null_as_without_types(tmp_path: Path) -> None:
    """A feature that some records don't have is null, with a type of its own or beside one."""
    records: list[dict[str, Any]] = [
        {"a": b"\1\0", "b": 1},
        {"a": b"\2\0"},
        {"a": b"\3\0", "b": EMPTY},
        {"b": 2},
    ]
    shard = write(tmp_path / "a.tfrecord", records)
    table = tfrtool.read_table(shard, types={"a": "raw:int16"}).to_arrow()
    assert table.to_pydict() == {"a": [1, 2, 3, None], "b": [1, None, None, 2]}


def test_one_byte_strings_are_joined(tmp_path: Path) -> None:
    """A list with a string for each byte, or for each number, is one array."""
    records = [{"image": [bytes([byte]) for byte in one.reshape(-1).tolist()]} for one in PIXELS]
    shard = write(tmp_path / "a.tfrecord", records)
    assert column(shard, "image", "raw:uint8[2,*,3]") == [pixels.tolist() for pixels in PIXELS]
    numbers = write(tmp_path / "b.tfrecord", [{"x": [one.tobytes() for one in WAVE]}])
    assert column(numbers, "x", "raw:float32[2,3]") == [WAVE.reshape(2, 3).tolist()]


def test_lists_of_strings_are_lists_of_arrays(tmp_path: Path) -> None:
    """Each string of a list is an array; sizes are those of all, or each has its own."""
    frames = [[PIXELS[0], PIXELS[0]], [PIXELS[1]]]
    records: list[dict[str, Any]] = [
        {
            "frames": [frame.tobytes() for frame in some],
            "width": some[0].shape[1],
            "shapes": [size for frame in some for size in frame.shape],
        }
        for some in frames
    ]
    shard = write(tmp_path / "a.tfrecord", records)
    expected = [[frame.tolist() for frame in some] for some in frames]
    for word in ("raw:uint8[2,@width,3]", "raw:uint8[@shapes]", "raw:uint8[2,*,3]"):
        table = tfrtool.read_table(shard, types={"frames": word}).to_arrow()
        assert table.column("frames").to_pylist() == expected


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool", "bfloat16"])
def test_serialized_tensors_are_those_of_tensorflow(tmp_path: Path, tf: Any, dtype: str) -> None:
    """A tensor has its own shape, and the values that TensorFlow parses."""
    tensors = [tf.cast(tf.reshape(tf.range(2 * n), (2, n)), dtype) for n in (3, 1, 0)]
    records = [{"x": tf.io.serialize_tensor(tensor).numpy()} for tensor in tensors]
    shard = write(tmp_path / "a.tfrecord", records)
    expected = [tensor.numpy().tolist() for tensor in tensors]
    assert column(shard, "x", f"tensor:{dtype}") == expected
    assert column(shard, "x", f"tensor:{dtype}[2,*]") == expected


def test_tensors_of_listed_values(tmp_path: Path, tf: Any) -> None:
    """Values may be listed one by one; the last one then stands for all that follow."""
    protos = [
        tf.make_tensor_proto(np.float32(2)),
        *(tf.compat.v1.make_tensor_proto([-1, 2], dtype=one) for one in (tf.int8, tf.float16)),
    ]
    filled = tf.make_tensor_proto(-7, dtype=tf.int32, shape=[2, 2])
    for dtype, proto in zip(("float32", "int8", "float16", "int32"), [*protos, filled]):  # noqa: B905
        shard = write(tmp_path / f"{dtype}.tfrecord", [{"x": proto.SerializeToString()}])
        assert column(shard, "x", f"tensor:{dtype}") == [tf.make_ndarray(proto).tolist()]


def _tensor(*dims: int, content: bytes = b"", dtype: int = 1) -> bytes:
    from tfrtool.records.wire import varint

    sizes = [b"\x08" + varint(size % 2**64) for size in dims]
    shape = b"".join(b"\x12" + varint(len(one)) + one for one in sizes)
    head = b"\x08" + varint(dtype) + b"\x12" + varint(len(shape)) + shape
    return head + b"\x22" + varint(len(content)) + content


@pytest.mark.parametrize(
    ("value", "word", "found"),
    [
        (_tensor(2, content=b"12345678", dtype=9), "tensor:float32", "a tensor of int64"),
        (_tensor(1, dtype=7), "tensor:float32", "a tensor of string"),
        (_tensor(2, content=b"1234567"), "tensor:float32[2]", "7 bytes of 2 values"),
        (_tensor(2, content=b"12345678")[:-1], "tensor:float32[2]", "other bytes"),
        (_tensor(2**30, 2**30), "tensor:float32[*,*]", "a tensor of more than"),
        (_tensor(-1), "tensor:float32[*]", "other bytes"),
        (_tensor(2, content=b"12345678"), "tensor:float32[3]", "[2]"),
        (_tensor(2, content=b"12345678"), "tensor:float32[*,*]", "a tensor of 1 dimension"),
        (b"\xff" * 9, "tensor:float32[*]", "other bytes"),
        (b"12345", "raw:float32[*]", "5"),
        (b"12345678", "raw:float32[3]", "2"),
        (b"12345678", "raw:float32[3,*]", "2"),
        (b"12345678", "raw:uint8[@negative]", "-8"),
        (b"12345678", "raw:uint8[@zero,@huge]", "8 instead of 0 x 2147483647"),
        (
            b"12345678",
            "raw:uint8[@huge,@huge,@huge]",
            "8 instead of 2147483647 x 2147483647 x 2147483647",
        ),
        (b"12345678", "raw:uint8[@huge,@huge,*]", "8 instead of 2147483647 x 2147483647 x 0"),
        (b"", "raw:uint8[@zero,@huge]", "0 instead of 0 x 2147483647"),
        (b"12345678", "zlib:uint8[8]", "other bytes"),
        (b"12345678", "int64", "string"),
    ],
)
def test_records_that_a_type_does_not_fit(
    tmp_path: Path, value: bytes, word: str, found: str
) -> None:
    """A type that no record fits is an error that says what they have, and costs no memory."""
    record = {"x": value, "negative": -8, "zero": 0, "huge": 2**31 - 1}
    shard = write(tmp_path / "a.tfrecord", [record])
    with pytest.raises(SchemaError) as error:
        tfrtool.read_table(shard, types={"x": word})
    assert found in str(error.value)


def test_a_record_that_a_type_does_not_fit_is_a_fault(tmp_path: Path) -> None:
    """One record of many is skipped and reported; the others are read."""
    values = [b"1234", b"12", b"5678", b"9012"]
    sizes = [2, 2, 2, EMPTY]
    records = [{"x": x, "n": n} for x, n in zip(values, sizes, strict=True)]
    shard = write(tmp_path / "a.tfrecord", [*records[:1], *records])
    faults: list[Any] = []
    rows = tfrtool.read_table(shard, types={"x": "raw:uint16[@n]"}, on_fault=faults.append)
    assert rows.to_arrow().num_rows == 3
    assert [one.fault.record for one in faults] == [2, 4]
    assert "as many values as n says" in faults[0].fault.message


@pytest.mark.parametrize(
    ("types", "what"),
    [
        ({"imag": "raw:uint8[*]"}, "no feature 'imag'; did you mean 'image'?"),
        ({"image": "raw:uint8[@heigth]"}, "no feature 'heigth' for the sizes of 'image'"),
        ({"image": "raw:uint9"}, "invalid type 'raw:uint9'"),
        ({"image": "raw:text"}, "invalid type 'raw:text'"),
        ({"image": "raw:uint8[*,*]"}, "several unknown sizes"),
        ({"image": "raw:uint8[-1]"}, "invalid type"),
        ({"image": "raw:uint8[99999999999]"}, "invalid type"),
        ({"image": "tensor:uint8[@height]"}, "invalid type"),
        ({"image": "raw:uint8[@]"}, "invalid type"),
        ({"image": "raw:uint8[@name]"}, "can't be used"),
        ({"image": 3}, "types must be texts"),
    ],
)
def test_types_that_make_no_sense(images: Path, types: Any, what: str) -> None:
    """An unknown name or type is an error before all records are read."""
    with pytest.raises((UsageError, SchemaError)) as error:
        tfrtool.read_table(images, types=types)
    assert what in str(error.value)


def test_types_on_the_command_line(images: Path, run: Run) -> None:
    """The commands take names with colons, and refuse options that exclude each other."""
    word = "image:raw:uint8[@height,@width,3]"
    code, out, _ = run("cat", images, "--type", word, "--limit", "1", "--select", "image")
    assert (code, json.loads(out)["features"]) == (0, {"image": PIXELS[0].tolist()})
    sql = "SELECT image[2][1][3] AS x FROM records"
    code, out, _ = run("query", images, sql, "--type", word, "--format", "csv")
    assert (code, out) == (0, "x\n14\n17\n")
    for command in (("query", images, sql), ("cat", images)):
        code, _, error = run(*command, "--type", word, "--as-stored")
        assert code == 2
        assert "--type and --as-stored can't be used together" in error
    code, _, error = run("cat", images, "--type", "image")
    assert code == 2
    assert "expected NAME:TYPE" in error
    colons = write(images.with_name("colons.tfrecord"), [{"a:b": b"\1\0"}])
    _, out, _ = run("cat", colons, "--type", "a:b:raw:uint16")
    assert json.loads(out)["features"] == {"a:b": 1}


def test_records_are_filtered_by_typed_values(images: Path, tmp_path: Path, run: Run) -> None:
    """A condition of filter sees the values; the records stay as they are."""
    where = ("--where", "len(image[1]) = 5", "--type", "image:raw:uint8[@shape]")
    assert run("filter", images, tmp_path / "out", *where)[0] == 0
    (record,) = tfrtool.read_records(next((tmp_path / "out").glob("*.tfrecord*")))
    assert record.payload == [*tfrtool.read_records(images)][1].payload


def test_converted_arrays_become_the_same_features_again(
    images: Path, tmp_path: Path, run: Run
) -> None:
    """Tables have arrays, and records made of them store bytes as before."""
    words = ("--type", "image:raw:uint8[@height,@width,3]", "--type", "name:bytes")
    assert run("convert", images, tmp_path / "a.parquet", *words)[0] == 0
    assert run("convert", tmp_path / "a.parquet", tmp_path / "b.tfrecord")[0] == 0
    stored = [tfrtool.read_table(one, as_stored=True) for one in (images, tmp_path / "b.tfrecord")]
    first, second = (one.to_arrow().to_pylist() for one in stored)
    assert second == first
    table = tfrtool.read_table(images, types={"image": "raw:uint8[@shape]"}).to_arrow()
    assert table.column("image").to_pylist() == [one.tolist() for one in PIXELS]
    code, _, error = run(
        "convert", images, tmp_path / "c", "--to", "jsonl", *words, "--cast", "a:int64"
    )
    assert code == 2
    assert "--type and --cast can't be used together" in error
    code, _, error = run("convert", images, tmp_path / "c", "--to", "tfrecord", *words)
    assert code == 2
    assert "--type applies to records that become a table" in error


def test_images_stay_images_with_types(tmp_path: Path, run: Run) -> None:
    """Encoded images are images for datasets, also if another feature has a type."""
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 30
    shard = write(tmp_path / "a.tfrecord", [{"image": png, "x": b"\1\0"}, {"x": b"\1\0"}])
    assert run("convert", shard, tmp_path / "a.parquet", "--type", "x:raw:int16")[0] == 0
    schema = pq.read_schema(tmp_path / "a.parquet")
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features == {"image": {"_type": "Image"}, "x": {"dtype": "int16", "_type": "Value"}}


def sequence(number: int) -> bytes:
    """Return a SequenceExample with raw arrays in its context and in each step."""
    message = pb.SequenceExample()
    context, lists = message.context.feature, message.feature_lists.feature_list
    kinds = context.add(key=b"kinds").value.bytes_list
    kinds.value.append(np.arange(number, dtype="<i8").tobytes())
    context.add(key=b"size").value.int64_list.value.append(number)
    for name in (b"position", b"plain"):
        steps = lists.add(key=name).value.feature
        for step in range(2):
            if name == b"plain":
                steps.add().float_list.value.extend([step, 1, 2])
            else:
                data = np.full((number, 2), step, "<f4").tobytes()
                steps.add().bytes_list.value.append(data)
    return message.SerializeToString()


def test_types_of_sequence_examples(tmp_path: Path, run: Run) -> None:
    """Features of the context and of steps have types; sizes are those of the context."""
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(shard_of([sequence(3), sequence(1)]))
    types = {"kinds": "raw:int64[*]", "position": "raw:float32[@size,2]", "plain": "float32[3,1]"}
    rows = tfrtool.read_table(shard, types=types).to_arrow().to_pylist()
    assert [row["context"] for row in rows] == [
        {"kinds": [0, 1, 2], "size": 3},
        {"kinds": [0], "size": 1},
    ]
    lists = [row["feature_lists"] for row in rows]
    assert lists[0]["position"] == [[[0.0, 0.0]] * 3, [[1.0, 1.0]] * 3]
    assert lists[1]["plain"] == [[[0.0], [1.0], [2.0]], [[1.0], [1.0], [2.0]]]
    (name,) = tfrtool.read_table(shard, types=types, columns=["position"]).schema.names
    assert name == "feature_lists/position"
    words = ("--type", "feature_lists.position:raw:float32[*,2]")
    code, out, _ = run("cat", shard, *words, "--limit", "1")
    assert (code, json.loads(out)["feature_lists"]["position"]) == (0, lists[0]["position"])
    sql = "SELECT len(feature_lists.position[2]) AS n, feature_lists.plain AS p FROM records"
    code, out, _ = run("query", shard, sql, *words, "--format", "jsonl")
    assert [json.loads(line)["n"] for line in out.splitlines()] == [3, 1]
    assert json.loads(out.splitlines()[0])["p"] == [[0.0, 1.0, 2.0], [1.0, 1.0, 2.0]]


def test_types_that_steps_do_not_fit(tmp_path: Path, run: Run) -> None:
    """Steps with other numbers of values are an error, or a fault in one of many records."""
    shard = tmp_path / "a.tfrecord"
    other = pb.SequenceExample()
    other.feature_lists.feature_list.add(key=b"plain").value.feature.add()
    shard.write_bytes(shard_of([sequence(3), sequence(1), other.SerializeToString()]))
    faults: list[Any] = []
    rows = tfrtool.read_table(shard, types={"plain": "float32[3]"}, on_fault=faults.append)
    assert rows.to_arrow().num_rows == 2
    assert "feature list 'plain': expected 3 values in each step, found 0" in str(faults[0])
    with pytest.raises(SchemaError, match="expected 2 values in each step, found 3"):
        tfrtool.read_table(shard, types={"plain": "float32[2]"})
    assert run("convert", shard, tmp_path / "a.parquet", "--type", "size:uint8")[0] == 0
    code, _, error = run("convert", tmp_path / "a.parquet", tmp_path / "b.tfrecord")
    assert (code, "can't be converted back" in error) == (1, True)
    words = ("--type", "plain:float32[3]")
    for command in (("inspect", "images", shard, "--out", tmp_path / "a.png"), ("view", shard)):
        code, _, error = run(*command, *words)
        assert (code, "tf.train.Example" in error) == (2, True)


def test_types_become_features_json(tmp_path: Path, run: Run) -> None:
    """The features.json of inspect schema has the types, which are then known without options."""
    values = [np.arange(6 * n, dtype="<f4").reshape(2, n, 3) for n in (1, 2)]
    records = [{"v": one.tobytes(), "s": one.tobytes(), "n": one.shape[1]} for one in values]
    shard = write(tmp_path / "train.tfrecord", records)
    words = ("--emit", "tfds", "--type", "v:raw:float32[2,*,3]", "--type", "n:uint8")
    code, out, error = run("inspect", "schema", shard, *words, "--type", "s:raw:float32[2,@n,3]")
    assert code == 0
    assert "feature 's' is not raw:float32[2,@n,3] there: TFDS has no such type" in error
    (tmp_path / "features.json").write_text(out, encoding="utf-8")
    rows = tfrtool.read_table(tmp_path).to_arrow()
    assert rows.column("v").to_pylist() == [one.tolist() for one in values]
    assert rows.schema.field("n").type == pa.uint8()
    assert rows.schema.field("s").type == pa.binary()
    code, _, error = run("inspect", "schema", shard, "--type", "n:uint8")
    assert (code, "--type requires --emit tfds" in error) == (2, True)


META = {"features": {"velocity": {"shape": [2, -1, 3], "dtype": "float32", "type": "dynamic"}}}


def test_meta_json_of_raw_arrays(tmp_path: Path, run: Run) -> None:
    """The meta.json of MeshGraphNets has types of raw bytes, which a note names."""
    values = [np.arange(6 * n, dtype="<f4").reshape(2, n, 3) for n in (1, 2)]
    records = [{"velocity": one.tobytes(), "id": 1} for one in values]
    shard = write(tmp_path / "train.tfrecord", records)
    shard.with_name("meta.json").write_text(json.dumps(META), encoding="utf-8")
    code, out, error = run("cat", shard)
    assert code == 0
    found = [json.loads(line)["features"] for line in out.splitlines()]
    assert found == [{"velocity": one.tolist(), "id": 1} for one in values]
    assert "types of velocity are from meta.json" in error
    assert column(shard, "velocity", "raw:float32[*]") == [
        one.reshape(-1).tolist() for one in values
    ]
    stored = tfrtool.read_table(shard, as_stored=True).to_arrow()
    assert stored.schema.field("velocity").type == pa.binary()


def test_info_json_of_numbers(tmp_path: Path) -> None:
    """The info.SPLIT.json of SeqIO has the types of numbers that records store as int64."""
    shard = write(tmp_path / "train.tfrecord-00000-of-00001", [{"inputs": [1, 2], "n": 3}])
    types = {"inputs": {"shape": [None], "dtype": "int32"}, "n": {"shape": [], "dtype": "uint8"}}
    info = {"num_shards": 1, "features": types}
    shard.with_name("info.train.json").write_text(json.dumps(info), encoding="utf-8")
    schema = tfrtool.read_table(shard).schema
    assert schema.field("inputs").type == pa.list_(pa.int32())
    assert schema.field("n").type == pa.uint8()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        "[" * 100_000,
        '{"features": 3}',
        '{"features": {"velocity": [1]}}',
        '{"features": {"velocity": {"shape": "x", "dtype": ["float32"]}}}',
        '{"features": {"velocity": {"shape": [-1, -1], "dtype": "float32"}}}',
        '{"features": {"velocity": {"shape": [99999999999999999999], "dtype": "float32"}}}',
        '{"features": {"velocity": {"shape": [1e999], "dtype": "float32"}}}',
        '{"features": {"velocity": {"shape": [], "dtype": "object"}}}',
        '{"features": {"other": {"shape": [2], "dtype": "float32"}}}',
        '{"features": {"velocity": {"shape": [true], "dtype": "float32"}}}',
    ],
)
def test_other_files_of_these_names_are_ignored(tmp_path: Path, content: str) -> None:
    """A meta.json that is damaged or about something else changes nothing."""
    shard = write(tmp_path / "a.tfrecord", [{"velocity": b"12345678"}])
    shard.with_name("meta.json").write_text(content, encoding="utf-8")
    assert tfrtool.read_table(shard).to_arrow().to_pylist() == [{"velocity": "12345678"}]


def test_metadata_that_records_do_not_fit_is_not_used(tmp_path: Path, run: Run) -> None:
    """If most records differ, features are inferred, and a note says why."""
    shard = write(tmp_path / "a.tfrecord", [{"velocity": b"1234"}])
    shard.with_name("meta.json").write_text(json.dumps(META), encoding="utf-8")
    code, out, error = run("cat", shard)
    assert (code, json.loads(out)["features"]) == (0, {"velocity": "1234"})
    assert "the types in meta.json are not used" in error


def test_the_tree_of_a_dataset_has_types(images: Path, run: Run) -> None:
    """`inspect dataset --features` and Features.read show types; TFDS gets what is stored."""
    word = "image:raw:uint8[@height,@width,3]"
    code, out, _ = run("inspect", "dataset", images.parent, "--features", "--type", word)
    assert code == 0
    assert "  image: raw:uint8[@height,@width,3]\n" in out
    assert "  name: text\n" in out
    code, out, _ = run("inspect", "dataset", images.parent, "--emit", "python", "--type", word)
    assert '"image": tfds.features.Scalar(np.object_)' in out
    code, _, error = run("inspect", "dataset", images.parent, "--type", word)
    assert (code, "--type requires --features or --emit python" in error) == (2, True)
    found = tfrtool.Features.read(images, types={"image": "raw:uint8[@shape]"})
    assert "image: raw:uint8[@shape,@shape,@shape]" in str(found)
    names = [spec.name for spec in found.stored()]
    assert sorted(names) == ["height", "image", "name", "shape", "width"]
    payload = next(iter(tfrtool.read_records(images))).payload
    array = tfrtool.parse_example(payload, found)["image"]
    assert (array.tolist(), array.dtype) == (PIXELS[0].tolist(), np.dtype(np.uint8))


def test_types_of_fields_that_features_json_describes(tmp_path: Path) -> None:
    """A type replaces one field of the tree, also within structs; other fields keep theirs."""
    steps = {"steps/action": [1.0, 2, 3, 4, 5, 6], "steps/reward": [1.0, 2.0], "x": b"\1\0"}
    shard = write(tmp_path / "a.tfrecord", [steps])
    tree: dict[str, Any] = {
        "steps": {
            "pythonClassName": "tensorflow_datasets.core.features.dataset_feature.Dataset",
            "sequence": {
                "feature": {
                    "featuresDict": {
                        "features": {
                            name: {"tensor": {"shape": shape, "dtype": "float32"}}
                            for name, shape in (
                                ("action", {"dimensions": ["3"]}),
                                ("reward", {}),
                            )
                        }
                    }
                },
                "length": "-1",
            },
        }
    }
    content = {"featuresDict": {"features": tree}}
    shard.with_name("features.json").write_text(json.dumps(content), encoding="utf-8")
    types = {"steps/action": "float32[3,1]", "x": "raw:int16"}
    (row,) = tfrtool.read_table(shard, types=types).to_arrow().to_pylist()
    assert row["x"] == 1
    assert row["steps"] == [
        {"action": [[1.0], [2.0], [3.0]], "reward": 1.0},
        {"action": [[4.0], [5.0], [6.0]], "reward": 2.0},
    ]
    for name, what in (("steps", "is a struct"), ("steps/actoin", "did you mean 'steps/action'")):
        with pytest.raises(UsageError, match=what):
            tfrtool.read_table(shard, types={name: "float32[3]"})
