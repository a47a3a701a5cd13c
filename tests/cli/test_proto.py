"""Records that are messages of other types, by --proto; and TensorBoard's events in SQL."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from tests.records.strategies import shard_of
from tfrtool.storage import limits

Run = Callable[..., tuple[int, str, str]]
Field = descriptor_pb2.FieldDescriptorProto
TYPES: dict[str, Any] = {
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "uint64": Field.TYPE_UINT64,
    "float": Field.TYPE_FLOAT,
    "double": Field.TYPE_DOUBLE,
    "bool": Field.TYPE_BOOL,
    "Color": Field.TYPE_ENUM,
}


def file_of(messages: dict[str, str], syntax: str = "proto3") -> descriptor_pb2.FileDescriptorProto:
    """Return a file with messages, each described as ``name:type*``.

    * is repeated, ? optional, and ! required.
    """
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax=syntax)
    colors = file.enum_type.add(name="Color")
    for number, name in enumerate(("RED", "GREEN")):
        colors.value.add(name=name, number=number)
    for name, text in messages.items():
        message = file.message_type.add(name=name)
        for number, part in enumerate(text.split(), start=1):
            field, _, kind = part.partition(":")
            plain = kind.strip("*?!")
            label = {"*": 3, "!": 2}.get(kind[-1], 1)
            added = message.field.add(name=field, number=number, label=label)
            added.json_name = f"f{number}"
            added.type = TYPES.get(plain, Field.TYPE_MESSAGE)
            if added.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM):
                added.type_name = f".t.{plain}"
            if "?" in kind:
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
                added.proto3_optional = True
    return file


MESSAGES = {
    "Point": "x:double y:double",
    "Frame": "name:string id:uint64 blob:bytes color:Color score:float? ok:bool points:Point* "
    "place:Point tags:string* sizes:int32* tree:Tree colors:Color* counts:CountsEntry*",
    "Tree": "value:int64 children:Tree*",
    "CountsEntry": "key:string value:int64",
    "Short": "name:string",
}


def descriptors() -> descriptor_pb2.FileDescriptorProto:
    """Return the file, whose counts are a map."""
    file = file_of(MESSAGES)
    frame, entry = file.message_type[1], file.message_type[3]
    frame.nested_type.add().CopyFrom(entry)
    frame.nested_type[0].options.map_entry = True
    frame.field[-1].type_name = ".t.Frame.CountsEntry"
    return file


POOL = descriptor_pool.DescriptorPool()
POOL.Add(descriptors())
FRAME = message_factory.GetMessageClass(POOL.FindMessageTypeByName("t.Frame"))
FULL = {
    "name": "grün",
    "id": 2**64 - 1,
    "blob": "/9j/",
    "color": "GREEN",
    "score": 0.1,
    "ok": True,
    "points": [{"x": 1.5}, {"y": -2}],
    "place": {"x": 3},
    "tags": ["a", ""],
    "sizes": [-1, 7],
    "tree": {"value": 1, "children": [{"value": 2}]},
    "colors": ["RED", 9],
    "counts": {"b": 2, "a": 1},
}


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a shard of a full message, an empty one and a broken one; and the descriptor set."""
    folder = tmp_path_factory.mktemp("proto")
    full = json_format.ParseDict(FULL, FRAME()).SerializeToString()
    (folder / "frames.tfrecord").write_bytes(shard_of([full, b"", b"\x0a\xff"]))
    found = descriptor_pb2.FileDescriptorSet(file=[descriptors()])
    (folder / "t.desc").write_bytes(found.SerializeToString())
    return folder / "frames.tfrecord", folder / "t.desc"


def test_messages_are_columns_in_sql(run: Run, frames: tuple[Path, Path]) -> None:
    """Values are those of protobuf's own JSON, null only where protobuf knows that none is set."""
    shard, proto = frames
    sql = (
        "SELECT * EXCLUDE (tree, counts, blob), blob::VARCHAR AS blob, counts['b'] AS b,"
        " tree.value AS value, octet_length(tree.children[1]) AS child FROM records"
    )
    words = ("query", shard, sql, "--proto", f"{proto}:Frame", "--format", "jsonl")
    code, out, err = run(*words)
    first, second = map(json.loads, out.splitlines())
    expected = {key: FULL[key] for key in ("name", "id", "color", "ok", "tags", "sizes")} | {
        "points": [{"x": 1.5, "y": 0.0}, {"x": 0.0, "y": -2.0}],
        "place": {"x": 3.0, "y": 0.0},
        "score": 0.1,
        "colors": ["RED", "9"],
        "blob": r"\xFF\xD8\xFF",
        "b": 2,
        "value": 1,
        "child": 2,
    }
    assert {key: first[key] for key in expected} == expected
    unset: dict[str, Any] = {
        "score": None,
        "place": None,
        "value": None,
        "b": None,
        "points": [],
        "colors": [],
    }
    assert {key: second[key] for key in unset} == unset
    assert (second["name"], second["id"], second["color"], second["ok"]) == ("", 0, "RED", False)
    assert code == 3
    assert "payload (2 bytes) is not a t.Frame" in err


def test_cat_and_inspect_show_messages(run: Run, frames: tuple[Path, Path]) -> None:
    """They print the fields; conditions, --select and the way to write bytes work as elsewhere."""
    shard, proto = frames
    words = ("--proto", f"{proto}:t.Frame")
    code, out, _ = run("cat", shard, *words, "--bytes", "base64", "--records", "0")
    message = json.loads(out)["message"]
    assert code == 0
    assert message["blob"] == {"base64": "/9j/"}
    assert message["counts"] == [["a", 1], ["b", 2]]
    assert message["place"] == {"x": 3.0, "y": 0.0}
    code, out, _ = run("cat", shard, *words, "--where", "place.x = 3", "--select", "color,tags")
    assert json.loads(out)["message"] == {"color": "GREEN", "tags": ["a", ""]}
    _, out, _ = run("cat", shard, *words, "--select", "color", "--format", "csv")
    assert [line.split(",")[1:] for line in out.splitlines()[1:]] == [["0", "GREEN"], ["1", "RED"]]
    code, out, _ = run("inspect", "schema", shard, *words, "--json")
    fields = {one["name"]: one for one in json.loads(out)["fields"]}
    assert (code, fields["tags"]["present"], fields["place"]["present"]) == (3, 1, 1)
    assert fields["id"] == {"name": "id", "type": "uint64", "present": 2}
    assert "sizes   list<item: int64>" in run("inspect", "schema", shard, *words)[1]
    code, out, _ = run("inspect", "shard", shard, *words)
    assert code == 3
    assert 'color   "GREEN"' in out
    assert "payload (2 bytes) is not a t.Frame" in out
    code, out, _ = run("inspect", "shard", shard, *words, "--json", "--record", "0")
    assert json.loads(out)["sample"][0]["message"]["sizes"] == [-1, 7]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_messages_become_tables_and_do_not_come_back(
    run: Run, frames: tuple[Path, Path], tmp_path: Path, form: str
) -> None:
    """Each format takes all fields and verifies them; converting back is refused."""
    shard, proto = frames
    table = tmp_path / f"t.{form}"
    code, _, err = run("convert", shard, table, "--proto", f"{proto}:Frame")
    assert code == 3, err
    if form == "parquet":
        rows = duckdb.sql(f"SELECT name, place.x, points[2].y, counts['b'], id FROM '{table}'")
        assert rows.fetchall() == [("grün", 3.0, -2.0, 2, 2**64 - 1), ("", None, None, None, 0)]
    if form == "jsonl":
        first = json.loads(table.read_text().splitlines()[0])
        assert first["tree"]["value"] == 1
        assert first["score"] == pytest.approx(0.1)
    code, _, err = run("convert", table, tmp_path / "back.tfrecord")
    assert (code, not (tmp_path / "back.tfrecord").exists()) == (1, True)
    assert f"{table}: the table has decoded t.Frame messages" in err


def test_unknown_fields_are_counted(run: Run, frames: tuple[Path, Path], tmp_path: Path) -> None:
    """All that the type doesn't have is reported in bytes, wherever messages are shown."""
    shard, proto = frames
    size = FRAME.FromString(json_format.ParseDict(FULL, FRAME()).SerializeToString()).ByteSize()
    text = f"not shown: {size - 7} bytes of fields that t.Short doesn't have"  # of grün
    words = ("--proto", f"{proto}:Short")
    target = tmp_path / "s.jsonl"
    for call in (
        ("cat", shard),
        ("query", shard, "SELECT name FROM records"),
        ("convert", shard, target),
        ("inspect", "schema", shard),
        ("inspect", "shard", shard),
    ):
        assert text in run(*call, *words)[2], call


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t.desc:Fram", "no message 'Fram'; did you mean 'Frame'?"),
        ("t.desc", "expected FILE:MESSAGE; messages are t.Point, t.Frame"),
        ("no.desc:Frame", "no.desc: can't be read: no such file"),
        ("frames.tfrecord:Frame", "frames.tfrecord: not a descriptor set; make one with protoc"),
        (
            "alone.desc:Outer",
            "the definition of a.Outer is incomplete or invalid; make one with protoc",
        ),
        ("wide.desc:M0", "t.M0 has more than 10,000 fields"),
        ("value3.desc:Frame", "not a descriptor set; make one with protoc"),
        ("single.desc:Frame", "not a descriptor set; make one with protoc"),
    ],
)
def test_wrong_types_are_refused(
    run: Run, frames: tuple[Path, Path], text: str, expected: str
) -> None:
    """A missing file, message or import is a usage error, as is a type with too many parts.

    So are maps that protobuf would crash on: a value with another number, and a single entry.
    """
    shard, proto = frames
    alone = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a")
    alone.dependency.append("google/protobuf/any.proto")
    alone.message_type.add(name="Outer")
    wide = {f"M{n}": " ".join(f"f{k}:M{n + 1}" for k in range(9)) for n in range(9)}
    value3, single = descriptors(), descriptors()
    value3.message_type[1].nested_type[0].field[1].number = 3
    single.message_type[1].field[-1].label = Field.LABEL_OPTIONAL
    for name, file in (
        ("alone", alone),
        ("wide", file_of(wide | {"M9": "x:int32"})),
        ("value3", value3),
        ("single", single),
    ):
        found = descriptor_pb2.FileDescriptorSet(file=[file])
        (proto.parent / f"{name}.desc").write_bytes(found.SerializeToString())
    code, out, err = run("cat", shard, "--proto", proto.parent / text)
    assert (code, out) == (2, "")
    assert expected in err


def test_hostile_messages_are_damage(
    run: Run, frames: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are nested too deeply, or too large, or have too many fields, are skipped."""
    nested = b""
    for _ in range(5000):
        nested = b"\x12" + _varint(len(nested)) + nested
    tree = b"\x5a" + _varint(len(nested)) + nested
    many = b"\x3a\x00" * 200_000  # empty points
    shard = tmp_path / "hostile.tfrecord"
    shard.write_bytes(shard_of([tree, many, b"\x0a\x01\xff", b"\x0a\x01a"]))
    monkeypatch.setattr(limits, "MAX_FIELDS", 100_000)
    monkeypatch.setattr("tfrtool.examples.arrow.messages.MAX_FIELDS", 100_000)
    code, out, err = run("cat", shard, "--proto", f"{frames[1]}:Frame")
    assert code == 3
    assert [json.loads(line)["message"]["name"] for line in out.splitlines()] == ["a"]
    assert "hostile.tfrecord:1: " in err
    assert "too many fields" in err
    monkeypatch.setattr("tfrtool.examples.arrow.messages.MAX_MESSAGE_BYTES", 2)
    assert "messages have at most 2" in run("cat", shard, "--proto", f"{frames[1]}:Frame")[2]


def _varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


METHODS = [
    *("ListFields", "ByteSize", "DiscardUnknownFields", "SerializeToString", "FromString"),
    *("IsInitialized", "FindInitializationErrors", "__class__", "DESCRIPTOR"),
]


def results_of_all_commands(
    run: Run, folder: Path, file: descriptor_pb2.FileDescriptorProto, *payloads: bytes
) -> tuple[list[int], list[str], list[Any]]:
    """Return the exit codes of all commands with --proto, what they print, and what cat shows."""
    shard, proto, table = folder / "t.tfrecord", folder / "t.desc", folder / "t.jsonl"
    shard.write_bytes(shard_of([*payloads]))
    proto.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    calls: tuple[tuple[object, ...], ...] = (
        ("cat", shard),
        ("query", shard, "SELECT * FROM records", "--format", "jsonl"),
        ("convert", shard, table),
        ("inspect", "schema", shard),
        ("inspect", "shard", shard),
    )
    results = [run(*call, "--proto", f"{proto}:M") for call in calls]
    messages = [json.loads(line)["message"] for line in results[0][1].splitlines()]
    assert len(results[1][1].splitlines()) == len(messages)
    assert len(table.read_text().splitlines()) == len(messages)
    return [one[0] for one in results], [one[1] + one[2] for one in results], messages


def test_records_that_are_not_such_messages_are_faults(run: Run, tmp_path: Path) -> None:
    """A missing required field and texts that are not UTF-8 are faults in all commands.

    Fields that have the names of protobuf's methods, or of other columns, are columns.
    """
    names = [*METHODS, "_record", "_record_"]
    fields = "x:int32! s:string tags:string* part:M counts:CountsEntry* "
    messages = {"M": fields + " ".join(f"{name}:int32" for name in names), "CountsEntry": ""}
    file = file_of(messages, "proto2")
    file.message_type[0].nested_type.add().CopyFrom(descriptors().message_type[3])
    file.message_type[0].nested_type[0].options.map_entry = True
    file.message_type[0].field[4].type_name = ".t.M.CountsEntry"
    numbers = b"".join(_varint(number << 3) + b"\x02" for number in range(6, 6 + len(names)))
    codes, texts, shown = results_of_all_commands(
        run,
        tmp_path,
        file,
        b"",
        b"\x08\x01\x22\x00",
        b"\x08\x01\x12\x01\xff",
        b"\x08\x01\x1a\x01\xff",
        b"\x08\x01\x2a\x03\x0a\x01\xff\x2a\x03\x0a\x01a",
        b"\x08\x01" + numbers + b"\x22" + _varint(len(numbers) + 2) + b"\x08\x01" + numbers,
    )
    assert codes == [3] * 5
    for text in texts:
        assert "payload (0 bytes) is not a t.M: required field x is missing" in text
        assert "payload (4 bytes) is not a t.M: required field part.x is missing" in text
        assert "field 's' is not UTF-8 text" in text
    for text in texts[:4]:  # inspect shard shows the first three records
        assert "field 'tags' is not UTF-8 text" in text
        assert "field 'key' is not UTF-8 text" in text
    (message,) = shown
    assert [name for name, one in message.items() if one == 2] == [
        *METHODS,
        "_record__",
        "_record_",
    ]


def test_messages_without_fields_are_rows(run: Run, tmp_path: Path) -> None:
    """They are shown and converted in their number."""
    codes, texts, shown = results_of_all_commands(run, tmp_path, file_of({"M": ""}), b"\x08\1", b"")
    assert (codes, shown) == ([0] * 5, [{}, {}])
    assert all("not shown: 2 bytes of fields that t.M doesn't have" in text for text in texts)


@pytest.mark.parametrize("option", ["--exact", "--rename=a=b", "--cast=a:int64", "--to=tfrecord"])
def test_convert_options_that_need_examples(
    run: Run, frames: tuple[Path, Path], tmp_path: Path, option: str
) -> None:
    """They are refused with --proto."""
    shard, proto = frames
    words = [option] if "--to" in option else [option, "--to", "parquet"]
    code, _, err = run("convert", shard, tmp_path / "x", "--proto", f"{proto}:Frame", *words)
    assert (code, "--proto" in err) == (2, True)


@pytest.mark.more
def test_events_are_columns_in_sql(run: Run, tmp_path: Path) -> None:
    """An event has its step, and the tag and number that it logs; several of these are lists."""

    def event(step: int, *values: bytes) -> bytes:
        summary = b"".join(b"\x0a" + _varint(len(one)) + one for one in values)
        head = b"\x09" + struct.pack("<d", 1.6e9 + step) + b"\x10" + _varint(step)
        return head + b"\x2a" + _varint(len(summary)) + summary

    simple = b"\x0a\x04loss\x15" + struct.pack("<f", 0.1)
    tensor = b"\x08\x02\x12\x00\x22\x08" + struct.pack("<d", 0.1)
    dense = b"\x0a\x03acc\x42" + _varint(len(tensor)) + tensor
    shard = tmp_path / "events.out.tfevents.1"
    shard.write_bytes(shard_of([event(1, simple), event(2, dense), event(3)]))
    sql = "SELECT step, wall_time, tag, value, event->>'$.step' AS again FROM records"
    code, out, _ = run("query", shard, sql, "--format", "jsonl")
    rows = [[*json.loads(line).values()] for line in out.splitlines()]
    float32 = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert code == 0
    assert rows == [
        [1, 1600000001.0, "loss", float32, "1"],
        [2, 1600000002.0, "acc", 0.1, "2"],
        [3, 1600000003.0, None, None, "3"],
    ]
    for sql in ("SELECT count(*) FROM records", "SELECT count(_shard) FROM records"):
        code, out, _ = run("query", shard, sql, "--format", "csv")
        assert (code, out.split()[-1]) == (0, "3")
    shard.write_bytes(shard_of([event(1, simple, dense), event(3)]))
    _, out, _ = run("query", shard, "SELECT tag, value FROM records", "--format", "jsonl")
    assert json.loads(out.splitlines()[0]) == {"tag": ["loss", "acc"], "value": [float32, 0.1]}
    assert json.loads(out.splitlines()[1]) == {"tag": [], "value": []}
