"""Parsing single payloads: with TensorFlow's schema, or with what their features mean."""

from typing import TYPE_CHECKING, Any, overload

from tfrtool.errors import SchemaError
from tfrtool.examples import parsing
from tfrtool.examples.schema import Schema

if TYPE_CHECKING:
    from tfrtool.examples.parsing import ParsedValue
    from tfrtool.inspection.schema.features_of import Features


@overload
def parse_example(payload: bytes, schema: "Features") -> dict[str, Any]: ...


@overload
def parse_example(payload: bytes, schema: Schema | None = None) -> "dict[str, ParsedValue]": ...


def parse_example(payload: bytes, schema: "Features | Schema | None" = None) -> dict[str, Any]:
    """Parse a payload like ``tf.io.parse_single_example``, without TensorFlow.

    With `Features`, the values are the NumPy arrays that `open_records` returns for
    ``decode="features"``. If a `Schema` has feature lists, parse like
    ``tf.io.parse_single_sequence_example``.

    Args:
        payload: a serialized tf.train.Example or SequenceExample.
        schema: features to extract. None extracts all features as stored, with several values as a
            list.

    Returns:
        Mapping of feature name to value. With a `Schema` or None: bytes, int or float for the shape
        ``[]``, otherwise a list of them in row-major order. A feature list is a list of these.

    Raises:
        SchemaError: the payload can't be parsed, or does not match the schema.
    """
    if schema is None or isinstance(schema, Schema):
        return parsing.parse_example(payload, schema)
    try:
        return schema.decoder()(payload)
    except ValueError as error:
        raise SchemaError(str(error)) from error
