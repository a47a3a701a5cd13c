"""Where the meaning of records is written: features.json, files of classes, and schema.json."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfrtool.errors import DatasetError, SchemaError, UsageError, human_count, some_of
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.examples.fields import (
    Kind,
    Struct,
    Values,
    leaves_of,
    needs_inference,
    with_info,
)
from tfrtool.examples.tfds_metadata import (
    FEATURES,
    LABEL_SIGNS,
    labels_file,
    read_class_names,
)
from tfrtool.features.first_examples import FirstExamples
from tfrtool.features.metadata_types import has_metadata_types, read_metadata_types
from tfrtool.features.schema_files import SCHEMA, SchemaFields, schema_of
from tfrtool.features.stored_layout import check_tree, stored_features
from tfrtool.features.tfds_tree import tree_of_tfds
from tfrtool.features.type_choices import sequence_types, with_images, with_types
from tfrtool.features.type_spelling import parse_types
from tfrtool.storage.json_values import read_json, reading_metadata
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.examples.arrow.columns import Columns
    from tfrtool.features.feature_columns import FeatureColumns
    from tfrtool.features.misfits import FieldMisfit

_FEW_LABELS = 2
"""Labels whose files are asked for one by one."""

_RECORDS_NAMED = 3
AS_STORED = "use --as-stored to show features as the records store them"
_ANOTHER_TYPE = "use another --type, or --as-stored to show features as the records store them"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFeatures:
    """What the files beside shards say about their records.

    Attributes:
        root: the fields; None where no file says it.
        path: the features.json that says it.
        notes: what is not shown, a clause each.
        problem: why a features.json can't be read.
        others: a note on features of the first records that it doesn't name.
        types: types that come before all this.
        is_partial: whether the root doesn't have these types yet, as those of the other features
            are to be inferred.
        first: the first records, for this.
        is_certain: whether all fields are from a schema.json, so that records show no more.
    """

    root: Struct | None = None
    path: AnyPath | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    others: str | None = None
    types: Mapping[str, Values] = field(default_factory=dict)
    is_partial: bool = False
    first: FirstExamples | None = None
    is_certain: bool = False

    @property
    def is_sequence(self) -> bool:
        """Whether the records are SequenceExamples, whose columns are a context and lists."""
        return self.first is not None and self.first.is_sequence

    def inferred(self, root: Struct) -> "DeclaredFeatures":
        """Return the features of a tree with these types, once the first records were compared.

        The errors are those of `declared_features`.
        """
        first = self.first or FirstExamples(())
        typed = with_types(with_images(root, first), self.types, first)
        _check_first(typed, first, None, self.types)
        sequences = FirstExamples((), is_sequence=True) if first.is_sequence else None
        return replace(self, root=typed, is_partial=False, first=sequences)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, with that on other features."""
        return self.notes if self.others is None else (*self.notes, self.others)

    @property
    def columns(self) -> "FeatureColumns | None":
        """The fields as the columns of a table; None where records show more than the files say."""
        if self.root is None or self.is_partial:
            return None
        if needs_inference(self.root) and not (self.types or self.is_certain):
            return None
        return _columns_of(self.root, is_sequence=self.is_sequence)


def _columns_of(root: Struct, *, is_sequence: bool) -> "FeatureColumns":
    if is_sequence:
        from tfrtool.features.sequence_columns import SequenceColumns

        return SequenceColumns.of(root)
    from tfrtool.features.feature_columns import FeatureColumns  # which loads NumPy and Arrow

    return FeatureColumns.of(root)


def declared_features(
    shards: Sequence[AnyPath], types: Mapping[str, str] | None = None
) -> DeclaredFeatures:
    """Return what `read_declared_features` does, once the first records were compared with it.

    ``types`` are types of features, by name, which come before it.

    Raises:
        SchemaError: two files disagree, or the records are not what a file says.
        UsageError: a type doesn't exist, or is that of no feature.
    """
    chosen, found = parse_types(types), read_declared_features(shards)
    if found.columns is not None and found.root is not None:
        first = FirstExamples.of(shards)
        if not chosen:
            return _compared(found, first)
        root = with_types(found.root, chosen, first)
        return _compared(replace(found, root=root, types=chosen), first)
    if not shards or not (chosen or has_metadata_types(shards[0])):
        return found
    first = FirstExamples.of(shards)
    if chosen and not first.payloads:
        raise UsageError("types require tf.train.Examples or SequenceExamples")
    if first.is_sequence:
        chosen = sequence_types(chosen, first)
    metadata = read_metadata_types(shards[0], first)
    notes = [*found.notes]
    if metadata.path is not None:
        named = {name: values for name, values in metadata.types.items() if name not in chosen}
        try:
            _check_types(named, first, metadata.path)
            chosen = {**named, **chosen}
            what = f"types of {some_of([*named], 3)} are from {metadata.path.name}"
            notes += [what] if named else []
        except (SchemaError, UsageError) as error:
            notes.append(f"the types in {metadata.path.name} are not used: {error.what}")
    if not chosen:
        return replace(found, notes=tuple(notes))
    declared = replace(found, notes=tuple(notes), types=chosen, is_partial=True, first=first)
    return declared.inferred(Struct({})) if first.keys <= {*chosen} else declared


def _check_types(types: Mapping[str, Values], first: FirstExamples, path: AnyPath | None) -> None:
    """Raise a `SchemaError` if most of the first records are not what types say."""
    root = with_types(Struct({}), types, first)
    _check_first(root, first, path, types)


def read_declared_features(shards: Sequence[AnyPath]) -> DeclaredFeatures:
    """Return what features.json and the files beside it say about the records of shards.

    The fields of a schema.json come before it.

    Raises:
        SchemaError: two files disagree.
        DatasetError: a schema.json is damaged.
    """
    found = read_features_files([*dict.fromkeys(shard.parent for shard in shards)])
    schema = SchemaFields.read(shards)
    if found.root is None and found.problem is None and schema.is_complete:
        path = schema_of(shards[0])
        path = path if path.exists() else path.with_name(SCHEMA)
        found = DeclaredFeatures(root=Struct({}), path=path)
    if found.root is None:
        return found
    root = Struct({**found.root.fields, **schema.fields})
    try:
        check_tree(root)
    except ValueError as error:
        what = f"contradicts the types in schema.json: {error}"
        raise SchemaError(what, path=found.path, hint=AS_STORED) from error
    is_certain = schema.fields.keys() >= root.fields.keys()
    return replace(found, root=root, is_certain=is_certain)


def read_features_files(folders: Sequence[AnyPath]) -> DeclaredFeatures:
    """Return what the features.json files of folders say, with the names of classes.

    Without one in each of them there is no answer. One that can't be read is a note.

    Raises:
        SchemaError: two of them disagree.
    """
    first: DeclaredFeatures | None = None
    for folder in folders:
        path = folder / FEATURES
        try:
            with reading_metadata(path, "TFDS"):
                root, notes = tree_of_tfds(read_json(path))
        except FileNotFoundError:
            return DeclaredFeatures()
        except DatasetError as error:
            notes = (f"types are inferred: {error}",)
            return DeclaredFeatures(path=path, notes=notes, problem=error.what)
        if first is None:
            named = with_class_names(root, folder)
            first = DeclaredFeatures(root=named, path=path, notes=notes)
        elif root != first.root:
            what = f"{path} describes other features than {first.path}"
            raise SchemaError(what, hint=AS_STORED)
    return first or DeclaredFeatures()


def _compared(found: DeclaredFeatures, first: FirstExamples) -> DeclaredFeatures:
    """Return the same if the first records are what it says, with a note on other features.

    Raises:
        SchemaError: most of them are something else.
    """
    root = found.root
    if root is None or not first.payloads:
        return DeclaredFeatures(notes=found.notes)
    known = {feature.key for feature in stored_features(root)}
    if known.isdisjoint(first.keys):
        what = f"types are inferred: {FEATURES} describes other records"
        return DeclaredFeatures(notes=(what,))
    _check_first(root, first, found.path, found.types)
    others = sorted(first.keys - known)
    if not others:
        return found
    what = f"{human_count(len(others), 'feature')} not in {FEATURES}: {some_of(others, 3)}"
    return replace(found, others=f"not shown: {what}; {AS_STORED}")


def _check_first(
    root: Struct, first: FirstExamples, path: AnyPath | None, types: Mapping[str, Values]
) -> None:
    """Raise a `SchemaError` if most of the first records are something else than a tree.

    Fields that have ``types`` have them from the user, and all others from the file at a path.
    """
    columns = _columns_of(root, is_sequence=first.is_sequence)
    misfits, damaged, count = _misfits_of(columns, first.payloads)
    most = count // 2
    by_path: dict[str, list[tuple[int, FieldMisfit]]] = {}
    for index, by_field in misfits.items():
        for name, misfit in by_field.items():
            by_path.setdefault(name, []).append((index, misfit))
    for name, found in by_path.items():
        if len(found) > most:
            shown = sorted(found)[:_RECORDS_NAMED]
            indexes = ", ".join(str(index) for index, _ in shown)
            values = ", ".join(misfit.found for _, misfit in shown)
            what = f"its {name!r} is {shown[0][1].expected}; records {indexes} have {values}"
            if path is None or name in types:
                what = f"feature {name!r}: expected {shown[0][1].expected}; records {indexes} have "
                raise SchemaError(what + values, hint=_ANOTHER_TYPE)
            raise SchemaError(what, path=path, hint=AS_STORED)
    for reason, count in Counter(damaged.values()).items():
        if count > most and path is None:
            raise SchemaError(f"the records have other types: {reason}", hint=_ANOTHER_TYPE)
        if count > most:
            raise SchemaError(f"it describes other records: {reason}", path=path, hint=AS_STORED)


def _misfits_of(
    columns: "FeatureColumns", payloads: Sequence[bytes]
) -> "tuple[dict[int, dict[str, FieldMisfit]], dict[int, str], int]":
    """Return how records differ from a tree, and how many were read: fewer if they are large."""
    while payloads:
        with suppress(SchemaError):
            _, misfits, damaged = columns.checked(payloads, strict=False)
            return misfits, damaged, len(payloads)
        payloads = payloads[: len(payloads) // 2]
    return {}, {}, 0


def tree_of_columns(columns: "Columns") -> tuple[Struct, list[str]]:
    """Return the tree of a table's columns, and notes on those of several types."""
    from tfrtool.examples.arrow.columns import Columns
    from tfrtool.features.feature_columns import FeatureColumns
    from tfrtool.features.flat_fields import tree_of_flat

    if isinstance(columns, FeatureColumns):
        return columns.root, []
    if columns.kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
        return Struct({name: Values(kind=Kind.BYTES) for name in columns.names}), []
    typed = tuple(column for column in columns.columns if column.dtype is not None)
    notes = [
        f"{feature_name(column.key)!r} is not shown: its values have several types"
        for column in columns.columns
        if column.dtype is None
    ]
    return tree_of_flat(Columns(columns.kind, typed)), notes


def with_class_names(root: Struct, folder: AnyPath) -> Struct:
    """Return a tree whose labels have the names of their classes, where a file has these."""
    labels = [leaf.path for leaf in leaves_of(root) if leaf.values.kind is Kind.LABEL]
    listed: set[str] | None = None
    if len(labels) > _FEW_LABELS:  # a store is asked once
        listed = {one.name for one in folder.iterdir()}

    def named(path: str, values: Values) -> Values:
        files = {labels_file(path, sign) for sign in LABEL_SIGNS}
        if values.kind is not Kind.LABEL or (listed is not None and files.isdisjoint(listed)):
            return values
        with suppress(DatasetError):
            names = read_class_names(folder, path)
            if names:
                return replace(values, info={**values.info, "names": names})
        return values

    return with_info(root, named)
