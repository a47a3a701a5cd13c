"""The verb: a dataset with other features, shard by shard."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.changes import Changes
from tfrtool.convert.edit.edited_features import edit_metadata
from tfrtool.convert.edit.shard_tasks import EditTask, numbered, one_to_one
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.job import JobPlan, run_job
from tfrtool.convert.pipeline.job_report import JobReport
from tfrtool.convert.pipeline.record_sources import faults_of, find_sources
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import (
    DType,
    PayloadKind,
    decode_example,
    encode_example,
    feature_name,
)
from tfrtool.examples.roles import find_roles, info_beside
from tfrtool.examples.tfds_metadata import SplitInfo
from tfrtool.images.recipe import Encode, ImageRecipe, Resize
from tfrtool.inspection.rows.batches import infer_columns
from tfrtool.loading.dataset.dataset import OnCorrupt
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import check_dataset_name, check_version
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.storage.words import as_member
from tfrtool.writing.dataset_folder import STAGING, Target
from tfrtool.writing.write_options import Existing, OnBad, dataset_identity


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
    on_bad: str = "fail",
    on_corrupt: str = "skip",
    name: str | None = None,
    version: str | None = None,
    workers: int | None = None,
    existing: str = "refuse",
    dry_run: bool = False,
    on_progress: OnProgress = silent,
) -> JobReport:
    """Change the features of all records, an output shard for an input shard.

    Changes are made in this order: images are encoded anew, features are left out, cast, renamed,
    and added; all names are those of ``source``. What is not named stays, unknown fields of the
    messages too, and a record that nothing changes keeps its bytes.

    Args:
        source: shards, a pattern, or a dataset's directory.
        target: the directory to write to.
        select: the features that stay; None for all.
        drop: features to leave out.
        rename: new names by old ones; names may change places.
        cast: "string", "int64" or "float32" by name. No value may be lost: 3.0 is an int64, and
            3.5 is not; a text is what it says, and gets the nearest float32.
        add: values by name, as `encode_example` takes them: the same for every record.
        encode: "jpeg", "png", or "keep": how images are encoded anew; "keep" converts only what is
            no good JPEG. None leaves them alone, or, where they are resized, keeps PNGs as PNGs.
        resize: the shorter side in pixels, or width and height.
        on_bad: "fail" stops at a record that can't be changed so; "skip" leaves it out, and lists
            it among the faults.
        on_corrupt: "skip" leaves damaged records out and lists them; "stop" stops at the first.
        name: the dataset's name; None makes one from the target's path.
        version: its version, X.Y.Z; None takes it from the path, or 1.0.0.
        workers: how many processes; None takes the cores.
        existing: "refuse", "overwrite" or "resume", as in `write`.
        dry_run: only tell what would be written.
        on_progress: called after each shard.

    Raises:
        UsageError: no record has a feature of a name, or two would have the same; or the target may
            not be written to.
        DatasetError: a record can't be changed.
        WriteError: something can't be written.
    """
    folder = as_path(target)
    found = find_sources(source, folder)
    carried = CarriedMetadata(found.folders)
    name, version = dataset_identity(folder, name, version)
    check_dataset_name(name)
    check_version(version)
    recipe = _recipe(encode, resize)
    changes = Changes(
        image=_image_feature(found.paths, found.folders[0]) if recipe else None,
        recipe=recipe,
        same_format=encode is None,
        select=None if select is None else tuple(select),
        drop=tuple(drop),
        cast={key: as_member(DType, word, "dtype") for key, word in (cast or {}).items()},
        rename=dict(rename or {}),
        add=encode_example(add) if add else b"",
    )
    columns = infer_columns(found.paths, workers=workers)
    if not columns.parsed and columns.kind is not PayloadKind.EMPTY:
        raise DatasetError(
            "its records have no features",
            path=found.folders[0],
            expected="tf.train.Example or SequenceExample",
            found=columns.kind.title,
        )
    known = {feature_name(column.key) for column in columns.columns}
    changes.check(known)
    skip_bad = as_member(OnBad, on_bad, "on_bad") is OnBad.SKIP
    stop = as_member(OnCorrupt, on_corrupt, "on_corrupt") is OnCorrupt.STOP
    tasks = numbered(
        [
            EditTask(**facts, changes=changes, skip_bad=skip_bad, stop=stop)
            for facts in one_to_one(found)
        ],
        name,
    )

    def metadata(splits: Sequence[SplitInfo]) -> Mapping[str, str]:
        held = any(split.records for split in splits)
        staged = [folder / STAGING / task.name for task in tasks] if held else []
        edit_metadata(carried, changes, known, staged)
        return carried.texts(name, version, splits)

    goal = Target(
        folder=folder,
        name=name,
        existing=as_member(Existing, existing, "existing"),
        command="edit",
        options={"name": name, "version": version, **changes.to_json(), "on_bad": on_bad},
    )
    notes = (*found.notes, *carried.warnings)
    plan = JobPlan(tasks=tasks, faults=faults_of(found, {}, stop=stop), warnings=notes)
    return run_job(
        goal,
        lambda _: plan,
        workers=workers,
        on_progress=on_progress,
        metadata=metadata,
        dry_run=dry_run,
    )


def _image_feature(shards: Sequence[Path], folder: Path) -> str | None:
    """Return the feature of the first record that is its image."""
    for item in chain.from_iterable(map(read_shard, shards)):
        if isinstance(item, Record):
            with contextlib.suppress(ValueError):
                example = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE)
                return find_roles(example.features, info_beside(folder)).image
    return None


def _recipe(encode: str | None, resize: int | tuple[int, int] | None) -> ImageRecipe | None:
    """Return how images are encoded anew; None if they are not."""
    if encode is None and resize is None:
        return None
    if encode not in (None, "keep", "jpeg", "png"):
        raise UsageError("no such encoding", expected="keep, jpeg or png", found=repr(encode))
    return ImageRecipe(encode=Encode(encode or "keep"), resize=Resize.of(resize))
