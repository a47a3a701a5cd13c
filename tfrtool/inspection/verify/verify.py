"""Verifying shards and datasets: each shard for itself, and all of them together."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfrtool.declare import takes
from tfrtool.errors import human_count, printable
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.inspection.profile import ProfileRequest, ShardProfile, profile_shards
from tfrtool.inspection.verify.dataset_check import (
    DatasetFault,
    DatasetFindings,
    check_directory,
    name_notes,
    written_shards,
)
from tfrtool.inspection.verify.feature_faults import FeatureFault
from tfrtool.inspection.verify.feature_findings import DeclaredFolders, find_mismatches
from tfrtool.records.compression import Compression
from tfrtool.records.framing import LENGTH
from tfrtool.records.shard_sets import ShardSet
from tfrtool.records.shards import FoundShards, Locations, locate_shards
from tfrtool.records.stream import Stream
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath, RemotePath

if TYPE_CHECKING:
    from tfrtool.inspection.schema.data_schema import DataSchema
    from tfrtool.inspection.verify.duplicates import Duplicates
    from tfrtool.inspection.verify.image_check import ImageCheck
    from tfrtool.inspection.verify.schema_check import Anomaly

# Bytes of images that are decoded in the time that a process takes to start, roughly.
_WORTH_WITH_IMAGES = 2 * 1024 * 1024

# Without decoding, such bytes by the length of records: a record costs about as much as 20 KB.
_SHORT, _LONG, _RECORDS_WORTH = 2048, 24 * 1024, 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerifyReport(Shown):
    """Result of verifying shards.

    Attributes:
        shards: result for each shard, in the order of the arguments.
        directories: result for each directory. Empty if a single file was verified.
        faults: faults that concern the shards as a set, such as missing shards, and how records
            differ from features.json.
        notes: remarks that are not damage.
        duplicates: duplicate images, or None if images were not checked.
        anomalies: how the records differ from a schema, or None without one.
        features_checked: number of records that were compared with features.json, or None without
            one.
    """

    shards: tuple[ShardProfile, ...]
    directories: tuple[DatasetFindings, ...] = ()
    faults: tuple[DatasetFault | FeatureFault, ...] = ()
    notes: tuple[str, ...] = ()
    duplicates: "Duplicates | None" = None
    anomalies: "tuple[Anomaly, ...] | None" = None
    features_checked: int | None = None

    @property
    def records(self) -> int:
        """Number of intact records."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Total size of the shards on disk, in bytes."""
        return sum(verdict.shard.bytes for verdict in self.shards if verdict.shard is not None)

    @property
    def unreadable(self) -> tuple[ShardProfile, ...]:
        """Shards that could not be read to the end."""
        return tuple(shard for shard in self.shards if shard.error is not None)

    @property
    def n_faults(self) -> int:
        """Number of faults, with anomalies and images duplicated across splits or labels."""
        spoiled = 0 if self.duplicates is None else self.duplicates.spoiled
        others = len(self.faults) + len(self.anomalies or ()) + spoiled
        return sum(shard.n_faults for shard in self.shards) + others

    @property
    def n_problems(self) -> int:
        """Number of faults and of unreadable shards."""
        return self.n_faults + len(self.unreadable)

    @property
    def is_sound(self) -> bool:
        """Whether everything was read and nothing is wrong."""
        return not self.n_problems

    def to_json(self) -> dict[str, Any]:
        """Return the last object that ``verify --json`` prints, about all shards together."""
        data: dict[str, Any] = {
            "shards": len(self.shards),
            "records": self.records,
            "bytes": self.bytes,
            "sound": self.is_sound,
            "faults": to_json_values(self.faults),
            "fault_count": self.n_faults,
            "notes": list(map(printable, self.notes)),
            "features_checked": self.features_checked,
        }
        if self.duplicates is not None:
            counts = to_json_values(self.duplicates)
            data |= {"duplicates": counts.pop("groups"), "duplicate_counts": counts}
        if self.anomalies is not None:
            data["anomalies"] = to_json_values(self.anomalies)
        return data


@takes(VerifyOptions)
def verify(shards: Locations, options: VerifyOptions) -> VerifyReport:
    """Verify shards and, unless a single file is given, whether the set is complete.

    Args:
        shards: files, glob patterns and directories, as for `find_shards`; or a binary stream.

    Raises:
        ShardError: an argument matches no file, or a worker process died.
        SchemaError: the file isn't a schema.
    """
    schema = None
    if options.schema is not None:
        from tfrtool.inspection.schema.data_schema import DataSchema

        schema = DataSchema.read(options.schema)
    located = locate_shards(shards)
    declared = DeclaredFolders.read(located.sources)
    request = ProfileRequest(
        parsing=True,
        images=options.images,
        schema=schema,
        declared=declared.roots,
        hashed=written_shards(located.paths),
    )
    worth = _WORTH_WITH_IMAGES if options.images else _worth_a_process(located.sources)
    profiles = [*profile_shards(located.sources, request, options, worth, "verifying")]
    return verify_report(located, profiles, schema, declared)


def verify_report(
    located: FoundShards,
    shards: Sequence[ShardProfile],
    schema: "DataSchema | None" = None,
    declared: DeclaredFolders | None = None,
) -> VerifyReport:
    """Return the report on profiles that were asked for parsing, and perhaps for more."""
    checks = _settle_images(shards)
    by_folder: dict[AnyPath, dict[AnyPath, ShardProfile]] = {}
    if len(shards) > 1 or located.folders:
        for shard in shards:
            by_folder.setdefault(shard.path.parent, {})[shard.path] = shard
    directories = tuple(
        check_directory(folder, profiles, is_full_directory=folder in located.folders)
        for folder, profiles in by_folder.items()
    )
    set_of = {path: one for found in directories for one in found.sets for path in one.paths}
    duplicates = None
    if any(check is not None for check in checks):
        from tfrtool.inspection.verify.duplicates import find_duplicates

        split_of = {path: one.split for path, one in set_of.items()}
        duplicates = find_duplicates(
            [
                (source, split_of.get(shard.path), check.roles, check.fingerprints)
                for shard, source, check in zip(shards, located.sources, checks, strict=True)
                if check is not None and shard.holds_examples
            ]
        )
    notes, anomalies = [*located.notes, *_image_notes(shards), *_compressed(shards)], None
    if schema is not None:
        from tfrtool.inspection.verify.schema_check import SchemaCheck, find_anomalies

        folds = (shard.fold(SchemaCheck) for shard in shards if shard.holds_examples)
        anomalies = find_anomalies(schema, filter(None, folds))
        if schema.unchecked:
            notes.append(f"not checked in the schema: {', '.join(schema.unchecked)}")
    shapes = [one.shapes.mismatches for one in checks if one is not None and one.shapes]
    features = find_mismatches(declared or DeclaredFolders(), shards, shapes)
    notes += name_notes(directories)
    notes += features.notes
    return VerifyReport(
        shards=tuple(shards),
        directories=directories,
        faults=(
            *(fault for found in directories for fault in found.faults),
            *_same_records(shards, set_of),
            *features.faults,
        ),
        notes=tuple(notes),
        duplicates=duplicates,
        anomalies=anomalies,
        features_checked=features.checked,
    )


def _settle_images(shards: Sequence[ShardProfile]) -> "list[ImageCheck | None]":
    """Set what is known of the images of each shard, and return their checks, if there are any."""
    from tfrtool.inspection.verify.image_check import ImageCheck, ImageFindings

    checks = [shard.fold(ImageCheck) for shard in shards]
    encoded = {check.roles.image for check in checks if check is not None and check.has_encoded}
    for shard, check in zip(shards, checks, strict=True):
        if check is not None:
            shard.images = ImageFindings()
        if check is not None and shard.holds_examples:
            shard.images = check.findings(all_encoded=check.roles.image in encoded)
            if not shard.images.doubtful:
                shard.add_faults(check.doubts)
    return checks


def _worth_a_process(sources: Sequence[AnyPath | Stream]) -> int:
    """Return the bytes that are checked in the time that a process takes to start."""
    length = _LONG
    if sources and not isinstance(sources[0], Stream | RemotePath):
        with suppress(OSError), open_regular(sources[0]) as file:
            head = file.read(LENGTH.size)
            length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else length
    return _RECORDS_WORTH * min(max(length, _SHORT), _LONG)


def _same_records(
    shards: Sequence[ShardProfile], set_of: Mapping[AnyPath, ShardSet]
) -> Iterator[DatasetFault]:
    """Yield shards of one set, or of two splits, that have the same records in the same order."""
    earlier: dict[bytes, list[ShardProfile]] = {}
    for shard in shards:
        shard_set = set_of.get(shard.path)
        if shard_set is None or shard.records < 2 or not shard.is_whole:
            continue
        same = earlier.setdefault(shard.digest, [])
        for other in same:
            other_set = set_of[other.path]
            splits = {shard_set.split, other_set.split}
            if shard_set is other_set or (len(splits) == 2 and None not in splits):
                count, name = human_count(shard.records, "record"), printable(other.path.name)
                yield DatasetFault(shard.path, f"contains the same {count} as {name}")
                break
        same.append(shard)


def _image_notes(shards: Sequence[ShardProfile]) -> Iterator[str]:
    for shard in shards:
        images = shard.images
        if images is not None and images.doubtful:
            yield (
                f"{shard.path.name}: {images.doubtful:,} values of {images.roles.image!r} are "
                "neither images in a known format nor raw pixels of the recorded size"
            )
        if images is not None and images.absent:
            records = human_count(images.absent, "record")
            yield f"{shard.path.name}: {records} without {images.roles.image!r}"


def _compressed(shards: Sequence[ShardProfile]) -> Iterator[str]:
    for kind, count in Counter(shard.compression for shard in shards if shard.records).items():
        if kind is not Compression.NONE:
            uses = "uses" if count == 1 else "use"
            yield (
                f"{human_count(count, 'shard')} {uses} {kind.value} compression, which TFDS can't "
                "read and tf.data.TFRecordDataset reads with "
                f"compression_type={kind.value.upper()!r}"
            )
