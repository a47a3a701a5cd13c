"""WebDataset: tar archives, whose members that are called alike up to a dot are one sample."""

import contextlib
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tfrtool.convert.formats.registry import Content, Put
from tfrtool.convert.formats.text_rows import JsonLinesFormat, load_json
from tfrtool.errors import SchemaError, SourceError, printable
from tfrtool.examples.arrow.columns import EXACT, PAYLOAD, Form
from tfrtool.examples.content import describe_bytes, is_text
from tfrtool.examples.example import DType, Feature, PayloadKind, Value
from tfrtool.examples.roles import Roles, find_roles
from tfrtool.inspection.extract.safe_names import safe_path
from tfrtool.inspection.rows.batches import rows_of
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.archives.tar_archive import read_headers, starts_tar
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.samples.web_dataset_tars import MEMBER, SKIPPED
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES

_FEATURES = "__features__"
"""In the JSON of a sample: by the extensions of its other members, which features they are."""

_LONGEST_KEY = 200
"""Bytes of its last part: a file's name has 255, with the extension."""

_MEMBER_COST = 4096
"""Bytes that a member of a sample counts for beside its own."""

_INTEGER = re.compile(rb"-?[0-9]{1,19}\s*")
_USUAL = {"cls": "label", "txt": "text", "pb": PAYLOAD}
_IMAGE = b"\xff\xd8\xff"
_TEXTS = ("text", "caption", "txt")
_LIKE: dict[DType, Value] = {DType.STRING: b"a", DType.INT64: 0, DType.FLOAT32: 0.0}


class WebDatasetFormat(JsonLinesFormat):
    """Samples of an image, a class number and a text as files, and of JSON with all the rest."""

    name = "webdataset"
    own_names = re.compile(r"\.tar$", re.IGNORECASE)
    file_name = "{dataset}-{split}-{index:05d}-of-{count:05d}.tar"

    def starts(self, head: bytes) -> bool:
        """Return whether bytes start as a tar archive does."""
        return starts_tar(head[: tarfile.BLOCKSIZE])

    def losses(self, content: Content) -> list[str]:
        """Refuse a name that is taken, and say which feature may be a label."""
        if _FEATURES in content.schema.names:
            raise SchemaError(
                f"the feature name {_FEATURES!r} is reserved in WebDataset: use --rename"
            )
        guess = None if content.label else _roles(content).guess
        if guess is None:
            return []
        return [
            f"no .cls member; if the label is {guess}, use --label-feature {guess} to write one"
        ]

    def _rows(self, file: BinaryIO, path: Path, start: int) -> Iterator[Mapping[str, Any]]:
        file.seek(start)
        held: dict[str, bytes] = {}
        key, size, offset, where = "", 0, start, ""
        try:
            for member in read_headers(file):
                offset, where = member.offset, f" in or after {printable(member.name)}"
                match = MEMBER.fullmatch(member.name)
                if match is None or not member.isreg() or SKIPPED.match(member.name):
                    continue
                if held and match[1] != key:
                    place = file.tell()
                    file.seek(offset)  # from where the next row is read
                    yield _row(key, held, path)
                    file.seek(place)
                    held, size = {}, 0
                key, extension = match[1], match[2].lower()
                size += member.size + _MEMBER_COST
                if size > MAX_TEXT_ROW_BYTES:
                    raise ValueError(f"a sample has more than {MAX_TEXT_ROW_BYTES:,} bytes")
                if extension in held:
                    raise ValueError("a sample has two members of the same name")
                if member.type == tarfile.GNUTYPE_SPARSE:
                    raise ValueError("sparse members are not supported")
                held[extension] = file.read(member.size)
        except ValueError as error:
            what = f"not a tar archive, or damaged{where}: {error}"
            raise SourceError(what, path=path, offset=offset) from error
        if held:
            yield _row(key, held, path)

    def _value(self, value: Any, kind: pa.DataType, typed: bool) -> Any:
        if not isinstance(value, bytes):
            return super()._value(value, kind, typed)
        if not pa.types.is_binary(kind.value_type if pa.types.is_list(kind) else kind):
            raise ValueError(f"{kind} can't hold bytes")
        return [value] if pa.types.is_list(kind) else value

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:
        """Give an archive to write."""
        with path.open("xb", buffering=1 << 20) as file:
            yield _SampleWriter(file, path.stem, content).put
            file.write(bytes(2 * tarfile.BLOCKSIZE))
            file.write(bytes(-file.tell() % tarfile.RECORDSIZE))


def _row(key: str, members: dict[str, bytes], path: Path) -> dict[str, Any]:
    """Return what a sample holds by the names of features; of others' samples, by usual names."""
    row: dict[str, Any] = {}
    with contextlib.suppress(ValueError, RecursionError):
        data = members.get("json", b"{}")
        text = data.decode(json.detect_encoding(data))
        fields = load_json(text, path, printable(f"{key}.json"))
        if isinstance(fields, dict):
            row = fields
            members = {name: data for name, data in members.items() if name != "json"}
    names = row.pop(_FEATURES, None)
    if not isinstance(names, dict):
        names = {}
        row = {name: _plain(value) for name, value in row.items() if value is not None}
        images = [one for one in members if "." not in one and is_image_name(f"a.{one}")]
        if len(images) == 1:
            names = {images[0]: "image"}
            row.setdefault("image/filename", f"{key}.{images[0]}")
        else:
            row.setdefault("__key__", key)
    for extension, data in members.items():
        number = int(data) if extension == "cls" and _INTEGER.fullmatch(data) else None
        value = number if number is not None and -(2**63) <= number < 2**63 else data
        name = names.get(extension, _USUAL.get(extension, extension))
        row[str(name)] = value
    return row


def _plain(value: Any) -> Any:
    """Return a value of others' JSON as a feature can hold it; nested ones as their JSON."""
    values = value if isinstance(value, list) else [value]
    texts = all(isinstance(one, str) for one in values)
    if texts or all(isinstance(one, int | float) and abs(one) < 2**63 for one in values):
        return value
    return json.dumps(value)


def _features_like(content: Content) -> dict[str, Feature]:
    """Return a record that has the single values of some content."""
    columns, like = content.columns, dict[str, Feature]()
    for feature, one in zip(columns.names, columns.columns, strict=False):
        if columns.kind is PayloadKind.EXAMPLE and one.form is Form.SCALAR and one.dtype:
            value: Value = _IMAGE if feature in content.images else _LIKE[one.dtype]
            like[feature] = Feature(dtype=one.dtype, values=(value,))
    return like


def _roles(content: Content) -> Roles:
    """Return the parts that features play: a label has class names, or a usual name."""
    roles = find_roles(_features_like(content))
    label = next(iter(content.class_names), roles.label)
    return roles._replace(label=label, guess=None if label else roles.guess)


class _SampleWriter:
    """Writes rows as samples, always in the same bytes."""

    def __init__(self, file: BinaryIO, name: str, content: Content) -> None:
        self._file, self._name, self._rows = file, name, 0
        self._keys: set[str] = set()
        columns, like, roles = content.columns, _features_like(content), _roles(content)
        self._named, label = roles.name, content.label or roles.label
        texts = [one for one in like if like[one].values == (b"a",) and one != self._named]
        usual = [one for one in _TEXTS if one in texts] or (texts if len(texts) == 1 else [])
        self._homes = {EXACT if columns.parsed else PAYLOAD: "pb"}  # members by names of columns
        self._homes |= dict.fromkeys(usual[:1], "txt")
        if label in like and like[label].dtype is DType.INT64:
            self._homes[label] = "cls"
        self._images = dict.fromkeys(content.images[:1], "")
        for image in content.images[1:]:
            stem = re.sub(r"[^a-z0-9_]", "_", image.lower()) + "."
            self._images |= {} if stem in self._images.values() else {image: stem}

    def put(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        for row in rows_of(batch):
            self._add(row)

    def _add(self, row: dict[str, Any]) -> None:
        key, members, names = self._key(row.get(self._named or "")), dict[str, bytes](), {}
        for name, value in list(row.items()):
            extension = self._homes.get(name)
            if name in self._images:
                kind, _, form = describe_bytes(value[:18]).partition("/")
                form = "jpg" if form == "jpeg" else form
                extension = self._images[name] + form if kind == "image" else None
            if extension and not (extension == "txt" and not is_text(value)):
                members[extension] = value if isinstance(value, bytes) else str(value).encode()
                names[extension] = name
                del row[name]
        if names != {"pb": PAYLOAD}:
            members["json"] = json.dumps({**as_json(row), _FEATURES: names}).encode()
        for extension, data in sorted(members.items()):
            info = tarfile.TarInfo(f"{key}.{extension}")
            info.size = len(data)
            self._file.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8"))
            self._file.write(data + bytes(-len(data) % tarfile.BLOCKSIZE))

    def _key(self, name: Any) -> str:
        """Return the name of an image without its suffix and without dots; else a number."""
        *folders, last = safe_path(name if isinstance(name, bytes) else b"") or ("",)
        last = (last.rpartition(".")[0] if is_image_name(last) else last).replace(".", "%2E")
        key = "/".join([*folders, last])
        if not last or len(last.encode()) > _LONGEST_KEY or SKIPPED.match(f"{key}."):
            key = f"{self._name}-{self._rows:06d}"
        while key in self._keys:
            key += "_"
        self._keys.add(key)
        self._rows += 1
        return key
