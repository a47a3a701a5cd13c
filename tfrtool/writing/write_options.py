"""The options of write."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tfrtool.declare import option
from tfrtool.engines.engine import workers_option
from tfrtool.errors import enumeration
from tfrtool.examples.objects.record_features import Layout, Masks
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize, parse_size
from tfrtool.sources.annotations.annotation_kinds import KINDS
from tfrtool.sources.items import Starting
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.run_options import (
    SEEDS,
    CompressionOptions,
    JobSettings,
    check_splits,
    parse_names,
    parse_splits,
)

_USUAL = SourceOptions()


@dataclass(frozen=True, kw_only=True)
class WriteOptions(CompressionOptions):
    """What to write, and how."""

    label_from: str = option(
        "folder",
        "Take labels from folders (cat/1.jpg), from file names (cat.1.jpg), or from what REGEX "
        "finds in paths. Its group 'label' is the label, and other named groups become features.",
        metavar="folder|filename|REGEX",
        group="Source",
        common=True,
    )
    label_depth: int | None = option(
        None,
        "Depth of the class folders below SOURCE: 2 for SOURCE/2024/cat/1.jpg.  "
        "[default: detected]",
        metavar="N",
        group="Source",
        least=1,
        most=64,
    )
    root: Path | str | None = option(
        None,
        "Look for the files of a table, or of YOLO annotations, in DIR too, not only in their own "
        "folder.",
        metavar="DIR",
        group="Source",
        path="directory",
    )
    labels: str | os.PathLike[str] | None = option(
        None,
        "File of class names in order, one per line, or a label_map.pbtxt; or keep, to write "
        "integer labels unchanged.",
        metavar="FILE|keep",
        group="Labels and features",
        common=True,
    )
    path_column: str | None = option(
        None,
        "Table column with the paths of images.  [default: detected]",
        metavar="NAME",
        group="Source",
    )
    label_column: str | None = option(
        None,
        "Table column with the labels.  [default: detected]",
        metavar="NAME",
        group="Labels and features",
    )
    label_columns: Sequence[str] = option(
        (),
        "Table columns of 0 and 1, one per label; an image can have several labels.  "
        "[default: detected]",
        metavar="A,B",
        group="Labels and features",
        repeat=True,
        parse=parse_names,
    )
    split_labels: Sequence[str] = option(
        (),
        "File with the images of split NAME and their labels, for images that are not in class "
        "folders. Repeat for each split.  [default: detected]",
        metavar="NAME=FILE",
        group="Labels and features",
        repeat=True,
    )
    multi_label: str | None = option(
        None,
        "Read several labels per image, separated by SEPARATOR, such as ';'.",
        metavar="SEPARATOR",
        group="Labels and features",
    )
    class_map: Sequence[str] = option(
        (),
        "Rename class OLD, merge it with an existing class NEW, or leave it out (OLD=). FILE has "
        "two columns, OLD and NEW. Repeatable.",
        metavar="FILE|OLD=NEW",
        group="Labels and features",
        repeat=True,
    )
    only_classes: Sequence[str] = option(
        (),
        "Drop all classes but these.",
        metavar="A,B",
        group="Labels and features",
        repeat=True,
        parse=parse_names,
    )
    columns: Sequence[str] = option(
        (),
        "Also write this column of a table, as int64, float32 or string. Repeatable.",
        metavar="NAME[:DTYPE]",
        group="Labels and features",
        cli="--column",
        repeat=True,
    )
    all_columns: bool = option(
        False,
        "Also write all other columns of a table.",
        group="Labels and features",
        former="columns",
    )
    layout: Literal["tfds", "tfod"] | None = option(
        None,
        "Feature names of TFDS (image, label), or of the TF Object Detection API.  "
        "[default: tfds, or tfod with --annotations]",
        group="Labels and features",
    )
    annotations: str | Sequence[str] | None = option(
        None,
        "Add boxes and masks from PATH; SOURCE is the folder of images. "
        f"KIND is {enumeration([*KINDS], 'or')}. Repeat to merge several.",
        metavar="KIND:PATH",
        group="Annotations",
        repeat=True,
        common=True,
    )
    masks: Literal["polygons", "png", "none"] = option(
        "polygons",
        "Write masks as COCO polygons, as PNG images, or not at all.",
        group="Annotations",
    )
    min_box: float = option(
        0.0,
        "Drop boxes with a side shorter than this, in pixels of the annotated image.",
        metavar="PIXELS",
        group="Annotations",
        least=0,
    )
    skip_empty: bool = option(False, "Skip images without objects.", group="Annotations")
    splits: Mapping[str, float] | None = option(
        None,
        "Put this fraction of the images into a split. Repeat for each split. A SOURCE with its "
        "own splits requires --ignore-splits.  [default: all in train]",
        metavar="NAME=FRACTION",
        group="Splits and order",
        cli="--split",
        repeat=True,
        parse=parse_splits,
        common=True,
    )
    ignore_splits: bool = option(
        False, "Ignore the splits that SOURCE has.", group="Splits and order"
    )
    stratify: bool = option(
        False, "Keep class proportions the same in every split.", group="Splits and order"
    )
    group_by: str | None = option(
        None,
        "Keep images in the same split if they share a value in this column, or member of COCO's "
        "images, or a match of this regex on their file name.",
        metavar="COLUMN|REGEX",
        group="Splits and order",
    )
    seed: int = option(0, "Random seed for splits and order.", group="Splits and order", **SEEDS)
    shuffle: bool = option(
        True, "Sort images by file name instead of shuffling them.", group="Splits and order"
    )
    encode: Literal["keep", "jpeg", "png", "raw"] = option(
        "keep",
        "Keep valid JPEGs byte for byte and convert the rest, or encode every image as JPEG, PNG "
        "or raw pixels.",
        group="Images",
    )
    resize: int | tuple[int, int] | None = option(
        None,
        "Scale the shorter side to N pixels, or the image to exactly W x H.",
        metavar="N|WxH",
        group="Images",
        parse=parse_size,
        common=True,
    )
    quality: int = option(
        95, "Quality of newly encoded JPEGs.", metavar="Q", group="Images", least=1, most=100
    )
    orient: bool = option(
        True,
        "Rotate images upright according to their EXIF data.",
        group="Images",
        cli="--orient/--no-orient",
    )
    check: Literal["decode", "header", "tfds"] = option(
        "decode",
        "How to find bad images: decode them, check only JPEG headers (faster, but misses "
        "truncated files), or apply TFDS' rule for cats_vs_dogs.",
        group="Images",
    )
    dedupe: bool = option(
        False, "Skip exact duplicates and list them (exit code 3).", group="Images", common=True
    )
    on_error: Literal["skip", "stop"] = option(
        "skip",
        "Skip bad images and list them (exit code 3), or stop at the first.",
        group="Images",
        common=True,
    )
    dry_run: bool = option(
        False,
        "Check the images and show the plan, without writing anything.",
        group="Output",
        common=True,
    )
    workers: int | None = workers_option("threads", group="Execution")
    starting: Starting = option(
        nullcontext, "Returns a context manager that is active while TensorFlow loads.", cli=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "splits", dict(self.splits or {}))
        if self.splits or self.stratify or self.group_by:
            check_splits(self.splits or {}, self.stratify or self.group_by)
        _ = self.recipe, self.meaning  # which check their values

    @cached_property
    def recipe(self) -> ImageRecipe:
        """What to do with images."""
        return ImageRecipe(
            check=Check(self.check),
            encode=Encode(self.encode),
            resize=Resize.of(self.resize),
            quality=self.quality,
            orient=self.orient,
        )

    @cached_property
    def meaning(self) -> SourceOptions:
        """How the source is understood."""
        return SourceOptions(
            annotations=self.annotations or (),
            masks=Masks(self.masks),
            columns=tuple(self.columns),
            all_columns=self.all_columns,
            labels=None if self.labels is None else str(self.labels),
            multi_label=self.multi_label,
            path_column=self.path_column,
            label_column=self.label_column,
            label_columns=tuple(self.label_columns),
            label_depth=self.label_depth,
            split_labels=tuple(map(str, self.split_labels)),
            group_by=self.group_by,
            class_map=tuple(self.class_map),
            only_classes=tuple(self.only_classes),
            min_box=self.min_box,
            skip_empty=self.skip_empty,
            layout=Layout(self.layout) if self.layout else None,
        )

    @property
    def root_path(self) -> AnyPath | None:
        """The additional folder of a table."""
        return None if self.root is None else as_path(self.root)

    def to_json(self, settings: JobSettings) -> dict[str, Any]:
        """Return the options that decide what a dataset holds, for its report."""
        names = ("seed", "shuffle", "compression", "dedupe", "label_from")
        facts = {
            "name": settings.name,
            "version": settings.version,
            "splits": [f"{name}={share:g}" for name, share in (self.splits or {}).items()],
            "shards": self.shards,
            "shard_bytes": self.shard_bytes,
            **{name: getattr(self, name) for name in names},
            "root": self.root_path,
            **{name: True for name in ("stratify", "ignore_splits") if getattr(self, name)},
            **asdict(self.recipe),
        }
        usual = asdict(_USUAL)
        meaning = asdict(self.meaning).items()
        facts |= {key: value for key, value in meaning if value != usual[key]}
        return dict(to_json_values(facts))
