"""Features that a merge adds: those that some records lack, and the name of the source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from tfrtool.convert.convert_options import MergeOptions
from tfrtool.convert.source_records import SourceShard
from tfrtool.errors import DatasetError, UsageError, suggestion
from tfrtool.examples.dtypes import as_dtype
from tfrtool.examples.example import DType, Feature, decode_example, encode_example, feature_name
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.shard_sets import VERSION
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.examples.arrow.columns import Columns


@dataclass(frozen=True)
class Additions:
    """What is added to records, as serialized Examples: messages are merged by joining them.

    Attributes:
        fill: by name, the features that records get if they lack them.
        sources: the feature with the name of the source, by shard.
    """

    fill: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[AnyPath, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fill or self.sources)

    def __call__(self, shard: SourceShard, payload: bytes, record: int) -> bytes:
        """Return a payload with the additions."""
        return self.apply(shard.path, payload, record)

    def apply(self, path: AnyPath, payload: bytes, record: int) -> bytes:
        """Return a payload of a shard with the additions."""
        entries = _entries(payload)
        if entries is None:
            what = "--fill and --add-source require tf.train.Example or SequenceExample records"
            raise DatasetError(what, path=path, record=record)
        known = {feature_name(one.key) for one in entries if one.value.WhichOneof("kind")}
        parts = [payload, *(added for name, added in self.fill.items() if name not in known)]
        if self.sources:
            parts.append(self.sources[path])
        return b"".join(parts)


def _entries(payload: bytes) -> Any:
    """Return the features of a message; None if it is something else, perhaps unknown fields."""
    try:
        message = pb.SequenceExample.FromString(payload)
    except DecodeError:
        return None
    entries = message.context.feature
    return entries if entries or message.feature_lists.feature_list or len(payload) <= 2 else None


def additions_for(
    options: MergeOptions,
    shards: Mapping[AnyPath, Sequence[AnyPath]],
    columns: "Mapping[AnyPath, Columns]",
) -> Additions:
    """Return what options add to the records of sources.

    A value to fill in gets the type that the feature has in the sources.

    Args:
        options: ``--fill`` and ``--add-source``.
        shards: the shards of each source.
        columns: the features of each source, and perhaps of the dataset that they go to.

    Raises:
        UsageError: no source has a feature, its value has another type, or the name is taken.
    """
    dtypes: dict[str, dict[DType, AnyPath]] = {}
    for source, source_columns in columns.items():
        for one in source_columns.columns:
            if one.dtype is not None and not one.is_list:
                dtypes.setdefault(feature_name(one.key), {}).setdefault(one.dtype, source)
    fill = {}
    for name, value in (options.fill or {}).items():
        if name not in dtypes:
            hint = suggestion(name, sorted(dtypes), "features")
            raise UsageError(f"no feature {name!r} for --fill", hint=hint)
        if len(dtypes[name]) == 1:
            value = _as_dtype(name, value, next(iter(dtypes[name])))
        fill[name] = encode_example({name: value})
    added, sources = options.add_source, dict[AnyPath, bytes]()
    known = {feature_name(one.key) for source in shards for one in columns[source].columns}
    if added in known:
        raise UsageError(f"--add-source: the records already have a feature {added!r}")
    if added is not None:
        names = {source: _name_of(source) for source in shards}
        if len(set(names.values())) < len(names):
            names = {source: str(source) for source in shards}
        for source, paths in shards.items():
            sources |= dict.fromkeys(paths, encode_example({added: names[source]}))
    return Additions(fill, sources)


def additions_json(options: MergeOptions) -> dict[str, Any]:
    """Return the options as JSON values, if they are used."""
    facts: dict[str, Any] = {}
    if options.fill:
        filled = decode_example(encode_example(options.fill)).features
        facts["fill"] = {
            name: [feature_name(v) if isinstance(v, bytes) else str(v) for v in one.values]
            for name, one in filled.items()
        }
    if options.add_source is not None:
        facts["add_source"] = options.add_source
    return facts


def _as_dtype(name: str, value: Any, dtype: DType) -> Feature:
    feature = decode_example(encode_example({name: value})).features[name]
    try:
        return Feature(dtype=dtype, values=[as_dtype(one, dtype) for one in feature.values])
    except (ValueError, OverflowError) as error:
        shown = value if isinstance(value, str | int | float) else list(feature.values)
        what = f"--fill {name}: {shown!r} is not {dtype.value}, the type of this feature"
        raise UsageError(what) from error


def _name_of(source: AnyPath) -> str:
    """Return the name of a source, with its version if its folder is named like one."""
    name = source.name
    return f"{source.parent.name}/{name}" if VERSION.fullmatch(name) else name
