"""The first records of a dataset in a notebook: pictures with labels, or a table of values."""

import base64
import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tfrtool.errors import UsageError, human_count, named_record, printable
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import Example, Feature, PayloadKind, decode_example
from tfrtool.examples.feature_text import value_text
from tfrtool.examples.roles import FirstRecords
from tfrtool.images.pixels import Picture, encoded
from tfrtool.inspection.pictures.array_images import declared_root
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles, pictures_of
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.storage.arguments import Paths
from tfrtool.storage.html_tables import html_table, one_line

_BOX = 160
"""Pixels of the longer side of a picture."""

_SMALL = "display:block;font-size:smaller;opacity:.7;overflow-wrap:anywhere"
"""How the name of a record looks below its picture and label."""

_MOST = 1000
_LONGEST_TEXT = 100
_VALUES_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A record as a gallery shows it.

    Attributes:
        name: its name, such as ``pets.tfrecord:12``.
        label: its label or class, or "".
        picture: a JPEG or PNG of its image, or None.
        values: its features, each value as text on one line.
    """

    name: str
    label: str
    picture: bytes | None = field(repr=False)
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordGallery:
    """Records that a notebook displays: pictures with labels, or else a table of values.

    Attributes:
        records: the records.
    """

    records: tuple[ShownRecord, ...]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {human_count(len(self.records), 'record')}>"

    def _repr_html_(self) -> str:
        """Return the records in HTML, which needs no other file."""
        if len(self.records) == 1:
            record = self.records[0]
            return _figures([record]) + html_table(("feature", "value"), record.values.items())
        if any(record.picture for record in self.records):
            return _figures(self.records)
        names = dict.fromkeys(name for record in self.records for name in record.values)
        rows = [(one.name, *(one.values.get(name, "") for name in names)) for one in self.records]
        return html_table(("record", *names), rows)


def show(shards: "Paths | Record", n: int = 12) -> RecordGallery:
    """Return the first records of a dataset, for a notebook to display.

    Images are shown as small pictures with their labels, and records without images as rows of a
    table. Of several shards, each gives as many records.

    Args:
        shards: files, glob patterns and directories, one or several; or a single `Record`.
        n: maximum number of records.

    Raises:
        ShardError: no shards were found, or a file can't be read.
        UsageError: ``n`` is not 1 to 1000.
    """
    if not 1 <= n <= _MOST:
        raise UsageError(f"n must be 1 to {_MOST:,}, got {n}")
    if isinstance(shards, Record):
        return RecordGallery(records=(_shown_alone(shards),))
    paths = find_shards(shards)
    are_named = len({path.name for path in paths}) == len(paths)
    records = list[ShownRecord]()
    for number, path in enumerate(paths):
        share = (number + 1) * n // len(paths) - len(records)
        if share:
            roles = image_roles(path, root=declared_root(path))
            shard = path.name if are_named else f"{path.parent.name}/{path.name}"
            found = (item for item in read_shard(path) if isinstance(item, Record))
            records += (
                _shown(one, roles, printable(named_record(shard, one.index)))
                for one in islice(found, share)
            )
    return RecordGallery(records=tuple(records))


def _shown_alone(record: Record) -> ShownRecord:
    """Return a record whose shard is not known, so that class numbers have no names."""
    first = FirstRecords()
    try:
        first.add(decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE), None)
    except ValueError:
        return _shown(record, ImageRoles(), f"record {record.index}")
    roles = ImageRoles(image=first.roles.image, label=first.roles.label, name=first.roles.name)
    return _shown(record, roles, f"record {record.index}")


def _shown(record: Record, roles: ImageRoles, name: str) -> ShownRecord:
    label, picture = "", Picture()
    if roles.image is not None:
        label, _, picture = next(pictures_of(record.payload, roles, _BOX))
    return ShownRecord(
        name=name,
        label=label,
        picture=encoded(picture),
        values=dict(_values_of(record.payload)),
    )


def _values_of(payload: bytes) -> Iterator[tuple[str, str]]:
    try:
        example: Example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError:
        yield "payload", f"{len(payload):,} bytes, not a tf.train.Example"
        return
    for name, feature in example.features.items():
        yield name, _one_line(feature)
    for name, steps in example.feature_lists.items():
        first = f", the first: {_one_line(steps[0])}" if steps else ""
        yield name, f"{human_count(len(steps), 'step')}{first}"


def _one_line(feature: Feature) -> str:
    values: Sequence[Any] = feature.values
    texts = [_brief(value) for value in values[:_VALUES_SHOWN]]
    if len(values) == 1:
        return one_line(texts[0])
    more = f", ... ({len(values):,} values)" if len(values) > _VALUES_SHOWN else ""
    return one_line(f"[{', '.join(texts)}]") + more


def _brief(value: Any) -> str:
    if isinstance(value, bytes) and len(value) > _LONGEST_TEXT:
        return f"{len(value):,} bytes of {describe_bytes(value)}"
    return value_text(value)


def _figures(records: Sequence[ShownRecord]) -> str:
    parts = []
    for record in records:
        name = f'<span style="{_SMALL}" title="{html.escape(record.name)}">'
        name += f"{html.escape(record.name)}</span>"
        label = f"label {record.label}" if record.label.isdecimal() else record.label
        caption = f"{html.escape(label)} {name}" if label else name
        picture = f'<div style="width:{_BOX}px">no picture</div>'
        if record.picture is not None:
            kind = "png" if record.picture.startswith(b"\x89PNG") else "jpeg"
            data = base64.b64encode(record.picture).decode()
            picture = f'<img src="data:image/{kind};base64,{data}" alt="">'
        parts.append(
            f'<figure style="margin:0;width:{_BOX}px">{picture}'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(parts)}</div>'
