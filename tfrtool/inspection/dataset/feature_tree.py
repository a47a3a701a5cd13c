"""What the features of a dataset mean: a tree of typed fields, and what says so."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import SchemaError, enumeration, human_count
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.fields import Struct, tree_json
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.features.schema_files import SCHEMA, SchemaFields
from tfrtool.features.sources import (
    DeclaredFeatures,
    declared_features,
    read_declared_features,
    tree_of_columns,
)
from tfrtool.inspection.inspect_options import ScanOptions
from tfrtool.inspection.rows.batches import fold_columns, with_inferred
from tfrtool.inspection.rows.ranking_shards import ranking_columns
from tfrtool.storage.json_values import Shown
from tfrtool.storage.remote_path import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureTree(Shown):
    """What the features of a dataset mean.

    Attributes:
        dataset: its directory.
        source: what says so.
        root: the fields.
        notes: what is not in the tree, and how records differ from it.
    """

    dataset: AnyPath
    source: str
    root: Struct
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``inspect dataset --features --json`` prints."""
        return {
            "dataset": str(self.dataset),
            "source": self.source,
            "features": tree_json(self.root),
            "notes": [*self.notes],
        }


def read_feature_tree(
    dataset: str | os.PathLike[str],
    options: ScanOptions,
    types: Mapping[str, str] | None = None,
) -> FeatureTree:
    """Return what the features of a dataset mean.

    If no file says it, all records are read. ``types`` are types of features, by name.

    Raises:
        DatasetError: no shards were found, or the metadata is damaged.
        ShardError: a shard can't be read.
        SchemaError: the features.json of two folders differ.
    """
    files = find_files(dataset)
    shards, folder = files.paths, files.folders[0]
    declared, notes = read_declared_features(shards), [*files.notes]
    typed = declared_features(shards, types) if types or declared.root is None else None
    if typed is not None and typed.types:
        return _typed_tree(folder, shards, typed, files.notes, options)
    if declared.root is not None:
        notes += _compared(shards)
        described = {SCHEMA: SchemaFields.read(shards).fields, FEATURES: declared.root}
        source = enumeration([name for name, found in described.items() if found], "and")
        return FeatureTree(
            dataset=folder, source=source, root=declared.root, notes=tuple(dict.fromkeys(notes))
        )
    notes += declared.notes
    with options.pool() as pool:
        ranking = ranking_columns(
            shards, notes.append, workers=pool, on_progress=options.on_progress
        )
        if ranking is not None:
            source = f"{ranking.packing.value} messages"
            return FeatureTree(dataset=folder, source=source, root=ranking.root, notes=tuple(notes))
        fold = fold_columns(shards, workers=pool, on_progress=options.on_progress)
    root, mixed = tree_of_columns(fold.table_columns(exact=False))
    records = human_count(Counter(fold.kinds).total(), "record")
    return FeatureTree(
        dataset=folder,
        source=f"inferred from {records}",
        root=root,
        notes=(*notes, *mixed),
    )


def _typed_tree(
    folder: AnyPath,
    shards: Sequence[AnyPath],
    declared: DeclaredFeatures,
    notes: Sequence[str],
    options: ScanOptions,
) -> FeatureTree:
    """Return features with types of the user or of other programs' metadata."""
    source = "types and the first records"
    if declared.path is not None:
        source = f"types and {declared.path.name}"
    if declared.is_partial:
        with options.pool() as pool:
            fold = fold_columns(shards, workers=pool, on_progress=options.on_progress)
        declared = with_inferred(declared, fold)
        source = f"types, and {human_count(Counter(fold.kinds).total(), 'record')}"
    root = declared.root or Struct({})
    notes = tuple(dict.fromkeys((*notes, *declared.all_notes)))
    return FeatureTree(dataset=folder, source=source, root=root, notes=notes)


def _compared(shards: Sequence[AnyPath]) -> Iterator[str]:
    """Yield what is not in features.json, and whether the first records differ from it."""
    try:
        yield from declared_features(shards).all_notes
    except SchemaError as error:
        yield f"records differ from {FEATURES}: {error.what}; run tfrtool verify to list them"
