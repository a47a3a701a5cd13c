"""Shards that are decoded without a scan before, as what their first records show is assumed."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from tfrtool.convert.formats.payload_formats import TfrecordFormat
from tfrtool.convert.formats.record_format import Content, ReadPosition
from tfrtool.errors import SchemaError, TfrtoolError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import are_text
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.records.framing import Fault, Record
from tfrtool.records.payloads import payloads_of
from tfrtool.storage.remote_path import AnyPath


class UnexpectedRecordError(TfrtoolError):
    """Records are not what was assumed; all of them must be scanned."""


class AssumingTfrecord(TfrecordFormat):
    """Shards in which a scan would find the columns of the content, and no damage.

    Whatever a scan would find besides is an `UnexpectedRecordError`.
    """

    def read(
        self,
        path: AnyPath,
        position: ReadPosition,
        on_fault: Callable[[Fault], None] | None = None,
    ) -> Iterator[Sequence[Record]]:
        """Yield records; damage is unexpected."""
        return super().read(path, position, on_fault or _refuse)

    def decode(
        self,
        rows: Sequence[Record],
        content: Content,
        path: AnyPath,  # noqa: ARG002
        first: int,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch | Fault]:
        """Yield payloads as record batches; those with other features are unexpected."""
        step = content.columns.batch_records
        for start in range(0, len(rows), step):
            payloads = payloads_of(rows[start : start + step])
            yield _decode(payloads, content.columns, exact=content.exact)


def _refuse(fault: Fault) -> None:
    raise UnexpectedRecordError(fault.message, record=fault.record, offset=fault.offset)


def _decode(payloads: Sequence[bytes], columns: Columns, *, exact: bool) -> pa.RecordBatch:
    """Return payloads as a batch if a scan of them would find these columns, and no others."""
    other_keys, rejected = Counter[bytes](), dict[int, str]()
    try:
        if isinstance(columns, FeatureColumns):
            table, rejected = columns.decode(payloads, exact=exact, other_keys=other_keys)
        else:
            table = decode_batch(payloads, columns, exact=exact, other_keys=other_keys)
    except (MisfitError, SchemaError) as error:
        raise UnexpectedRecordError("records have features of other types") from error
    if rejected or other_keys:
        raise UnexpectedRecordError("records have other features")
    if not isinstance(columns, FeatureColumns):
        for column, array in zip(columns.columns, columns.arrays(table), strict=True):
            if column.is_text and not are_text(_strings_in(array)):
                raise UnexpectedRecordError("strings have control characters")
    return table


def _strings_in(array: pa.Array) -> pa.Array:
    """Return the strings of a column, which may be in lists, as bytes."""
    strings = array.flatten() if pa.types.is_list(array.type) else array
    return strings.drop_null().cast(pa.binary())
