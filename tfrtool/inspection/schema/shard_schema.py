"""The schema of several shards together."""

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrtool.declare import takes
from tfrtool.errors import SchemaError, ShardError
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.schema import Schema
from tfrtool.examples.schema_fold import FeatureStatistics, SchemaFold
from tfrtool.inspection.inspect_options import SchemaOptions
from tfrtool.inspection.profile import ProfileRequest, RecordSchema, ShardProfile, profile_shards
from tfrtool.inspection.schema.data_schema import schema_json
from tfrtool.inspection.schema.declared_shapes import DeclaredShape, declared_shapes
from tfrtool.inspection.summary.summary_json import feature_json, values_json
from tfrtool.inspection.verify.payload_check import EXAMPLES
from tfrtool.records.framing import Fault
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import STREAM, Stream
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.examples.fields import Struct

_FAULTS_KEPT = 10
"""Faults that are listed of a shard; all are counted."""

_MIN_BYTES_PER_PROCESS = 8 * 1024 * 1024
"""Bytes that are folded with their values in the time that a process takes to start, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoss:
    """What is missing of a shard in the schema."""

    path: AnyPath
    content: str | None  # what its payloads are, if they aren't Examples and none is included
    count: int  # of its faults, including records that aren't Examples
    faults: tuple[Fault, ...]  # the first of them


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class InferredSchema(Shown):
    """Schema inferred from the records of one or more shards.

    Attributes:
        shards: number of shards read.
        records: number of records included.
        payload: type of the payloads: SequenceExample if any record has feature lists.
        sampled: whether some records were not read.
        features: statistics of each feature.
        skipped: number of features, counted once per record, that are not included because there
            are too many different names.
        losses: what is missing, for each shard that is not fully included.
        schema: the narrowest schema that fits all records, except where types conflict.
        folders: where files with class names may be.
    """

    shards: int
    records: int
    payload: PayloadKind
    sampled: bool
    features: tuple[FeatureStatistics, ...]
    skipped: int
    losses: tuple[ShardLoss, ...]
    schema: Schema
    folders: tuple[AnyPath, ...] = ()

    def requirements(self) -> tuple[dict[str, Any], list[str]]:
        """Return a schema for `verify`, as JSON, and the features that it can't name."""
        classes = {
            one.name: len(names)
            for folder in self.folders
            for one in self.features
            if one.dtype is DType.INT64 and (names := LabelNames.read(folder, one.name).names)
        }
        return schema_json(self.features, self.records, classes, self.declared())

    def declared(self) -> "Struct | None":
        """Return what features.json says that records mean; None without a single one."""
        from tfrtool.features.sources import read_features_files

        with suppress(SchemaError):
            return read_features_files(self.folders).root
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``inspect schema --json`` prints."""
        return {
            "shards": self.shards,
            "records": self.records,
            "payload": self.payload.value,
            "sampled": self.sampled,
            "features": [
                feature_json(item)
                | {"shape": item.spec(self.records).shape, "image_shape": item.image_shape or None}
                | values_json(item)
                for item in self.features
            ],
            "skipped": self.skipped,
            "losses": to_json_values(self.losses),
        }


@takes(SchemaOptions)
def infer_schema(shards: Locations, options: SchemaOptions) -> InferredSchema:
    """Infer one schema from all shards.

    Memory is bounded by the longest record, plus a fixed amount for each feature.

    Args:
        shards: files, glob patterns and directories, one or several; or a binary stream.

    Raises:
        ShardError: a file can't be read, or no file contains Examples or SequenceExamples.
        UsageError: ``sample`` or ``workers`` is less than 1.
    """
    paths = locate_shards(shards).sources
    shares = sample_shares(paths, options.sample)
    # A shard that has no share of the sample is not even opened.
    chosen = [path for path in paths if shares.get(path) != 0]
    request = ProfileRequest(features=True, sample=shares)
    profiles = profile_shards(chosen, request, options, _MIN_BYTES_PER_PROCESS)
    return schema_report(profiles, len(paths), sampled=len(chosen) < len(paths))


def schema_report(
    profiles: Iterable[ShardProfile], shards: int, *, sampled: bool = False
) -> InferredSchema:
    """Return the schema of profiles that were asked for features."""
    total, losses, folders = SchemaFold(values=True), list[ShardLoss](), dict[AnyPath, None]()
    for profile in profiles:
        if profile.path != Path(STREAM):
            folders[profile.path.parent] = None
        fold, loss = profile.fold(RecordSchema), shard_loss(profile)
        losses += [] if loss is None else [loss]
        sampled |= profile.cut
        if fold is not None and profile.payload in EXAMPLES:
            total.merge(fold.schema)
    if not total.records:
        raise no_examples(losses)
    shapes = declared_shapes(folders)
    for feature in total.features():
        if not feature.is_list:
            feature.shape, feature.image_shape = shapes.get(feature.name, DeclaredShape())
    return InferredSchema(
        shards=shards,
        records=total.records,
        payload=PayloadKind.SEQUENCE_EXAMPLE if total.sequences else PayloadKind.EXAMPLE,
        sampled=sampled,
        features=total.features(),
        skipped=total.skipped,
        losses=tuple(losses),
        schema=total.schema(),
        folders=tuple(folders),
    )


def sample_shares(
    paths: Sequence[AnyPath | Stream], sample: int | None
) -> dict[AnyPath | Stream, int | None]:
    """Return how many of ``sample`` records each shard has, in shares that differ by 1 at most."""
    if sample is None:
        return {}
    count = len(paths)
    return {path: sample * (n + 1) // count - sample * n // count for n, path in enumerate(paths)}


def shard_loss(profile: ShardProfile) -> ShardLoss | None:
    """Return what is missing of a shard in a result about its records; raise if unreadable."""
    if profile.failure is not None:
        raise profile.failure
    content, faults = None, profile.faults
    if profile.payload is PayloadKind.EMPTY:
        content = f"no intact records ({faults[0].message})" if faults else "empty records"
    elif profile.payload is PayloadKind.UNKNOWN:
        content = f"{profile.content} payloads"
    elif profile.payload not in EXAMPLES:
        content = profile.payload.title
    if content is None and not faults:
        return None
    return ShardLoss(
        path=profile.path, content=content, count=profile.n_faults, faults=faults[:_FAULTS_KEPT]
    )


def no_examples(losses: Sequence[ShardLoss]) -> ShardError:
    """Return the error of shards that hold no Examples."""
    if not losses:
        return ShardError("no shards")
    path = losses[0].path
    hint = f"run tfrtool inspect shard {shlex.quote(str(path))} to see what it contains"
    if losses[0].content == "ExampleListWithContext payloads":
        name = shlex.quote(str(path))
        hint = f"run tfrtool query {name} 'DESCRIBE records' to see the columns of its Examples"
    return ShardError(
        "contains no tf.train.Example or SequenceExample",
        path=path,
        found=losses[0].content,
        hint=hint,
    )
