"""WebDataset: tar archives, whose members with the same name up to a dot are one sample."""

import contextlib
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from tfrtool.convert.formats.cell_columns import Row, with_texts
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.convert.formats.record_format import Content, WriteBatch
from tfrtool.convert.formats.row_format import RowFormat
from tfrtool.errors import SchemaError, SourceError, printable
from tfrtool.examples.arrow.columns import EXACT, PAYLOAD
from tfrtool.examples.content import describe_bytes, is_text
from tfrtool.examples.dtypes import INT64
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.roles import LABELS
from tfrtool.inspection.extract.safe_names import safe_path
from tfrtool.inspection.rows.batches import rows_of
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.formats.json_rows import NumberError, parse_json
from tfrtool.sources.formats.tar_samples import SKIPPED, TarSample, TarSamples
from tfrtool.sources.formats.unpacked import create_packed, open_unpacked
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath

_FEATURES = "__features__"
"""A key in the JSON of a sample: the features of its other members, by their extensions."""

_LONGEST_KEY = 200
"""Bytes of the last part of a key: a file name has 255, with the extension."""

_MEMBER_COST = 4096
"""Bytes that a member of a sample counts for besides its own."""

_INTEGER = re.compile(rb"-?[0-9]{1,19}\s*")
_USUAL = {"cls": "label", "txt": "text", "pb": PAYLOAD}
_TEXTS = ("text", "caption", "txt")
_NAMES = ("image/filename", "filename", "image_name", "file_name", "__key__")


class WebDatasetFormat(RowFormat):
    """Samples of an image, a class number and a text as files, and of JSON with all the rest."""

    spec = FORMATS["webdataset"]
    widening: ClassVar[Sequence[DType]] = (DType.INT64, DType.FLOAT32)

    def losses(self, content: Content) -> list[str]:
        """Refuse a name that is taken."""
        if _FEATURES in content.schema.names:
            raise SchemaError(
                f"the feature name {_FEATURES!r} is reserved in WebDataset: use --rename"
            )
        return []

    def _open(self, path: AnyPath, *, trusted: bool = False) -> AbstractContextManager[BinaryIO]:
        return open_unpacked(
            path, copied=True, trusted=trusted
        )  # members are read after the next one's header

    def _rows(self, file: BinaryIO, path: AnyPath, start: int) -> Iterator[tuple[Row, int]]:
        file.seek(start)
        samples = TarSamples(file)
        try:
            for sample in samples:
                if sample.size + _MEMBER_COST * len(sample.members) > MAX_TEXT_ROW_BYTES:
                    raise ValueError(f"a sample has more than {MAX_TEXT_ROW_BYTES:,} bytes")
                yield _row(sample, file, path), samples.offset
        except ValueError as error:
            what = f"not a tar archive, or damaged{samples.where}: {error}"
            raise SourceError(what, path=path, offset=samples.offset) from error

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:
        """Give an archive to write."""
        with create_packed(path) as file:
            yield _SampleWriter(file, path.stem, content).put
            file.write(bytes(2 * tarfile.BLOCKSIZE))
            file.write(bytes(-file.tell() % tarfile.RECORDSIZE))


def _row(sample: TarSample, file: BinaryIO, path: AnyPath) -> dict[str, Any]:
    """Return the features of a sample. Samples of other writers have usual names."""
    members = {name: sample.read(file, name) for name in sample.members}
    row: dict[str, Any] = {}
    try:
        fields = parse_json(members.get("json", b"{}"))
    except NumberError as error:
        what = f"{printable(sample.key)}.json: {error}"
        raise SourceError(what, path=path) from error
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        row = fields
        members.pop("json", None)
    names = row.pop(_FEATURES, None)
    if not isinstance(names, dict):
        names = {}
        row = {name: _plain(value) for name, value in row.items() if value is not None}
        if len(sample.images) == 1:
            names = {sample.images[0]: "image"}
            row.setdefault("image/filename", f"{sample.key}.{sample.images[0]}")
        else:
            row.setdefault("__key__", sample.key)
    for extension, data in members.items():
        number = int(data) if extension == "cls" and _INTEGER.fullmatch(data) else None
        value = number if number is not None and number in INT64 else data
        row[str(names.get(extension, _USUAL.get(extension, extension)))] = value
    return row


def _plain(value: Any) -> Any:
    """Return a value of JSON as a feature can hold it; nested ones as their JSON."""
    values = value if isinstance(value, list) else [value]
    texts = all(isinstance(one, str) for one in values)
    if texts or all(isinstance(one, int | float) and abs(one) < 2**63 for one in values):
        return value
    return json.dumps(value)


class _SampleWriter:
    """Writes rows as samples, always in the same bytes."""

    def __init__(self, file: BinaryIO, name: str, content: Content) -> None:
        self._file, self._name, self._rows = file, name, 0
        self._keys: set[str] = set()
        columns = content.columns
        scalars = {
            name: one.dtype
            for name, one in zip(columns.names, columns.columns, strict=False)
            if columns.kind is PayloadKind.EXAMPLE and one.is_scalar
        }
        texts = [name for name, dtype in scalars.items() if dtype is DType.STRING]
        self._named = next((name for name in _NAMES if name in texts), None)
        known = (content.label, *content.class_names, *LABELS)
        label = next((name for name in known if scalars.get(name or "") is DType.INT64), None)
        self._homes = {EXACT if columns.parsed else PAYLOAD: "pb"}  # members by names of columns
        others = [one for one in texts if one not in (self._named, *content.images)]
        usual = [one for one in _TEXTS if one in texts] or (others if len(others) == 1 else [])
        self._homes |= dict.fromkeys(usual[:1], "txt")
        if label is not None:
            self._homes[label] = "cls"
        self._images = dict.fromkeys(content.images[:1], "")
        for image in content.images[1:]:
            stem = re.sub(r"[^a-z0-9_]", "_", image.lower()) + "."
            self._images |= {} if stem in self._images.values() else {image: stem}

    def put(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        for row in rows_of(with_texts(batch)):
            texts = {name: one.encode() for name, one in row.items() if isinstance(one, str)}
            self._add(row | texts)

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
