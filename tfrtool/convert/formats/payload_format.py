"""What formats of payloads have in common: columns are read of them, and TFDS reads them."""

import abc
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from tfrtool.convert.formats.registry import Content, Format, Mark, Scan
from tfrtool.examples.arrow.columns import Column, Form
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    DatasetInfo,
    Json,
    connector,
    dimensions,
)
from tfrtool.inspection.rows.batches import decode_records
from tfrtool.records.framing import Fault, Record


class PayloadFormat(Format):
    """Files of payloads, which are a dataset of TFDS (tensorflow-datasets 4.9.10)."""

    payloads = True
    tfds_name: ClassVar[str]  # of the format

    @abc.abstractmethod
    def read(
        self, path: Path, mark: Mark, tell: Callable[[Fault], None] = lambda _: None
    ) -> Iterator[list[Record]]:
        """Yield records, and tell of what is damaged, which is no row."""

    def scan(self, path: Path) -> Scan:
        """Read a file through, and check all of it."""
        fold, marks, faults = ColumnsFold(), list[Mark](), list[Fault]()
        rows = size = 0
        for records in self.read(path, Mark(), faults.append):
            if records:
                marks.append(Mark(rows, records[0].offset, records[0].index))
            payloads = [record.payload for record in records]
            rows, size = rows + len(payloads), size + sum(map(len, payloads))
            fold.add(payloads)
        marks, found = marks or [Mark()], tuple(faults)
        return Scan(path=path, rows=rows, bytes=size, marks=marks, fold=fold, faults=found)

    def decode(
        self,
        rows: list[Record],
        content: Content,
        path: Path,
        first: int,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch | Fault]:
        """Yield payloads as record batches, and as faults those that are no such rows."""
        faults, step = list[Fault](), content.columns.batch_records
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            for batch in decode_records(
                path, some, content.columns, faults.append, exact=content.exact
            ):
                yield batch.table
        yield from faults

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:
        """Return class names, features.json and dataset_info.json; nothing if TFDS reads no such.

        TFDS reads records without the features that it can't describe.
        """
        columns = content.columns
        if columns.kind is not PayloadKind.EXAMPLE:
            return {}
        texts = {
            f"{name.replace('/', '_')}.labels.txt": "".join(f"{one}\n" for one in names)
            for name, names in content.class_names.items()
        }
        described = info.to_json() | {"fileFormat": self.tfds_name}
        if not info.image_feature or not info.label_feature:
            del described["supervisedKeys"]
        features = {
            name: _feature(name, one, content)
            for name, one in zip(columns.names, columns.columns, strict=True)
            if one.form is not Form.FEATURE
        }
        own = connector("FeaturesDict", featuresDict={"features": features})
        texts[FEATURES] = json.dumps(content.tfds or own, indent=1)
        texts[DATASET_INFO] = json.dumps(described, indent=1)
        return texts


def _feature(name: str, column: Column, content: Content) -> Json:
    if name in content.images:
        return connector("Image", image={"dtype": "uint8", "shape": dimensions(-1, -1, 3)})
    if name in content.class_names:
        count = str(len(content.class_names[name]))
        return connector("ClassLabel", classLabel={"numClasses": count})
    scalar = connector("Scalar", column.dtype.value if column.dtype else None)
    if column.form is Form.SCALAR:
        return scalar
    return connector("Sequence", sequence={"feature": scalar, "length": "-1"})
