"""The verb: a dataset with other features, shard by shard."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.changes import OBJECT_STARTS, Changes, UneditableError
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.record_marks import image_feature
from tfrtool.convert.pipeline.record_pool import (
    check_unchanged,
    faults_of,
    find_sources,
    first_fault,
    read_counted,
    shard_stamp,
)
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import DType, PayloadKind, encode_example, feature_name
from tfrtool.examples.tfds_features import tfds_features
from tfrtool.examples.tfds_metadata import (
    FEATURES,
    KEYPOINTS,
    LABEL_MAP,
    LABEL_SIGNS,
    Json,
    SplitInfo,
    connector,
    dimensions,
    labels_file,
)
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Encode, ImageRecipe, Resize
from tfrtool.inspection.rows.batches import infer_columns
from tfrtool.inspection.schema.shard_schema import infer_schema
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.compression import detect_compression
from tfrtool.records.count import count_shard
from tfrtool.records.framing import LocatedFault
from tfrtool.records.tally import Tally
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.arguments import OnError, as_member, as_path, make_options
from tfrtool.storage.json_files import reading_metadata
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.storage.remote_path import RemotePath
from tfrtool.writing.job import FileTask, JobPlan, numbered, run_job
from tfrtool.writing.job_report import Faults, JobReport, Written
from tfrtool.writing.job_settings import JobSettings

_SKIP = "use --on-error skip to skip such records"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTask(FileTask):
    """A shard whose records are those of another one, changed, in the same order.

    Attributes:
        source: the other shard.
        stamp: its size and time of change (ns).
        changes: what to change in each record.
        stop: whether to stop at a record that is damaged or can't be changed.
    """

    source: Path
    stamp: tuple[int, int]
    changes: Changes
    stop: bool

    def write(self, path: Path) -> Written:
        """Write the shard, compressed like the source."""
        faults, read = Faults(stop=self.stop), Tally()
        with open_regular(self.source) as file:
            compression = detect_compression(file)
        with quiet_pillow(), ShardWriter(path, compression) as writer:
            writer.write(self._changed(read, faults))
        check_unchanged(self.source, self.stamp)
        return Written(tally=writer.tally, read=read, faults=faults)

    def _changed(self, read: Tally, faults: Faults) -> Iterator[bytes]:
        for record in read_counted(self.source, read, faults, hint=_SKIP):
            count_work(1, RECORDS)
            try:
                yield self.changes.apply(record.payload)
            except UneditableError as error:
                if self.stop:
                    place = {"record": record.index, "offset": record.offset}
                    raise DatasetError(str(error), path=self.source, **place, hint=_SKIP) from error
                fault = unparseable(record, str(error))
                faults.add(LocatedFault(path=self.source, fault=fault))


def _count(path: Path, expected: int | None) -> int:
    """Return the number of records of a shard; in a store, that of the metadata will do."""
    if expected is not None and isinstance(path, RemotePath):
        return expected
    return count_shard(path).records


def edit(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    select: Iterable[str] | None = None,
    drop: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    cast: Mapping[str, str] | None = None,
    add: Mapping[str, Any] | None = None,
    encode: str | None = None,
    resize: int | tuple[int, int] | None = None,
    on_error: str | OnError = "stop",
    **options: Any,
) -> JobReport:
    """Change the features of all records, writing one output shard per input shard.

    Changes are made in this order: re-encode images, drop, cast, rename and add features. All names
    are those in ``source``. Everything else is preserved, including unknown fields of the messages,
    and an unchanged record keeps its exact bytes.

    Args:
        source: shards, a glob pattern, or a dataset directory.
        target: directory to write to.
        select: features to keep. None keeps all of them.
        drop: features to remove.
        rename: mapping of old to new names. Two features can swap names.
        cast: mapping of name to "string", "int64" or "float32". No value may be lost: 3.0 can
            become an int64, but 3.5 can't. Text is parsed as a number and, for float32, rounded to
            the nearest one.
        add: mapping of name to value, as for `encode_example`: the same value for every record.
        encode: "jpeg" or "png" re-encodes images; "keep" only converts those that are not valid
            JPEG. None leaves images unchanged or, if they are resized, keeps PNG as PNG.
        resize: length of the shorter side, or (width, height), in pixels.
        on_error: "stop" raises an error at a record that is damaged or can't be changed; "skip"
            skips it and lists it among the faults.
        **options: options of `tfrtool.reshard` except ``shards``, ``shard_size`` and
            ``compression``.

    Raises:
        UsageError: no record has a named feature, two features would have the same name, or the
            target can't be written to.
        DatasetError: a record can't be changed.
        WriteError: a file can't be written.
    """
    on_error = as_member(OnError, on_error, "on_error")
    settings = make_options(JobSettings, folder=as_path(target), on_error=on_error, **options)
    if select is None and resize is None and not (drop or rename or cast or add or encode):
        hint = "use --select, --drop, --rename, --cast, --add, --encode or --resize"
        raise UsageError("nothing to change", hint=hint)
    found = find_sources(source, settings.folder)
    carried = CarriedMetadata(found.folders)
    recipe = _recipe(encode, resize)
    changes = Changes(
        image=image_feature(found.paths, found.folders[0]) if recipe else None,
        recipe=recipe,
        same_format=encode is None,
        select=None if select is None else tuple(select),
        drop=tuple(drop),
        cast={key: as_member(DType, word, "cast") for key, word in (cast or {}).items()},
        rename=dict(rename or {}),
        add=encode_example(add) if add else b"",
    )
    columns = infer_columns(found.paths, workers=settings.workers, on_progress=settings.on_progress)
    if not columns.parsed and (changes.names or columns.kind is not PayloadKind.EMPTY):
        if columns.kind is PayloadKind.EMPTY:
            why = first_fault(found.paths[0])
            raise DatasetError(f"no record can be read: {why}", path=found.paths[0])
        raise DatasetError(
            "its records have no features",
            path=found.paths[0],
            expected="tf.train.Example or SequenceExample",
            found=columns.kind.title,
        )
    known = {feature_name(column.key) for column in columns.columns}
    if recipe and any(name.startswith(OBJECT_STARTS) for name in known):
        # Boxes are for the images as they lie.
        changes = replace(changes, recipe=replace(recipe, orient=False))
    changes.check(known)
    tasks = numbered(
        [
            EditTask(
                split=split,
                records=_count(path, expected),
                size=stamp[0],
                room=stamp[0] if changes.keeps_size else 0,
                source=path,
                stamp=stamp,
                changes=changes,
                stop=settings.stop,
            )
            for split, shards in found.splits.items()
            for path, expected in shards.shards.items()
            for stamp in [shard_stamp(path)]
        ],
        settings.name,
    )
    plan = JobPlan(
        tasks=tasks,
        inputs=[(str(task.source), task.stamp, task.changes) for task in tasks],
        faults=faults_of(found, {}, stop=settings.stop),
        warnings=(*found.notes, *carried.warnings),
    )

    def metadata(splits: Sequence[SplitInfo], place: Path) -> Mapping[str, str]:
        held = any(split.records for split in splits)
        staged = [place / task.name for task in tasks] if held else []
        _edit_metadata(carried, changes, known, staged)
        return carried.texts(settings.name, settings.version, splits)

    written = carried.written | ({"image": changes.image} if recipe else {})
    facts = {**changes.to_json(), "on_error": on_error.value, "written": written}
    return run_job(settings, "edit", facts, lambda _: plan, metadata)


def _recipe(encode: str | None, resize: int | tuple[int, int] | None) -> ImageRecipe | None:
    """Return how images are encoded anew; None if they are not."""
    if encode is None and resize is None:
        return None
    if encode not in (None, "keep", "jpeg", "png"):
        raise UsageError(f"invalid --encode {encode!r}: expected keep, jpeg or png")
    return ImageRecipe(encode=Encode(encode or "keep"), resize=Resize.of(resize))


def _edit_metadata(
    carried: CarriedMetadata, changes: Changes, known: Collection[str], shards: Sequence[Path]
) -> None:
    """Make the metadata of a dataset that of the edited one.

    ``known`` are the names of features that records have. What TFDS describes as it was stays,
    under its new name; all else is described by what the edited ``shards`` hold.
    """
    kept = {name: changes.rename.get(name, name) for name in known if changes.keeps(name)}
    files = {
        labels_file(name, sign): labels_file(new, sign)
        for sign in LABEL_SIGNS
        for name, new in kept.items()
        if name not in changes.cast
    }
    files |= {name: name for name in (LABEL_MAP, KEYPOINTS)}
    labels = carried.labels.items()
    carried.labels = {files[file]: text for file, text in labels if file in files}
    items = carried.info.pop("supervisedKeys", {}).get("tuple", {}).get("items", [])
    names = [str(item.get("featureKey")) for item in items]
    if names and all(map(changes.keeps, names)):
        items = [{"featureKey": changes.rename.get(name, name)} for name in names]
        carried.info["supervisedKeys"] = {"tuple": {"items": items}}
    if carried.features is None:
        return
    with reading_metadata(FEATURES, "TFDS"):
        before: dict[str, Json] = dict(carried.features["featuresDict"]["features"])
    after: dict[str, Json] = {}
    missing, touched = {*changes.added}, {*changes.cast, changes.image}
    for name, feature in before.items():
        parts = [one for one in known if one not in before and one.startswith(f"{name}/")]
        same = touched.isdisjoint([name, *parts]) and all(kept.get(one) == one for one in parts)
        if same and changes.keeps(name):
            after[changes.rename.get(name, name)] = feature
        else:
            missing.update(kept[one] for one in (name, *parts) if one in kept)
    if missing and shards:
        found = infer_schema(shards)
        made = tfds_features(found.features, found.records).content["featuresDict"]["features"]
        after |= {
            name: feature
            for name, feature in made.items()
            if not missing.isdisjoint([name, f"{name}/ragged_flat_values"])
        }
    if changes.image is not None and changes.recipe is not None and changes.recipe.resize:
        image = after.get(kept[changes.image], {}).get("image")
        if image:
            size = changes.recipe.resize
            channels = int(image["shape"]["dimensions"][-1])
            image["shape"] = dimensions(size.height or -1, size.width or -1, channels)
    carried.features = connector("FeaturesDict", featuresDict={"features": after})
