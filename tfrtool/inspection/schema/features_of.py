"""What the features of a dataset mean, and the same in the terms of other libraries."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tfrtool.engines.engine import Workers
from tfrtool.errors import DatasetError, SchemaError, UsageError
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values, tree_lines
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.features.sources import tree_of_columns, with_class_names
from tfrtool.features.tfds_tree import tfds_of_tree, tree_of_tfds
from tfrtool.records.shards import find_shards
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.json_values import read_json, reading_metadata
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrtool.features.record_arrays import FeatureArrays

_CONTEXT, _LISTS = "context", "feature_lists"


@dataclass(frozen=True, slots=True, repr=False)
class Features:
    """The features of records: a tree of structs, lists and typed values.

    ``str()`` of it has a line for each field, with its type: ``float32[7]``, ``text``,
    ``list of uint8[*,3]``.

    Attributes:
        notes: what is not in the tree, and why.
    """

    _root: Struct
    notes: tuple[str, ...] = field(default=(), kw_only=True, compare=False)
    _payload: PayloadKind = field(default=PayloadKind.EXAMPLE, kw_only=True)
    _decoders: "list[FeatureArrays]" = field(default_factory=list, init=False, compare=False)

    @classmethod
    def read(
        cls,
        shards: Paths,
        *,
        types: Mapping[str, str] | None = None,
        workers: Workers = None,
        on_progress: OnProgress = no_progress,
    ) -> "Features":
        """Find out what the features of shards are.

        A features.json next to them says it. Without one, types are inferred from all records.

        Args:
            shards: files, glob patterns and directories, one or several.
            types: types of features by name, such as ``{"image": "raw:uint8[32,32,3]"}``, which
                come before those of files.
            workers: how many processes at most; by default, one per core.
            on_progress: called while records are read.

        Raises:
            ShardError: a file can't be read.
            SchemaError: most records are not what features.json or ``types`` say.
            UsageError: a type doesn't exist, or is that of no feature.
        """
        from tfrtool.inspection.rows.batches import infer_columns

        notes = list[str]()
        columns = infer_columns(
            find_shards(shards),
            as_stored=False,
            types=types,
            workers=workers,
            on_progress=on_progress,
            on_note=notes.append,
        )
        root, mixed = tree_of_columns(columns)
        return cls(root, notes=(*notes, *mixed), _payload=columns.kind)

    @classmethod
    def from_tfds(cls, features: Any) -> "Features":
        """Read TFDS features.

        Args:
            features: the path of a features.json or of its folder, the content of such a file, or a
                ``tfds.features.FeaturesDict``.

        Raises:
            DatasetError: the file can't be read, or is something else.
            SchemaError: the content is something else.
        """
        if isinstance(features, str | os.PathLike):
            return cls._of_file(as_path(features))
        content = features.to_json() if hasattr(features, "to_json") else features
        if not isinstance(content, dict):
            what = "features are a path, the content of a features.json, or a FeaturesDict"
            raise UsageError(what, found=type(features).__name__)
        try:
            root, notes = tree_of_tfds(json.loads(json.dumps(content)))
        except (ValueError, TypeError, RecursionError) as error:
            raise SchemaError(f"invalid features of TFDS: {error}") from error
        if hasattr(features, "to_json"):
            root = Struct(
                {name: _named(part, features, name) for name, part in root.fields.items()}
            )
        return cls(root, notes=notes)

    @classmethod
    def _of_file(cls, path: AnyPath) -> "Features":
        path = path / FEATURES if path.is_dir() else path
        try:
            with reading_metadata(path, "TFDS"):
                root, notes = tree_of_tfds(read_json(path))
        except FileNotFoundError as error:
            raise DatasetError("no such file", path=path) from error
        return cls(with_class_names(root, path.parent), notes=notes)

    @classmethod
    def from_tfx(cls, path: str | os.PathLike[str]) -> "Features":
        """Read a schema of TensorFlow Metadata, as TFX writes it (``schema.pbtxt``), or as JSON.

        Args:
            path: the file.

        Raises:
            UsageError: the file can't be read.
            SchemaError: it is not a schema, or no records can have such features.
        """
        from tfrtool.inspection.schema.data_schema import read_tfx_tree

        root, notes = read_tfx_tree(path)
        return cls(root, notes=notes)

    @classmethod
    def from_arrow(cls, schema: "pa.Schema") -> "Features":
        """Read the schema of an Arrow table.

        Raises:
            SchemaError: a column has a type that features don't have.
        """
        from tfrtool.features.arrow_tree import tree_of_arrow

        return cls(tree_of_arrow(schema))

    def to_arrow(self) -> "pa.Schema":
        """Return the schema of a table with these features as columns."""
        from tfrtool.features.feature_columns import FeatureColumns

        return FeatureColumns.of(self._root).to_arrow()

    def to_hf(self) -> dict[str, Any]:
        """Return what ``datasets.Features.from_dict`` of Hugging Face's datasets reads."""
        from tfrtool.features.outputs import hugging_face_features

        features: dict[str, Any] = hugging_face_features(self._root)
        return features

    def to_tfds(self) -> dict[str, Any]:
        """Return the content of a features.json; TFDS has no types of times and decimals."""
        return tfds_of_tree(self._root)

    def to_tfx(self) -> str:
        """Return what records store as a text proto of TensorFlow Metadata, for TFX."""
        from tfrtool.features.tfx_schema import tfx_of_tree
        from tfrtool.inspection.schema.data_schema import schema_text

        return schema_text(tfx_of_tree(self._root), "pbtxt")

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        """Return a function from a payload to NumPy arrays, which can be pickled.

        It does what `parse_example` does, but raises a `ValueError` if a payload doesn't fit, as
        `Records.decoded_by` expects.

        Raises:
            SchemaError: the records are not Examples.
        """
        if not self._decoders:
            from tfrtool.features.record_arrays import FeatureArrays

            if self._payload is not PayloadKind.EXAMPLE:
                raise SchemaError(f"features describe arrays only of {PayloadKind.EXAMPLE.title}")
            try:
                self._decoders.append(FeatureArrays(self._root))
            except ValueError as error:
                raise SchemaError(f"records can't store these features: {error}") from error
        return self._decoders[0]

    def stored(self) -> Schema:
        """Return what records store: TensorFlow's description of their features.

        Raises:
            SchemaError: the records are neither Examples nor SequenceExamples.
        """
        from tfrtool.features.outputs import stored_schema

        if self._payload is PayloadKind.EXAMPLE:
            return stored_schema(self._root)
        if self._payload is not PayloadKind.SEQUENCE_EXAMPLE:
            raise SchemaError("the records store no features of their own")
        context, lists = (self._root.fields.get(name) for name in (_CONTEXT, _LISTS))
        specs = list(stored_schema(context)) if isinstance(context, Struct) else []
        if isinstance(lists, Struct):
            specs += _step_specs(lists)
        return Schema(tuple(specs))

    def __str__(self) -> str:
        return "\n".join(tree_lines(self._root))

    def __repr__(self) -> str:
        lines = "".join(f"  {line}\n" for line in tree_lines(self._root))
        return f"Features(\n{lines})"

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the fields."""
        return iter(self._root.fields)


def _step_specs(lists: Struct) -> Iterator[FeatureSpec]:
    """Yield how to parse the feature lists of a SequenceExample."""
    from tfrtool.features.outputs import stored_schema

    for name, item in lists.fields.items():
        step = item.item if isinstance(item, ListOf) else item
        for spec in stored_schema(Struct({name: step})):
            yield replace(spec, is_list=True)


def _named(item: Field, features: Any, name: str) -> Field:
    """Return a field with the names of classes of TFDS' feature, as features.json lacks them."""
    feature = features[name]
    if isinstance(item, ListOf) and hasattr(feature, "feature"):
        return replace(item, item=_named(item.item, {name: feature.feature}, name))
    if isinstance(item, Struct) and hasattr(feature, "keys"):
        parts = item.fields.items()
        return Struct({key: _named(part, feature, key) for key, part in parts})
    if isinstance(item, Values) and item.kind is Kind.LABEL:
        names = getattr(feature, "names", None)
        return replace(item, info={**item.info, "names": tuple(names)}) if names else item
    return item
